//! Fakes that behave: a model that plays a script, tools that do one thing, a clock that is the paused one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_agent::{
    Agent, AgentTool, Clock, Definition, HookAnswer, Hooks, LoopAgent, Model, ModelEvent, ModelFault,
    ModelProfile, ModelRequest, Price, Registered, RegistryBuilder, StopReason, Tool, ToolContext, ToolError,
    ToolFuture, ToolOutput,
};
use drupe_extension_api::{
    AgentId, DefinitionLimits, FailureClass, Message, ToolAnnotations, ToolCallRequest, ToolName, ToolSpec,
    Usage, wire::HookPoint,
};
use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use serde_json::{Value, json, value::RawValue};

/// What a model does when it is asked.
#[derive(Clone)]
pub enum Reply {
    /// These events.
    Gives(Vec<ModelEvent>),
    /// These after a while.
    Late(u64, Vec<ModelEvent>),
}

/// A text, with the stop and whether the provider tells the usage.
pub fn ends(text: &str, stop: StopReason) -> Reply {
    let usage = Usage { input_tokens: 100, output_tokens: 10, ..Usage::default() };
    let done = ModelEvent::Done { usage: Some(usage), stop, model: "fake/one".into() };
    let text = (!text.is_empty()).then(|| ModelEvent::Text(text.into()));
    Reply::Gives(text.into_iter().chain([done]).collect())
}

pub fn say(text: &str) -> Reply {
    ends(text, StopReason::End)
}

pub fn call(calls: &[(&str, &str)]) -> Reply {
    let mut events: Vec<ModelEvent> = Vec::new();
    for (at, (name, arguments)) in calls.iter().enumerate() {
        let call = ToolCallRequest {
            call_id: format!("c{at}"),
            name: (*name).into(),
            arguments: (*arguments).into(),
        };
        events.push(ModelEvent::ToolCall(call));
    }
    let Reply::Gives(done) = ends("", StopReason::ToolCalls) else { unreachable!("it gives") };
    Reply::Gives(events.into_iter().chain(done).collect())
}

pub fn fault(class: FailureClass, message: &str) -> ModelFault {
    ModelFault::transient(class, message)
}

pub fn retry(message: &str) -> ModelEvent {
    let (fault, model) = (fault(FailureClass::Network, message), "fake/one".to_owned());
    ModelEvent::Retry { fault, next: model.clone(), model, usage: None }
}

/// An attempt fails, another one too, and so on; then the answer.
pub fn retries(messages: &[&str], then: Reply) -> Reply {
    let (Reply::Gives(then) | Reply::Late(_, then)) = then;
    Reply::Gives(messages.iter().map(|message| retry(message)).chain(then).collect())
}

pub fn fails(class: FailureClass, message: &str) -> Reply {
    Reply::Gives(vec![ModelEvent::Failed(fault(class, message))])
}

/// Gives each agent its own replies: the n-th to a request that holds n answers already; the last one again.
pub struct Plays {
    pub profile: ModelProfile,
    scripts: HashMap<String, Vec<Reply>>,
    pub asked: Mutex<u32>,
}

impl Plays {
    pub fn new(scripts: &[(&str, Vec<Reply>)], price: Option<Price>) -> Arc<Self> {
        let profile = ModelProfile {
            name: "fake/one".into(),
            context_window: 1_000_000,
            max_output_tokens: 100,
            price,
            tools: true,
            images: true,
        };
        let scripts = scripts.iter().map(|(agent, replies)| ((*agent).to_owned(), replies.clone())).collect();
        Arc::new(Self { profile, scripts, asked: Mutex::default() })
    }
}

impl Model for Plays {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let answers = request.messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count();
        let script = self.scripts.get(request.agent.id.as_str()).expect("every agent of a case has a script");
        match script.get(answers).or(script.last()).cloned().expect("a script is not empty") {
            Reply::Gives(events) => stream::iter(events).boxed(),
            Reply::Late(ms, events) => stream::once(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                stream::iter(events)
            })
            .flatten()
            .boxed(),
        }
    }
}

/// What a tool does.
#[derive(Clone)]
pub enum Does {
    Says(&'static str),
    Fails(&'static str),
    Sleeps(u64),
}

pub struct Fake {
    spec: Arc<ToolSpec>,
    does: Does,
}

/// A tool that takes `{n?: integer}`.
pub fn tool(name: &str, does: Does, annotations: ToolAnnotations) -> Arc<Registered> {
    let spec = ToolSpec {
        name: ToolName::new(name).expect("a valid name"),
        description: "A tool.".into(),
        input_schema: json!({
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "additionalProperties": false,
        }),
        instructions: None,
        annotations,
    };
    Registered::new(Arc::new(Fake { spec: Arc::new(spec), does })).expect("a valid schema")
}

impl Tool for Fake {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        "fake"
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            match &self.does {
                Does::Says(text) => Ok(ToolOutput::text(*text)),
                Does::Fails(why) => Err(ToolError::failed(*why)),
                Does::Sleeps(ms) => {
                    tokio::time::sleep(Duration::from_millis(*ms)).await;
                    Ok(ToolOutput::text("slept"))
                }
            }
        })
    }
}

/// An agent in the loop.
pub fn looping(
    id: &str,
    limits: DefinitionLimits,
    model: &Arc<Plays>,
    tools: impl IntoIterator<Item = Arc<Registered>>,
    change: impl FnOnce(&mut Definition),
) -> Arc<dyn Agent> {
    let mut definition: Definition =
        serde_json::from_value(json!({"id": id, "name": id, "instructions": "Work."})).expect("a definition");
    definition.limits = limits;
    change(&mut definition);
    let mut builder = RegistryBuilder::default();
    for tool in tools {
        builder.add(tool).expect("names are unique");
    }
    let model = Arc::clone(model) as Arc<dyn Model>;
    Arc::new(LoopAgent::new(definition, Arc::new(builder.build()), model, false))
}

/// An agent as the tool `agent_<id>`.
pub fn as_tool(agent: &Arc<dyn Agent>) -> Arc<Registered> {
    let name = format!("agent_{}", agent.id()).parse().expect("a valid name");
    Registered::new(Arc::new(AgentTool::new(Arc::clone(agent), name, "An agent.".into(), None)))
        .expect("a valid schema")
}

/// Blocks everything at one point.
pub struct Blocks(pub HookPoint);

impl Hooks for Blocks {
    fn wants(&self, point: HookPoint) -> bool {
        point == self.0
    }

    fn call<'a>(&'a self, _: HookPoint, _: Value) -> BoxFuture<'a, HookAnswer> {
        let answer =
            HookAnswer { blocked: Some("not on a Sunday".into()), remarks: vec!["`audit` was late".into()] };
        Box::pin(std::future::ready(answer))
    }
}

pub fn agent_id(id: &str) -> AgentId {
    AgentId::new(id).expect("a valid id")
}

/// The paused clock of the test as the time of day.
pub struct Paused(tokio::time::Instant);

/// When every case begins: 2026-03-01T12:00:00Z.
pub const NOON_MS: i64 = 1_772_366_400_000;

impl Paused {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(tokio::time::Instant::now()))
    }
}

impl Clock for Paused {
    fn now_ms(&self) -> i64 {
        NOON_MS + i64::try_from(self.0.elapsed().as_millis()).expect("a short test")
    }
}
