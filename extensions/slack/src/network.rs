//! The way to a socket of the service: a connection with TLS, and the opening of a WebSocket over it.
//!
//! The service names the address in its answer to a request. It is taken as it stands where it is encrypted, and without encryption only on
//! this machine.

use std::{net::IpAddr, sync::Arc, time::Duration};

use drupe_extension_api::prelude::*;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{http::Uri, protocol::WebSocketConfig},
};

/// Time for a connection to come about, with its TLS and its WebSocket.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest frame. What somebody wrote has at most 40,000 characters, and stands in it once as a text and once in blocks.
const LONGEST_FRAME: usize = 2 * 1024 * 1024;

/// Bytes to a host and back, with TLS around them or not.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

pub type Socket = WebSocketStream<Box<dyn Bytes>>;

/// Opens a WebSocket at an address.
pub async fn connect(address: &str) -> Result<Socket, Fault> {
    let target = Target::read(address)?;
    let late = || Fault::new(FaultCode::Timeout, format!("`{}` did not answer in time", target.host));
    tokio::time::timeout(CONNECT, opened(address, &target)).await.map_err(|_| late())?
}

async fn opened(address: &str, target: &Target) -> Result<Socket, Fault> {
    let Target { host, port, is_plain } = target;
    let unreachable = |why: String| {
        Fault::new(FaultCode::Unavailable, format!("`{host}` could not be reached at port {port}: {why}"))
    };
    let tcp =
        TcpStream::connect((host.as_str(), *port)).await.map_err(|error| unreachable(error.to_string()))?;
    // An acknowledgement is one small write; waiting for more of it would only cost time.
    let _ = tcp.set_nodelay(true);
    let bytes: Box<dyn Bytes> = match is_plain {
        true => Box::new(tcp),
        false => {
            let server = ServerName::try_from(host.clone()).map_err(|_| {
                Fault::invalid(format!("`{host}` is no name of which there is a certificate"))
            })?;
            let tls = TlsConnector::from(tls()?).connect(server, tcp).await;
            Box::new(tls.map_err(|error| unreachable(error.to_string()))?)
        }
    };
    let bounds =
        WebSocketConfig::default().max_message_size(Some(LONGEST_FRAME)).max_frame_size(Some(LONGEST_FRAME));
    let (socket, _) = client_async_with_config(address, bytes, Some(bounds))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    Ok(socket)
}

/// Where the address of a socket leads.
#[derive(Debug, PartialEq)]
struct Target {
    host: String,
    port: u16,
    is_plain: bool,
}

impl Target {
    /// What the address has beside the host is a ticket, so nothing of it is told in a fault.
    fn read(address: &str) -> Result<Self, Fault> {
        let odd = || Fault::invalid("the service named an address for the socket that is none");
        let uri: Uri = address.parse().map_err(|_| odd())?;
        let host = uri.host().ok_or_else(odd)?.trim_matches(['[', ']']).to_owned();
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let is_plain = match uri.scheme_str() {
            Some("wss") => false,
            Some("ws") if loopback => true,
            _ => {
                let message = format!(
                    "the service named `{host}` for the socket without encryption, and it is not this machine"
                );
                return Err(Fault::invalid(message));
            }
        };
        let port = uri.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
        Ok(Self { host, port, is_plain })
    }
}

fn tls() -> Result<Arc<ClientConfig>, Fault> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let message = "this machine has no certificates by which a server could be known";
        return Err(Fault::new(FaultCode::NotConfigured, message).help("install `ca-certificates`"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Fault::internal)?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_encrypted_or_on_this_machine() {
        for (address, host, port, is_plain) in [
            ("wss://wss-primary.slack.com/link/?ticket=a-b", "wss-primary.slack.com", 443, false),
            ("wss://127.0.0.1:8443/", "127.0.0.1", 8443, false),
            ("ws://127.0.0.1:81/link", "127.0.0.1", 81, true),
            ("ws://[::1]:81/link", "::1", 81, true),
            ("ws://localhost/", "localhost", 80, true),
        ] {
            let target = Target::read(address).expect(address);
            assert_eq!(target, Target { host: host.to_owned(), port, is_plain });
        }
        for address in [
            "",
            "ws://wss-primary.slack.com/?ticket=a-b",
            "ws://127.0.0.1.evil.example/?ticket=a-b",
            "ws://127.0.0.1@evil.example/?ticket=a-b",
            "https://slack.com/?ticket=a-b",
            "wss:///?ticket=a-b",
            "/link?ticket=a-b",
        ] {
            let fault = Target::read(address).expect_err(address);
            assert!(!fault.message.contains("a-b"), "{fault}");
        }
    }
}
