//! What a client hears of a call while it runs: how far it is, and, for those that set a level, messages of a log.
//!
//! Revision 2026-07-28 calls logging deprecated and has each request name its level; the older ones set it for a session:
//! <https://modelcontextprotocol.io/specification/2025-11-25/server/utilities/logging>, read on 2026-11-24. Nothing is logged to
//! a client that named none.
#![expect(
    deprecated,
    reason = "clients of the older revision, whose logging is not deprecated, are served too"
)]

use drupe_extension_api::{Event, EventBody, ItemOutcome, ResponseStatus, TurnId, sdk::Items};
use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use serde_json::{Value, json};

use crate::handler::Agents;

/// Who writes the log, as clients see it.
const LOGGER: &str = "drupe";

/// What one call is to tell.
pub struct Steps {
    progress: Option<ProgressToken>,
    level: Option<LoggingLevel>,
}

impl Steps {
    /// What the client of a call wants to hear, where it wants to hear anything.
    pub fn wanted(agents: &Agents, context: &RequestContext<RoleServer>) -> Option<Self> {
        let progress = context.meta.get_progress_token();
        let level = context.meta.log_level().or_else(|| agents.level());
        (progress.is_some() || level.is_some()).then_some(Self { progress, level })
    }

    /// Tells what happens in the turn, until it ends. Whoever does not hear it misses nothing of the result.
    pub async fn tell(self, mut items: Items<Event>, turn: &TurnId, context: &RequestContext<RoleServer>) {
        let mut steps = 0_u32;
        while let Ok(Some(event)) = items.next().await {
            if event.turn.as_ref() != Some(turn) {
                continue;
            }
            if let Some((level, data)) = self.logged(&event.body) {
                let message = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
                if context.peer.notify_logging_message(message).await.is_err() {
                    return;
                }
            }
            let message = match &event.body {
                EventBody::TurnCompleted { .. } => return,
                EventBody::ItemStarted { item } => item.name.clone(),
                _ => continue,
            };
            let Some(token) = &self.progress else { continue };
            steps += 1;
            let mut progress = ProgressNotificationParam::new(token.clone(), steps.into());
            progress.message = message;
            if context.peer.notify_progress(progress).await.is_err() {
                return;
            }
        }
    }

    /// What an event is in a log, where the client wants to see it.
    fn logged(&self, body: &EventBody) -> Option<(LoggingLevel, Value)> {
        let asked = self.level?;
        let (level, data) = logged(body)?;
        (severity(level) >= severity(asked)).then_some((level, data))
    }
}

fn logged(body: &EventBody) -> Option<(LoggingLevel, Value)> {
    Some(match body {
        EventBody::TurnStarted { .. } => (LoggingLevel::Debug, json!({"message": "the turn begins"})),
        EventBody::TurnCompleted { status: ResponseStatus::Success, .. } => {
            (LoggingLevel::Info, json!({"message": "the turn ended"}))
        }
        EventBody::TurnCompleted { error, class, .. } => {
            (LoggingLevel::Error, json!({"message": error, "class": class}))
        }
        EventBody::ItemStarted { item } => {
            (LoggingLevel::Info, json!({"message": "a step begins", "step": item.kind, "tool": item.name}))
        }
        EventBody::ItemCompleted { item, outcome, elapsed_ms } => {
            let level = if *outcome == ItemOutcome::Ok { LoggingLevel::Info } else { LoggingLevel::Warning };
            let data = json!({
                "message": "a step ended", "step": item.kind, "tool": item.name, "outcome": outcome,
                "elapsed_ms": elapsed_ms,
            });
            (level, data)
        }
        EventBody::Diagnostic { code, message } => {
            (LoggingLevel::Warning, json!({"message": message, "code": code}))
        }
        _ => return None,
    })
}

/// RFC 5424 counts down from the worst; here more is worse.
fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_logged_than_the_client_asked_for() {
        let diagnostic = EventBody::Diagnostic { code: "c".to_owned(), message: "m".to_owned() };
        let of = |level| Steps { progress: None, level }.logged(&diagnostic).map(|(level, _)| level);
        assert_eq!(of(None), None);
        assert_eq!(of(Some(LoggingLevel::Debug)), Some(LoggingLevel::Warning));
        assert_eq!(of(Some(LoggingLevel::Warning)), Some(LoggingLevel::Warning));
        assert_eq!(of(Some(LoggingLevel::Error)), None);
    }
}
