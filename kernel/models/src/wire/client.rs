//! A provider's HTTP client: one pool of connections for all its models.

use std::{
    fmt::Display,
    net::IpAddr,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use drupe_agent::ModelFault;
use drupe_extension_api::FailureClass;
use drupe_redact::Mask;
use reqwest::{
    Certificate, Client, Url,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect::Policy,
};

use super::{Api, tools::ToolLists};
use crate::{error::Unusable, settings::Endpoint, source::milliseconds};

/// A dead host shows itself well before the time for an answer is over.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below the minute or more after which servers and middleboxes drop idle connections.
const IDLE: Duration = Duration::from_secs(50);
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How much of what a provider says is looked at: what is said in more than this is no message.
const LONGEST_WORDS: usize = 16 << 10;
/// How much of it is shown.
const LONGEST_MESSAGE: usize = 900;

pub(crate) struct WireProvider {
    pub(super) stall: Duration,
    pub(super) lists: ToolLists,
    api: Box<dyn Api>,
    base: Url,
    headers: HeaderMap,
    /// For the key and the headers that may hold one.
    mask: Mask,
    authorities: Vec<Certificate>,
    /// Made when it is first needed: reading the system's certificates takes longer than all else at start.
    client: Mutex<Option<Client>>,
}

impl WireProvider {
    /// Checks all settings, and says which one is wrong. `api` is made for the address.
    pub(crate) fn new(
        endpoint: &Endpoint,
        stall_timeout_ms: u64,
        api: impl FnOnce(&Url) -> Result<Box<dyn Api>, Unusable>,
    ) -> Result<Self, Unusable> {
        let base = address(&endpoint.base_url)?;
        let api = api(&base)?;
        let key = endpoint.api_key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        // Deltas that a compressor holds back would come late.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, value) in api.headers() {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        if let Some(key) = key {
            let (name, before) = api.key_header();
            let wrong = || Unusable("the key holds characters that no header may".to_owned());
            let value = secret(&format!("{before}{key}")).ok_or_else(wrong)?;
            headers.insert(name, value);
        }
        for (name, value) in &endpoint.headers {
            let wrong = || Unusable(format!("header `{name}` is not valid"));
            headers
                .insert(HeaderName::try_from(name).map_err(|_| wrong())?, secret(value).ok_or_else(wrong)?);
        }
        let values = key.into_iter().chain(endpoint.headers.values().map(String::as_str));
        Ok(Self {
            stall: milliseconds(stall_timeout_ms),
            lists: ToolLists::default(),
            mask: Mask::of(values),
            authorities: authorities(endpoint.ca_file.as_deref())?,
            client: Mutex::new(None),
            api,
            base,
            headers,
        })
    }

    pub(super) fn api(&self) -> &dyn Api {
        &*self.api
    }

    /// Path behind the base address of vectors of texts; none where the server makes none.
    pub(crate) fn embeddings(&self) -> Option<&'static str> {
        self.api.embeddings()
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.api.kind()
    }

    /// Where requests to `model` go. Joined by hand: the standard way drops the last part of a path without a slash.
    pub(super) fn url(&self, model: &str) -> Url {
        let (path, query) = self.api.path(model);
        self.join(&path, query)
    }

    pub(super) fn join(&self, path: &str, query: Option<&str>) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path().trim_end_matches('/')));
        if let Some(query) = query {
            let all = match self.base.query() {
                Some(own) => format!("{own}&{query}"),
                None => query.to_owned(),
            };
            url.set_query(Some(&all));
        }
        url
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
            .tcp_nodelay(true)
            .http1_only();
        if is_loopback(&self.base) {
            // A proxy would look for the server on its own machine.
            builder = builder.no_proxy();
        }
        builder = match self.base.scheme() {
            // Without a proxy and without redirects no certificate is ever looked at, and reading them takes time.
            "http" if is_loopback(&self.base) => builder.tls_certs_only(Vec::new()),
            _ => builder.tls_certs_merge(self.authorities.clone()),
        };
        builder.build()
    }

    /// Puts the provider's name before a fault's message, and takes secrets out of it. Only then it is cut: a cut in the
    /// middle of a key would leave a part of it that nobody knows for one.
    pub(super) fn named(&self, name: &str, mut fault: ModelFault) -> ModelFault {
        let mut shown = self.shown(&fault.message);
        if let Some((end, _)) = shown.char_indices().nth(LONGEST_MESSAGE) {
            shown.truncate(end);
            shown.push('…');
        }
        fault.message = format!("`{name}`: {shown}");
        fault
    }

    /// A text of the provider's without secrets, and no more of it than anybody reads.
    pub(super) fn shown(&self, text: &str) -> String {
        let words = &text[..text.floor_char_boundary(LONGEST_WORDS)];
        let rest = if words.len() < text.len() { "…" } else { "" };
        self.mask.apply(words).into_owned() + rest
    }
}

