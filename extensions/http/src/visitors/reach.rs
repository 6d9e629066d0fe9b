//! What a visitor of a site reaches: their own words, and the answers. How an answer came about is the operator's: which tools were
//! called and what they gave, what it cost, why something failed, what an agent is told.

use drupe_extension_api::{
    Event, EventBody, Fault, Item, ItemKind, Spend,
    control::method::{SESSIONS_SHOW, TURN_STOP, TURN_SUBMIT, TURN_WAIT, WHOAMI},
};
use serde_json::{Map, Value, json};

/// Paths beside those of methods.
const PATHS: [&str; 3] = ["/readyz", "/events", "/page/markdown"];

/// Methods of the control API, with the parameters that count.
const METHODS: [(&str, &[&str]); 5] = [
    (WHOAMI, &[]),
    (TURN_SUBMIT, &["session", "external_id", "text", "channel"]),
    (TURN_WAIT, &["turn"]),
    (TURN_STOP, &["turn"]),
    (SESSIONS_SHOW, &["id", "after"]),
];

/// What is told of a turn.
const OF_TURN: [&str; 6] = ["session", "turn", "input", "status", "class", "content"];

/// What is told of a session.
const OF_SESSION: [&str; 8] =
    ["id", "created", "updated", "title", "turn_count", "turns", "last_seq", "next"];

/// Whether a path is for visitors too.
pub fn is_open(path: &str) -> bool {
    let method = path.strip_prefix("/control/");
    PATHS.contains(&path) || method.is_some_and(|method| METHODS.iter().any(|(name, _)| *name == method))
}

/// Parameters of a method, without what a visitor does not decide.
pub fn asked(method: &str, params: Option<Map<String, Value>>) -> Result<Value, Fault> {
    let (_, known) = METHODS
        .iter()
        .find(|(name, _)| *name == method)
        .ok_or_else(|| Fault::denied(format!("visitors of a site may not use `{method}`")))?;
    let mut params = params.unwrap_or_default();
    params.retain(|key, _| known.contains(&key.as_str()));
    if [TURN_WAIT, SESSIONS_SHOW].contains(&method) {
        params.insert("brief".into(), json!(true));
    }
    if method == TURN_SUBMIT {
        params.insert("carried".into(), json!({"untrusted": true}));
    }
    Ok(if known.is_empty() { Value::Null } else { Value::Object(params) })
}

/// What a method gives, as a visitor is told it.
pub fn told(method: &str, mut answer: Value) -> Value {
    match method {
        TURN_WAIT => turn(&mut answer),
        SESSIONS_SHOW => session(&mut answer),
        _ => {}
    }
    answer
}

fn session(detail: &mut Value) {
    let Some(fields) = detail.as_object_mut() else { return };
    fields.retain(|key, _| OF_SESSION.contains(&key.as_str()));
    fields.get_mut("turns").and_then(Value::as_array_mut).into_iter().flatten().for_each(turn);
}

fn turn(result: &mut Value) {
    let Some(fields) = result.as_object_mut() else { return };
    fields.retain(|key, _| OF_TURN.contains(&key.as_str()));
    // Of one that failed it says why.
    if fields.get("status").is_some_and(|status| !status.is_null() && status != "success") {
        fields.insert("content".into(), json!(""));
    }
}

