//! Sessions as resources.

use drupe_extension_api::{
    Fault, SessionId,
    control::{SessionDetail, SessionShow, SessionStatus, Whoami, method},
};
use rmcp::{
    ErrorData,
    model::{Resource, ResourceTemplate},
};
use serde_json::{Value, json};

use crate::{McpCaller, handler::Agents};

/// How the address of a session begins.
const SESSIONS: &str = "drupe://sessions/";

/// Of what form a session is told.
pub const JSON: &str = "application/json";

pub fn resource(session: SessionStatus) -> Resource {
    Resource::new(format!("{SESSIONS}{}", session.id), session.id.to_string())
        .with_description(session.title)
        .with_mime_type(JSON)
}

pub fn template() -> ResourceTemplate {
    ResourceTemplate::new(template_uri(), "session")
        .with_description("What was said in a conversation, and how each turn ended.")
        .with_mime_type(JSON)
}

pub fn template_uri() -> String {
    format!("{SESSIONS}{{id}}")
}

/// The session of an address.
pub fn of_uri(uri: &str) -> Result<&str, ErrorData> {
    uri.strip_prefix(SESSIONS).ok_or_else(|| {
        let message = format!("there is no resource `{uri}`; sessions are `{SESSIONS}…`");
        about(uri, ErrorData::resource_not_found(message, None))
    })
}

/// An error with the address that it is about.
pub fn about(uri: &str, mut error: ErrorData) -> ErrorData {
    error.data = Some(json!({ "uri": uri }));
    error
}

/// Whether somebody reaches a session.
pub fn sees(who: &Whoami, session: &SessionId) -> bool {
    who.sessions.as_deref().is_none_or(|name| {
        let below = session.as_str().strip_prefix(name);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    })
}

/// The whole of a session.
pub async fn read(agents: &Agents, caller: &McpCaller, id: &str) -> Result<Value, Fault> {
    let (mut turns, mut after) = (Vec::new(), None);
    loop {
        let ask = SessionShow { id: id.to_owned(), after, brief: true };
        let part: SessionDetail = agents.control(caller, method::SESSIONS_SHOW, ask).await?;
        turns.extend(part.turns.into_iter().map(|turn| {
            json!({
                "turn": turn.turn, "input": turn.input, "status": turn.status, "content": turn.content,
                "error": turn.error,
            })
        }));
        after = part.next;
        if after.is_none() {
            break;
        }
    }
    Ok(json!({"session": id, "turns": turns}))
}