fn address(base_url: &str) -> Result<Url, Unusable> {
    let url =
        Url::parse(base_url.trim()).map_err(|e| Unusable(format!("base_url is not an address: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(Unusable("base_url must begin with http:// or https://".to_owned()));
    }
    Ok(url)
}

fn authorities(file: Option<&Path>) -> Result<Vec<Certificate>, Unusable> {
    let Some(path) = file else { return Ok(Vec::new()) };
    let wrong = |e: &dyn Display| Unusable(format!("ca_file {}: {e}", path.display()));
    let pem = std::fs::read(path).map_err(|e| wrong(&e))?;
    let found = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(&e))?;
    if found.is_empty() { Err(wrong(&"holds no certificate")) } else { Ok(found) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gemini::GeminiApi, responses::ResponsesApi, settings::ProviderKind};

    fn endpoint(base_url: &str, key: Option<&str>) -> Endpoint {
        Endpoint {
            base_url: base_url.to_owned(),
            api_key: key.map(str::to_owned),
            headers: [("x-key".to_owned(), "sk-567890".to_owned())].into(),
            ca_file: None,
            dialect: None,
        }
    }

    fn provider(base_url: &str, key: Option<&str>) -> Result<WireProvider, Unusable> {
        WireProvider::new(&endpoint(base_url, key), 1_000, |_| Ok(Box::new(ResponsesApi)))
    }

    #[test]
    fn the_address_keeps_path_and_query_of_the_base() {
        for (base, url) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
            ("http://localhost:8080/", "http://localhost:8080/responses"),
            ("https://h/v1/?api-version=1", "https://h/v1/responses?api-version=1"),
        ] {
            assert_eq!(provider(base, None).map(|p| p.url("m").into()), Ok(url.to_owned()), "{base}");
        }
        for (base, url) in [
            ("https://h/v1beta", "https://h/v1beta/models/m:streamGenerateContent?alt=sse"),
            ("https://h/v1beta/?a=1", "https://h/v1beta/models/m:streamGenerateContent?a=1&alt=sse"),
        ] {
            let gemini = WireProvider::new(&endpoint(base, None), 1, |_| Ok(Box::new(GeminiApi)));
            assert_eq!(gemini.map(|p| p.url("m").into()), Ok(url.to_owned()), "{base}");
        }
        for bad in ["", "api.openai.com/v1", "file:///etc", "ftp://h"] {
            assert!(provider(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_that_no_header_can_hold_is_refused_without_being_shown() {
        let refused = provider("http://h", Some("a\nb")).err().map(|unusable| unusable.0);
        assert_eq!(refused.as_deref(), Some("the key holds characters that no header may"));
    }

    #[test]
    fn the_key_never_shows_in_a_message_or_in_settings() {
        for (key, said, told) in [
            ("sk-12345", "wrong key sk-12345 or sk-567890", "`p/m`: wrong key [secret] or [secret]"),
            ("none", "none of the models", "`p/m`: none of the models"),
        ] {
            let fault = ModelFault::fatal(FailureClass::Auth, said);
            let named = provider("http://h", Some(key)).map(|p| p.named("p/m", fault).message);
            assert_eq!(named.as_deref(), Ok(told));
        }
        let kind = ProviderKind::OpenAiChat(endpoint("http://h", Some("sk-12345")));
        assert!(!format!("{kind:?}").contains("sk-"), "{kind:?}");
    }
}
