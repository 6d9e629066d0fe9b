//! Requests of a sign-in. They follow nowhere, hold no more than they must, and what they were told by somebody else is never
//! in their faults as a whole.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use drupe_extension_api::prelude::*;
use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{ACCEPT, WWW_AUTHENTICATE},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::kept::{ClientProof, OauthClient};
use crate::{config::ServerSettings, connection, definition::shown};

/// How long one request may take.
const TIME: Duration = Duration::from_secs(15);

/// The most bytes of an answer that are read.
const BODY: usize = 256 << 10;

/// Characters of what somebody else says of a failure.
const SAID: usize = 300;

/// Why tokens were not given.
pub enum TokenRefusal {
    /// What was shown is worth nothing any more.
    Worthless(Fault),
    /// It may go well another time.
    Failed(Fault),
}

impl TokenRefusal {
    pub fn fault(self) -> Fault {
        match self {
            Self::Worthless(fault) | Self::Failed(fault) => fault,
        }
    }
}

/// Tokens, as they are given.
#[derive(Deserialize)]
pub struct GivenTokens {
    pub access_token: String,
    token_type: String,
    #[serde(default)]
    pub expires_in: Option<Value>,
    #[serde(default)]
    pub refresh_token: Option<String>,
    #[serde(default)]
    pub scope: Option<String>,
}

impl GivenTokens {
    /// Milliseconds for which they are good; some issuers write the number as a text.
    pub fn lasts(&self) -> Option<i64> {
        let seconds = self.expires_in.as_ref()?;
        let seconds = seconds.as_f64().or_else(|| seconds.as_str()?.parse().ok())?;
        // A number that is too large for the type becomes its largest.
        #[expect(clippy::cast_possible_truncation, reason = "the bounds are within the type")]
        Some((seconds.clamp(0.0, 1e9) * 1000.0) as i64)
    }
}

/// As what drupe was registered by itself.
#[derive(Deserialize)]
pub struct RegisteredClient {
    pub client_id: String,
    #[serde(default)]
    pub client_secret: Option<String>,
    #[serde(default)]
    pub token_endpoint_auth_method: Option<String>,
}

#[derive(Deserialize)]
struct OauthError {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

/// What somebody else says, as a part of a sentence of ours.
pub fn said(error: &str, description: Option<&str>) -> String {
    let text = match description {
        Some(description) if !description.trim().is_empty() => format!("{error}: {description}"),
        _ => error.to_owned(),
    };
    shown(&text).replace('\n', " ").chars().take(SAID).collect()
}

pub fn client() -> Result<Client, Fault> {
    connection::client(|builder| builder.timeout(TIME))
}

/// What a server answers to somebody who has no token: the challenge of its 401, empty where it has none; `None` where it
/// wants nobody to sign in.
pub async fn challenge(web: &Client, url: &Url, server: &ServerSettings) -> Result<Option<String>, Fault> {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "drupe", "version": env!("CARGO_PKG_VERSION")}}});
    let mut request = web.post(url.clone()).header(ACCEPT, "application/json, text/event-stream");
    for (name, value) in server.header_map()? {
        request = request.header(name, value);
    }
    let answer = send("the server", request.json(&hello)).await?;
    if answer.status() != StatusCode::UNAUTHORIZED {
        return Ok(None);
    }
    let all = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    Ok(Some(all.join(", ")))
}

/// What is published at an address; none where nothing is.
pub async fn published<T: DeserializeOwned>(web: &Client, address: &Url) -> Result<Option<T>, Fault> {
    let what = format!("`{address}`");
    let answer = send(&what, web.get(address.clone()).header(ACCEPT, "application/json")).await?;
    if answer.status() != StatusCode::OK {
        return Ok(None);
    }
    let body = body(&what, answer).await?;
    // A page in place of it is as good as nothing.
    Ok(serde_json::from_slice(&body).ok())
}

