//! Tools that a client brings along: a turn ends with their calls, and the client's next request brings what they gave.

use serde_json::{Value, json};

use super::{client::Door, daemon_with, door, token};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

/// What the client's tool gives.
const WEATHER: &str = "14 degrees and rain";

/// A model that asks for the weather until it knows it. "Both" has it call a tool of its own as well, "twice" the client's
/// two times, and "badly" with parameters that are wrong at first.
fn forecaster() -> ModelServer {
    ModelServer::start(|request| {
        let (_, text) = latest(request);
        if text.contains(WEATHER) {
            return Say::Text("Take an umbrella.".into());
        }
        if !offered(request).iter().any(|name| name == "get_weather") {
            return Say::Text("I know no tool for that.".into());
        }
        let weather = |city: Value| ("get_weather".to_owned(), json!({ "city": city }));
        Say::Call(match text.as_str() {
            text if text.contains("both") => vec![("kv_list".to_owned(), json!({})), weather(json!("Paris"))],
            text if text.contains("twice") => vec![weather(json!("Paris")), weather(json!("Rome"))],
            text if text.contains("badly") => vec![weather(json!(7))],
            _ => vec![weather(json!("Paris"))],
        })
    })
}

fn started() -> (ModelServer, Daemon, Door, String) {
    let server = forecaster();
    let daemon = daemon_with(&server, &[], "");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    (server, daemon, door, ci)
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
}

fn function() -> Value {
    json!([{"type": "function", "function": {"name": "get_weather", "parameters": schema()}}])
}

fn chat(messages: &Value) -> Value {
    json!({"model": "drupe", "messages": messages, "tools": function()})
}

#[test]
fn chat_completions_get_a_call_and_go_on_with_its_result() {
    let (server, _daemon, door, ci) = started();
    let mut messages = json!([{"role": "user", "content": "What is it like in Paris?"}]);
    let answer = door.post(&ci, "/v1/chat/completions", &chat(&messages)).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        call["function"],
        json!({"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}),
        "{answer}"
    );
    assert_eq!(choice["message"]["content"], Value::Null, "nothing was said beside it: {answer}");
    let given = json!({"role": "tool", "tool_call_id": call["id"], "content": WEATHER});
    let all = messages.as_array_mut().expect("a list");
    all.extend([choice["message"].clone(), given]);
    let last = door.post(&ci, "/v1/chat/completions", &chat(&messages)).json();
    assert_eq!(last["choices"][0]["message"]["content"], "Take an umbrella.", "{last}");
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(server.requests().len(), 2, "a call of the client's costs no request of its own");

    let mut streamed = chat(&json!([{"role": "user", "content": "And twice?"}]));
    streamed["stream"] = Value::Bool(true);
    let body = door.post(&ci, "/v1/chat/completions", &streamed).body;
    assert!(body.contains("Rome") && body.contains("\"finish_reason\":\"tool_calls\""), "{body}");
    streamed["stream"] = Value::Bool(false);
    streamed["parallel_tool_calls"] = Value::Bool(false);
    let one = door.post(&ci, "/v1/chat/completions", &streamed).json();
    assert_eq!(one["choices"][0]["message"]["tool_calls"].as_array().map(Vec::len), Some(1), "{one}");
}

#[test]
fn responses_go_on_after_a_call_by_its_id_and_by_the_whole_conversation() {
    let (_server, _daemon, door, ci) = started();
    let tools = json!([{"type": "function", "name": "get_weather", "parameters": schema(), "strict": false}]);
    let ask = |input: Value, previous: &Value| {
        let body =
            json!({"model": "drupe", "input": input, "tools": tools, "previous_response_id": previous});
        door.post(&ci, "/v1/responses", &body).json()
    };
    let first = ask(json!("What is it like in Paris?"), &Value::Null);
    assert_eq!(first["status"], "completed", "{first}");
    let call = first["output"].as_array().and_then(|items| items.last()).cloned().expect("an item");
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("get_weather")), "{first}");
    let given = json!({"type": "function_call_output", "call_id": call["call_id"], "output": WEATHER});
    let text = |answer: &Value| answer["output"][0]["content"][0]["text"].clone();
    let last = ask(json!([given]), &first["id"]);
    assert_eq!(text(&last), "Take an umbrella.", "{last}");
    let said = json!({"role": "user", "content": "What is it like in Paris?"});
    let last = ask(json!([said, call, given]), &Value::Null);
    assert_eq!(text(&last), "Take an umbrella.", "{last}");
    let kept = door.get(&ci, &format!("/v1/responses/{}", first["id"].as_str().expect("an id"))).json();
    assert_eq!(kept["output"][0]["call_id"], call["call_id"], "it is the same when it is read later: {kept}");
}

