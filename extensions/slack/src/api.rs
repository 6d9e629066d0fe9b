//! Slack's Web API over HTTP: one call, and what became of it.
//!
//! Forms and errors as in <https://docs.slack.dev/apis/web-api> and the pages of its methods, `429` as in
//! <https://docs.slack.dev/apis/web-api/rate-limits>, read on 2026-11-27 in copies of their texts. The tokens are filled in by the daemon;
//! this code never has one.

use drupe_channel::SendFailure;
use drupe_extension_api::{prelude::*, wire::FormPart};
use serde_json::Value;

/// Time for the answer of a call, in milliseconds.
const CALL_MS: u64 = 10_000;
/// The same for a file on its way out.
const UPLOAD_MS: u64 = 100_000;

/// The Web API of one app. Clones are the same.
#[derive(Clone)]
pub struct WebApi {
    host: Host,
    base: String,
}

/// Errors after which something may have been done all the same: the page of each method says so of the first two.
const DOUBTFUL: [&str; 4] = ["fatal_error", "internal_error", "request_timeout", "service_unavailable"];
/// Ways to say that it was too much.
const TOO_MANY: [&str; 2] = ["ratelimited", "rate_limited"];

const APP_TOKEN: &str = "SLACK_APP_TOKEN";
const TYPE: &str = "content-type";
const JSON: &str = "application/json; charset=utf-8";

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    error: String,
    needed: Option<String>,
}

impl WebApi {
    pub fn new(host: Host, base: &str) -> Self {
        Self { host, base: base.trim_end_matches('/').to_owned() }
    }

    /// Looks whether the daemon has the token of the app: it fills that in before it sends, and this has no time to be sent.
    ///
    /// # Errors
    /// [`FaultCode::NotConfigured`] where it has none.
    pub async fn check_app_token(&self) -> Result<(), Fault> {
        let mut request = self.request("api.test", APP_TOKEN);
        request.timeout_ms = 0;
        match self.host.send(&request).await {
            Err(fault) if fault.code == FaultCode::Invalid && fault.message.contains(APP_TOKEN) => {
                let message = format!("the secret `{APP_TOKEN}` is not defined, and Socket Mode needs it");
                let help = format!(
                    "`drupe secret set {APP_TOKEN}` keeps it (`xapp-…`); where requests come in at `events` there is no need of it"
                );
                Err(Fault::new(FaultCode::NotConfigured, message).help(help))
            }
            _ => Ok(()),
        }
    }

    /// The address of a socket, for which the app itself asks.
    pub async fn open_connection(&self) -> Result<Value, SendFailure> {
        self.sent(self.request("apps.connections.open", APP_TOKEN).header(TYPE, JSON).body("{}")).await
    }

    /// Calls a method that does something, as the bot.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, SendFailure> {
        self.sent(self.request(method, "SLACK_BOT_TOKEN").header(TYPE, JSON).body(params.to_string())).await
    }

    /// Calls a method that takes a form.
    pub async fn ask(&self, method: &str, params: &[(&str, &str)]) -> Result<Value, SendFailure> {
        let request = self.request(method, "SLACK_BOT_TOKEN");
        self.sent(request.header(TYPE, "application/x-www-form-urlencoded").body(pairs(params))).await
    }

    /// Calls a method that only reads: those take no JSON.
    pub async fn read(&self, method: &str, params: &[(&str, &str)]) -> Result<Value, SendFailure> {
        let mut request = self.request(method, "SLACK_BOT_TOKEN");
        request.method = "GET".to_owned();
        request.url.push_str(&format!("?{}", pairs(params)));
        self.sent(request).await
    }

    /// Sends the file of a delivery to the address that was given for it, which needs no token. Nobody can see it by that, so that whatever
    /// comes of it may be done again.
    pub async fn upload(&self, address: &str, delivery: &str) -> Result<(), SendFailure> {
        let part = FormPart::File { name: "filename".to_owned(), delivery: delivery.to_owned() };
        let mut request = OutwardRequest::new("POST", address).form(vec![part]);
        request.timeout_ms = UPLOAD_MS;
        match self.host.send(&request).await.map(|response| response.status) {
            Ok(200) => Ok(()),
            Ok(status @ (400..=407 | 409..=424 | 426..=428 | 430..=499)) => {
                Err(SendFailure::refused(status, "it does not take the file"))
            }
            Ok(status) => {
                let message = format!("the file was answered with status {status}");
                Err(SendFailure::NotSent(Fault::new(FaultCode::Unavailable, message)))
            }
            // The address leads elsewhere, or what was kept to be sent is gone.
            Err(fault) if fault.code == FaultCode::Denied => Err(SendFailure::refused("", fault.message)),
            Err(fault) => Err(SendFailure::NotSent(fault)),
        }
    }

    fn request(&self, method: &str, token: &str) -> OutwardRequest {
        let mut request = OutwardRequest::new("POST", format!("{}/{method}", self.base))
            .header("authorization", format!("Bearer ${{{token}}}"));
        request.timeout_ms = CALL_MS;
        request
    }

    async fn sent(&self, request: OutwardRequest) -> Result<Value, SendFailure> {
        match self.host.send(&request).await {
            Ok(response) => read(&response),
            Err(fault) => Err(SendFailure::unanswered(fault)),
        }
    }
}

