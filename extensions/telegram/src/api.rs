//! The Bot API over HTTP: one call, and what became of it.
//!
//! Forms and codes as in <https://core.telegram.org/bots/api> and <https://core.telegram.org/bots/faq>, read on 2026-11-27 through the
//! texts that libraries copy from it. The token is filled into the path by the daemon; this code never has it.

use drupe_channel::SendFailure;
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
    pub async fn call(&self, method: &str, params: &Value) -> Result<Value, SendFailure> {
        self.call_for(method, params, CALL_MS).await
    }

    /// The same with so many milliseconds for the answer.
    pub async fn call_for(&self, method: &str, params: &Value, within: u64) -> Result<Value, SendFailure> {
        let body = params.to_string();
        let request = self.to(method, within).header("content-type", "application/json").body(body);
        self.answered(&request).await
    }

    /// Calls a method with a file.
    pub async fn upload(&self, method: &str, parts: Vec<FormPart>) -> Result<Value, SendFailure> {
        self.answered(&self.to(method, FILE_MS).form(parts)).await
    }

    fn to(&self, method: &str, within: u64) -> OutwardRequest {
        let url = format!("{}/bot${{TELEGRAM_BOT_TOKEN}}/{method}", self.base);
        let mut request = OutwardRequest::new("POST", url).filling_path();
        request.timeout_ms = within;
        request
    }

    async fn answered(&self, request: &OutwardRequest) -> Result<Value, SendFailure> {
        match self.host.send(request).await {
            Ok(response) => read(&response),
            Err(fault) => Err(SendFailure::unanswered(fault)),
        }
    }
}

impl BotApi {
    /// The request for a file that somebody sent: its address holds for an hour.
    pub async fn file(&self, id: &str) -> Result<OutwardRequest, SendFailure> {
        let found = self.call("getFile", &serde_json::json!({"file_id": id})).await?;
        let path = found["file_path"].as_str().filter(|path| is_plain(path)).ok_or_else(|| {
            // A server of one's own that keeps files for itself gives a path on its own disk.
            SendFailure::refused("", "no address to fetch it from was given")
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
fn read(response: &OutwardResponse) -> Result<Value, SendFailure> {
    let Ok(answer) = serde_json::from_str::<Answer>(&response.body) else {
        // Whoever stands between looked at the length, and passed nothing on.
        if response.status == 413 {
            return Err(SendFailure::refused(413, "it is too large"));
        }
        let message = format!("the service answered with status {} and no JSON of its own", response.status);
        return Err(SendFailure::doubtful(message));
    };
    let Answer { ok, result, error_code, description, parameters } = answer;
    match (ok, parameters.retry_after) {
        (true, _) => Ok(result),
        (false, Some(seconds)) => Err(SendFailure::TooMany { seconds: seconds.min(LONGEST_WAIT) }),
        (false, None) if error_code == 429 => Err(SendFailure::TooMany { seconds: 1 }),
        // What breaks within the service may have been done before.
        (false, None) if error_code >= 500 => {
            Err(SendFailure::doubtful(format!("the service failed: {error_code} {description}")))
        }
        (false, None) => Err(SendFailure::refused(error_code, description)),
    }
}

/// Whether an edit was refused since there is nothing to change.
pub fn is_unchanged(failure: &SendFailure) -> bool {
    matches!(failure, SendFailure::Refused { said, .. } if said.contains("message is not modified"))
}

/// What a failure means for whoever runs the bot.
pub fn told(failure: SendFailure) -> String {
    let SendFailure::Refused { code, said } = &failure else {
        return failure.into_fault("Telegram").to_string();
    };
    let help = match code.as_str() {
        "401" | "404" => "; `drupe secret set TELEGRAM_BOT_TOKEN` with the token that @BotFather told",
        // Of a request of a process that ended, the service knows for a while no better than that it waits.
        "409" if said.contains("getUpdates request") => {
            "; a request of before a restart ends by itself, and another program with the same token does not"
        }
        "409" => "; the bot has a webhook: call `deleteWebhook` of the Bot API once",
        _ => "",
    };
    format!("Telegram says {code} {said}{help}")
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
        assert!(is_unchanged(&refused.expect_err("it is refused")));
        let many = r#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":5}}"#;
        assert_eq!(read(429, many), Err(SendFailure::TooMany { seconds: 5 }));
        for (status, body) in [
            (502, "<html>Bad Gateway</html>"),
            (200, ""),
            (500, r#"{"ok":false,"error_code":500,"description":"Internal Server Error"}"#),
        ] {
            assert!(matches!(read(status, body), Err(SendFailure::Doubtful(_))), "{body}");
        }
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
