//! A provider's HTTP client: one pool of connections for all its models.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use reqwest::{
    Certificate, Client, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};

use super::{body::ToolLists, dialect::Dialect};
use crate::{
    settings::{ProviderKind, ProviderSettings},
    source::milliseconds,
};

/// A dead host shows itself well before the time for an answer is over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below the minute or more after which servers and middleboxes drop idle connections.
const IDLE: Duration = Duration::from_secs(50);
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// One server that speaks Chat Completions.
pub(crate) struct ChatProvider {
    pub(super) url: Url,
    pub(super) dialect: Dialect,
    pub(super) stall: Duration,
    pub(super) tools: ToolLists,
    headers: HeaderMap,
    key: Option<String>,
    authorities: Vec<Certificate>,
    /// Made when it is first needed: reading the system's certificates takes longer than all else at start.
    client: Mutex<Option<Client>>,
}

impl ChatProvider {
    /// Checks all settings, and says which one is wrong.
    pub(crate) fn new(settings: &ProviderSettings) -> Result<Self, String> {
        let ProviderKind::OpenAiChat { base_url, api_key, headers, ca_file } = &settings.kind else {
            return Err("is not of this kind".to_owned());
        };
        let url = endpoint(base_url)?;
        let key = api_key.as_deref().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned);
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        map.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = &key {
            map.insert(
                AUTHORIZATION,
                secret(&format!("Bearer {key}")).ok_or("the key holds characters that no header may")?,
            );
        }
        for (name, value) in headers {
            let wrong = || format!("header `{name}` is not valid");
            map.insert(HeaderName::try_from(name).map_err(|_| wrong())?, secret(value).ok_or_else(wrong)?);
        }
        let authorities = match ca_file {
            None => Vec::new(),
            Some(path) => {
                let wrong = |e: &dyn std::fmt::Display| format!("ca_file {}: {e}", path.display());
                let pem = std::fs::read(path).map_err(|e| wrong(&e))?;
                let found = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(&e))?;
                if found.is_empty() { Err(wrong(&"holds no certificate"))? } else { found }
            }
        };
        Ok(Self {
            dialect: Dialect::of(&url),
            stall: milliseconds(settings.stall_timeout_ms),
            tools: ToolLists::default(),
            headers: map,
            key,
            authorities,
            client: Mutex::new(None),
            url,
        })
    }

    pub(super) fn client(&self) -> Result<Client, ModelFault> {
        let mut slot = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*slot {
            return Ok(client.clone());
        }
        let client = self
            .connect()
            .map_err(|e| ModelFault::fatal(FailureClass::Config, format!("no HTTP client: {e}")))?;
        Ok(slot.insert(client).clone())
    }

    fn connect(&self) -> reqwest::Result<Client> {
        // Whoever was first decides for the process; any provider will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("drupe/", env!("CARGO_PKG_VERSION")))
            .default_headers(self.headers.clone())
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE)
            .tcp_keepalive(KEEP_ALIVE)
            .tcp_nodelay(true);
        if is_loopback(&self.url) {
            // A proxy would look for the server on its own machine.
            builder = builder.no_proxy();
        }
        builder = match self.url.scheme() {
            // Without a proxy and without redirects no certificate is ever looked at, and reading them takes time.
            "http" if is_loopback(&self.url) => builder.tls_certs_only(Vec::new()),
            _ => builder.tls_certs_merge(self.authorities.clone()),
        };
        builder.build()
    }

    /// Puts the provider's name before a fault's message, and takes the key out of it: some providers repeat it.
    pub(super) fn named(&self, name: &str, mut fault: ModelFault) -> ModelFault {
        if let Some(key) = &self.key {
            fault.message = fault.message.replace(key.as_str(), "[key]");
        }
        fault.message = format!("`{name}`: {}", fault.message);
        fault
    }
}

/// The address of requests. Joined by hand: the standard way drops the last part of a path without a slash.
fn endpoint(base_url: &str) -> Result<Url, String> {
    let mut url = Url::parse(base_url.trim()).map_err(|e| format!("base_url is not an address: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("base_url must begin with http:// or https://".to_owned());
    }
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What an exchange needs to outlive the model that began it.
pub(super) type Shared = Arc<ChatProvider>;

#[cfg(test)]
mod tests {
    use super::*;

    fn provider(base_url: &str, key: Option<&str>) -> Result<ChatProvider, String> {
        let kind = ProviderKind::OpenAiChat {
            base_url: base_url.to_owned(),
            api_key: key.map(str::to_owned),
            headers: Default::default(),
            ca_file: None,
        };
        ChatProvider::new(&ProviderSettings::new("p", kind))
    }

    #[test]
    fn the_address_keeps_path_and_query_of_the_base() {
        for (base, url) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            ("http://localhost:8080/", "http://localhost:8080/chat/completions"),
            ("https://h/v1/?api-version=1", "https://h/v1/chat/completions?api-version=1"),
        ] {
            assert_eq!(endpoint(base).map(String::from), Ok(url.to_owned()), "{base}");
        }
        for bad in ["", "api.openai.com/v1", "file:///etc", "ftp://h"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_that_no_header_can_hold_is_refused_without_being_shown() {
        let refused = provider("http://h", Some("a\nb")).err();
        assert_eq!(refused.as_deref(), Some("the key holds characters that no header may"));
    }

    #[test]
    fn the_key_never_shows_in_a_message_or_in_settings() {
        let fault = ModelFault::fatal(FailureClass::Auth, "wrong key sk-1234");
        let named = provider("http://h", Some("sk-1234")).map(|p| p.named("p/m", fault).message);
        assert_eq!(named.as_deref(), Ok("`p/m`: wrong key [key]"));
        let kind = ProviderKind::OpenAiChat {
            base_url: "http://h".to_owned(),
            api_key: Some("sk-1234".to_owned()),
            headers: [("x-key".to_owned(), "sk-5678".to_owned())].into(),
            ca_file: None,
        };
        let shown = format!("{:?}", ProviderSettings::new("p", kind));
        assert!(!shown.contains("sk-"), "{shown}");
    }
}