/// Names with values, as a query and a form have them.
fn pairs(params: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", escaped(value));
    params.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// A value of a query.
fn escaped(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// What an answer says. One that is not the service's own comes from whoever stands between: whether they passed the request on is unknown.
fn read(response: &OutwardResponse) -> Result<Value, SendFailure> {
    let header = response.headers.iter().find(|(name, _)| name == "retry-after");
    let seconds = header.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(1);
    if response.status == 429 {
        return Err(SendFailure::TooMany { seconds });
    }
    let whole = serde_json::from_str::<Value>(&response.body).unwrap_or_default();
    let Ok(Answer { ok, error, needed }) = Answer::deserialize(&whole) else {
        let message = format!("the service answered with status {} and no JSON of its own", response.status);
        return Err(SendFailure::doubtful(message));
    };
    match error.as_str() {
        _ if ok => Ok(whole),
        error if TOO_MANY.contains(&error) => Err(SendFailure::TooMany { seconds }),
        error if response.status >= 500 || DOUBTFUL.contains(&error) => {
            Err(SendFailure::doubtful(format!("the service failed: {} {error}", response.status)))
        }
        _ => {
            let lacks = needed.map(|scope| format!("(the bot lacks `{scope}`)")).unwrap_or_default();
            Err(SendFailure::refused(error, lacks))
        }
    }
}

/// What a failure means for whoever runs the app.
pub fn told(failure: SendFailure) -> String {
    let help = match &failure {
        SendFailure::Refused { code, .. } => match code.as_str() {
            "invalid_auth"
            | "not_authed"
            | "token_revoked"
            | "token_expired"
            | "account_inactive"
            | "not_allowed_token_type" => {
                "; `drupe secret set SLACK_APP_TOKEN` keeps the token of the app (`xapp-…`), and `SLACK_BOT_TOKEN` that of its bot (`xoxb-…`)"
            }
            "missing_scope" => "; add the scope to the app, and install it again",
            _ => "",
        },
        _ => "",
    };
    format!("{}{help}", failure.into_fault("Slack"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, headers: &[(&str, &str)], body: &str) -> Result<Value, SendFailure> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        read(&OutwardResponse { status, headers, body: body.to_owned() })
    }

    #[test]
    fn an_answer_says_whether_something_was_done() {
        let done = answered(200, &[], r#"{"ok":true,"ts":"1.2"}"#).expect("it is done");
        assert_eq!(done["ts"], "1.2");
        let refused = answered(200, &[], r#"{"ok":false,"error":"missing_scope","needed":"chat:write"}"#);
        let said = told(refused.expect_err("it is refused"));
        assert!(said.contains("lacks `chat:write`") && said.contains("install it again"), "{said}");
        let many = SendFailure::TooMany { seconds: 5 };
        assert_eq!(answered(429, &[("retry-after", "5")], ""), Err(many.clone()));
        let late = answered(200, &[("retry-after", "5")], r#"{"ok":false,"error":"ratelimited"}"#);
        assert_eq!(late, Err(many));
        assert_eq!(answered(429, &[("retry-after", "soon")], "x"), Err(SendFailure::TooMany { seconds: 1 }));
        for (status, body) in [
            (502, "<html>Bad Gateway</html>"),
            (200, ""),
            (200, "[]"),
            (200, r#"{"ok":false,"error":"internal_error"}"#),
            (200, r#"{"ok":false,"error":"fatal_error"}"#),
            (503, r#"{"ok":false,"error":"other"}"#),
        ] {
            assert!(matches!(answered(status, &[], body), Err(SendFailure::Doubtful(_))), "{body}");
        }
        assert_eq!(escaped("1.2/ä&b=$"), "1.2%2F%C3%A4%26b%3D%24");
    }
}
