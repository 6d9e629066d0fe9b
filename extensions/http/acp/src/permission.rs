//! Calls that wait for a person, asked of the editor. The question is a row of the daemon's: who does not answer here may
//! answer elsewhere, or later.

use std::sync::Arc;

use drupe_extension_api::{
    Fault, ItemKind, SessionId,
    control::{Approval, ApprovalAnswer, ApprovalState, CallPreview, Power},
};
use serde_json::{Value, json};

use crate::{calls, connection::EditorConnection, translation::CallQuestion, updates::contents};

const ALLOW: &str = "allow";
const ALLOW_SESSION: &str = "allow_session";
const DENY: &str = "deny";

/// Asks the editor beside everything else.
pub fn ask(connection: &Arc<EditorConnection>, session: &SessionId, question: CallQuestion) {
    let id = connection.name_request();
    {
        let mut questions = connection.questions.lock();
        if questions.contains_key(&question.call) {
            return;
        }
        questions.insert(question.call.clone(), (session.clone(), id.clone()));
    }
    let (connection, session) = (Arc::clone(connection), session.clone());
    connection.clone().begin(Box::pin(async move {
        let call = question.call.clone();
        if let Err(fault) = resolve(&connection, &session, &id, question).await {
            let text = format!("the question about a call is still open, its answer was not taken: {fault}");
            connection.notice(session.as_str(), "warning", &text).await;
        }
        let mut questions = connection.questions.lock();
        if questions.get(&call).is_some_and(|(_, asked)| *asked == id) {
            questions.remove(&call);
        }
    }));
}

/// The question was answered, by whomever.
pub async fn settled(connection: &EditorConnection, call: &str) {
    let request = connection.questions.lock().remove(call);
    if let Some((_, request)) = request {
        connection.take_back(&request).await;
    }
}

/// The session is closed: nobody is asked about it any more. The turn that asks is stopped, and its question with it.
pub async fn closed(connection: &EditorConnection, session: &str) {
    let open: Vec<String> = {
        let mut questions = connection.questions.lock();
        let of = questions.extract_if(|_, (of, _)| of.as_str() == session);
        of.map(|(_, (_, request))| request).collect()
    };
    for request in open {
        connection.take_back(&request).await;
    }
}

async fn resolve(
    connection: &Arc<EditorConnection>,
    session: &SessionId,
    id: &str,
    question: CallQuestion,
) -> Result<(), Fault> {
    let CallQuestion { call, tool, need } = question;
    if !connection.daemon.may(&[Power::Inspect, Power::Operate]) {
        let text = format!(
            "`{tool}` waits for approval ({need}); whoever may answer sees it with `drupe approvals`"
        );
        connection.notice(session.as_str(), "warning", &text).await;
        return Ok(());
    }
    let waits = |one: &Approval| one.id == call && one.state == ApprovalState::Pending;
    let Some(approval) = connection.daemon.approvals().await?.into_iter().find(waits) else { return Ok(()) };
    let asked = approval.call.as_ref().and_then(|call| call.preview.as_ref());
    if let Some(CallPreview { text, input: Some(_), .. }) = asked {
        // An editor shows choices alone, and a secret must not pass through it.
        let text =
            format!("`{tool}` asks you to fill in something, by `drupe approvals allow {call}`: {text}");
        connection.notice(session.as_str(), "warning", &text).await;
        return Ok(());
    }
    let waits = AskedCallForm {
        call: &call,
        tool: &tool,
        need: &need,
        params: approval.call.as_ref().map(|call| call.params.as_str()).unwrap_or_default(),
        about: approval.call.as_ref().and_then(|call| call.about.as_deref()),
        preview: asked,
    };
    let answer = connection.ask(id, "session/request_permission", request(session, waits)).await;
    let Some((allow, for_session)) = answer.and_then(decided) else { return Ok(()) };
    let answer = ApprovalAnswer { id: call, allow, for_session, hash: Some(approval.hash), values: None };
    connection.daemon.answer(answer).await.map(|_| ())
}

