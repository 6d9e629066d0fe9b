//! Results that are too long to be shown whole.

use std::sync::Arc;

use drupe_extension_api::{AgentResponse, DefinitionLimits, EffectId, FailureClass, SessionId, ToolStatus};
use futures_util::future::{BoxFuture, ready};

use super::*;
use crate::*;

fn long() -> String {
    (0..2_000).map(|n| format!("line {n} é\n")).collect()
}

/// A turn with one long result and then the script; with its handle.
async fn check(rest: impl Fn(&str) -> Vec<Reply>, max_bytes: usize) -> (Seen, EffectId) {
    let handle = {
        let turn = drupe_extension_api::TurnId::new("s").expect("a valid id");
        ids::effect(&turn, &ids::root_invocation(&turn), 1, 0)
    };
    let mut script = vec![call(&[("a", "{}")])];
    script.extend(rest(handle.as_str()));
    let tools = [Fake::new("a", Does::Says(long())).registered(), read_output::tool()];
    let seen = Case { max_bytes, ..Case::of(&script, tools) }.run().await;
    (seen, handle)
}

#[tokio::test]
async fn a_long_result_is_kept_whole_and_shown_in_part() {
    let (seen, handle) = check(|_| vec![say("done")], TOOL_RESPONSE_MAX_BYTES).await;
    let told = &seen.told()[0];
    assert!(told.len() <= TOOL_RESPONSE_MAX_BYTES && told.starts_with("line 0 é\n"), "{}", told.len());
    assert!(told.contains("line 1999 é\n") && told.contains(&format!("{} bytes", long().len())));
    assert!(told.contains(handle.as_str()));
    let kept = seen.entries.iter().any(|e| matches!(e, Entry::Result { content, .. } if *content == long()));
    assert!(kept, "the journal has all of it");
}

#[tokio::test]
async fn the_rest_of_a_result_is_read_by_its_handle() {
    let read = |handle: &str| {
        let at = call(&[
            ("read_output", &format!(r#"{{"handle": "{handle}", "offset": 18000}}"#)),
            ("read_output", &format!(r#"{{"handle": "{handle}", "grep": "line 1234 "}}"#)),
        ]);
        vec![at, say("done")]
    };
    let (seen, _) = check(read, 4_096).await;
    let told = seen.told();
    assert_eq!(seen.statuses(), [ToolStatus::Ok; 3], "{told:?}");
    assert!(told[1].starts_with("[bytes 18000 to "), "{}", told[1]);
    assert!(told[1].len() <= 4_096 && !told[1].contains("[…]"), "a page is not cut again");
    let at = long().find("line 1234 ").expect("it is there");
    assert!(told[2].contains(&format!("{at}: line 1234 é\n")), "{}", told[2]);
}

#[tokio::test]
async fn a_handle_that_is_not_of_the_session_is_unknown() {
    let read = |_: &str| {
        vec![
            call(&[("read_output", r#"{"handle": "e-0"}"#), ("read_output", r#"{"handle": "../x"}"#)]),
            say("done"),
        ]
    };
    let (seen, _) = check(read, 4_096).await;
    assert_eq!(seen.statuses()[1..], [ToolStatus::Error, ToolStatus::Refused]);
    assert!(seen.told()[1].contains("no output of this session has the handle"));
}

#[tokio::test]
async fn a_journal_gives_outputs_to_their_own_session_only() {
    let tools = [Fake::says("a").registered()];
    let case = Case::of(&[call(&[("a", "{}")]), say("done")], tools);
    let journal = Arc::clone(&case.journal);
    let seen = case.run().await;
    let effect = seen.entries.iter().find_map(|e| match e {
        Entry::Result { effect, .. } => Some(effect.clone()),
        _ => None,
    });
    let effect = effect.expect("a result");
    for (session, expected) in [("s", Some("a was here".to_owned())), ("other", None)] {
        let session = SessionId::new(session).expect("a valid id");
        assert_eq!(journal.output(session, effect.clone()).await, Ok(expected));
    }
}

/// What a run comes to whose code answers so.
async fn answers(response: AgentResponse) -> Seen {
    let code = move |_, _| -> BoxFuture<'static, AgentResponse> { Box::pin(ready(response.clone())) };
    let agent = Native { id: agent_id("main"), limits: DefinitionLimits::default(), code: Box::new(code) };
    let model = Arc::new(Plays::new(&[]));
    Case::new(Arc::new(agent), &model).run().await
}

#[tokio::test]
async fn the_answer_of_an_agent_is_kept_as_far_as_a_result_is_and_the_error_that_it_stands_for_further_yet() {
    let long = || "é".repeat(KEPT_MAX_BYTES);
    let seen = answers(AgentResponse::success(long())).await;
    assert!(seen.response.content.len() < KEPT_MAX_BYTES + 100, "{} bytes", seen.response.content.len());
    assert!(seen.response.content.ends_with("bytes were kept]"));
    let ended = seen.entries.iter().find_map(|entry| match entry {
        Entry::End { response, .. } => Some(response.content.len()),
        _ => None,
    });
    assert_eq!(ended, Some(seen.response.content.len()), "what is recorded is what is given");
    let failed = AgentResponse { error: None, ..AgentResponse::error(FailureClass::Tool, long()) };
    let error = answers(failed).await.response.error.expect("it failed");
    assert!(error.len() < 17 * 1024 && error.ends_with('…'), "{} bytes", error.len());
    let short = AgentResponse { error: None, ..AgentResponse::error(FailureClass::Tool, "no") };
    assert_eq!(answers(short).await.response.error.as_deref(), Some("no"));
}
