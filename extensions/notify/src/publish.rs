//! One message on its way to the service, and what became of it.
//!
//! Forms and codes as in <https://docs.ntfy.sh/publish/> (releases 2.6.2 and 2.17) and `server/errors.go` of the source, read on 2026-11-27.
//! A message is published with a sequence id that its delivery decides. A server from 2.16 on says that id again of what it has, so a
//! message of which nobody heard can be looked up there.

use std::{
    fmt::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use drupe_extension_api::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{settings::NotifySettings, text};

/// Time for one answer of the service, in milliseconds: with one question afterwards it is below the half minute that the daemon gives.
const CALL_MS: u64 = 12_000;

/// How far back a message is looked for.
const SINCE: &str = "2m";

/// How long nothing is sent where a server that takes no more does not say it. Its bucket gains one message in five seconds.
const HELD: Duration = Duration::from_secs(10);
/// What nobody would wait for is asked about again within the hour.
const LONGEST_HELD: Duration = Duration::from_secs(3600);

/// Publishes on topics of one server.
pub struct Publisher {
    host: Host,
    settings: NotifySettings,
    base: String,
    /// Until when the server takes nothing. It counts by who sends, so this is for all topics.
    held: Mutex<Option<Instant>>,
}

/// A topic as it stands in an address.
struct Topic {
    path: String,
    is_secret: bool,
}

/// What became of a message.
#[derive(Debug, PartialEq)]
enum Outcome {
    Published {
        id: String,
    },
    /// The server did nothing, and takes something later.
    Later {
        seconds: Option<u64>,
        said: String,
    },
    /// The server did nothing, and never will.
    Refused(String),
    /// It may be there or not.
    Doubtful(String),
}

impl Publisher {
    pub fn new(host: Host, settings: NotifySettings) -> Self {
        let base = settings.server.trim_end_matches('/').to_owned();
        Self { host, settings, base, held: Mutex::new(None) }
    }

    /// Publishes a message, or says why it is not there.
    pub async fn send(&self, message: &OutboundMessage) -> Result<Delivery, Fault> {
        let topic = topic(message.address.as_deref())?;
        if let Some(waits) = self.waits() {
            let text = format!("the server takes no more messages for {} seconds", waits.as_secs() + 1);
            return Err(Fault::new(FaultCode::Unavailable, text));
        }
        let sequence = sequence(&message.delivery);
        let outcome = match self.host.send(&self.request(&topic, &sequence, message)).await {
            Ok(response) => read(&response),
            Err(fault) => unanswered(fault)?,
        };
        match outcome {
            Outcome::Published { id } => Ok(Delivery { remote_id: Some(id) }),
            Outcome::Later { seconds, said } => {
                self.hold(seconds);
                Err(Fault::new(FaultCode::Unavailable, said))
            }
            Outcome::Refused(said) => Err(Fault::denied(said)),
            Outcome::Doubtful(said) => match self.find(&topic, &sequence).await {
                Some(id) => Ok(Delivery { remote_id: Some(id) }),
                None => Err(Fault::new(FaultCode::OutcomeUnknown, said)),
            },
        }
    }

    fn request(&self, topic: &Topic, sequence: &str, message: &OutboundMessage) -> OutwardRequest {
        let settings = &self.settings;
        let OutboundMessage { kind, session, text: words, .. } = message;
        let priority = match kind {
            OutboundKind::Answer => settings.priority,
            OutboundKind::Notice | OutboundKind::File => settings.notice_priority,
        };
        let mut request = OutwardRequest::new("POST", format!("{}/{}", self.base, topic.path))
            .header("content-type", "text/plain; charset=utf-8")
            .header("x-title", text::header(text::title(session)))
            .header("x-priority", priority.to_string())
            .header("x-sequence-id", sequence)
            .body(text::fitting(words, session));
        if !settings.tags.is_empty() {
            request = request.header("x-tags", settings.tags.join(","));
        }
        if settings.markdown {
            request = request.header("x-markdown", "yes");
        }
        if let Some(address) = &settings.click {
            request = request.header("x-click", plain(&text::link(address, session)));
        }
        self.bearing(request, topic)
    }

    /// With what lets whoever asks in, and little time for the answer.
    fn bearing(&self, request: OutwardRequest, topic: &Topic) -> OutwardRequest {
        let mut request = if topic.is_secret { request.filling_path() } else { request };
        if self.settings.token {
            request = request.header("authorization", "Bearer ${NTFY_TOKEN}");
        }
        request.timeout_ms = CALL_MS;
        request
    }

    /// Whether the server has a message with that sequence id: its own id of it. None where it has none, and where it does not say.
    async fn find(&self, topic: &Topic, sequence: &str) -> Option<String> {
        let address = format!("{}/{}/json?poll=1&since={SINCE}", self.base, topic.path);
        let request = self.bearing(OutwardRequest::new("GET", address), topic);
        let answer = self.host.send(&request).await.ok().filter(|answer| answer.status == 200)?;
        let messages = answer.body.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = messages.into_iter().find(|one| one["sequence_id"] == sequence)?;
        found["id"].as_str().map(str::to_owned)
    }

    fn waits(&self) -> Option<Duration> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.map(|until| until.saturating_duration_since(Instant::now())).filter(|waits| !waits.is_zero())
    }

    fn hold(&self, seconds: Option<u64>) {
        let waits = seconds.map_or(HELD, Duration::from_secs).min(LONGEST_HELD);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + waits);
    }
}