/// A call that waits for an answer.
struct AskedCallForm<'a> {
    call: &'a str,
    tool: &'a str,
    need: &'a str,
    params: &'a str,
    /// Which calls an answer for the rest of the session is about.
    about: Option<&'a str>,
    preview: Option<&'a CallPreview>,
}

/// All of what the call would do: nobody agrees to the beginning of something.
fn request(
    session: &SessionId,
    AskedCallForm { call, tool, need, params, about, preview }: AskedCallForm<'_>,
) -> Value {
    let mut options = vec![json!({ "optionId": ALLOW, "name": "Allow once", "kind": "allow_once" })];
    if let Some(about) = about {
        let name = format!("Allow for this session: {about}");
        options.push(json!({ "optionId": ALLOW_SESSION, "name": name, "kind": "allow_always" }));
    }
    options.push(json!({ "optionId": DENY, "name": "Deny", "kind": "reject_once" }));
    let input: Value = serde_json::from_str(params).unwrap_or_else(|_| params.into());
    json!({
        "sessionId": session,
        "toolCall": {
            "toolCallId": call,
            "title": calls::title(tool, &input),
            "kind": calls::kind_of(tool, ItemKind::ToolCall),
            "status": "pending",
            "content": contents(&format!("{need}\n\n`{tool}` with\n```json\n{params}\n```{}", changes(preview))),
            "rawInput": input,
        },
        "options": options,
    })
}

/// What the call would change. The fence is longer than any in the text, so that nothing of that is read as markdown.
fn changes(preview: Option<&CallPreview>) -> String {
    match preview {
        Some(CallPreview { text, failed: true, .. }) => {
            format!("\n\nWhat it would change cannot be shown: {text}")
        }
        Some(CallPreview { text, failed: false, .. }) => {
            let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            format!("\n\nIt would change this:\n{fence}diff\n{}\n{fence}", text.trim_end_matches('\n'))
        }
        None => String::new(),
    }
}

/// Whether the call may run, and those like it in the rest of the session; none for no choice, which leaves the question open.
fn decided(answer: Result<Value, Value>) -> Option<(bool, bool)> {
    let outcome = answer.ok()?.get("outcome")?.clone();
    match (outcome["outcome"].as_str()?, outcome["optionId"].as_str()) {
        ("selected", Some(ALLOW)) => Some((true, false)),
        ("selected", Some(ALLOW_SESSION)) => Some((true, true)),
        ("selected", Some(DENY)) => Some((false, false)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_would_change_stays_within_its_fence() {
        let of = |text: &str, failed| changes(Some(&CallPreview { text: text.into(), failed, input: None }));
        assert_eq!(of("-a\n+b\n", false), "\n\nIt would change this:\n```diff\n-a\n+b\n```");
        assert!(of("+````\n+# x\n", false).ends_with("\n`````diff\n+````\n+# x\n`````"));
        assert!(of("no such file", true).ends_with("cannot be shown: no such file"));
        assert_eq!(changes(None), "");
    }

    #[test]
    fn nothing_but_a_choice_is_an_answer() {
        let outcome = |value: Value| decided(Ok(json!({ "outcome": value })));
        assert_eq!(outcome(json!({ "outcome": "selected", "optionId": "allow" })), Some((true, false)));
        assert_eq!(outcome(json!({ "outcome": "selected", "optionId": "deny" })), Some((false, false)));
        assert_eq!(
            outcome(json!({ "outcome": "selected", "optionId": "allow_session" })),
            Some((true, true))
        );
        for open in
            [json!({ "outcome": "cancelled" }), json!({ "outcome": "selected", "optionId": "x" }), json!(1)]
        {
            assert_eq!(outcome(open.clone()), None, "{open}");
        }
        assert_eq!(decided(Err(json!({ "code": -32601 }))), None);
        assert_eq!(decided(Ok(Value::Null)), None);
    }
}
