use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
};

use drupe_extension_api::Fault;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
};

use super::support::{Fake, Server, fetcher, get, page};
use crate::network::{Dialer, Network};

/// A server with a certificate of its own for `public.example`, and that certificate.
fn server() -> (std::net::SocketAddr, CertificateDer<'static>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["public.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key));
    let config = Arc::new(config.expect("a configuration"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
            let mut stream = StreamOwned::new(connection, stream);
            // Who trusts no such certificate says so instead of asking.
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(&page("<p>Safe."));
            }
        }
    });
    (address, cert.der().clone())
}

fn try_it(to: std::net::SocketAddr, url: &str, roots: &[CertificateDer<'static>]) -> Result<Vec<u8>, Fault> {
    let fake = Arc::<Fake>::default()
        .name("public.example", &[&["93.184.216.34"]])
        .name("other.example", &[&["93.184.216.34"]])
        .at("93.184.216.34:443", to);
    let mut fetcher = fetcher(&fake, &[]);
    let allowed = fetcher.dialer.allowed().clone();
    fetcher.dialer = Dialer::new(fake as Arc<dyn Network>, allowed, roots.to_vec());
    get(&fetcher, url).map(|fetched| fetched.reply.body)
}

#[test]
fn a_certificate_must_be_trusted_and_be_of_the_name() {
    let (address, root) = server();
    let (_, other) = server();
    let body = try_it(address, "https://public.example/", std::slice::from_ref(&root));
    assert_eq!(body.as_deref(), Ok(b"<p>Safe.".as_slice()));
    for (url, roots) in [
        ("https://other.example/", [root.clone()]),
        ("https://93.184.216.34/", [root]),
        ("https://public.example/", [other]),
    ] {
        let fault = try_it(address, url, &roots).expect_err(url);
        assert!(fault.message.contains("could not be reached safely"), "{fault}");
    }
}

#[test]
fn a_host_without_tls_is_not_asked_over_https() {
    let plain = Server::start(|_| page("<p>Plain."));
    let (_, root) = server();
    let fault = try_it(plain.address, "https://public.example/", &[root]).expect_err("it speaks no TLS");
    assert!(fault.message.contains("could not be reached safely"), "{fault}");
}
