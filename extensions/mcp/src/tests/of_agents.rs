//! Servers that the manifests of agents name.

use drupe_extension_api::wire::op;
use serde_json::{Value, json};

use super::played::*;

fn serve(harness: &drupe_extension_api::testing::Harness<crate::Mcp>, agents: Value) {
    let told: Value =
        drupe_extension_api::testing::block_on(harness.ask(op::AGENT_SERVERS, &json!({"agents": agents})))
            .expect("it takes them in");
    assert!(told.is_null());
}

#[test]
fn a_server_of_an_agent_is_offered_to_it_alone_and_reached_by_no_search() {
    let setup = setup(json!({"time": {"command": "a"}}), json!({"search_above": 1}));
    plays(&setup, "a", Played::new().tools(&[tool("say", "Says."), tool("now", "Tells.")]).process());
    // One to be asked for its tools, one for the conversation.
    for _ in 0..2 {
        plays(&setup, "b", Played::new().tools(&[tool("secret", "Is of one agent.")]).process());
    }
    let harness = started(setup, &["time"]);
    serve(
        &harness,
        json!({"keeper": {"time": {"command": "b", "tools": {"read_only": ["secret"]}},
        "broken": {"command": "b", "colour": "red"}}}),
    );
    until("it is offered", || offered(&harness).contains(&"keeper_time__secret".to_owned()));
    assert_eq!(
        offered(&harness),
        ["keeper_time__secret", "mcp_find", "mcp_call"],
        "the others are searched for"
    );
    let labels = spec(&harness, "keeper_time__secret").annotations;
    assert!(labels.only_for.is_some_and(|id| id.as_str() == "keeper") && labels.read_only);
    assert!(calls(&harness, "s", "keeper_time__secret", json!({})).is_ok());
    // By what others may be given, too.
    let found = calls(&harness, "s", "mcp_find", json!({"query": "secret of one agent"})).expect("an answer");
    assert!(!found.contains("secret"), "{found}");
    let call = json!({"tool": "keeper_time__secret"});
    let fault = calls(&harness, "s", "mcp_call", call).expect_err("it is not theirs");
    assert!(fault.message.contains("no MCP server `keeper.time`"), "{fault}");
    // Another command is another server: nothing of the old is offered, and it was agreed to before it came here.
    plays_more(&harness, "c", Played::new().tools(&[tool("other", "Is other.")]));
    serve(&harness, json!({"keeper": {"time": {"command": "c"}}}));
    until("the other is offered", || offered(&harness).contains(&"keeper_time__other".to_owned()));
    assert!(!offered(&harness).contains(&"keeper_time__secret".to_owned()));
    assert_eq!(state(&harness, "keeper.time")["agent"], "keeper");
    serve(&harness, json!({}));
    until("nothing is left", || !offered(&harness).iter().any(|tool| tool.starts_with("keeper")));
    assert!(calls(&harness, "s", "keeper_time__other", json!({})).is_err());
}
