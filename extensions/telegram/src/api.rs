//! The Bot API over HTTP: one call, and what became of it.
//!
//! Forms and codes as in <https://core.telegram.org/bots/api> and <https://core.telegram.org/bots/faq>, read on 2026-11-27 through the
//! texts that libraries copy from it. The token is filled into the path by the daemon; this code never has it.

use drupe_extension_api::prelude::*;
use serde_json::Value;

/// Time for the answer of a call that does not wait, in milliseconds.
const CALL_MS: u64 = 10_000;

/// The Bot API of one bot.
#[derive(Clone)]
pub struct BotApi {
    host: Host,
    base: String,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum CallFailure {
    /// The service answered, and did nothing.
    Refused { code: i64, description: String },
    /// The service did nothing, and wants to be asked again after so many seconds.
    TooMany { seconds: u64 },
    /// Nothing was sent, or the service was not there.
    NotSent(Fault),
    /// It may have been done or not.
    Doubtful(Fault),
}

#[derive(Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error_code: i64,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Default, Deserialize)]
struct Parameters {
    retry_after: Option<u64>,
}

impl BotApi {
    pub fn new(host: Host, base: &str) -> Self {
        Self { host, base: base.trim_end_matches('/').to_owned() }
    }

    /// Calls a method of the API.
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, CallFailure> {
        self.call_for(method, params, CALL_MS).await
    }

    /// The same with so many milliseconds for the answer.
    pub async fn call_for(&self, method: &str, params: &Value, within: u64) -> Result<Value, CallFailure> {
        let url = format!("{}/bot${{TELEGRAM_BOT_TOKEN}}/{method}", self.base);
        let mut request = OutwardRequest::new("POST", url)
            .filling_path()
            .header("content-type", "application/json")
            .body(params.to_string());
        request.timeout_ms = within;
        match self.host.send(&request).await {
            Ok(response) => read(&response),
            Err(fault) => Err(unanswered(fault)),
        }
    }
}

/// What an answer says. One that is not the service's own comes from whoever stands between: whether they passed the request on is unknown.
fn read(response: &OutwardResponse) -> Result<Value, CallFailure> {
    let Ok(answer) = serde_json::from_str::<Answer>(&response.body) else {
        let message = format!("the service answered with status {} and no JSON of its own", response.status);
        return Err(CallFailure::Doubtful(Fault::new(FaultCode::OutcomeUnknown, message)));
    };
    let Answer { ok, result, error_code, description, parameters } = answer;
    match (ok, parameters.retry_after) {
        (true, _) => Ok(result),
        (false, Some(seconds)) => Err(CallFailure::TooMany { seconds }),
        (false, None) if error_code == 429 => Err(CallFailure::TooMany { seconds: 1 }),
        // What breaks within the service may have been done before.
        (false, None) if error_code >= 500 => {
            let message = format!("the service failed: {error_code} {description}");
            Err(CallFailure::Doubtful(Fault::new(FaultCode::OutcomeUnknown, message)))
        }
        (false, None) => Err(CallFailure::Refused { code: error_code, description }),
    }
}

fn unanswered(fault: Fault) -> CallFailure {
    match fault.code {
        // No connection came about, the daemon is ending, or the request was refused before it was sent.
        FaultCode::Unavailable | FaultCode::Busy | FaultCode::Denied | FaultCode::NotConfigured => {
            CallFailure::NotSent(fault)
        }
        _ => CallFailure::Doubtful(fault),
    }
}

impl CallFailure {
    /// As the daemon is told it: what was not sent is tried again, and what may have been sent is not.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Refused { code, description } => {
                Fault::denied(format!("Telegram refused it: {code} {description}"))
            }
            Self::TooMany { seconds } => Fault::new(
                FaultCode::Busy,
                format!("Telegram takes no more messages there for {seconds} seconds"),
            ),
            Self::NotSent(fault) => Fault::new(FaultCode::Unavailable, fault.to_string()),
            Self::Doubtful(fault) => Fault::new(FaultCode::OutcomeUnknown, fault.to_string()),
        }
    }

    /// Whether an edit was refused since there is nothing to change.
    pub fn is_unchanged(&self) -> bool {
        matches!(self, Self::Refused { description, .. } if description.contains("message is not modified"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_whether_something_was_done() {
        let read = |status, body: &str| {
            read(&OutwardResponse { status, headers: Vec::new(), body: body.to_owned() })
        };
        assert_eq!(
            read(200, r#"{"ok":true,"result":{"message_id":7}}"#),
            Ok(serde_json::json!({"message_id": 7}))
        );
        let refused = read(
            400,
            r#"{"ok":false,"error_code":400,"description":"Bad Request: message is not modified: x"}"#,
        );
        assert!(refused.expect_err("it is refused").is_unchanged());
        let many = r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":5}}"#;
        assert_eq!(read(429, many), Err(CallFailure::TooMany { seconds: 5 }));
        for (status, body) in [
            (502, "<html>Bad Gateway</html>"),
            (200, ""),
            (500, r#"{"ok":false,"error_code":500,"description":"Internal Server Error"}"#),
        ] {
            assert!(matches!(read(status, body), Err(CallFailure::Doubtful(_))), "{body}");
        }
        assert!(matches!(unanswered(Fault::new(FaultCode::Timeout, "t")), CallFailure::Doubtful(_)));
        assert!(matches!(unanswered(Fault::new(FaultCode::Unavailable, "t")), CallFailure::NotSent(_)));
    }
}
