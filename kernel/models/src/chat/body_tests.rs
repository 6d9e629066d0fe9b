//! Requests as they go out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drupe_agent::AgentCard;
use drupe_extension_api::{AgentId, ToolAnnotations, ToolName, ToolStatus};

use super::*;

fn spec(name: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: format!("does {name}"),
        input_schema,
        instructions: None,
        annotations: ToolAnnotations::default(),
    })
}

fn request(messages: Vec<Message>, tools: Vec<Arc<ToolSpec>>, parameters: ModelParameters) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("main").unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "be brief".into(),
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: tools.into(),
        parameters: Arc::new(parameters),
        max_output_tokens: 100,
        output: None,
        timeout_ms: 1_000,
        max_retries: 0,
    }
}

fn body(request: &ModelRequest, dialect: Dialect) -> Value {
    let tools = ToolLists::default().json(&request.tools).unwrap();
    serde_json::from_slice(&write("m", request, tools.as_deref(), dialect).unwrap()).unwrap()
}

#[test]
fn a_transcript_is_written_as_providers_read_it() {
    let call = |name: &str, arguments: &str| ToolCallRequest {
        call_id: "c".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let messages = vec![
        Message::User { content: "hi \"you\"".to_owned() },
        Message::Assistant {
            content: String::new(),
            reasoning: Some("hm".to_owned()),
            tool_calls: vec![call("kv.get", r#"{"b": 1, "a": 2}"#), call("x", "{broken"), call("y", "")],
        },
        Message::Tool {
            call_id: "c".to_owned(),
            name: "kv.get".to_owned(),
            status: ToolStatus::Ok,
            content: "red".to_owned(),
        },
    ];
    let request =
        request(messages, vec![spec("kv.get", json!({"type": "object"}))], ModelParameters::default());
    let written = body(&request, Dialect::Common);
    let function = |name: &str, arguments: &str| json!({"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        written,
        json!({
            "model": "m",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 100,
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi \"you\""},
                {"role": "assistant", "content": "", "tool_calls": [
                    function("kv_dot_get", r#"{"b": 1, "a": 2}"#),
                    function("x", r#"{"invalid":"{broken"}"#),
                    function("y", "{}"),
                ]},
                {"role": "tool", "tool_call_id": "c", "content": "red"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "kv_dot_get", "description": "does kv.get", "parameters": {"type": "object", "properties": {}},
            }}],
        })
    );
    assert_eq!(own_name("kv_dot_get".to_owned(), &request.tools), "kv.get");
    assert_eq!(own_name("unknown".to_owned(), &request.tools), "unknown");
    let deepseek = body(&request, Dialect::DeepSeek);
    assert_eq!(deepseek.pointer("/messages/2/reasoning_content"), Some(&json!("hm")));
}

#[test]
fn every_parameter_reaches_the_provider_under_its_name() {
    let parameters = ModelParameters {
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasoning: Some(Reasoning::High),
        seed: Some(7),
        stop: vec!["END".to_owned()],
        extra: [("service_tier".to_owned(), json!("flex"))].into_iter().collect(),
        ..ModelParameters::default()
    };
    let mut request = request(Vec::new(), Vec::new(), parameters);
    request.output =
        Some(Arc::new(OutputSpec { format: Format::Json, schema: Some(json!({"type": "object"})) }));
    let openai = body(&request, Dialect::OpenAi);
    for (key, value) in [
        ("temperature", json!(0.5)),
        ("top_p", json!(0.9)),
        ("reasoning_effort", json!("high")),
        ("seed", json!(7)),
        ("stop", json!(["END"])),
        ("service_tier", json!("flex")),
        ("max_completion_tokens", json!(100)),
    ] {
        assert_eq!(openai.get(key), Some(&value), "{key}");
    }
    assert_eq!(openai.pointer("/response_format/json_schema/schema"), Some(&json!({"type": "object"})));
    assert!(openai.get("tools").is_none());
    assert_eq!(body(&request, Dialect::Mistral).get("random_seed"), Some(&json!(7)));
    assert_eq!(
        body(&request, Dialect::DeepSeek).pointer("/response_format/type"),
        Some(&json!("json_object"))
    );
}

#[test]
fn what_cannot_be_asked_is_refused_and_not_dropped() {
    let extra = |key: &str| ModelParameters {
        extra: [(key.to_owned(), json!(1))].into_iter().collect(),
        ..Default::default()
    };
    for key in RESERVED.iter().chain(&["max_tokens"]) {
        assert!(check(&extra(key), Dialect::Common).is_err(), "{key}");
    }
    let twice = ModelParameters { seed: Some(1), ..extra("seed") };
    assert!(check(&twice, Dialect::Common).is_err());
    assert!(check(&extra("seed"), Dialect::Common).is_ok());
    let stops = ModelParameters { stop: vec![String::new(); 5], ..Default::default() };
    assert!(check(&stops, Dialect::OpenAi).is_err());
    assert!(check(&stops, Dialect::Common).is_ok());
    assert!(
        check(&ModelParameters { top_p: Some(f64::NAN), ..Default::default() }, Dialect::Common).is_err()
    );
}

#[test]
fn a_tool_list_is_written_once_and_never_mistaken_for_another() {
    let lists = ToolLists::default();
    let one: Arc<[_]> = vec![spec("a", json!({}))].into();
    let first = lists.json(&one).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &lists.json(&Arc::clone(&one)).unwrap().unwrap()));
    for n in 0..200 {
        let other: Arc<[_]> = vec![spec(&format!("t{n}"), json!({}))].into();
        let json = lists.json(&other).unwrap().unwrap();
        assert!(json.get().contains(&format!("\"t{n}\"")));
    }
    assert!(lists.0.lock().unwrap().len() <= KEPT_TOOL_LISTS);
    assert!(lists.json(&Vec::new().into()).unwrap().is_none());
}