/// The operator's topic, or another one that an address names.
fn topic(address: Option<&str>) -> Result<Topic, Fault> {
    let Some(name) = address else {
        return Ok(Topic { path: "${NTFY_TOPIC}".to_owned(), is_secret: true });
    };
    // `topicRegex` of the server.
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match fits {
        true => Ok(Topic { path: name.to_owned(), is_secret: false }),
        false => Err(Fault::denied(format!("`{name}` is no topic: 1 to 64 letters, digits, `-` and `_`"))),
    }
}

/// The id by which the service knows a delivery, in the letters and the length that it takes.
fn sequence(delivery: &str) -> String {
    Sha256::digest(delivery).iter().take(16).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A value of the configuration, in which nothing is a placeholder.
fn plain(text: &str) -> String {
    text.replace("${", "$${")
}

/// What an answer says of the message, by its status and its words.
fn read(response: &OutwardResponse) -> Outcome {
    let answer = serde_json::from_str::<Value>(&response.body).unwrap_or_default();
    let status = response.status;
    let said = || match answer["error"].as_str() {
        Some(error) => format!("the server says {status}: {}", error.chars().take(200).collect::<String>()),
        None => format!("the server says {status}"),
    };
    match status {
        200 => match answer["id"].as_str() {
            Some(id) => Outcome::Published { id: id.to_owned() },
            None => Outcome::Doubtful("whoever answered did not say which message it published".to_owned()),
        },
        // Of the latter a server says that it does nothing now.
        429 | 503 => Outcome::Later { seconds: retry_after(response), said: said() },
        300..=399 => Outcome::Refused(format!("{}: the address leads elsewhere; write that one", said())),
        401 | 403 => Outcome::Refused(format!(
            "{}: the topic is open to others alone; with `extensions.notify.token: true` the server is shown `NTFY_TOKEN`",
            said()
        )),
        400..=499 => Outcome::Refused(said()),
        _ => Outcome::Doubtful(said()),
    }
}

/// The seconds that an answer names; a date is none.
fn retry_after(response: &OutwardResponse) -> Option<u64> {
    let named = response.headers.iter().find(|(name, _)| name == "retry-after")?;
    named.1.trim().parse().ok()
}

/// What it means that no answer came. A fault of which nobody can know more is given back.
fn unanswered(fault: Fault) -> Result<Outcome, Fault> {
    match fault.code {
        // No connection came about, the daemon is ending, or the request was refused before it was sent.
        FaultCode::Unavailable | FaultCode::Busy | FaultCode::NotConfigured => {
            Err(Fault::new(FaultCode::Unavailable, fault.to_string()))
        }
        FaultCode::Denied | FaultCode::Invalid => Err(Fault::denied(fault.to_string())),
        _ => Ok(Outcome::Doubtful(fault.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Outcome {
        let headers = vec![("retry-after".to_owned(), "7".to_owned())];
        read(&OutwardResponse { status, headers, body: body.to_owned() })
    }

    #[test]
    fn an_answer_says_whether_a_message_is_there() {
        assert_eq!(
            answer(200, r#"{"id":"hwQ2YpKdmg","event":"message"}"#),
            Outcome::Published { id: "hwQ2YpKdmg".into() }
        );
        let many = r#"{"code":42901,"http":429,"error":"limit reached: too many requests"}"#;
        let said = "the server says 429: limit reached: too many requests".to_owned();
        assert_eq!(answer(429, many), Outcome::Later { seconds: Some(7), said });
        assert!(matches!(answer(503, "<html>"), Outcome::Later { .. }));
        for (status, body) in [(502, "<html>"), (500, "{}"), (200, ""), (204, ""), (200, "<html>")] {
            assert!(matches!(answer(status, body), Outcome::Doubtful(_)), "{status} {body}");
        }
        for status in [301, 400, 401, 403, 404, 413] {
            assert!(matches!(answer(status, ""), Outcome::Refused(_)), "{status}");
        }
    }

    #[test]
    fn what_was_not_sent_is_sent_later_and_what_may_have_been_is_not() {
        let fault = |code| unanswered(Fault::new(code, "x"));
        assert_eq!(fault(FaultCode::Unavailable).map_err(|fault| fault.code), Err(FaultCode::Unavailable));
        assert_eq!(fault(FaultCode::Denied).map_err(|fault| fault.code), Err(FaultCode::Denied));
        for code in [FaultCode::Timeout, FaultCode::Other] {
            assert!(matches!(fault(code), Ok(Outcome::Doubtful(_))));
        }
    }

    #[test]
    fn a_server_that_takes_no_more_is_not_asked_meanwhile() {
        use drupe_extension_api::{
            serde_json::json,
            testing::{Harness, block_on},
        };
        let config = json!({"server": "https://ntfy.sh", "token": false, "priority": 3, "notice_priority": 4,
            "tags": [], "markdown": false});
        let message = |text: &str| OutboundMessage {
            kind: OutboundKind::Answer,
            delivery: text.into(),
            session: "main".parse().expect("a session"),
            address: None,
            text: text.into(),
            file: None,
        };
        block_on(async {
            let notify = Harness::<crate::Notify>::start(config).await.expect("it starts");
            let headers = vec![("retry-after".to_owned(), "600".to_owned())];
            let many = OutwardResponse { status: 429, headers, body: String::new() };
            notify.host().answer_sent(Ok(many));
            for text in ["one", "two"] {
                let fault = notify.channel_send(message(text)).await.expect_err("it takes nothing");
                assert_eq!(fault.code, FaultCode::Unavailable, "{fault}");
            }
            assert_eq!(notify.host().sent().len(), 1);
        });
    }

    #[test]
    fn a_topic_is_one_and_a_delivery_has_one_sequence_id() {
        assert!(
            topic(Some("a/b")).is_err() && topic(Some("")).is_err() && topic(Some("${NTFY_TOPIC}")).is_err()
        );
        assert!(topic(Some("alerts_2-x")).is_ok_and(|topic| !topic.is_secret));
        assert!(topic(None).is_ok_and(|topic| topic.is_secret));
        let one = sequence("0199>notify/a");
        assert!(one.len() == 32 && one == sequence("0199>notify/a") && one != sequence("0199>notify/b"));
    }
}
