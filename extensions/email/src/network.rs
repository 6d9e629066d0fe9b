//! The ways to the two servers: encrypted and to whom the certificate says, or to this machine.

use std::{fmt, sync::Arc, time::Duration};

use drupe_extension_api::prelude::*;
use lettre::transport::smtp::client::{Certificate, CertificateStore, TlsParameters};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::settings::{Encryption, MailAccount, MailServer};

/// Time for a connection to come about, with its TLS.
pub const CONNECT: Duration = Duration::from_secs(10);

/// ServerStream to a server and back, with TLS around them or not.
pub trait ServerStream: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + fmt::Debug> ServerStream for T {}

/// What servers are known by. Reading the certificates of the system takes long, so it is done once. Clones are the same.
#[derive(Clone)]
pub struct Trusted {
    reading: Arc<ClientConfig>,
    /// The same for the client of the server that sends; none where that is spoken to without encryption.
    pub sending: Option<TlsParameters>,
}

impl Trusted {
    /// The authorities of the configuration, or those of the system. Where no server needs any, there are none.
    pub fn new(account: &MailAccount) -> Result<Self, Fault> {
        let encrypted = |server: &MailServer| server.encryption != Encryption::Plain;
        let mut roots = RootCertStore::empty();
        if let Some(pem) = &account.authority {
            for found in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                found.ok().and_then(|found| roots.add(found).ok()).ok_or_else(no_authority)?;
            }
            if roots.is_empty() {
                return Err(no_authority());
            }
        } else if encrypted(&account.imap) || encrypted(&account.smtp) {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                let message = "this machine has no certificates by which a server could be known";
                return Err(Fault::new(FaultCode::NotConfigured, message).help("install `ca-certificates`"));
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(Fault::internal)?;
        let reading = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let sending = encrypted(&account.smtp).then(|| {
            let mut parameters = TlsParameters::builder(account.smtp.host.clone());
            if let Some(pem) = &account.authority {
                let authority = Certificate::from_pem(pem.as_bytes()).map_err(|_| no_authority())?;
                parameters =
                    parameters.certificate_store(CertificateStore::None).add_root_certificate(authority);
            }
            parameters.build_rustls().map_err(Fault::internal)
        });
        Ok(Self { reading, sending: sending.transpose()? })
    }

    /// Connects to a server that is to be read from.
    pub async fn connect(&self, server: &MailServer) -> Result<Box<dyn ServerStream>, Fault> {
        let MailServer { host, port, .. } = server;
        let late =
            || Fault::new(FaultCode::Timeout, format!("`{host}` did not answer in time at port {port}"));
        tokio::time::timeout(CONNECT, self.connected(server)).await.map_err(|_| late())?
    }

    async fn connected(
        &self,
        MailServer { host, port, encryption }: &MailServer,
    ) -> Result<Box<dyn ServerStream>, Fault> {
        let unreachable = |error: std::io::Error| {
            Fault::new(
                FaultCode::Unavailable,
                format!("`{host}` could not be reached at port {port}: {error}"),
            )
        };
        let tcp = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
        if *encryption == Encryption::Plain {
            return Ok(Box::new(tcp));
        }
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Fault::invalid(format!("`{host}` is no name of which there is a certificate")))?;
        let tls = TlsConnector::from(self.reading.clone()).connect(name, tcp).await;
        Ok(Box::new(tls.map_err(unreachable)?))
    }
}

fn no_authority() -> Fault {
    Fault::invalid("`extensions.email.authority` is no certificate in PEM")
        .help("write it as it stands in its file, from `-----BEGIN CERTIFICATE-----` on")
}
