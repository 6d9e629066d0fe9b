//! What is refused, and how it is told.

use drupe_extension_api::{AgentResponse, FailureClass, Fault, FaultCode};
use drupe_http_compat::{
    ChatRequest, MessagesRequest, Rejection, RejectionKind, ResponsesRequest, Vendor, messages::ApiVersion,
};
use serde_json::{Value, json};

/// The parameter that a call is refused for.
fn param(format: &str, change: Value) -> Option<String> {
    let mut body = match format {
        "responses" => json!({"model": "drupe", "input": "hi"}),
        _ => json!({"model": "drupe", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}),
    };
    for (key, value) in change.as_object().expect("fields") {
        body[key] = value.clone();
    }
    let bytes = body.to_string().into_bytes();
    let refused = match format {
        "chat" => ChatRequest::parse(&bytes).err(),
        "responses" => ResponsesRequest::parse(&bytes).err(),
        "messages-2023" => MessagesRequest::parse(&bytes, ApiVersion::V2023).err(),
        _ => MessagesRequest::parse(&bytes, ApiVersion::V2026).err(),
    };
    refused.map(|refused| refused.param.unwrap_or_default())
}

#[test]
fn what_cannot_be_done_is_refused_by_its_place() {
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let image = json!([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]);
    for (change, expected) in [
        (json!({"n": 2}), "n"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"audio": {"voice": "x"}}), "audio"),
        (json!({"modalities": ["text", "audio"]}), "modalities[1]"),
        (json!({"logit_bias": {"1": 5}}), "logit_bias"),
        (json!({"presence_penalty": 0.5}), "presence_penalty"),
        (json!({"functions": [{"name": "f"}]}), "functions"),
        (json!({"response_format": {"type": "grammar"}}), "response_format.type"),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {}}}),
            "response_format.json_schema.schema",
        ),
        (json!({"tools": [{"type": "custom", "custom": {"name": "x"}}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function", "function": {"name": "a b"}}]}), "tools[0].function.name"),
        (json!({"tools": [function("f"), function("f")]}), "tools"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}), "tool_choice"),
        (user(image), "messages[0].content[1].type"),
        (user(json!([{"type": "file", "file": {}}])), "messages[0].content[0].type"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "system", "content": "x"}]}), "messages"),
        (
            json!({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}),
            "messages[0].tool_call_id",
        ),
        (json!({"messages": [{"role": "nobody", "content": "x"}]}), "messages[0].role"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"model": "No Such Model"}), "model"),
        (json!({"metadata": {"session": "a b"}}), "metadata.session"),
    ] {
        assert_eq!(param("chat", change.clone()).as_deref(), Some(expected), "{change}");
    }
    for (change, expected) in [
        (json!({"top_logprobs": 3}), "top_logprobs"),
        (json!({"prompt": {"id": "x"}}), "prompt"),
        (json!({"include": ["message.output_text.logprobs"]}), "include[0]"),
        (json!({"background": true, "store": false}), "background"),
        (json!({"previous_response_id": "resp_1", "conversation": "c"}), "previous_response_id"),
        (json!({"previous_response_id": "other"}), "previous_response_id"),
        (json!({"conversation": "a", "metadata": {"session": "b"}}), "conversation"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0].type",
        ),
        (json!({"input": [{"type": "item_reference", "id": "x"}]}), "input[0].id"),
        (json!({"input": [{"type": "item_reference", "id": "msg_t1_0"}]}), "input"),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
            "input[0].call_id",
        ),
        (json!({"tools": [{"type": "web_search"}], "tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "web_search"}}), "tool_choice.type"),
        (json!({"text": {"format": {"type": "json_schema"}}}), "text.format.schema"),
    ] {
        assert_eq!(param("responses", change.clone()).as_deref(), Some(expected), "{change}");
    }
    let document = json!([{"type": "document", "source": {"type": "base64", "data": "x"}}]);
    for (change, expected) in [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"container": "c"}), "container"),
        (json!({"mcp_servers": [{"name": "x"}]}), "mcp_servers"),
        (json!({"tools": [{"type": "web_search_20250305", "name": "w"}]}), "tools[0].type"),
        (json!({"tools": [{"name": "w"}]}), "tools[0].input_schema"),
        (user(json!([{"type": "image"}])), "messages[0].content[0]"),
        (user(document), "messages[0].content[0].source"),
        (user(json!([])), "messages[0].content"),
        (
            json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}),
            "messages",
        ),
    ] {
        assert_eq!(param("messages", change.clone()).as_deref(), Some(expected), "{change}");
        assert_eq!(param("messages-2023", change.clone()).as_deref(), Some(expected), "{change}");
    }
}

