//! Requests as they go out.

use drupe_extension_api::{ModelParameters, OutputSpec};
use serde_json::json;

use super::*;
use crate::{
    gemini::GeminiApi,
    samples::{self, body, facts, refused},
};

#[test]
fn a_transcript_is_written_as_providers_read_it() {
    let items = json!([{"at": 0, "thoughtSignature": "t"}, {"at": 1, "thoughtSignature": "s"}, {"at": 1, "id": "own"}]);
    let call = |name: &str, args: Value| json!({"functionCall": {"name": name, "args": args}});
    let reply =
        |name: &str, response: Value| json!({"functionResponse": {"name": name, "response": response}});
    let request = samples::transcript(Some(("kind:p/m", items.clone())));
    assert_eq!(
        body(&GeminiApi, &facts("m"), &request),
        json!({
            "systemInstruction": {"parts": [{"text": "be brief"}]},
            "contents": [
                {"role": "user", "parts": [{"text": "hi \"you\""}]},
                {"role": "model", "parts": [
                    {"text": "so", "thoughtSignature": "t"},
                    {"functionCall": {"id": "own", "name": "kv_dot_get", "args": {"b": 1, "a": 2}}, "thoughtSignature": "s"},
                    call("x", json!({"invalid": "{broken"})),
                    call("y", json!({})),
                ]},
                {"role": "user", "parts": [
                    {"functionResponse": {"id": "own", "name": "kv_dot_get", "response": {"output": "red"}}},
                    reply("x", json!({"error": "no"})),
                    reply("y", json!({"output": ""})),
                ]},
                {"role": "user", "parts": [{"text": "go on"}]},
            ],
            "tools": [{"functionDeclarations": [{
                "name": "kv_dot_get", "description": "does kv.get",
                "parametersJsonSchema": {"type": "object", "properties": {}},
            }]}],
            "generationConfig": {"maxOutputTokens": 100},
        })
    );
    let others = samples::transcript(Some(("kind:p/other", items)));
    assert!(!body(&GeminiApi, &facts("gemini-2.5-flash"), &others).to_string().contains("thoughtSignature"));
    let third = body(&GeminiApi, &facts("gemini-3-pro"), &others);
    let stand_in = third.pointer("/contents/1/parts/1/thoughtSignature").and_then(Value::as_str);
    assert_eq!(stand_in, Some("skip_thought_signature_validator"));
}

