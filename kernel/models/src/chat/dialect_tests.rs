//! One case a dialect, and how one is chosen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drupe_extension_api::{Message, ModelParameters, ProviderItems, Reasoning};
use serde_json::{Value, json};

use super::*;
use crate::{
    chat::ChatApi,
    samples::{self, body, facts, refused},
};

fn endpoint(dialect: Option<&str>) -> Endpoint {
    Endpoint { dialect: dialect.map(str::to_owned), ..Endpoint::default() }
}

fn api(dialect: &str) -> ChatApi {
    ChatApi::at(&endpoint(Some(dialect)), &Url::parse("http://127.0.0.1/v1").unwrap()).unwrap()
}

fn thoughtful(stop: usize) -> ModelParameters {
    ModelParameters {
        seed: Some(7),
        reasoning: Some(Reasoning::High),
        stop: vec!["x".to_owned(); stop],
        ..ModelParameters::default()
    }
}

#[test]
fn the_host_decides_and_not_a_name_that_resembles_it() {
    for (url, dialect) in [
        ("https://api.openai.com/v1", "openai"),
        ("https://me.openai.azure.com/openai/v1", "openai"),
        ("https://api.mistral.ai/v1", "mistral"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://api.moonshot.ai/v1", "moonshot"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.x.ai/v1", "xai"),
        ("https://ollama.com/v1", "ollama"),
        ("https://notopenai.com/v1", "common"),
        ("https://notx.ai/v1", "common"),
        ("http://127.0.0.1:11434/v1", "common"),
    ] {
        let url = Url::parse(url).unwrap();
        assert_eq!(Dialect::of(&endpoint(None), &url).unwrap().name, dialect, "{url}");
        assert_eq!(Dialect::of(&endpoint(Some("vllm")), &url).unwrap().name, "vllm", "{url}");
    }
}

#[test]
fn a_dialect_that_there_is_not_is_refused_with_those_that_there_are() {
    let error = Dialect::of(&endpoint(Some("klingon")), &Url::parse("http://h/v1").unwrap()).unwrap_err();
    assert!(error.to_string().starts_with("dialect `klingon` is none of common, openai, mistral"), "{error}");
}

#[test]
fn each_dialect_has_its_own_names_and_bounds() {
    for (dialect, tokens, seed, usage, effort, stops) in [
        ("common", "max_tokens", "seed", true, "/reasoning_effort", 99),
        ("openai", "max_completion_tokens", "seed", true, "/reasoning_effort", 4),
        ("mistral", "max_tokens", "random_seed", false, "/reasoning_effort", 99),
        ("deepseek", "max_tokens", "seed", true, "/reasoning_effort", 16),
        ("moonshot", "max_tokens", "seed", true, "/reasoning_effort", 16),
        ("openrouter", "max_tokens", "seed", true, "/reasoning/effort", 99),
        ("groq", "max_completion_tokens", "seed", true, "/reasoning_effort", 99),
        ("xai", "max_tokens", "seed", true, "/reasoning_effort", 99),
        ("ollama", "max_tokens", "seed", true, "/reasoning_effort", 99),
        ("vllm", "max_tokens", "seed", true, "/reasoning_effort", 99),
        ("llama_cpp", "max_tokens", "seed", true, "/reasoning_effort", 99),
    ] {
        let written =
            body(&api(dialect), &facts("m"), &samples::request(Vec::new(), Vec::new(), thoughtful(1)));
        assert_eq!(written[tokens], 100, "{dialect}: {written}");
        assert_eq!(written[seed], 7, "{dialect}: {written}");
        assert_eq!(written.get("stream_options").is_some(), usage, "{dialect}: {written}");
        assert_eq!(written.pointer(effort), Some(&json!("high")), "{dialect}: {written}");
        assert_eq!(refused(&api(dialect), &facts("m"), &thoughtful(stops)), "", "{dialect}");
        let more = refused(&api(dialect), &facts("m"), &thoughtful(stops + 1));
        assert_eq!(more.is_empty(), stops == 99, "{dialect}: {more}");
    }
}

#[test]
fn mistral_hears_no_user_right_after_a_tool_and_ids_of_nine_letters_or_digits() {
    let written = body(&api("mistral"), &facts("m"), &samples::transcript(None));
    let messages = written["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "tool", "assistant", "user"]);
    let calls = messages[2]["tool_calls"].as_array().unwrap();
    for (call, result) in calls.iter().zip(&messages[3..6]) {
        let id = call["id"].as_str().unwrap();
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        assert_eq!(result["tool_call_id"], call["id"]);
    }
    assert_ne!(calls[0]["id"], calls[1]["id"]);
    let common = body(&api("common"), &facts("m"), &samples::transcript(None));
    assert_eq!(common.pointer("/messages/2/tool_calls/0/id"), Some(&json!("c1")));
    assert_eq!(common["messages"].as_array().unwrap().len(), 7);
}

#[test]
fn an_id_that_mistral_made_goes_back_as_it_is() {
    let mut request = samples::transcript(None);
    let messages = std::sync::Arc::make_mut(&mut request.messages);
    let Message::Assistant { tool_calls, .. } = std::sync::Arc::make_mut(&mut messages[1]) else { panic!() };
    tool_calls[0].call_id = "aB3dE6gH9".to_owned();
    let written = body(&api("mistral"), &facts("m"), &request);
    assert_eq!(written.pointer("/messages/2/tool_calls/0/id"), Some(&json!("aB3dE6gH9")));
}

#[test]
fn reasoning_goes_back_as_each_dialect_wants_it() {
    let details = json!([{"at": 0, "type": "reasoning.encrypted", "data": "seal", "index": 0}]);
    let request = samples::transcript(Some(("kind:p/m", details)));
    for (dialect, text, sealed) in [
        ("common", false, false),
        ("deepseek", true, false),
        ("moonshot", true, false),
        ("vllm", true, false),
        ("llama_cpp", false, false),
        ("openrouter", false, true),
        ("mistral", false, false),
        ("groq", false, false),
        ("xai", false, false),
        ("ollama", false, false),
    ] {
        let written = body(&api(dialect), &facts("m"), &request);
        let answer = &written["messages"][2];
        assert_eq!(answer.get("reasoning_content").is_some(), text, "{dialect}: {answer}");
        let expected = sealed.then(|| json!([{"type": "reasoning.encrypted", "data": "seal", "index": 0}]));
        assert_eq!(answer.get("reasoning_details").cloned(), expected, "{dialect}: {answer}");
    }
}

#[test]
fn parts_of_reasoning_that_come_in_pieces_are_put_together_and_kept_for_openrouter() {
    let piece = |index: u64, more: Value| {
        let mut part = json!({"index": index, "type": "reasoning.text"});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"choices": [{"delta": {"reasoning_details": [part]}}]}).to_string()
    };
    let sealed = json!({"choices": [{"delta": {"reasoning_details": [
        {"index": 1, "type": "reasoning.encrypted", "data": "seal"}]}}]});
    let events = [
        piece(0, json!({"text": "h"})),
        piece(0, json!({"text": "m", "signature": null})),
        piece(0, json!({"signature": "s"})),
        sealed.to_string(),
        json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}).to_string(),
    ];
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let kept = r#"a;[{"at":0,"index":0,"signature":"s","text":"hm","type":"reasoning.text"},{"at":0,"data":"seal","index":1,"type":"reasoning.encrypted"}];end"#;
    assert_eq!(samples::read(&api("openrouter"), &events), Ok(kept.to_owned()));
    assert_eq!(samples::read(&api("common"), &events), Ok("a;end".to_owned()));
}

#[test]
fn sealed_reasoning_goes_to_no_other_model() {
    let items = ProviderItems { kind: "kind:p/other".to_owned(), items: json!([{"at": 0, "data": "seal"}]) };
    let request = samples::transcript(Some((&items.kind, items.items)));
    assert!(!body(&api("openrouter"), &facts("m"), &request).to_string().contains("seal"));
}