#[test]
fn the_newer_version_of_messages_has_no_sampling_and_no_citations() {
    let cited = json!([{"type": "text", "text": "a", "citations": [{"type": "char_location"}]}]);
    let cited = json!({"messages": [{"role": "user", "content": cited}]});
    for (change, newer, older) in [
        (json!({"temperature": 1.0}), Some("temperature"), None),
        (json!({"top_p": 0.5}), Some("top_p"), None),
        (json!({"top_k": 5}), Some("top_k"), Some("top_k")),
        (cited, Some("messages[0].content[0].citations"), None),
    ] {
        assert_eq!(param("messages", change.clone()).as_deref(), newer, "{change}");
        assert_eq!(param("messages-2023", change.clone()).as_deref(), older, "{change}");
    }
    assert_eq!(ApiVersion::of(Some("2026-10-21")), Ok(ApiVersion::V2026));
    assert_eq!(ApiVersion::of(None), Ok(ApiVersion::V2023));
    assert!(ApiVersion::of(Some("2023-01-01")).is_err());
}

#[test]
fn what_asks_for_nothing_is_no_wish() {
    for change in [
        json!({"n": 1, "logprobs": false, "top_logprobs": 0, "frequency_penalty": 0, "presence_penalty": 0.0}),
        json!({"logit_bias": {}, "functions": [], "audio": null, "modalities": ["text"], "stop": null}),
        json!({"user": "u", "service_tier": "auto", "store": true, "something_new": {"a": [1]}}),
    ] {
        assert_eq!(param("chat", change.clone()), None, "{change}");
    }
    let hosted = json!({"tools": [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}]});
    assert_eq!(param("responses", hosted), None);
}

#[test]
fn a_result_belongs_to_a_call_and_each_call_has_one() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let assistant = |ids: &[&str]| json!({"role": "assistant", "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "x"});
    let user = json!({"role": "user", "content": "x"});
    for (messages, expected) in [
        (json!([user, assistant(&["a", "b"]), result("b"), result("a")]), None),
        (json!([user, assistant(&["a", "b"]), result("a")]), Some("messages")),
        (json!([user, assistant(&["a"]), user]), Some("messages[2]")),
        (json!([user, assistant(&["a"]), result("a"), result("a")]), Some("messages[3].tool_call_id")),
        (json!([user, assistant(&["a", "a"]), result("a")]), Some("messages[1]")),
    ] {
        assert_eq!(param("chat", json!({"messages": messages})).as_deref(), expected, "{messages}");
    }
}

#[test]
fn each_vendor_is_told_in_its_own_shape() {
    let no =
        ChatRequest::parse(br#"{"model":"drupe","messages":[{"role":"user","content":1}]}"#).expect_err("no");
    assert_eq!(no.status(Vendor::OpenAi), 400);
    let error = &no.body(Vendor::OpenAi, "req_1")["error"];
    assert_eq!(
        (&error["type"], &error["param"], &error["code"]),
        (&json!("invalid_request_error"), &json!("messages[0].content"), &json!("invalid_type"))
    );
    let body = no.body(Vendor::Anthropic, "req_1");
    assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!("req_1")));
    assert_eq!(body["error"]["type"], "invalid_request_error");
    assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains("messages[0].content")));
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    for body in ["", "{", "[]", "null", "\u{feff}{}", "{\"a\":1e999}"] {
        let no = ChatRequest::parse(body.as_bytes()).expect_err(body);
        assert_eq!((no.kind, no.param), (RejectionKind::Invalid, None), "{body}");
    }
    let deep = "[".repeat(100_000);
    assert!(ResponsesRequest::parse(deep.as_bytes()).is_err());
    assert!(MessagesRequest::parse(b"\xff\xfe", ApiVersion::V2023).is_err());
}

#[test]
fn a_fault_of_the_kernel_has_a_status_in_both_formats() {
    for (code, openai, anthropic) in [
        (FaultCode::Invalid, 400, 400),
        (FaultCode::Unauthenticated, 401, 401),
        (FaultCode::Denied, 403, 403),
        (FaultCode::NotFound, 404, 404),
        (FaultCode::Budget, 429, 402),
        (FaultCode::Busy, 503, 529),
        (FaultCode::Unavailable, 503, 529),
        (FaultCode::Timeout, 504, 504),
        (FaultCode::Unsupported, 501, 501),
        (FaultCode::Internal, 500, 500),
    ] {
        let fault = Fault::new(code, "it is so").help("do this");
        let rejection = Rejection::from(&fault);
        assert_eq!(rejection.status(Vendor::OpenAi), openai, "{code:?}");
        assert_eq!(rejection.status(Vendor::Anthropic), anthropic, "{code:?}");
        assert_eq!(rejection.retry, fault.retriable);
        assert!(rejection.message.contains("do this"));
    }
}

#[test]
fn a_client_repeats_only_what_the_other_side_broke() {
    let of = |class| Rejection::of_turn(&AgentResponse::error(class, "so it ended"));
    assert!(of(FailureClass::Network).retry && of(FailureClass::RateLimit).retry);
    for class in [FailureClass::Budget, FailureClass::Auth, FailureClass::Timeout, FailureClass::Loop] {
        assert!(!of(class).retry, "{class:?}");
    }
    // The key of the provider is the operator's: the client's own is good.
    assert_eq!(of(FailureClass::Auth).status(Vendor::OpenAi), 500);
}
