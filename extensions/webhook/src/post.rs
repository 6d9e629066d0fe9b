//! One message on its way to an endpoint, and what became of it.
//!
//! What a status means is as the specification has it ("Delivery success and failure", read on 2026-11-27). A message that was not taken, or
//! of which nobody knows, is `busy` to the daemon: it comes again, and those of other conversations go on.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use drupe_extension_api::prelude::*;
use reqwest::{Client, StatusCode, Url, redirect};
use serde_json::json;

use crate::{
    address::address,
    settings::EndpointSettings,
    signature::{SigningKeys, message_id},
};

/// Time for the answer: the specification advises 15 to 30 s, and the daemon gives a message 30.
const TIME: Duration = Duration::from_secs(20);
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// How long nothing is sent to an endpoint that is overloaded and does not say for how long.
const HELD: Duration = Duration::from_secs(10);
/// What nobody would wait for is asked about again within the hour.
const LONGEST_HELD: Duration = Duration::from_secs(3600);

/// An address that messages go to.
pub struct WebhookEndpoint {
    name: String,
    url: Url,
    keys: SigningKeys,
    /// Until when it takes nothing.
    held: Mutex<Option<Instant>>,
    /// It has said that it wants nothing any more. A start of this process asks it again.
    is_gone: AtomicBool,
}

impl WebhookEndpoint {
    /// Fails where the address or a secret is none, with the key that has it.
    pub fn new(name: &str, settings: EndpointSettings) -> Result<Self, Fault> {
        let EndpointSettings { url, secret, previous_secret } = settings;
        let key = format!("extensions.webhook.endpoints.{name}");
        let url = address(&url).ok_or_else(|| {
            Fault::invalid(format!("`{key}.url` is no address that messages can go to"))
                .help("write one that begins with `https://` and holds no password; `http://` is for this machine alone")
        })?;
        let keys = SigningKeys::new([Some(secret), previous_secret].iter().flatten().map(String::as_str));
        let keys = keys.ok_or_else(|| {
            Fault::invalid(format!(
                "a secret of `{key}` is not `whsec_` with 24 to 64 bytes in base64 behind it"
            ))
            .help("`echo whsec_$(openssl rand -base64 32)` makes one; its receiver needs the same")
        })?;
        Ok(Self { name: name.to_owned(), url, keys, held: Mutex::new(None), is_gone: AtomicBool::new(false) })
    }

    fn waits(&self) -> Option<Duration> {
        let held = *self.held();
        held.map(|until| until.saturating_duration_since(Instant::now())).filter(|waits| !waits.is_zero())
    }

    fn held(&self) -> MutexGuard<'_, Option<Instant>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends messages to endpoints, through one client.
pub struct EndpointClient {
    host: Host,
    /// Made when it is first needed: reading the system's certificates takes long.
    client: Mutex<Option<Client>>,
}

/// What an endpoint said of a message, by its status.
#[derive(Debug, PartialEq)]
pub enum EndpointAnswer {
    Taken,
    /// It wants no message any more.
    Gone,
    /// It takes nothing for a while.
    Overloaded,
    /// It did not take this one, and may take it later.
    Failed,
    Refused,
}

impl EndpointClient {
    pub fn new(host: Host) -> Self {
        Self { host, client: Mutex::new(None) }
    }

    /// Sends a message. What may have arrived may come again, since it is known there by its id.
    pub async fn send(
        &self,
        endpoint: &WebhookEndpoint,
        message: &OutboundMessage,
    ) -> Result<Delivery, Fault> {
        let name = &endpoint.name;
        if endpoint.is_gone.load(Ordering::Relaxed) {
            let message = format!("`{name}` has said that it wants no messages any more (410)");
            return Err(Fault::denied(message).help("`drupe restart` asks it again"));
        }
        if let Some(waits) = endpoint.waits() {
            let message = format!("`{name}` takes no messages for {} seconds", waits.as_secs() + 1);
            return Err(Fault::new(FaultCode::Busy, message));
        }
        let id = message_id(&message.delivery);
        let body = body(&id, message);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let request = self
            .client()
            .await?
            .post(endpoint.url.clone())
            .header("content-type", "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", endpoint.keys.sign(&id, now, &body))
            .body(body);
        let response = request.send().await.map_err(|error| {
            // Others would wait as long for each of their messages that are due there.
            *endpoint.held() = Some(Instant::now() + HELD);
            Fault::new(FaultCode::Busy, format!("`{name}` did not answer: {}", causes(&error.without_url())))
        })?;
        let status = response.status();
        let said = format!("`{name}` says {status}");
        match read(status) {
            EndpointAnswer::Taken => Ok(Delivery { remote_id: Some(id) }),
            EndpointAnswer::Gone => {
                endpoint.is_gone.store(true, Ordering::Relaxed);
                self.host.warn(format!("{said}: no more is sent to it before a restart"));
                Err(Fault::denied(said))
            }
            EndpointAnswer::Overloaded => {
                let named = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
                let waits = named.and_then(|text| text.trim().parse().ok()).map_or(HELD, Duration::from_secs);
                *endpoint.held() = Some(Instant::now() + waits.min(LONGEST_HELD));
                Err(Fault::new(FaultCode::Busy, said))
            }
            EndpointAnswer::Failed => Err(Fault::new(FaultCode::Busy, said)),
            EndpointAnswer::Refused if status.is_redirection() => {
                Err(Fault::denied(format!("{said}: the address leads elsewhere; write that one")))
            }
            EndpointAnswer::Refused => Err(Fault::denied(said)),
        }
    }

    async fn client(&self) -> Result<Client, Fault> {
        if let Some(client) = self.kept().as_ref() {
            return Ok(client.clone());
        }
        let client = self.host.blocking(new_client).await?;
        Ok(self.kept().insert(client).clone())
    }

    fn kept(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a message by the status of the answer.
pub fn read(status: StatusCode) -> EndpointAnswer {
    match status.as_u16() {
        200..=299 => EndpointAnswer::Taken,
        410 => EndpointAnswer::Gone,
        429 | 502..=504 => EndpointAnswer::Overloaded,
        // They say nothing of the message itself.
        408 | 409 | 421 | 425 | 500.. => EndpointAnswer::Failed,
        _ => EndpointAnswer::Refused,
    }
}

/// What a message says. It is the same for each attempt.
fn body(id: &str, message: &OutboundMessage) -> String {
    let OutboundMessage { delivery, kind, session, text, .. } = message;
    let (name, turn) = match kind {
        // The key of an answer begins with its turn.
        OutboundKind::Answer => ("message.answer", delivery.split('>').next()),
        OutboundKind::Notice | OutboundKind::File => ("message.notice", None),
    };
    let mut data = json!({"id": id, "session": session, "text": text});
    if let Some(turn) = turn {
        data["turn"] = turn.into();
    }
    json!({"type": name, "data": data}).to_string()
}

fn new_client() -> Result<Client, Fault> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Fault::internal)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("drupe/", env!("CARGO_PKG_VERSION")))
        // The next address is not one that the operator named.
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIME)
        .timeout(TIME)
        .build()
        .map_err(|error| Fault::internal(format!("no HTTP client can be made: {error}")))
}

/// An error with what lies behind it.
fn causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", causes(source)),
        None => error.to_string(),
    }
}
