//! One model of one kind on a server of ours, and what comes of asking it.

use std::{collections::BTreeMap, sync::Arc};

use drupe_agent::{AgentCard, Model, ModelEvent, ModelFault, ModelRequest, StopReason, Usage};
use drupe_extension_api::{AgentId, Message};
use drupe_models::{
    CatalogueEntry, Endpoint, Models, ModelsSettings, NamedBy, ProfileSettings, ProviderKind,
    ProviderSettings,
};
use futures_util::StreamExt;

use crate::server::Server;

/// Long enough that a busy machine is not taken for a silent server.
pub const STALL_MS: u64 = 1_000;
/// Time of one attempt.
pub const ATTEMPT_MS: u64 = 2_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Responses,
    Messages,
    Gemini,
}

pub const KINDS: [Kind; 4] = [Kind::Chat, Kind::Responses, Kind::Messages, Kind::Gemini];

impl Kind {
    /// The name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "openai_chat",
            Self::Responses => "openai",
            Self::Messages => "anthropic",
            Self::Gemini => "gemini",
        }
    }
}

/// A server at this address, with a key and a header.
pub fn endpoint(base_url: &str) -> Endpoint {
    Endpoint {
        base_url: base_url.to_owned(),
        api_key: Some("sk-secret".to_owned()),
        headers: BTreeMap::from([("x-team".to_owned(), "cherry".to_owned())]),
        ..Endpoint::default()
    }
}

pub fn model(kind: Kind, server: &Server) -> Arc<dyn Model> {
    sized(kind, server, ProfileSettings::default())
}

/// One of which that is known.
pub fn sized(kind: Kind, server: &Server, profile: ProfileSettings) -> Arc<dyn Model> {
    let all = provider(kind, server, profile);
    all.resolve(NamedBy::Operator, &["mock/m".to_owned()]).unwrap().model
}

/// All models of a provider, `mock`; of its model `m` that is known.
pub fn provider(kind: Kind, server: &Server, profile: ProfileSettings) -> Models {
    let endpoint = endpoint(&server.url());
    let way = match kind {
        Kind::Chat => ProviderKind::OpenAiChat(endpoint),
        Kind::Responses => ProviderKind::OpenAi(endpoint),
        Kind::Messages => ProviderKind::Anthropic(endpoint),
        Kind::Gemini => ProviderKind::Gemini(endpoint),
    };
    let provider = ProviderSettings {
        stall_timeout_ms: STALL_MS,
        timeout_ms: ATTEMPT_MS,
        ..ProviderSettings::new("mock", way)
    };
    let entry = |name: &str| {
        (name.to_owned(), CatalogueEntry { provider: "mock".to_owned(), ..CatalogueEntry::default() })
    };
    let settings = ModelsSettings {
        providers: vec![provider],
        catalogue: ["m-2", "large-1"].map(entry).into(),
        profiles: [("mock/m".to_owned(), profile)].into(),
        ..ModelsSettings::default()
    };
    Models::new(settings).unwrap()
}

pub fn request(max_retries: u32) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("main").unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "be brief".into(),
        messages: Arc::new(vec![Arc::new(Message::User { content: "hi".to_owned() })]),
        tools: Arc::default(),
        deferred: Arc::default(),
        parameters: Arc::default(),
        sparing: false,
        max_output_tokens: 100,
        room: Default::default(),
        dispatch: Default::default(),
        output: None,
        timeout_ms: 20_000,
        max_retries,
    }
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

fn counts(usage: &Usage) -> String {
    format!("{},{},{}", usage.input_tokens, usage.cached_tokens, usage.output_tokens)
}

/// A fault's class; with a `+` where bytes of an answer had come, and then its cost as far as that is known.
fn told(fault: &ModelFault) -> String {
    let cost = fault.usage.as_ref().map(counts).unwrap_or_default();
    format!("{:?}{}{cost}", fault.class, if fault.began { "+" } else { "" })
}

/// What came of a request, in short, and the fault if it failed. Deltas of one kind that follow each other are one.
pub async fn ask(model: &Arc<dyn Model>, request: ModelRequest) -> (String, Option<ModelFault>) {
    let mut fault = None;
    let mut words: Vec<String> = Vec::new();
    let mut before = 0;
    let mut events = model.stream(request);
    while let Some(event) = events.next().await {
        let (kind, word) = match event {
            ModelEvent::Text(text) => (1, text),
            ModelEvent::Reasoning(text) => (2, text),
            ModelEvent::ToolCall(call) => (0, format!("{}:{}{}", call.call_id, call.name, call.arguments)),
            // Each kind has its own.
            ModelEvent::ProviderItems(_) | ModelEvent::Said(_) => continue,
            ModelEvent::Retry { fault, .. } => (0, format!("retry/{}", told(&fault))),
            ModelEvent::Done { stop, usage, .. } => {
                (0, format!("{}/{}", ending(stop), counts(&usage.unwrap_or_default())))
            }
            ModelEvent::Failed(found) => {
                let word = format!("failed/{}", told(&found));
                fault = Some(found);
                (0, word)
            }
        };
        match words.last_mut() {
            Some(last) if kind != 0 && kind == before => last.push_str(&word),
            _ => words.push(word),
        }
        before = kind;
    }
    (words.join(" "), fault)
}

/// Plays acts with one retry allowed.
pub async fn play(kind: Kind, acts: Vec<crate::server::Act>) -> (String, Option<ModelFault>) {
    let server = Server::start(acts).await;
    ask(&model(kind, &server), request(1)).await
}
