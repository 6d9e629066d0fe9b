//! Searches: one way to ask, and what differs between providers behind [`SearchApi`].

mod brave;
mod searxng;
mod tavily;

use std::fmt::Write as _;

use drupe_extension_api::{Fault, FaultCode};
use http_body_util::Full;
use hyper::{Request, StatusCode, body::Bytes, header::RETRY_AFTER};
use serde_json::Value;
use url::Url;

use crate::{
    address, clean,
    exchange::{self, Reply},
    fetch::Fetcher,
    network::Trust,
    read,
    settings::{SearchProvider as Which, SearchSettings},
};

/// The longest query, in characters: Brave takes no more, and Tavily advises against more.
const QUERY: usize = 400;
/// The largest answer; twenty results with their texts have below 100 KiB.
const ANSWER: usize = 2 << 20;
/// Characters of a title and of a text that are shown.
const TITLE: usize = 200;
const TEXT: usize = 600;

/// What a provider is asked for.
pub struct SearchQuery {
    pub text: String,
    /// Results, from 1 to 20.
    pub count: usize,
    /// Which page, counted from 1 on.
    pub page: usize,
}

/// What a provider found, as it wrote it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub title: String,
    pub address: String,
    pub text: String,
    pub day: String,
}

/// One search API. Pure: it writes a request and reads an answer, and reaches nothing.
pub trait SearchApi: Send + Sync {
    /// Its name as people write it.
    fn name(&self) -> &'static str;
    /// Where it is, where the operator names no other place.
    fn usual(&self) -> Option<&'static str>;
    /// The last page that can be asked for.
    fn pages(&self) -> usize;
    /// The request below the address of the service, and where it goes.
    fn request(&self, base: &Url, query: &SearchQuery) -> Result<(Url, Request<Full<Bytes>>), Fault>;
    /// The results of an answer; a fault says what it is instead.
    fn results(&self, answer: &Value) -> Result<Vec<Found>, &'static str>;
    /// What an operator may do about a status, where the API gives one a meaning of its own.
    fn advice(&self, _: StatusCode) -> Option<&'static str> {
        None
    }
}

/// Searches with the provider that the operator chose.
pub struct Search {
    provider: Box<dyn SearchApi>,
    base: Url,
    trust: Trust,
}

impl Search {
    /// By the configuration; a fault says why there are no searches.
    pub fn new(settings: &SearchSettings) -> Result<Self, Fault> {
        let key = settings.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        let provider: Box<dyn SearchApi> = match (settings.provider, key) {
            (Which::Searxng, None) => Box::new(searxng::Searxng),
            (Which::Searxng, Some(_)) => {
                return Err(missing("`searxng` takes no key").help("leave out `extensions.web.search.key`"));
            }
            (Which::Brave, Some(key)) => Box::new(brave::Brave::new(key)?),
            (Which::Tavily, Some(key)) => Box::new(tavily::Tavily::new(key)?),
            (Which::Brave | Which::Tavily, None) => {
                return Err(missing("its provider needs a key").help("give `extensions.web.search.key`"));
            }
        };
        let (base, trust) = match settings.address.as_deref().map(str::trim).filter(|given| !given.is_empty())
        {
            Some(given) => (given, Trust::Operator),
            None => match provider.usual() {
                Some(usual) => (usual, Trust::Nobody),
                None => {
                    return Err(missing("its provider has no address")
                        .help("give `extensions.web.search.address`, as `http://127.0.0.1:8888`"));
                }
            },
        };
        Ok(Self { provider, base: base_of(base)?, trust })
    }

    /// Asks, and writes down what was found.
    pub async fn ask(&self, fetcher: &Fetcher, query: SearchQuery) -> Result<String, Fault> {
        let characters = query.text.chars().count();
        if query.text.trim().is_empty() || characters > QUERY {
            return Err(Fault::invalid(format!(
                "a query has 1 to {QUERY} characters, this one {characters}"
            )));
        }
        let (name, pages) = (self.provider.name(), self.provider.pages());
        if query.page > pages {
            let message = format!("page {} was asked for, and {name} gives {pages} at most", query.page);
            return Err(Fault::invalid(message));
        }
        let (url, request) = self.provider.request(&self.base, &query)?;
        let mut reply = fetcher.answer(&url, self.trust, request, ANSWER).await?;
        exchange::decompress(&mut reply, ANSWER)?;
        if !reply.status.is_success() {
            return Err(self.refusal(&reply));
        }
        let strange = |why: String| {
            Fault::new(FaultCode::Other, format!("{name} answered what is not understood: {why}"))
        };
        let answer: Value =
            serde_json::from_slice(&reply.body).map_err(|error| strange(error.to_string()))?;
        let found = self.provider.results(&answer).map_err(|why| strange(why.to_owned()))?;
        Ok(written(name, &query, &found))
    }

    fn refusal(&self, reply: &Reply) -> Fault {
        let (name, status) = (self.provider.name(), reply.status);
        let mut message = format!("{name} answered {status}");
        if let Some(time) = reply.header(RETRY_AFTER) {
            message += &format!(", and asks to be left alone for {} (Retry-After)", clean::line(time, 60));
        }
        let code = match status.as_u16() {
            401 | 403 => FaultCode::NotConfigured,
            429 | 432 | 433 => FaultCode::Busy,
            500..=599 => FaultCode::Unavailable,
            _ => FaultCode::Other,
        };
        let fault = Fault::new(code, message);
        match self.provider.advice(status) {
            Some(advice) => fault.help(advice),
            None => fault,
        }
    }
}

fn missing(why: &str) -> Fault {
    Fault::new(FaultCode::NotConfigured, format!("there is no `web_search`: {why}"))
}

/// An address of the configuration, to which paths can be added.
fn base_of(text: &str) -> Result<Url, Fault> {
    let wrong = |why: &str| missing(&format!("`search.address` {why}"));
    let mut url = Url::parse(text).map_err(|error| wrong(&format!("is not an address: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(wrong("is no address of http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(wrong("holds a user's name, a password or a query"));
    }
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// An address below the base.
fn below(base: &Url, path: &str) -> Result<Url, Fault> {
    base.join(path).map_err(Fault::internal)
}

/// A text of an answer; an empty one where there is none.
fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn written(name: &str, query: &SearchQuery, found: &[Found]) -> String {
    let asked = clean::line(&query.text, QUERY);
    let shown: Vec<&Found> = found.iter().filter(|one| is_address(&one.address)).take(query.count).collect();
    if shown.is_empty() {
        return format!("{name} found nothing for `{asked}` on page {}.", query.page);
    }
    let mut out = format!("{name} found for `{asked}`, page {}:\n", query.page);
    let until = std::time::Instant::now() + read::TIME;
    for (number, one) in (1..).zip(&shown) {
        let title = read::plain(&one.title, TITLE, until);
        let title = if title.is_empty() { "(no title)" } else { &title };
        let _ = write!(out, "\n{number}. {title}\n   {}\n", one.address);
        if !one.day.is_empty() {
            let _ = writeln!(out, "   {}", clean::line(&one.day, 40));
        }
        let text = read::plain(&one.text, TEXT, until);
        if !text.is_empty() {
            let _ = writeln!(out, "   {text}");
        }
    }
    let more = found.len().saturating_sub(shown.len());
    if more > 0 {
        let _ =
            write!(out, "\n{more} further results of this page are not shown; `count` is {}.\n", query.count);
    }
    out
}

/// Whether it is an address that could be read at all.
fn is_address(text: &str) -> bool {
    text.len() <= address::LONGEST
        && Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        && clean::visible(text).left_out == 0
        && !text.contains(char::is_whitespace)
}
