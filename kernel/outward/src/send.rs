//! One request and its answer.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use drupe_extension_api::{
    Fault, FaultCode,
    wire::{OutwardRequest, OutwardResponse},
};
use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use tokio::time::timeout;

use crate::{
    LONGEST_ANSWER,
    fill::{BoundHosts, BoundValue},
    form::{MultipartForm, OpenedFile},
    request::{FilledRequest, address, leads_to, not_bound},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time for a request and the whole of its answer.
const LONGEST: Duration = Duration::from_secs(120);

/// Sends requests. Connections are kept for the next one to the same host.
#[derive(Default)]
pub struct OutwardClient {
    /// For this machine, and for all others. Each is made when it is first needed: reading the system's certificates takes long.
    clients: Mutex<[Option<Client>; 2]>,
}

impl OutwardClient {
    /// Sends a request, with those of `secrets` filled in that are bound to its host. `secrets` are each a value, of one that has one, with
    /// the hosts that it is bound to; to a host that none of them names nothing is sent. No redirect is followed.
    ///
    /// # Errors
    /// [`FaultCode::Denied`] for such a host, [`FaultCode::Invalid`] for what is no request, and what becomes of one on its way. None holds a
    /// secret. `file` gives the file of a delivery that its form names.
    pub async fn send<'a, 'f>(
        &self,
        request: &OutwardRequest,
        file: impl Fn(String) -> OpenedFile<'f>,
        secrets: impl Iterator<Item = BoundHosts<'a>>,
    ) -> Result<OutwardResponse, Fault> {
        let (mut sending, _) = self.prepared(request, secrets)?;
        if !request.form.is_empty() {
            let MultipartForm { content_type, length, body } = MultipartForm::of(&request.form, file).await?;
            sending = sending.header(CONTENT_TYPE, content_type).header(CONTENT_LENGTH, length).body(body);
        }
        in_time(request, async { answer(sending.send().await.map_err(failed)?).await }).await
    }

    /// [`send`](Self::send) without files, for a program that does nothing else meanwhile: it waits for the same answer or error.
    pub fn send_alone<'a>(
        request: &OutwardRequest,
        secrets: impl Iterator<Item = BoundHosts<'a>>,
    ) -> Result<OutwardResponse, Fault> {
        let no_file = |_| -> OpenedFile<'static> {
            Box::pin(async { Err(Fault::invalid("a form with files is sent by a daemon")) })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Self::default().send(request, no_file, secrets))
    }

    /// The same for an answer that is a file of any length, which `take` gets in parts and may refuse; gives the status. What comes with
    /// another status than 200 is not taken.
    ///
    /// # Errors
    /// The same, those of `take`, and [`FaultCode::Denied`] where the file holds a secret that was bound to the host.
    pub async fn fetch<'a>(
        &self,
        request: &OutwardRequest,
        secrets: impl Iterator<Item = BoundHosts<'a>>,
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<u16, Fault> {
        let (sending, values) = self.prepared(request, secrets)?;
        let fetching = async {
            let response = sending.send().await.map_err(failed)?;
            let (status, mut watch) = (response.status(), SecretWatch::new(&values));
            if status == StatusCode::OK {
                refuse_unwanted(request, response.headers())?;
                let watched = |part: &[u8]| match watch.found(part) {
                    true => Err(Fault::denied("the answer holds a secret that was sent with the request")),
                    false => take(part),
                };
                in_parts(response, watched).await?;
            }
            Ok(status.as_u16())
        };
        in_time(request, fetching).await
    }

    /// A request with what is bound to its host, and that.
    fn prepared<'a>(
        &self,
        request: &OutwardRequest,
        secrets: impl Iterator<Item = BoundHosts<'a>>,
    ) -> Result<(RequestBuilder, Vec<BoundValue<'a>>), Fault> {
        let url = address(&request.url)?;
        let leads = |(_, hosts): &BoundHosts<'_>| hosts.iter().any(|host| leads_to(&url, host));
        let mut bound = secrets.filter(leads).peekable();
        if bound.peek().is_none() {
            return Err(not_bound(&url));
        }
        let values: Vec<BoundValue<'_>> = bound.filter_map(|(value, _)| value).collect();
        let local = url.scheme() == "http";
        let FilledRequest { method, url, headers, body } = FilledRequest::of(request, url, &values)?;
        let builder = self.client(local)?.request(method, url).headers(headers);
        Ok((body.into_iter().fold(builder, RequestBuilder::body), values))
    }

    fn client(&self, local: bool) -> Result<Client, Fault> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut clients[usize::from(local)];
        if let Some(client) = slot {
            return Ok(client.clone());
        }
        // Whoever was first decides for the process; any provider will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .user_agent(concat!("drupe/", env!("CARGO_PKG_VERSION")))
            // Whoever asks is told where it leads: the next host may not be one that the secret is bound to.
            .redirect(Policy::none())
            .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
            .connect_timeout(CONNECT_TIMEOUT)
            .http1_only();
        if local {
            // A proxy would look for the server on its own machine, and no certificate is ever looked at.
            builder = builder.no_proxy().tls_certs_only(Vec::new());
        }
        let client = builder.build().map_err(|error| Fault::internal(error.without_url()))?;
        Ok(slot.insert(client).clone())
    }
}