pub async fn register(web: &Client, address: &Url, wanted: &Value) -> Result<RegisteredClient, Fault> {
    let what = format!("registering at `{address}`");
    let answer = send(&what, web.post(address.clone()).json(wanted)).await?;
    let status = answer.status();
    let body = body(&what, answer).await?;
    match serde_json::from_slice(&body) {
        Ok(registered) if status.is_success() => Ok(registered),
        _ => {
            let why = match serde_json::from_slice::<OauthError>(&body) {
                Ok(wrong) => said(&wrong.error, wrong.error_description.as_deref()),
                Err(_) => format!("HTTP {}", status.as_u16()),
            };
            let message = format!("{what} failed: {why}");
            Err(Fault::new(FaultCode::Other, message)
                .help("register drupe there by hand and name it in `oauth.client_id` and `oauth.issuer` of the server"))
        }
    }
}

/// Asks for tokens, in exchange for a code or for what they are renewed by.
pub async fn tokens(
    web: &Client,
    address: &Url,
    who: &OauthClient,
    asked: &[(&str, &str)],
) -> Result<GivenTokens, TokenRefusal> {
    let what = format!("asking `{address}` for tokens");
    let answer =
        send(&what, proved(web.post(address.clone()), who, asked)).await.map_err(TokenRefusal::Failed)?;
    let status = answer.status();
    let body = body(&what, answer).await.map_err(TokenRefusal::Failed)?;
    if status.is_success() {
        let failed =
            |why: &str| TokenRefusal::Failed(Fault::new(FaultCode::Other, format!("{what} failed: {why}")));
        let given: GivenTokens = serde_json::from_slice(&body).map_err(|_| failed("the answer is none"))?;
        let fits = |token: &str| {
            !token.is_empty() && token.len() <= 16 << 10 && token.bytes().all(|b| b.is_ascii_graphic())
        };
        if !given.token_type.eq_ignore_ascii_case("bearer") {
            return Err(failed("its tokens are not for bearers"));
        }
        if !fits(&given.access_token) || given.refresh_token.as_ref().is_some_and(|token| !fits(token)) {
            return Err(failed("its tokens cannot be sent"));
        }
        return Ok(given);
    }
    let wrong = serde_json::from_slice::<OauthError>(&body).ok();
    let why = match &wrong {
        Some(wrong) => said(&wrong.error, wrong.error_description.as_deref()),
        None => format!("HTTP {}", status.as_u16()),
    };
    let fault = Fault::new(FaultCode::Other, format!("{what} failed: {why}"));
    let worthless =
        ["invalid_grant", "invalid_client", "unauthorized_client", "invalid_target", "invalid_scope"];
    Err(match wrong {
        Some(wrong) if worthless.contains(&wrong.error.as_str()) => TokenRefusal::Worthless(fault),
        _ => TokenRefusal::Failed(Fault { code: FaultCode::Unavailable, ..fault }),
    })
}

/// Makes a token worthless; whether its issuer says that it is.
pub async fn revoke(web: &Client, address: &Url, who: &OauthClient, token: &str, kind: &str) -> bool {
    let asked = [("token", token), ("token_type_hint", kind)];
    let answer = send("revoking", proved(web.post(address.clone()), who, &asked)).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

fn proved(request: RequestBuilder, who: &OauthClient, asked: &[(&str, &str)]) -> RequestBuilder {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(asked);
    let request = request.header(ACCEPT, "application/json");
    let request = match (who.proof, &who.secret) {
        (ClientProof::Basic, Some(secret)) => {
            let coded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = BASE64_STANDARD.encode(format!("{}:{}", coded(&who.id), coded(secret)));
            request.header(reqwest::header::AUTHORIZATION, format!("Basic {pair}"))
        }
        (proof, secret) => {
            form.append_pair("client_id", &who.id);
            if let (ClientProof::Post, Some(secret)) = (proof, secret) {
                form.append_pair("client_secret", secret);
            }
            request
        }
    };
    request.header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish())
}

async fn send(what: &str, request: RequestBuilder) -> Result<Response, Fault> {
    // Without its address, which may hold what nobody may read.
    request.send().await.map_err(|error| failed(what, &connection::reason(&error.without_url())))
}

async fn body(what: &str, mut answer: Response) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(None) => return Ok(body),
            Ok(Some(chunk)) if body.len() + chunk.len() <= BODY => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(failed(what, "its answer is too long")),
            Err(error) => return Err(failed(what, &connection::reason(&error.without_url()))),
        }
    }
}

fn failed(what: &str, why: &str) -> Fault {
    Fault::new(FaultCode::Unavailable, format!("{what} failed: {why}"))
}
