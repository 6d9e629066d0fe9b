//! The Bot API over HTTP: one call, and what became of it.
//!
//! Forms and codes as in <https://core.telegram.org/bots/api> and <https://core.telegram.org/bots/faq>, read on 2026-11-27 through the
//! texts that libraries copy from it. The token is filled into the path by the daemon; this code never has it.

use drupe_extension_api::{prelude::*, wire::FormPart};
use serde_json::Value;

/// Time for the answer of a call that does not wait, in milliseconds.
const CALL_MS: u64 = 10_000;

/// Time for a file, in milliseconds.
const FILE_MS: u64 = 100_000;
/// The largest file that the service lets a bot fetch (<https://core.telegram.org/bots/api#getfile>), in bytes.
pub const LARGEST_FETCHED: u64 = 20_000_000;

/// The largest file that it lets a bot send (<https://core.telegram.org/bots/api#senddocument>), in bytes.
pub const LARGEST_SENT: u64 = 50_000_000;

/// The Bot API of one bot.
#[derive(Clone)]
pub struct BotApi {
    host: Host,
    base: String,
}

/// The longest wait that the service is believed to want, in seconds.
const LONGEST_WAIT: u64 = 3_600;

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
        let body = params.to_string();
        let request = self.to(method, within).header("content-type", "application/json").body(body);
        self.answered(&request).await
    }

    /// Calls a method with a file.
    pub async fn upload(&self, method: &str, parts: Vec<FormPart>) -> Result<Value, CallFailure> {
        self.answered(&self.to(method, FILE_MS).form(parts)).await
    }

    fn to(&self, method: &str, within: u64) -> OutwardRequest {
        let url = format!("{}/bot${{TELEGRAM_BOT_TOKEN}}/{method}", self.base);
        let mut request = OutwardRequest::new("POST", url).filling_path();
        request.timeout_ms = within;
        request
    }

    async fn answered(&self, request: &OutwardRequest) -> Result<Value, CallFailure> {
        match self.host.send(request).await {
            Ok(response) => read(&response),
            Err(fault) => Err(unanswered(fault)),
        }
    }
}

impl BotApi {
    /// The request for a file that somebody sent: its address holds for an hour.
    pub async fn file(&self, id: &str) -> Result<OutwardRequest, CallFailure> {
        let found = self.call("getFile", &serde_json::json!({"file_id": id})).await?;
        let path = found["file_path"].as_str().filter(|path| is_plain(path)).ok_or_else(|| {
            // A server of one's own that keeps files for itself gives a path on its own disk.
            CallFailure::Refused { code: 0, description: "no address to fetch it from was given".to_owned() }
        })?;
        let mut request =
            OutwardRequest::new("GET", format!("{}/file/bot${{TELEGRAM_BOT_TOKEN}}/{path}", self.base))
                .filling_path();
        request.timeout_ms = FILE_MS;
        Ok(request)
    }
}

/// Whether a path leads to a file below that of the bot, and names nothing that is filled in.
fn is_plain(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    let part = |part: &str| !part.is_empty() && part.bytes().any(|byte| byte != b'.');
    path.bytes().all(plain) && path.split('/').all(part)
}

/// What an answer says. One that is not the service's own comes from whoever stands between: whether they passed the request on is unknown.
fn read(response: &OutwardResponse) -> Result<Value, CallFailure> {
    let Ok(answer) = serde_json::from_str::<Answer>(&response.body) else {
        // Whoever stands between looked at the length, and passed nothing on.
        if response.status == 413 {
            return Err(CallFailure::Refused { code: 413, description: "it is too large".to_owned() });
        }
        let message = format!("the service answered with status {} and no JSON of its own", response.status);
        return Err(CallFailure::Doubtful(Fault::new(FaultCode::OutcomeUnknown, message)));
    };
    let Answer { ok, result, error_code, description, parameters } = answer;
    match (ok, parameters.retry_after) {
        (true, _) => Ok(result),
        (false, Some(seconds)) => Err(CallFailure::TooMany { seconds: seconds.min(LONGEST_WAIT) }),
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

    #[test]
    fn a_path_of_a_file_leads_nowhere_else() {
        assert!(is_plain("documents/file_12.pdf") && is_plain("photos/file-3"));
        for odd in [
            "",
            "/var/lib/file",
            "a/../../b",
            "a//b",
            "./a",
            "a?b",
            "${TELEGRAM_BOT_TOKEN}",
            "a#b",
            "a\\b",
            "ä",
        ] {
            assert!(!is_plain(odd), "{odd}");
        }
    }
}
