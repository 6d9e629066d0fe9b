//! Tools that the client of a turn runs: a call of one ends the run.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, ResponseStatus, ToolStatus, wire::ClientTool};
use serde_json::json;

use super::*;
use crate::*;

/// A tool of a client that needs `city`.
fn weather() -> Arc<Registered> {
    let schema = json!({"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}});
    let name = "weather".parse().expect("a name");
    client_tool::tool(&ClientTool { name, description: "Tells the weather.".into(), input_schema: schema })
        .expect("a schema")
}

#[tokio::test]
async fn a_run_ends_with_the_calls_of_its_clients_tools_after_its_own_have_run_and_so_after_any_crash() {
    let script = [
        call(&[("a", "{}"), ("weather", r#"{"city": "Rome"}"#), ("weather", "{}"), ("a", "{}")]),
        say("never"),
    ];
    let whole = same_after_any_cut(|journal, resumed| Case {
        journal: Arc::clone(journal),
        resumed,
        ..Case::of(&script, [Fake::says("a").class(EffectClass::Pure).registered(), weather()])
    })
    .await;
    let response = &whole.response;
    assert_eq!(response.status, ResponseStatus::Success);
    assert_eq!(response.content, r#"(called the client's tool `weather` with {"city": "Rome"})"#);
    let names: Vec<_> = response.client_calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(names, [r#"{"city": "Rome"}"#], "one whose parameters are wrong is none");
    assert_eq!(whole.model.requests().len(), 1);
    let ran = whole.entries.iter().filter(|e| matches!(e, Entry::Result { status: ToolStatus::Ok, .. }));
    assert_eq!(ran.count(), 3);
}

#[tokio::test]
async fn a_refusal_is_more_than_a_call_for_the_client_and_a_wrong_call_is_none() {
    let refusing = call(&[("weather", r#"{"city": "Rome"}"#), ("refuse", r#"{"reason": "not mine"}"#)]);
    let seen = Case::of(&[refusing, say("never")], [refuse::tool(), weather()]).run().await;
    assert_eq!((seen.response.status, seen.response.client_calls.len()), (ResponseStatus::Refused, 0));
    let seen = Case::of(&[call(&[("weather", "{}")]), say("so be it")], [weather()]).run().await;
    assert_eq!((seen.response.content.as_str(), seen.response.client_calls.len()), ("so be it", 0));
}
