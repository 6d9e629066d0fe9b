//! From an address to a body: politely, over redirects that are followed by hand, within one deadline.

use std::time::Duration;

use drupe_extension_api::{Fault, FaultCode};
use http_body_util::Full;
use hyper::{
    Request, StatusCode,
    body::Bytes,
    header::{ACCEPT, HeaderMap, LOCATION, RETRY_AFTER},
};
use jiff::{Timestamp, fmt::rfc2822};
use tokio::time::timeout;
use url::Url;

use crate::{
    address, clean,
    exchange::{self, Reply},
    hosts::Hosts,
    network::{Dialer, Trust},
    read::BodyKind,
};

/// Redirects of one call; browsers follow twenty, and honest pages need two.
const REDIRECTS: usize = 5;
/// What is preferred of what can be read.
const ACCEPTED: &str = "text/html, application/xhtml+xml, text/markdown, text/plain, application/json;q=0.9, application/pdf;q=0.9, */*;q=0.5";

/// Gets pages and asks search providers.
pub struct Fetcher {
    pub dialer: Dialer,
    pub hosts: Hosts,
    pub time: Duration,
    pub body_bytes: usize,
}

/// A body and where it is from in the end.
pub struct Fetched {
    pub url: Url,
    pub reply: Reply,
}

impl Fetcher {
    /// The page at an address, wherever that leads to.
    pub async fn page(&self, url: &Url) -> Result<Fetched, Fault> {
        self.in_time(self.follow(url)).await
    }

    /// One answer of a search provider, which must lead nowhere else.
    pub async fn answer(
        &self,
        url: &Url,
        trust: Trust,
        request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<Reply, Fault> {
        self.in_time(async {
            let reply =
                self.once(url, trust, request, most, &|status, _| Ok(!status.is_redirection())).await?;
            match reply.status.is_redirection() {
                true => Err(Fault::denied(format!(
                    "`{}` leads elsewhere, which is not followed",
                    url.authority()
                ))
                .help("give the final address as `extensions.web.search.address`")),
                false => Ok(reply),
            }
        })
        .await
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        timeout(self.time, work).await.unwrap_or_else(|_| {
            let message = format!("it took longer than the limit of {} ms", self.time.as_millis());
            Err(Fault::new(FaultCode::Timeout, message))
        })
    }

    async fn follow(&self, url: &Url) -> Result<Fetched, Fault> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS {
            let request = Request::get(path(&url)).header(ACCEPT, ACCEPTED).body(Full::default());
            let request = request.map_err(Fault::internal)?;
            let reply = self.once(&url, Trust::Nobody, request, self.body_bytes, &readable).await?;
            match reply.header(LOCATION) {
                Some(location) if leads_on(reply.status) => {
                    url = address::join(&url, location, self.dialer.allowed())?;
                }
                _ if reply.status.is_success() => return Ok(Fetched { url, reply }),
                _ => return Err(refusal(&url, &reply)),
            }
        }
        Err(Fault::denied(format!("`{}` is behind more than {REDIRECTS} redirects", address::shown(&url))))
    }

    async fn once(
        &self,
        url: &Url,
        trust: Trust,
        request: Request<Full<Bytes>>,
        most: usize,
        wanted: exchange::BodyWanted<'_>,
    ) -> Result<Reply, Fault> {
        let turn = self.hosts.turn(url.host_str().unwrap_or_default()).await?;
        let reply = exchange::ask(&self.dialer, url, trust, request, most, wanted).await?;
        if matches!(reply.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
            && let Some(time) = reply.header(RETRY_AFTER).and_then(|text| retry_after(text, Timestamp::now()))
        {
            turn.leave_alone(time);
        }
        Ok(reply)
    }
}

/// What stands in the first line of a request for an address.
pub fn path(url: &Url) -> String {
    url[url::Position::BeforePath..url::Position::AfterQuery].to_owned()
}

/// Whether a body is worth to be read, by its status and type.
fn readable(status: StatusCode, headers: &HeaderMap) -> Result<bool, Fault> {
    if !status.is_success() {
        return Ok(false);
    }
    let kind = exchange::kind(headers);
    match BodyKind::of(&kind) {
        Some(_) => Ok(true),
        None => {
            let message = format!("it is `{}`, which is not read", clean::line(&kind, 100));
            Err(Fault::new(FaultCode::Unsupported, message)
                .help("pages, PDFs, feeds, JSON and plain text are"))
        }
    }
}

fn leads_on(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Why there is nothing to read.
fn refusal(url: &Url, reply: &Reply) -> Fault {
    let status = reply.status;
    let mut message = format!("`{}` answered {status}", address::shown(url));
    if let Some(time) = reply.header(RETRY_AFTER).and_then(|text| retry_after(text, Timestamp::now())) {
        message += &format!(", and asks to be left alone for {} s", time.as_secs());
    }
    let code = match status.as_u16() {
        404 | 410 => FaultCode::NotFound,
        401 | 403 | 407 | 451 => FaultCode::Denied,
        429 => FaultCode::Busy,
        500..=599 => FaultCode::Unavailable,
        _ => FaultCode::Other,
    };
    Fault::new(code, message)
}

/// Seconds, or a moment (RFC 9110, 10.2.3).
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let moment = rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(moment.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_in_seconds_or_by_a_moment_how_long_it_is_to_be_left_alone() {
        let now: Timestamp = "2026-11-24T08:00:00Z".parse().expect("a moment");
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Tue, 24 Nov 2026 08:01:00 GMT", Some(60)),
            ("Tue, 24 Nov 2026 07:59:00 GMT", None),
            ("soon", None),
            ("-5", None),
        ] {
            assert_eq!(retry_after(text, now), seconds.map(Duration::from_secs), "{text}");
        }
    }

    #[test]
    fn a_request_names_the_path_and_the_query_and_nothing_else() {
        for (url, expected) in [
            ("http://a.example", "/"),
            ("http://a.example?q=1#there", "/?q=1"),
            ("http://a.example/x y?ä", "/x%20y?%C3%A4"),
        ] {
            assert_eq!(path(&Url::parse(url).expect(url)), expected);
        }
    }
}
