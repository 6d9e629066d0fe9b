//! Fakes that behave: a model that plays a script, and tools whose runs are counted.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use drupe_extension_api::{
    AgentId, AgentResponse, DefinitionLimits, EffectClass, EffectId, ImageData, Message, ToolAnnotations,
    ToolCallRequest, ToolName, ToolSpec, wire::LookupResult,
};
use futures_util::{StreamExt, future::BoxFuture, stream, stream::BoxStream};
use serde_json::{json, value::RawValue};

use crate::*;

/// An answer of [`Plays`].
#[derive(Clone)]
pub enum Reply {
    /// These events.
    Gives(Vec<ModelEvent>),
    /// These, and then nothing, for ever.
    Hangs(Vec<ModelEvent>),
}

/// A text.
pub fn say(text: &str) -> Reply {
    Reply::Gives(ScriptedModel::say(text))
}

/// Tool calls.
pub fn call(calls: &[(&str, &str)]) -> Reply {
    Reply::Gives(ScriptedModel::call(calls))
}

/// Gives each agent its own answers: the n-th to a request that holds n answers already. So it goes on in the right
/// place after a crash.
pub struct Plays {
    pub profile: ModelProfile,
    /// Of a list, what each of its models takes; empty where it is no list.
    pub prices: HashMap<&'static str, Option<Price>>,
    pub scripts: HashMap<String, Vec<Reply>>,
    /// Answers before the scripts do, by what the request says.
    pub by_request: Option<Box<ByRequest>>,
    pub requests: Mutex<Vec<ModelRequest>>,
}

type ByRequest = dyn Fn(&ModelRequest) -> Option<Reply> + Send + Sync;

impl Plays {
    pub fn new(scripts: &[(&str, &[Reply])]) -> Self {
        let profile = ModelProfile {
            name: "plays/script".into(),
            context_window: 1_000_000,
            max_output_tokens: 100,
            price: None,
            tools: true,
            images: true,
        };
        let scripts =
            scripts.iter().map(|(agent, replies)| ((*agent).to_owned(), replies.to_vec())).collect();
        Self { profile, prices: HashMap::new(), scripts, by_request: None, requests: Mutex::default() }
    }

    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often an agent has asked.
    pub fn asked_by(&self, agent: &str) -> usize {
        self.requests().iter().filter(|r| r.agent.id.as_str() == agent).count()
    }
}

impl Model for Plays {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    fn price_of(&self, model: &str) -> Option<Price> {
        self.prices.get(model).copied().unwrap_or(self.profile.price)
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let step = request.messages.iter().filter(|m| matches!(***m, Message::Assistant { .. })).count();
        let script = self.scripts.get(request.agent.id.as_str());
        let own = self.by_request.as_ref().and_then(|answer| answer(&request));
        let reply = own.or_else(|| script.and_then(|s| s.get(step).or(s.last())).cloned());
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        match reply.expect("every agent of a case has a script") {
            Reply::Gives(events) => stream::iter(events).boxed(),
            Reply::Hangs(events) => stream::iter(events).chain(stream::pending()).boxed(),
        }
    }
}

/// What tools did to the world, which outlives a process.
#[derive(Default)]
pub struct World {
    /// Effect, and how many commits the journal had when it ran.
    pub runs: Mutex<Vec<(EffectId, usize)>>,
    now: AtomicUsize,
    /// The most that ran at once.
    pub peak: AtomicUsize,
}

impl World {
    fn note(&self, effect: &EffectId, commits: usize) {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push((effect.clone(), commits));
    }

