//! Requests as they go out.

use drupe_extension_api::{ModelParameters, Reasoning};
use serde_json::json;

use super::*;
use crate::{
    responses::ResponsesApi,
    samples::{self, body, facts, refused},
};

#[test]
fn a_transcript_is_written_as_providers_read_it() {
    let sealed =
        |at: usize, id: &str| json!({"at": at, "id": id, "summary": [], "encrypted_content": "seal"});
    let items = json!([sealed(0, "r0"), sealed(2, "r2")]);
    let reasoning =
        |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "seal"});
    let function = |id: &str, name: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments});
    let output =
        |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
    assert_eq!(
        body(&ResponsesApi, &facts("m"), &samples::transcript(Some(("kind:p/m", items.clone())))),
        json!({
            "model": "m",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 100,
            "instructions": "be brief",
            "input": [
                {"type": "message", "role": "user", "content": "hi \"you\""},
                reasoning("r0"),
                {"type": "message", "role": "assistant", "content": "so"},
                function("c1", "kv_dot_get", r#"{"b": 1, "a": 2}"#),
                reasoning("r2"),
                function("c2", "x", r#"{"invalid":"{broken"}"#),
                function("c3", "y", "{}"),
                output("c1", "red"),
                output("c2", "no"),
                output("c3", ""),
                {"type": "message", "role": "user", "content": "go on"},
            ],
            "tools": [{
                "type": "function", "name": "kv_dot_get", "description": "does kv.get",
                "parameters": {"type": "object", "properties": {}}, "strict": false,
            }],
        })
    );
    for origin in ["openai", "kind:p/other", "kind:other/m", "other:p/m"] {
        let others = body(&ResponsesApi, &facts("m"), &samples::transcript(Some((origin, items.clone()))));
        assert!(!others.to_string().contains("seal"), "{origin}: {others}");
    }
    let plain = Facts { reasoning: Some(false), ..facts("m") };
    let others = body(&ResponsesApi, &plain, &samples::transcript(Some(("kind:p/m", items))));
    assert!(!others.to_string().contains("seal"), "{others}");
}

#[test]
fn every_parameter_reaches_the_provider_under_its_name_or_is_refused() {
    let parameters = ModelParameters {
        temperature: Some(0.5),
        top_p: Some(0.9),
        reasoning: Some(Reasoning::High),
        extra: [("service_tier".to_owned(), json!("flex"))].into_iter().collect(),
        ..ModelParameters::default()
    };
    assert_eq!(refused(&ResponsesApi, &facts("m"), &parameters), "");
    let mut request = samples::request(Vec::new(), Vec::new(), parameters);
    request.max_output_tokens = 1;
    request.output =
        Some(Arc::new(OutputSpec { format: Format::Json, schema: Some(json!({"type": "object"})) }));
    let written = body(&ResponsesApi, &facts("m"), &request);
    for (key, value) in [
        ("/temperature", json!(0.5)),
        ("/top_p", json!(0.9)),
        ("/reasoning/effort", json!("high")),
        ("/service_tier", json!("flex")),
        ("/max_output_tokens", json!(16)),
        ("/text/format/type", json!("json_schema")),
        ("/text/format/schema", json!({"type": "object"})),
    ] {
        assert_eq!(written.pointer(key), Some(&value), "{key}");
    }
    let seed = ModelParameters { seed: Some(1), ..Default::default() };
    let stop = ModelParameters { stop: vec!["x".to_owned()], ..Default::default() };
    for (parameters, part) in
        [(seed, "`seed`: the Responses API has no such"), (stop, "`stop`: the Responses API")]
    {
        let text = refused(&ResponsesApi, &facts("gpt-5"), &parameters);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn models_that_do_not_reason_are_not_asked_for_sealed_reasoning() {
    let request = samples::request(Vec::new(), Vec::new(), ModelParameters::default());
    let asks = |facts: &Facts| body(&ResponsesApi, facts, &request).get("include").is_some();
    assert!(asks(&facts("gpt-5")) && !asks(&facts("gpt-4.1")));
    assert!(!asks(&Facts { reasoning: Some(false), ..facts("gpt-5") }));
    assert!(asks(&Facts { reasoning: Some(true), ..facts("gpt-4.1") }));
}

#[test]
fn json_without_a_schema_is_asked_for_in_words_too() {
    let mut request = samples::request(Vec::new(), Vec::new(), ModelParameters::default());
    request.output = Some(Arc::new(OutputSpec { format: Format::Json, schema: None }));
    let written = body(&ResponsesApi, &facts("m"), &request);
    assert_eq!(written.pointer("/text/format/type"), Some(&json!("json_object")));
    assert_eq!(written.pointer("/input/0/role"), Some(&json!("developer")));
}

#[test]
fn the_phase_of_a_message_goes_back_with_it_and_is_no_reasoning() {
    let events = [
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","phase":"commentary"}}"#,
        r#"{"type":"response.output_text.delta","delta":"so"}"#,
        r#"{"type":"response.completed","response":{"status":"completed"}}"#,
    ];
    assert_eq!(
        samples::read(&ResponsesApi, &events),
        Ok(r#"so;[{"at":0,"phase":"commentary"}];end"#.to_owned())
    );
    let request = samples::transcript(Some(("kind:p/m", json!([{"at": 0, "phase": "commentary"}]))));
    let written = body(&ResponsesApi, &facts("m"), &request);
    let input = written["input"].as_array().map_or(&[][..], Vec::as_slice);
    let phases: Vec<_> = input.iter().filter_map(|item| item.get("phase")).collect();
    assert_eq!(phases, [&json!("commentary")]);
    assert!(input.iter().all(|item| item["type"] != "reasoning"), "{written}");
}
