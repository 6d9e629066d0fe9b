//! Requests and answers for the tests of all APIs.

use std::sync::Arc;

use drupe_agent::{AgentCard, ModelEvent, ModelRequest, StopReason};
use drupe_extension_api::{
    AgentId, Message, ModelParameters, ProviderItems, ToolAnnotations, ToolCallRequest, ToolName, ToolSpec,
    ToolStatus,
};
use serde_json::{Value, json};

use crate::wire::{Api, Draft, Facts, Names, parameters, tools::ToolLists};

pub(crate) fn spec(name: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: ToolName::new(name).unwrap(),
        description: format!("does {name}"),
        input_schema,
        instructions: None,
        annotations: ToolAnnotations::default(),
    })
}

pub(crate) fn facts(model: &str) -> Facts {
    Facts {
        model: model.to_owned(),
        origin: format!("kind:p/{model}").into(),
        max_output_tokens: 64_000,
        reasoning: None,
        efforts: None,
        thinking: None,
        sampling: None,
        images: false,
    }
}

pub(crate) fn request(
    messages: Vec<Message>,
    tools: Vec<Arc<ToolSpec>>,
    parameters: ModelParameters,
) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("main").unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "be brief".into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        tools: tools.into(),
        deferred: Arc::default(),
        parameters: Arc::new(parameters),
        sparing: false,
        max_output_tokens: 100,
        room: Default::default(),
        dispatch: Default::default(),
        output: None,
        timeout_ms: 1_000,
        max_retries: 0,
    }
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> ToolCallRequest {
    ToolCallRequest { call_id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

/// A question, an answer that calls three tools, one of them with half an object, and two results.
pub(crate) fn transcript(provider_items: Option<(&str, Value)>) -> ModelRequest {
    let calls =
        vec![call("c1", "kv.get", r#"{"b": 1, "a": 2}"#), call("c2", "x", "{broken"), call("c3", "y", "")];
    let result = |id: &str, name: &str, status, content: &str| Message::Tool {
        call_id: id.to_owned(),
        name: name.to_owned(),
        status,
        content: content.to_owned(),
        images: Vec::new(),
    };
    let messages = vec![
        Message::User { content: "hi \"you\"".to_owned() },
        Message::Assistant {
            content: "so".to_owned(),
            reasoning: Some("hm".to_owned()),
            tool_calls: calls,
            provider_items: provider_items
                .map(|(kind, items)| ProviderItems { kind: kind.to_owned(), items }),
        },
        result("c1", "kv.get", ToolStatus::Ok, "red"),
        result("c2", "x", ToolStatus::Refused, "no"),
        result("c3", "y", ToolStatus::Ok, ""),
        Message::User { content: "go on".to_owned() },
    ];
    request(messages, vec![spec("kv.get", json!({"type": "object"}))], ModelParameters::default())
}

/// The body as it goes out.
pub(crate) fn written(api: &dyn Api, facts: &Facts, request: &ModelRequest) -> String {
    let list = ToolLists::default().of(api, &request.tools).unwrap();
    String::from_utf8(api.body(facts, request, &list).unwrap()).unwrap()
}

/// The body as the server reads it.
pub(crate) fn body(api: &dyn Api, facts: &Facts, request: &ModelRequest) -> Value {
    serde_json::from_str(&written(api, facts, request)).unwrap()
}

/// What is said against parameters; empty where they are taken.
pub(crate) fn refused(api: &dyn Api, facts: &Facts, parameters: &ModelParameters) -> String {
    parameters::check(&api.takes(facts), facts, parameters)
        .and_then(|()| api.check(facts, parameters))
        .err()
        .map(|unsupported| unsupported.to_string())
        .unwrap_or_default()
}

/// Feeds events, and writes what came out: texts, then calls, items, and the reason to stop.
pub(crate) fn read(api: &dyn Api, events: &[&str]) -> Result<String, String> {
    let (mut reader, mut draft, mut out) = (api.reader(), Draft::default(), Vec::new());
    for event in events {
        reader
            .take(event, &mut draft, &mut out)
            .map_err(|b| format!("{}{}", b.fault.message, if b.fault.retriable { " (again)" } else { "" }))?;
    }
    if !draft.whole() {
        return Err("not whole".to_owned());
    }
    let finished = draft.finish(api.kind(), 3, &Names::default(), &[]).map_err(|f| f.message)?;
    draft.rest(&mut out);
    let texts = out.iter().map(|event| match event {
        ModelEvent::Text(text) => format!("{text};"),
        ModelEvent::Reasoning(text) => format!("({text});"),
        other => format!("{other:?};"),
    });
    let calls = finished.calls.iter().map(|c| format!("{}:{}{};", c.call_id, c.name, c.arguments));
    let items = finished.items.map(|kept| format!("{};", kept.items));
    let refusal = (!draft.refusal.is_empty()).then(|| format!("{};", draft.refusal));
    Ok(texts.chain(refusal).chain(calls).chain(items).collect::<String>() + &ending(finished.stop))
}

/// A reason to stop, with how many calls it cost.
fn ending(stop: StopReason) -> String {
    match stop {
        StopReason::Length { dropped_calls: n @ 1.. } | StopReason::Filter { dropped_calls: n @ 1.. } => {
            format!("{}-{n}", stop.name())
        }
        _ => stop.name().to_owned(),
    }
}

/// The usage that events report: input, cached, output, reasoning.
pub(crate) fn usage(api: &dyn Api, events: &[&str]) -> Option<[u64; 4]> {
    let (mut reader, mut draft) = (api.reader(), Draft::default());
    for event in events {
        reader.take(event, &mut draft, &mut Vec::new()).unwrap();
    }
    draft.usage.map(|u| [u.input_tokens, u.cached_tokens, u.output_tokens, u.reasoning_tokens])
}