#[test]
fn every_parameter_reaches_the_provider_under_its_name() {
    let extra =
        [("safetySettings".to_owned(), json!([])), ("generationConfig".to_owned(), json!({"topK": 5}))];
    let parameters = ModelParameters {
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasoning: Some(Reasoning::High),
        seed: Some(7),
        stop: vec!["END".to_owned()],
        extra: extra.into_iter().collect(),
        ..ModelParameters::default()
    };
    assert_eq!(refused(&GeminiApi, &facts("gemini-2.5-flash"), &parameters), "");
    let mut request = samples::request(Vec::new(), Vec::new(), parameters);
    request.max_output_tokens = 64_000;
    request.output =
        Some(Arc::new(OutputSpec { format: Format::Json, schema: Some(json!({"type": "object"})) }));
    let written = body(&GeminiApi, &facts("gemini-2.5-flash"), &request);
    for (key, value) in [
        ("/safetySettings", json!([])),
        ("/generationConfig/topK", json!(5)),
        ("/generationConfig/temperature", json!(0.5)),
        ("/generationConfig/topP", json!(0.9)),
        ("/generationConfig/seed", json!(7)),
        ("/generationConfig/stopSequences", json!(["END"])),
        ("/generationConfig/maxOutputTokens", json!(64_000)),
        ("/generationConfig/thinkingConfig", json!({"includeThoughts": true, "thinkingBudget": 24_576})),
        ("/generationConfig/responseMimeType", json!("application/json")),
        ("/generationConfig/responseJsonSchema", json!({"type": "object"})),
    ] {
        assert_eq!(written.pointer(key), Some(&value), "{key}");
    }
    let third = body(&GeminiApi, &facts("gemini-3-flash"), &request);
    assert_eq!(third.pointer("/generationConfig/thinkingConfig/thinkingLevel"), Some(&json!("high")));
    // Together with tools the form is asked for in words.
    request.tools = vec![samples::spec("kv_get", json!({}))].into();
    let written = body(&GeminiApi, &facts("m"), &request);
    assert!(written.pointer("/generationConfig/responseMimeType").is_none());
    let words =
        written.pointer("/systemInstruction/parts/1/text").and_then(Value::as_str).unwrap_or_default();
    assert!(words.ends_with(r#"{"type":"object"}"#), "{words}");
}

#[test]
fn what_cannot_be_asked_is_refused_and_not_dropped() {
    let config = |value: Value| ModelParameters {
        extra: [("generationConfig".to_owned(), value)].into_iter().collect(),
        ..Default::default()
    };
    let little = ModelParameters {
        max_output_tokens: Some(1_500),
        reasoning: Some(Reasoning::Low),
        ..Default::default()
    };
    for (model, parameters, part) in [
        ("m", ModelParameters { seed: Some(u64::MAX), ..Default::default() }, "`seed` must be"),
        ("m", ModelParameters { stop: vec![String::new(); 6], ..Default::default() }, "at most 5"),
        ("gemini-2.5-pro", little.clone(), "1536 or more"),
        ("m", config(json!({"maxOutputTokens": 1})), "`maxOutputTokens`, which has"),
        ("m", config(json!(1)), "must be an object"),
        ("m", ModelParameters { seed: Some(1), ..config(json!({"seed": 1})) }, "`seed`, which has"),
        ("../x", ModelParameters::default(), "its name"),
        ("x?key=1", ModelParameters::default(), "its name"),
    ] {
        let text = refused(&GeminiApi, &facts(model), &parameters);
        assert!(text.contains(part), "{model}: {text}");
    }
    assert_eq!(refused(&GeminiApi, &facts("m"), &config(json!({"thinkingConfig": {}}))), "");
    assert_eq!(refused(&GeminiApi, &facts("gemini-3-flash"), &little), "");
}

#[test]
fn thoughts_that_are_told_by_tokens_leave_room_for_the_answer() {
    let budget = |reasoning, tokens: u32| {
        let parameters = ModelParameters { reasoning: Some(reasoning), ..Default::default() };
        let mut request = samples::request(Vec::new(), Vec::new(), parameters);
        request.max_output_tokens = tokens;
        let written = body(&GeminiApi, &facts("gemini-2.5-flash"), &request);
        written.pointer("/generationConfig/thinkingConfig/thinkingBudget").and_then(Value::as_u64)
    };
    for (reasoning, tokens, expected) in [
        (Reasoning::None, 64_000, 0),
        (Reasoning::Low, 64_000, 2_048),
        (Reasoning::High, 64_000, 24_576),
        (Reasoning::High, 2_000, 1_000),
        (Reasoning::High, 4_096, 3_072),
        (Reasoning::Low, 600, 300),
    ] {
        assert_eq!(budget(reasoning, tokens), Some(expected), "{reasoning:?} {tokens}");
    }
}

#[test]
fn what_is_said_of_a_model_decides_whether_it_has_levels_and_else_its_generation() {
    use crate::settings::Thinking;
    for (model, thinking, levels) in [
        ("gemini-2.5-flash", None, false),
        ("gemini-3.8-flash", None, true),
        ("gemini-4-argon", None, true),
        ("models/gemini-2.5-pro", None, false),
        ("gemini-2.5-flash", Some(Thinking::Level), true),
        ("gemini-4-argon", Some(Thinking::Budget), false),
    ] {
        let facts = Facts { thinking, ..facts(model) };
        assert_eq!(has_levels(&facts), levels, "{model} {thinking:?}");
    }
}