    pub fn runs(&self) -> Vec<(EffectId, usize)> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the same tool gives each time.
fn shows(size: usize) -> ToolOutput {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x04\0\0\0\x04\x08\x06\0\0\0sum!".to_vec();
    bytes.extend(b"\0\0\0\0IENDsum!");
    let image = ImageData { data: BASE64_STANDARD.encode(bytes) };
    let (images, said) = images::taken(vec![image]);
    assert_eq!((images.len(), said.as_str()), (1, ""));
    ToolOutput { images, ..ToolOutput::text("x".repeat(size)) }
}

/// What a tool does when it runs.
#[derive(Clone)]
pub enum Does {
    Says(String),
    /// As many bytes.
    Fills(usize),
    /// With a picture of four pixels a side, after so many bytes.
    Shows(usize),
    Fails(&'static str),
    /// Takes a while.
    Sleeps(u64),
    /// Runs a tool of its own, by the way that code goes.
    Calls(Arc<Registry>, &'static str),
    /// Runs an agent, as that of the loop of its own code or as another one.
    Runs(Arc<dyn Agent>, bool),
    /// Never ends by itself, and does not hear that it is cancelled.
    Hangs,
    /// Ends when it is cancelled, with what it has done so far.
    Listens,
}

/// A tool.
#[derive(Clone)]
pub struct Fake {
    spec: Arc<ToolSpec>,
    origin: &'static str,
    does: Does,
    world: Arc<World>,
    journal: Option<Arc<MemoryJournal>>,
    lookup: LookupResult,
}

impl Fake {
    pub fn new(name: &str, does: Does) -> Self {
        let spec = ToolSpec {
            name: ToolName::new(name).expect("a valid name"),
            description: "A tool.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {"n": {"type": "integer"}},
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations::default(),
        };
        Self {
            spec: Arc::new(spec),
            origin: "fake",
            does,
            world: Arc::default(),
            journal: None,
            lookup: LookupResult::Unknown,
        }
    }

    pub fn says(name: &str) -> Self {
        Self::new(name, Does::Says(format!("{name} was here")))
    }

    pub fn described(mut self, text: &str) -> Self {
        Arc::make_mut(&mut self.spec).description = text.into();
        self
    }

    pub fn class(self, effect: EffectClass) -> Self {
        self.with(|a| a.effect = effect)
    }

    pub fn with(mut self, change: impl FnOnce(&mut ToolAnnotations)) -> Self {
        change(&mut Arc::make_mut(&mut self.spec).annotations);
        self
    }

    pub fn of(mut self, origin: &'static str) -> Self {
        self.origin = origin;
        self
    }

    pub fn lookup(mut self, result: LookupResult) -> Self {
        self.lookup = result;
        self
    }

    /// Its runs are counted there, against the commits of `journal`.
    pub fn counted(mut self, world: &Arc<World>, journal: &Arc<MemoryJournal>) -> Self {
        (self.world, self.journal) = (Arc::clone(world), Some(Arc::clone(journal)));
        self
    }

    pub fn in_world(mut self, world: &Arc<World>) -> Self {
        self.world = Arc::clone(world);
        self
    }

    pub fn registered(self) -> Arc<Registered> {
        Registered::new(Arc::new(self)).expect("a valid schema")
    }

    async fn act(&self, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        let asker = Asker::Call(context.effect.clone());
        match &self.does {
            Does::Says(text) => Ok(ToolOutput::text(text)),
            Does::Fills(size) => Ok(ToolOutput::text("x".repeat(*size))),
            Does::Shows(size) => Ok(shows(*size)),
            Does::Fails(reason) => Err(ToolError::failed(*reason)),
            Does::Sleeps(ms) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                Ok(ToolOutput::text("slept"))
            }
            Does::Calls(tools, name) => {
                let request =
                    ToolCallRequest { call_id: String::new(), name: (*name).into(), arguments: "{}".into() };
                let limits = DefinitionLimits::default();
                let ended = call_tool(&context.run, (&asker, &context.time), tools, &limits, request).await;
                let (status, content) = ended.map_err(|fault| ToolError::failed(fault.to_string()))?;
                Ok(ToolOutput::text(format!("{status:?}: {content}")))
            }
            Does::Runs(agent, own) => {
                let (run, task) = (&context.run, Task::new("the same each time"));
                let response = match own {
                    true => run.invoke_own(&asker, agent, task).await,
                    false => run.invoke_other(&asker, agent, task).await.1,
                };
                Ok(ToolOutput::text(response.content))
            }
            Does::Hangs => std::future::pending().await,
            Does::Listens => {
                context.cancel.cancelled().await;
                Err(ToolError::failed("half of it is done"))
            }
        }
    }
}

struct Running<'a>(&'a World);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tool for Fake {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        self.origin
    }

    fn call(&self, _: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let commits = self.journal.as_ref().map_or(0, |j| j.batches().len());
            self.world.note(&context.effect, commits);
            let now = self.world.now.fetch_add(1, Ordering::Relaxed) + 1;
            self.world.peak.fetch_max(now, Ordering::Relaxed);
            let _running = Running(&self.world);
            self.act(&context).await
        })
    }

    fn lookup(&self, _: EffectId) -> BoxFuture<'_, LookupResult> {
        Box::pin(std::future::ready(self.lookup.clone()))
    }
}

/// What a native agent does with its run.
type Code = dyn Fn(Task, Arc<Run>) -> BoxFuture<'static, AgentResponse> + Send + Sync;

/// An agent that is code.
pub struct Native {
    pub id: AgentId,
    pub limits: DefinitionLimits,
    pub code: Box<Code>,
}

impl Agent for Native {
    fn id(&self) -> &AgentId {
        &self.id
    }

    fn limits(&self) -> &DefinitionLimits {
        &self.limits
    }

    fn invoke(&self, task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        (self.code)(task, run)
    }
}