#[test]
fn messages_get_a_call_and_go_on_with_its_result() {
    let (_server, _daemon, door, ci) = started();
    let tools = json!([{"name": "get_weather", "input_schema": schema()}]);
    let ask = |messages: &Value, stream: bool| {
        let body = json!({
            "model": "drupe", "max_tokens": 256, "messages": messages, "tools": tools, "stream": stream,
        });
        door.post(&ci, "/v1/messages", &body)
    };
    let mut messages = json!([{"role": "user", "content": "What is it like in Paris?"}]);
    let answer = ask(&messages, false).json();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let call = &answer["content"][0];
    assert_eq!((&call["type"], &call["input"]), (&json!("tool_use"), &json!({"city": "Paris"})), "{answer}");
    let streamed = ask(&messages, true).body;
    assert!(
        streamed.contains("input_json_delta") && streamed.contains("\"stop_reason\":\"tool_use\""),
        "{streamed}"
    );
    let given = json!([{"type": "tool_result", "tool_use_id": call["id"], "content": WEATHER}]);
    let all = messages.as_array_mut().expect("a list");
    all.push(json!({"role": "assistant", "content": answer["content"]}));
    all.push(json!({"role": "user", "content": given}));
    let last = ask(&messages, false).json();
    assert_eq!(last["content"][0]["text"], "Take an umbrella.", "{last}");
}