/// An event, as a visitor is told it; none for what they are not told of.
pub fn event(event: Event) -> Option<Event> {
    let of_root = event.agent.as_ref().is_some_and(|agent| agent.depth == 0);
    let is_said = |kind: ItemKind| of_root && kind == ItemKind::AgentMessage;
    let body = match event.body {
        EventBody::TurnCompleted { status, class, .. } => {
            EventBody::TurnCompleted { status, error: None, class, spend: Spend::default() }
        }
        EventBody::StreamReset { id, .. } => EventBody::StreamReset { id, reason: String::new() },
        body @ (EventBody::TurnStarted { .. } | EventBody::TurnSteered { .. } | EventBody::StreamSkipped) => {
            body
        }
        body @ (EventBody::ItemStarted { item: Item { kind, .. } }
        | EventBody::ItemUpdated { item: kind, .. }
        | EventBody::ItemCompleted { item: Item { kind, .. }, .. })
            if is_said(kind) =>
        {
            body
        }
        _ => return None,
    };
    Some(Event { body, ..event })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_asks_for_what_a_chat_needs_and_decides_nothing_else() {
        let given = |value: Value| value.as_object().cloned();
        let submit = json!({"session": "s", "text": "x", "external_id": "1", "model": "dear", "carried": {}, "agent": "a"});
        let kept = asked(TURN_SUBMIT, given(submit)).expect("they may write");
        let carried = json!({"untrusted": true});
        assert_eq!(kept, json!({"session": "s", "text": "x", "external_id": "1", "carried": carried}));
        let whole = json!({"id": "s", "brief": false, "after": 3});
        let kept = asked(SESSIONS_SHOW, given(whole)).expect("they may read");
        assert_eq!(kept, json!({"id": "s", "brief": true, "after": 3}));
        for other in [
            "items.show",
            "trace.show",
            "why",
            "agents.template",
            "agents.show",
            "tokens.new",
            "events.subscribe",
            "",
        ] {
            assert!(asked(other, None).is_err() && !is_open(&format!("/control/{other}")), "{other}");
        }
        for other in [
            "/mcp",
            "/mcp/ws",
            "/stdio/acp",
            "/v1/messages",
            "/v1/sessions",
            "/metrics",
            "/openapi.json",
            "/events/",
        ] {
            assert!(!is_open(other), "{other}");
        }
    }

    #[test]
    fn what_a_turn_says_of_how_it_went_is_not_told() {
        let failed = json!({"turn": "t", "status": "error", "content": "tool `db` said: secret", "error": "secret", "class": "tool",
            "diagnostics": ["x"], "spend": {}});
        assert_eq!(
            told(TURN_WAIT, failed.clone()),
            json!({"turn": "t", "status": "error", "content": "", "class": "tool"})
        );
        let shown = told(
            SESSIONS_SHOW,
            json!({
                "id": "s", "turns": [failed, {"turn": "u", "status": "success", "content": "hi"}], "last_seq": 3,
                "summary": "a secret", "personas": [{"prompt": "secret"}], "snapshot": {"skills": {"secret": ""}},
            }),
        );
        assert!(!shown.to_string().contains("secret") && shown["turns"][1]["content"] == "hi", "{shown}");
        assert_eq!(shown["last_seq"], 3);
    }

    #[test]
    fn of_events_the_words_of_the_answer_are_told() {
        let of = |depth: u32, kind: &str, data: Value| {
            let agent = json!({"id": "a", "invocation": "r", "depth": depth});
            let event = json!({"seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "turn": "t", "agent": agent, "kind": kind, "data": data});
            event_of(event)
        };
        fn event_of(value: Value) -> Option<String> {
            event(serde_json::from_value(value).expect("an event")).map(|event| json!(event).to_string())
        }
        let item = |kind: &str| json!({"id": "i", "item": kind, "delta": "word"});
        let updated = "interaction.item.updated";
        assert!(of(0, updated, item("agent_message")).is_some_and(|told| told.contains("word")));
        assert_eq!(of(1, updated, item("agent_message")), None);
        for kind in ["reasoning", "tool_call", "todo_list"] {
            assert_eq!(of(0, updated, item(kind)), None, "{kind}");
        }
        assert_eq!(of(0, "interaction.diagnostic", json!({"code": "c", "message": "m"})), None);
        let ended = json!({"status": "error", "error": "secret", "class": "tool", "spend": {}});
        assert!(of(0, "interaction.turn.completed", ended).is_some_and(|told| !told.contains("secret")));
    }
}
