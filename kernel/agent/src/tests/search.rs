//! Tools that are looked up before their schemas are sent.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, ToolStatus};

use super::*;
use crate::*;

/// An agent with so many tools `tool_000`, `tool_001`, …, deferred above 40.
fn many(count: usize, script: &[Reply]) -> Case {
    let mut tools = RegistryBuilder::default();
    tools.defer_above(40);
    for tool in [read_output::tool(), update_plan::tool()] {
        tools.add(tool).expect("names are unique");
    }
    for n in 0..count {
        let tool = Fake::says(&format!("tool_{n:03}")).class(EffectClass::Pure);
        let text = format!("Works on thing {n}. It has a long story that nobody needs to hear each time.");
        tools.add(tool.described(&text).registered()).expect("names are unique");
    }
    let model = Arc::new(Plays::new(&[("main", script)]));
    let asks = Arc::clone(&model) as Arc<dyn Model>;
    let agent = LoopAgent::new(definition("main"), Arc::new(tools.build()), asks, true);
    Case::new(Arc::new(agent), &model)
}

fn offered(request: &ModelRequest) -> Vec<&str> {
    request.tools.iter().map(|t| t.name.as_str()).collect()
}

/// Bytes of a first request with so many tools.
async fn size(count: usize) -> usize {
    let seen = many(count, &[say("done")]).run().await;
    let request = &seen.model.requests()[0];
    let tool =
        |t: &Arc<drupe_extension_api::ToolSpec>| t.description.len() + t.input_schema.to_string().len();
    request.system.len() + request.tools.iter().map(tool).sum::<usize>()
}

#[tokio::test]
async fn few_tools_are_offered_as_they_are() {
    let seen = many(40, &[say("done")]).run().await;
    let request = &seen.model.requests()[0];
    assert_eq!((request.tools.len(), request.deferred.len()), (42, 0));
    assert!(!request.system.contains("search_tools"));
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a number that people ask for")]
async fn with_many_tools_a_request_grows_by_a_line_a_tool() {
    let seen = many(300, &[say("done")]).run().await;
    let request = &seen.model.requests()[0];
    assert_eq!(offered(request), ["read_output", "search_tools", "update_plan"]);
    assert_eq!(request.deferred.len(), 300);
    assert!(request.system.contains("\n- tool_007: Works on thing 7.\n"), "{}", request.system);
    let (some, more) = (size(200).await, size(300).await);
    let a_tool = (more - some) / 100;
    println!("bytes a deferred tool adds to each request: {a_tool}; 300 tools: {more} bytes");
    assert!(a_tool < 50, "{a_tool}");
}

#[tokio::test]
async fn what_was_looked_up_is_offered_from_the_next_step_on() {
    let script = [
        call(&[("search_tools", r#"{"query": "7."}"#)]),
        call(&[("tool_007", r#"{"n": 1}"#), ("search_tools", r#"{"names": ["tool_050", "nothing"]}"#)]),
        say("done"),
    ];
    let seen = many(60, &script).run().await;
    let requests = seen.model.requests();
    assert_eq!(offered(&requests[0]), ["read_output", "search_tools", "update_plan"]);
    let found = ["tool_007", "tool_017", "tool_027", "tool_037", "tool_047", "tool_057"];
    assert_eq!(offered(&requests[1])[2..8], found);
    assert_eq!(offered(&requests[2])[2..9], [&found[..5], &["tool_050", "tool_057"]].concat());
    assert_eq!(requests[2].deferred.len(), 60 - 7);
    assert_eq!(requests[0].system, requests[2].system, "the prompt stays, so that caches hit");
    assert!(seen.told()[0].contains(r#""input_schema":{"#), "{}", seen.told()[0]);
    assert_eq!(seen.statuses(), [ToolStatus::Ok; 3]);
}

#[tokio::test]
async fn a_search_gives_at_most_ten_and_says_how_many_there_are() {
    let seen = many(60, &[call(&[("search_tools", r#"{"query": "thing"}"#)]), say("done")]).run().await;
    assert_eq!(seen.model.requests()[1].tools.len(), 3 + 10);
    assert!(seen.told()[0].ends_with(r#""more":50}"#), "{}", seen.told()[0]);
}

#[tokio::test]
async fn a_deferred_tool_runs_when_it_is_called_directly_and_a_bad_call_shows_its_schema() {
    let script = [
        call(&[("tool_001", r#"{"n": 1}"#), ("tool_002", r#"{"n": "x"}"#), ("tool_999", "{}")]),
        say("done"),
    ];
    let seen = many(60, &script).run().await;
    assert_eq!(seen.statuses(), [ToolStatus::Ok, ToolStatus::Refused, ToolStatus::Refused]);
    let told = seen.told();
    assert!(told[1].contains(r#"Its schema: {"additionalProperties":false"#), "{}", told[1]);
    assert!(told[2].contains("and 60 more"), "{}", told[2]);
}

#[tokio::test]
async fn what_was_looked_up_is_offered_after_a_cut() {
    let script = [
        call(&[("search_tools", r#"{"names": ["tool_007"]}"#)]),
        call(&[("tool_007", "{}")]),
        call(&[("search_tools", r#"{"query": "20."}"#)]),
        say("done"),
    ];
    let seen = same_after_any_cut(|journal, resumed| {
        let case = many(60, &script);
        Case { journal: Arc::clone(journal), resumed, ..case }
    })
    .await;
    let last = seen.model.requests().pop().expect("it was asked");
    assert_eq!(offered(&last), ["read_output", "search_tools", "tool_007", "tool_020", "update_plan"]);
}

#[tokio::test]
async fn a_model_without_tools_hears_of_none() {
    let mut model = Plays::new(&[("main", &[say("done")])]);
    model.profile.tools = false;
    let model = Arc::new(model);
    let tools = [Fake::says("a").registered()];
    let seen = Case::new(looping(definition("main"), &model, tools), &model).run().await;
    assert!(seen.model.requests()[0].tools.is_empty());
}
