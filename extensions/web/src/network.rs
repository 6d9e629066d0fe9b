//! The way to a host: its name is looked up here, every address that it has is checked, and the connection goes to one of
//! those very addresses. Nothing looks a name up a second time, and no proxy of the environment is asked.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use drupe_extension_api::{Fault, FaultCode};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::reach::{AllowList, special};

/// Of the addresses of one host, how many are tried.
const TRIED: usize = 3;

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// What the network is asked. A seam for tests alone, which must neither leave the machine nor depend on names.
pub trait Network: Send + Sync + 'static {
    /// The addresses of a name. Called once for each connection.
    fn resolve<'a>(&'a self, name: &'a str) -> Answer<'a, Vec<IpAddr>>;
    /// A connection to exactly this address.
    fn connect(&self, to: SocketAddr) -> Answer<'_, TcpStream>;
}

/// The resolver and the sockets of the system.
pub struct System;

impl Network for System {
    fn resolve<'a>(&'a self, name: &'a str) -> Answer<'a, Vec<IpAddr>> {
        Box::pin(async move { Ok(lookup_host((name, 0)).await?.map(|found| found.ip()).collect()) })
    }

    fn connect(&self, to: SocketAddr) -> Answer<'_, TcpStream> {
        Box::pin(TcpStream::connect(to))
    }
}

/// Whose word an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// A model's or a page's: it must be public, or be opened by the operator.
    Nobody,
    /// The operator's, of their configuration: it may be anything.
    Operator,
}

/// Bytes to a host and back, with TLS around them or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens connections to addresses that it has checked.
pub struct Dialer {
    network: Arc<dyn Network>,
    allowed: AllowList,
    /// Made when it is first needed: the system's certificates take longer to read than all else at the start.
    tls: Mutex<Option<Arc<ClientConfig>>>,
    more_roots: Vec<rustls::pki_types::CertificateDer<'static>>,
}

impl Dialer {
    /// `more_roots` are trusted beside the system's certificates.
    pub fn new(
        network: Arc<dyn Network>,
        allowed: AllowList,
        more_roots: Vec<rustls::pki_types::CertificateDer<'static>>,
    ) -> Self {
        Self { network, allowed, tls: Mutex::new(None), more_roots }
    }

    pub fn allowed(&self) -> &AllowList {
        &self.allowed
    }

    /// A connection to the host of an address, whose form was checked before.
    pub async fn open(&self, url: &Url, trust: Trust) -> Result<Box<dyn Stream>, Fault> {
        let port = url.port_or_known_default().unwrap_or(443);
        let (name, found) = match url.host() {
            Some(Host::Ipv4(address)) => (address.to_string(), vec![IpAddr::V4(address)]),
            Some(Host::Ipv6(address)) => (address.to_string(), vec![IpAddr::V6(address)]),
            Some(Host::Domain(name)) => (name.to_owned(), self.look_up(name).await?),
            None => return Err(Fault::invalid("the address names no host")),
        };
        if trust == Trust::Nobody {
            self.check(&name, &found)?;
        }
        let tcp = self.connect(&name, &found, port).await?;
        // A request is one write; waiting for more of it would only cost time.
        let _ = tcp.set_nodelay(true);
        if url.scheme() != "https" {
            return Ok(Box::new(tcp));
        }
        let server = ServerName::try_from(name.clone())
            .map_err(|_| Fault::invalid(format!("`{name}` is no name of which there is a certificate")))?;
        let tls = TlsConnector::from(self.tls()?).connect(server, tcp).await.map_err(|error| {
            Fault::new(FaultCode::Other, format!("`{name}` could not be reached safely: {error}"))
        })?;
        Ok(Box::new(tls))
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Fault> {
        let found = self.network.resolve(name).await.map_err(|error| {
            Fault::new(FaultCode::Unavailable, format!("the name `{name}` could not be looked up: {error}"))
        })?;
        match found.is_empty() {
            true => Err(Fault::not_found(format!("the name `{name}` has no address"))),
            false => Ok(found),
        }
    }

    /// All of them must do: of a name that has a public and a private address nobody knows which one is meant.
    fn check(&self, name: &str, found: &[IpAddr]) -> Result<(), Fault> {
        if self.allowed.host(name) {
            return Ok(());
        }
        for address in found {
            if let Some(what) = special(*address).filter(|_| !self.allowed.address(*address)) {
                let whose = match *name == address.to_string() {
                    true => format!("`{name}` is not read"),
                    false => format!("`{name}` is not read: its address {address} is not public"),
                };
                return Err(Fault::denied(format!("{whose}: it belongs to {what}"))
                    .help("the operator can open it with `extensions.web.allow`"));
            }
        }
        Ok(())
    }

    async fn connect(&self, name: &str, found: &[IpAddr], port: u16) -> Result<TcpStream, Fault> {
        let mut last = None;
        for address in found.iter().take(TRIED) {
            match self.network.connect(SocketAddr::new(*address, port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        let why = last.map(|error| error.to_string()).unwrap_or_default();
        Err(Fault::new(
            FaultCode::Unavailable,
            format!("`{name}` could not be reached at port {port}: {why}"),
        ))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, Fault> {
        let mut slot = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*slot {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.more_roots.iter().cloned());
        if roots.is_empty() {
            let message = "this machine has no certificates by which a server could be known";
            return Err(Fault::new(FaultCode::NotConfigured, message).help("install `ca-certificates`"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Fault::internal)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::clone(slot.insert(Arc::new(config))))
    }
}
