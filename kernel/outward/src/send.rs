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
    Client, Response,
    header::{ACCEPT_ENCODING, HeaderMap, HeaderValue},
    redirect::Policy,
};
use tokio::time::timeout;

use crate::{
    LONGEST_ANSWER,
    fill::BoundValue,
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
    /// secret.
    pub async fn send<'a>(
        &self,
        request: &OutwardRequest,
        secrets: impl Iterator<Item = (Option<BoundValue<'a>>, &'a [String])>,
    ) -> Result<OutwardResponse, Fault> {
        let url = address(&request.url)?;
        let bound = secrets.filter(|(_, hosts)| hosts.iter().any(|host| leads_to(&url, host)));
        let bound: Vec<Option<BoundValue<'_>>> = bound.map(|(value, _)| value).collect();
        if bound.is_empty() {
            return Err(not_bound(&url));
        }
        let values: Vec<BoundValue<'_>> = bound.into_iter().flatten().collect();
        let local = url.scheme() == "http";
        let FilledRequest { method, url, headers, body } = FilledRequest::of(request, url, &values)?;
        let mut builder = self.client(local)?.request(method, url).headers(headers);
        if let Some(body) = body {
            builder = builder.body(body);
        }
        let within = Duration::from_millis(request.timeout_ms).min(LONGEST);
        let answered = timeout(within, async { answer(builder.send().await.map_err(failed)?).await }).await;
        answered.unwrap_or_else(|_| {
            let message = format!("no whole answer came within {} ms", within.as_millis());
            Err(Fault::new(FaultCode::Timeout, message))
        })
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

async fn answer(mut response: Response) -> Result<OutwardResponse, Fault> {
    let status = response.status().as_u16();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
    let headers: Vec<(String, String)> = headers.collect();
    let encoded = headers.iter().any(|(name, value)| name == "content-encoding" && value != "identity");
    if encoded {
        return Err(Fault::invalid("the answer is compressed, which was not asked for"));
    }
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.map_err(failed)? {
        if body.len() + bytes.len() > LONGEST_ANSWER {
            let message = format!("the answer is longer than {LONGEST_ANSWER} bytes");
            return Err(Fault::invalid(message));
        }
        body.extend_from_slice(&bytes);
    }
    // What is no text could not be looked through for the secret.
    let body = String::from_utf8(body).map_err(|_| Fault::invalid("the answer is no text in UTF-8"))?;
    Ok(OutwardResponse { status, headers, body })
}
