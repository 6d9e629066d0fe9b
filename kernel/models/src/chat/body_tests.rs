//! Requests as they go out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use drupe_extension_api::{ModelParameters, Reasoning};

use super::*;
use crate::{
    chat::{ChatApi, RESERVED},
    samples::{self, body, facts, refused},
    settings::Endpoint,
};

fn api(dialect: &str) -> ChatApi {
    let endpoint = Endpoint { dialect: Some(dialect.to_owned()), ..Endpoint::default() };
    ChatApi::at(&endpoint, &reqwest::Url::parse("http://127.0.0.1/v1").unwrap()).unwrap()
}

#[test]
fn a_transcript_is_written_as_providers_read_it() {
    let request = samples::transcript(None);
    let function = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        body(&api("common"), &facts("m"), &request),
        json!({
            "model": "m",
            "stream": true,
            "stream_options": {"include_usage": true},
            "max_tokens": 100,
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": "hi \"you\""},
                {"role": "assistant", "content": "so", "tool_calls": [
                    function("c1", "kv_dot_get", r#"{"b": 1, "a": 2}"#),
                    function("c2", "x", r#"{"invalid":"{broken"}"#),
                    function("c3", "y", "{}"),
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "red"},
                {"role": "tool", "tool_call_id": "c2", "content": "no"},
                {"role": "tool", "tool_call_id": "c3", "content": ""},
                {"role": "user", "content": "go on"},
            ],
            "tools": [{"type": "function", "function": {
                "name": "kv_dot_get", "description": "does kv.get", "parameters": {"type": "object", "properties": {}},
            }}],
        })
    );
    let deepseek = body(&api("deepseek"), &facts("m"), &request);
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
    let mut request = samples::request(Vec::new(), Vec::new(), parameters);
    request.output =
        Some(Arc::new(OutputSpec { format: Format::Json, schema: Some(json!({"type": "object"})) }));
    let openai = body(&api("openai"), &facts("m"), &request);
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
    let mistral = body(&api("mistral"), &facts("m"), &request);
    assert_eq!(mistral.get("random_seed"), Some(&json!(7)));
    assert!(mistral.get("stream_options").is_none(), "{mistral}");
    let deepseek = body(&api("deepseek"), &facts("m"), &request);
    assert_eq!(deepseek.pointer("/response_format/type"), Some(&json!("json_object")));
    let words = deepseek.pointer("/messages/1/content").and_then(Value::as_str).unwrap_or_default();
    assert!(words.ends_with(r#"{"type":"object"}"#), "{words}");
}

#[test]
fn what_cannot_be_asked_is_refused_and_not_dropped() {
    let extra = |key: &str| ModelParameters {
        extra: [(key.to_owned(), json!(1))].into_iter().collect(),
        ..Default::default()
    };
    for key in RESERVED {
        assert_ne!(refused(&api("common"), &facts("m"), &extra(key)), "", "{key}");
    }
    let stops = ModelParameters { stop: vec![String::new(); 5], ..Default::default() };
    let cases = [
        ("openai", ModelParameters { seed: Some(1), ..extra("seed") }, true),
        ("openai", extra("seed"), false),
        ("openai", stops.clone(), true),
        ("common", stops, false),
        ("common", ModelParameters { top_p: Some(f64::NAN), ..Default::default() }, true),
        ("common", ModelParameters { temperature: Some(2.1), ..Default::default() }, true),
    ];
    for (name, parameters, is_refused) in cases {
        let text = refused(&api(name), &facts("m"), &parameters);
        assert_eq!(!text.is_empty(), is_refused, "{parameters:?}: {text}");
    }
}

#[test]
fn what_the_model_cannot_is_refused_with_the_key_that_says_so() {
    let mut plain = facts("m");
    (plain.reasoning, plain.sampling) = (Some(false), Some(false));
    let with = |set: fn(&mut ModelParameters)| {
        let mut parameters = ModelParameters::default();
        set(&mut parameters);
        refused(&api("common"), &plain, &parameters)
    };
    for (text, part) in [
        (with(|p| p.reasoning = Some(Reasoning::Low)), "`reasoning: true`"),
        (with(|p| p.temperature = Some(0.0)), "`temperature`: the model takes none"),
        (with(|p| p.top_p = Some(1.0)), "`sampling: true`"),
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(with(|p| p.reasoning = Some(Reasoning::None)), "");
    let none = ModelParameters { reasoning: Some(Reasoning::None), ..Default::default() };
    let request = samples::request(Vec::new(), Vec::new(), none);
    assert!(body(&api("common"), &plain, &request).get("reasoning_effort").is_none());
    assert_eq!(body(&api("common"), &facts("m"), &request).get("reasoning_effort"), Some(&json!("none")));
}

#[test]
fn words_about_tools_are_left_out_where_there_are_none() {
    let extra = ["tool_choice", "parallel_tool_calls"].map(|key| (key.to_owned(), json!("x")));
    let parameters = ModelParameters { extra: extra.into_iter().collect(), ..Default::default() };
    for tools in [vec![], vec![samples::spec("f", json!({}))]] {
        let has = !tools.is_empty();
        let written =
            body(&api("common"), &facts("m"), &samples::request(Vec::new(), tools, parameters.clone()));
        for key in ["tool_choice", "parallel_tool_calls"] {
            assert_eq!(written.get(key).is_some(), has, "{written}");
        }
    }
}

#[test]
fn efforts_that_a_model_refuses_are_refused_before_it_is_asked() {
    use Reasoning::{High, Low, Medium, None};
    let takes =
        |efforts: &[Reasoning]| Facts { efforts: Some(efforts.iter().copied().collect()), ..facts("m") };
    for efforts in [&[None, Low, Medium, High][..], &[Low, Medium, High], &[High], &[Low, High]] {
        for reasoning in [None, Low, Medium, High] {
            let parameters = ModelParameters { reasoning: Some(reasoning), ..Default::default() };
            let text = refused(&api("openai"), &takes(efforts), &parameters);
            assert_eq!(text.is_empty(), efforts.contains(&reasoning), "{efforts:?} {reasoning:?}: {text}");
            assert_eq!(refused(&api("openai"), &facts("m"), &parameters), "", "nobody knows better");
        }
    }
    let medium = ModelParameters { reasoning: Some(Medium), ..Default::default() };
    let text = refused(&api("openai"), &takes(&[Low, High]), &medium);
    assert!(text.starts_with("`reasoning: medium`: the model takes `low` or `high` alone"), "{text}");
}