/// What became of a request, without its address, which holds what was filled in.
fn failed(error: reqwest::Error) -> Fault {
    let code = if error.is_connect() { FaultCode::Unavailable } else { FaultCode::Other };
    Fault::new(code, format!("the request failed: {}", causes(&error.without_url())))
}

/// An error with what lies behind it.
fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", causes(source)),
        None => error.to_string(),
    }
}

/// Waits for an answer as long as the request says.
async fn in_time<T>(
    request: &OutwardRequest,
    answering: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    let within = Duration::from_millis(request.timeout_ms).min(LONGEST);
    timeout(within, answering).await.unwrap_or_else(|_| {
        let message = format!("no whole answer came within {} ms", within.as_millis());
        Err(Fault::new(FaultCode::Timeout, message))
    })
}

/// Refuses what came as a type that the request gives no weight (`accept: text/html;q=0`, RFC 9110, 12.4.2): by it alone a page that some servers
/// give in place of a file, with the status of one, is known.
fn refuse_unwanted(request: &OutwardRequest, headers: &HeaderMap) -> Result<(), Fault> {
    let said = headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let kind = said.split(';').next().unwrap_or_default().trim();
    let accepts = request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
    let mut ranges =
        accepts.flat_map(|(_, ranges)| ranges.split(',')).filter_map(|range| range.split_once(';'));
    let unwanted =
        ranges.find(|(range, weight)| weight.trim() == "q=0" && range.trim().eq_ignore_ascii_case(kind));
    match unwanted {
        Some((range, _)) => {
            Err(Fault::invalid(format!("it came as `{}`, which was not asked for", range.trim())))
        }
        None => Ok(()),
    }
}

/// Reads the body of an answer.
async fn in_parts(
    mut response: Response,
    mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    if response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Fault::invalid("the answer is compressed, which was not asked for"));
    }
    while let Some(part) = response.chunk().await.map_err(failed)? {
        take(&part)?;
    }
    Ok(())
}

/// Looks for secrets in what comes in parts, wherever it is cut.
struct SecretWatch<'a> {
    secrets: Vec<&'a [u8]>,
    /// The end of what came so far, in which one may have begun.
    seen: Vec<u8>,
}

impl<'a> SecretWatch<'a> {
    fn new(values: &[BoundValue<'a>]) -> Self {
        let secrets = values.iter().map(|bound| bound.value.as_bytes()).filter(|value| !value.is_empty());
        Self { secrets: secrets.collect(), seen: Vec::new() }
    }

    /// Whether one ends in this part.
    fn found(&mut self, part: &[u8]) -> bool {
        self.seen.extend_from_slice(part);
        let found = self.secrets.iter().any(|secret| memchr::memmem::find(&self.seen, secret).is_some());
        let longest = self.secrets.iter().map(|secret| secret.len()).max().unwrap_or(1);
        self.seen.drain(..(self.seen.len() + 1).saturating_sub(longest).min(self.seen.len()));
        found
    }
}

async fn answer(response: Response) -> Result<OutwardResponse, Fault> {
    let status = response.status().as_u16();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    let headers: Vec<(String, String)> = headers.collect();
    let mut body = Vec::new();
    let take = |part: &[u8]| {
        body.extend_from_slice(part);
        if body.len() > LONGEST_ANSWER {
            return Err(Fault::invalid(format!("the answer is longer than {LONGEST_ANSWER} bytes")));
        }
        Ok(())
    };
    in_parts(response, take).await?;
    // What is no text could not be looked through for the secret.
    let body = String::from_utf8(body).map_err(|_| Fault::invalid("the answer is no text in UTF-8"))?;
    Ok(OutwardResponse { status, headers, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_what_comes_is_cut() {
        let values = [BoundValue { name: "A", value: "abcdef" }, BoundValue { name: "B", value: "xy" }];
        let found = |parts: &[&str]| {
            let mut watch = SecretWatch::new(&values);
            parts.iter().any(|part| watch.found(part.as_bytes()))
        };
        let text = "12abcdef34";
        for one in 0..text.len() {
            for two in one..text.len() {
                assert!(found(&[&text[..one], &text[one..two], &text[two..]]), "{one} {two}");
            }
        }
        assert!(found(&["x", "y"]) && !found(&["abcde", "ghi", "x", "", "z"]));
    }
}