#[test]
fn the_agents_own_calls_of_the_same_step_run_and_wrong_ones_come_back_to_the_model() {
    let (server, daemon, door, ci) = started();
    let body = chat(&json!([{"role": "user", "content": "both, please"}]));
    let answer = door.post(&ci, "/v1/chat/completions", &body).json();
    let calls = answer["choices"][0]["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    assert_eq!(calls.len(), 1, "the client is told of its own alone: {answer}");
    let turn =
        calls[0]["id"].as_str().and_then(|id| id.strip_prefix("call_")?.rsplit_once('_')).expect("an id").0;
    let result = daemon.client().ask("turn.wait", json!({"turn": turn})).expect("the turn is kept");
    assert_eq!(result["client_calls"][0]["name"], "get_weather", "{result}");
    let results = result["transcript"].as_array().into_iter().flatten();
    let ran: Vec<_> = results
        .filter(|entry| entry["role"] == "tool" && entry["status"] == "ok")
        .map(|e| &e["name"])
        .collect();
    assert_eq!(ran, ["kv_list", "get_weather"], "{result}");
    assert!(result["content"].as_str().is_some_and(|text| text.contains("get_weather")), "{result}");

    let before = server.requests().len();
    let body = chat(&json!([{"role": "user", "content": "badly"}]));
    door.post(&ci, "/v1/chat/completions", &body);
    let again = &server.requests()[before + 1];
    assert!(latest(again).1.contains("do not fit the schema"), "{again}");
}

#[test]
fn an_agent_that_takes_no_tools_of_clients_refuses_them_by_name() {
    let server = forecaster();
    let config = "agents: {defaults: {client_tools: false}}\norchestrator: {client_tools: false}\n";
    let daemon = daemon_with(&server, &[], config);
    let open = "id: open\nname: Open\ndescription: Answers.\n\
                agent: {model: default, instructions: Answer., client_tools: true}\n";
    daemon.write("extensions/open/manifest.yaml", open);
    daemon.until_extension("open", "active");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let said = |text: &str| json!([{"role": "user", "content": text}]);
    let responses = json!([{"type": "function", "name": "get_weather", "parameters": schema()}]);
    let messages = json!([{"name": "get_weather", "input_schema": schema()}]);
    for (model, key) in
        [("drupe", "`orchestrator.client_tools`"), ("haiku", "`client_tools` of its manifest")]
    {
        let id = if model == "drupe" { "`orchestrator`" } else { "`haiku`" };
        for (path, kind, body) in [
            ("/v1/chat/completions", "code", json!({"messages": said("hello"), "tools": function()})),
            ("/v1/responses", "code", json!({"input": "hello", "tools": responses})),
            ("/v1/messages", "type", json!({"messages": said("hello"), "tools": messages, "max_tokens": 64})),
        ] {
            let mut body = body;
            body["model"] = json!(model);
            let refused = door.post(&ci, path, &body);
            let error = &refused.json()["error"];
            let named = if kind == "code" { "permission_denied" } else { "permission_error" };
            assert_eq!((refused.status, &error[kind]), (403, &json!(named)), "{path}: {refused:?}");
            let message = error["message"].as_str().unwrap_or_default();
            assert!(message.contains(id) && message.contains(key), "{path}: {message}");
            body["tools"] = json!([]);
            assert_eq!(door.post(&ci, path, &body).status, 200, "{path}: without them it answers");
        }
    }
    let ask = |model: &str, text: &str, session: Option<&str>| {
        let mut body = json!({"model": model, "messages": said(text), "tools": function()});
        if let Some(session) = session {
            body["metadata"] = json!({ "session": session });
        }
        door.post(&ci, "/v1/chat/completions", &body)
    };
    assert!(
        ask("open", "Paris?", None).body.contains("get_weather"),
        "its own word goes before the defaults'"
    );
    assert_eq!(ask("drupe", "@haiku Paris?", None).status, 403, "by its address");
    assert!(ask("drupe", "@open Paris?", None).body.contains("get_weather"));
    // By the choice of its session.
    for (agent, status) in [("open", 200), ("haiku", 403)] {
        let session = json!({"session": "token.ci", "agent": agent});
        daemon.client().ask("session.select", session).expect("it is chosen");
        assert_eq!(ask("drupe", "Paris?", Some("token.ci")).status, status, "{agent}");
    }
}

#[test]
fn an_agent_that_is_code_is_answered_under_a_bound_and_refuses_the_rest() {
    let (_server, _daemon, door, ci) = started();
    let mut body = json!({
        "model": "builder_agent", "max_tokens": 256, "messages": [{"role": "user", "content": "hello"}],
    });
    let answer = door.post(&ci, "/v1/messages", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    body["tools"] = json!([{"name": "get_weather", "input_schema": schema()}]);
    let refused = door.post(&ci, "/v1/messages", &body);
    assert_eq!((refused.status, refused.body.contains("is code")), (400, true), "{refused:?}");
}

#[test]
fn what_cannot_be_offered_is_refused_by_name() {
    let (server, _daemon, door, ci) = started();
    let user = json!([{"role": "user", "content": "hello"}]);
    let named = |name: &str, schema: Value| json!([{"type": "function", "function": {"name": name, "parameters": schema}}]);
    let two = json!([function()[0], named("other", schema())[0]]);
    for (tools, choice, status, words) in [
        (named("get_weather", json!({"type": "array"})), "auto", 400, "an `object`"),
        (named("get_weather", json!({"type": "object", "anyOf": [{}]})), "auto", 400, "`anyOf`"),
        (named("kv_list", schema()), "auto", 400, "`kv_list` is named like"),
        (named("refuse", schema()), "auto", 400, "a tool of the loop"),
        (two, "required", 400, "name the tool"),
    ] {
        let body = json!({"model": "drupe", "messages": user, "tools": tools, "tool_choice": choice});
        let refused = door.post(&ci, "/v1/chat/completions", &body);
        assert_eq!(refused.status, status, "{refused:?}");
        assert!(refused.body.contains(words), "{refused:?}");
    }
    assert_eq!(server.requests().len(), 0);
    let many: Vec<Value> = (0..129).map(|at| named(&format!("tool_{at}"), schema())[0].clone()).collect();
    let body = json!({"model": "drupe", "messages": user, "tools": many});
    let refused = door.post(&ci, "/v1/chat/completions", &body);
    assert_eq!((refused.status, refused.body.contains("there may be 128")), (400, true), "{refused:?}");
}
