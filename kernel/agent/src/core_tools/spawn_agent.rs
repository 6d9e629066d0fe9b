//! The tools by which an agent has others work beside it: it spawns them, sends them more, waits for them and closes them.
//!
//! Whoever is spawned is an agent that the caller has as a tool, or one that the caller describes: that one has nothing that
//! its caller has not. A caller knows agents of its own alone.

mod again;
mod described;
mod detach;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use drupe_extension_api::{AgentId, EffectClass, EffectId, ToolAnnotations, ToolName, ToolSpec};
use futures_util::future::{join_all, select_all};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    agent::LoopParts,
    registry::Registered,
    run::Run,
    spawned::{self, Input, Sent, SpawnedAgent, Unsent},
    tool::{CalledAgent, Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

pub use again::spawn_by;

/// The name of the tool that spawns an agent.
pub const SPAWN: &str = "spawn_agent";
/// The name of the tool that sends a spawned agent more.
pub const SEND: &str = "send_input";
/// The name of the tool that waits for spawned agents.
pub const WAIT: &str = "wait_agent";
/// The name of the tool that closes a spawned agent.
pub const CLOSE: &str = "close_agent";

/// How long a call waits where it says nothing of it, and at most, in milliseconds.
const USUAL_WAIT_MS: u64 = 60_000;
const LONGEST_WAIT_MS: u64 = 600_000;

/// The most bytes of a text that an agent is sent.
const TEXT: usize = 32 * 1024;

/// Agents that one call may wait for.
const MOST: usize = 64;

/// Why a call of these tools is refused; the model reads the code with the reason.
enum Refused {
    NotFound(String),
    Limit(String),
    Busy(String),
    Closed(String),
    NotYours(String),
    NoModel(String),
    UnfitModel(String),
}

impl From<Refused> for ToolError {
    fn from(refused: Refused) -> Self {
        let (code, reason) = match refused {
            Refused::NotFound(reason) => ("agent_not_found", reason),
            Refused::Limit(reason) => ("limit_reached", reason),
            Refused::Busy(reason) => ("busy", reason),
            Refused::Closed(reason) => ("closed", reason),
            Refused::NotYours(reason) => ("not_yours", reason),
            Refused::NoModel(reason) => ("model_not_found", reason),
            Refused::UnfitModel(reason) => ("model_unfit", reason),
        };
        Self::failed(format!("{code}: {reason}"))
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Spawn,
    Send,
    Wait,
    Close,
}

/// One of the four tools, by what it does.
struct OfSpawned {
    kind: Kind,
    spec: Arc<ToolSpec>,
}

#[derive(Deserialize)]
struct Spawning {
    #[serde(default)]
    agent: Option<AgentId>,
    #[serde(default)]
    instructions: Option<String>,
    #[serde(default)]
    tools: Vec<ToolName>,
    #[serde(default)]
    model: Option<String>,
    task: String,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    detach: bool,
}

#[derive(Deserialize)]
struct Sending {
    handle: String,
    text: String,
}

#[derive(Deserialize)]
struct Waiting {
    handles: Vec<String>,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    mode: Mode,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Any,
    #[default]
    All,
}

#[derive(Deserialize)]
struct Closing {
    handle: String,
}

/// The four tools, in the order in which they are used.
pub fn tools() -> [Arc<Registered>; 4] {
    static TOOLS: LazyLock<[Arc<Registered>; 4]> = LazyLock::new(|| {
        [
            spec(
                Kind::Spawn,
                SPAWN,
                "Has an agent work beside you, and gives its handle at once. What you have not waited for when you answer is \
                 cancelled.",
                json!({
                    "agent": {"type": "string", "description": "The id of one of yours."},
                    "instructions": {
                        "type": "string", "minLength": 1, "maxLength": TEXT,
                        "description": "In place of `agent`: for one with your model, and of your tools those in `tools`.",
                    },
                    "tools": {"type": "array", "items": {"type": "string"}, "maxItems": 64},
                    "model": {
                        "type": "string", "maxLength": 200,
                        "description": "With `instructions`: another one of your models, or of those of your agents.",
                    },
                    "task": {"type": "string", "minLength": 1, "maxLength": TEXT, "description": "Complete in itself."},
                    "context": {"type": "string", "maxLength": TEXT},
                    "detach": {
                        "type": "boolean",
                        "description": "It goes on after your answer, and reports in a message of its own.",
                    },
                }),
                &["task"],
            ),
            spec(
                Kind::Send,
                SEND,
                "Tells a spawned agent more, also one that has answered.",
                json!({
                    "handle": {"type": "string"},
                    "text": {"type": "string", "minLength": 1, "maxLength": TEXT},
                }),
                &["handle", "text"],
            ),
            spec(
                Kind::Wait,
                WAIT,
                "Waits for the answers of spawned agents, and gives how they stand.",
                json!({
                    "handles": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MOST},
                    "timeout_ms": {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT_MS},
                    "mode": {"type": "string", "enum": ["all", "any"]},
                }),
                &["handles"],
            ),
            spec(
                Kind::Close,
                CLOSE,
                "Ends a spawned agent.",
                json!({"handle": {"type": "string"}}),
                &["handle"],
            ),
        ]
    });
    TOOLS.clone()
}

fn spec(kind: Kind, name: &str, description: &str, properties: Value, required: &[&str]) -> Arc<Registered> {
    let annotations = ToolAnnotations {
        read_only: matches!(kind, Kind::Wait),
        // What was done is found by the id of the call.
        effect: if matches!(kind, Kind::Wait) { EffectClass::Pure } else { EffectClass::Idempotent },
        // Texts come to an agent in the order in which they were sent.
        exclusive: matches!(kind, Kind::Send),
        // Each of them waits for others, or for nothing: whoever has all of the gate can still be closed.
        weight: 0,
        timeout_ms: Some(LONGEST_WAIT_MS + 5_000),
        ..ToolAnnotations::default()
    };
    let spec = ToolSpec {
        name: ToolName::new(name).expect("the name has the form of one"),
        description: description.into(),
        input_schema: json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        }),
        instructions: None,
        annotations,
    };
    Registered::core(Arc::new(OfSpawned { kind, spec: Arc::new(spec) })).expect("the schema is valid")
}

impl Tool for OfSpawned {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            // What the run sent before is sent by now.
            context.run.begin_workers();
            let given = match self.kind {
                Kind::Spawn => spawn(read(&params)?, &context).await?,
                Kind::Send => send(read(&params)?, &context)?,
                Kind::Wait => wait(read(&params)?, &context).await?,
                Kind::Close => close(read(&params)?, &context).await?,
            };
            Ok(ToolOutput::text(given.to_string()))
        })
    }

    fn replayed(&self, (params, _): (&str, &str), effect: &EffectId, run: &Arc<Run>) {
        match self.kind {
            Kind::Spawn => {
                let Ok(asked @ Spawning { detach: false, .. }) = serde_json::from_str(params) else { return };
                let Some(parts) = run.parts() else { return };
                if let Ok(tool) = called(&asked, run, parts) {
                    spawned::spawn(run, tool, asked.input(effect));
                }
            }
            Kind::Send => {
                let Ok(Sending { handle, text }) = serde_json::from_str(params) else { return };
                if let Ok(spawned) = own(&handle, run) {
                    // That it was taken is recorded.
                    let input = Input { effect: effect.clone(), text, context: None, by_a_person: false };
                    let _ = spawned.send(input, true);
                }
            }
            Kind::Close => {
                let Ok(Closing { handle }) = serde_json::from_str(params) else { return };
                if let Ok(spawned) = own(&handle, run) {
                    spawned.close();
                }
            }
            Kind::Wait => {}
        }
    }
}

fn read<'a, T: Deserialize<'a>>(params: &'a RawValue) -> Result<T, ToolError> {
    serde_json::from_str(params.get()).map_err(|error| ToolError::failed(error.to_string()))
}

impl Spawning {
    fn input(&self, effect: &EffectId) -> Input {
        Input {
            effect: effect.clone(),
            text: self.task.clone(),
            context: self.context.clone(),
            by_a_person: false,
        }
    }
}

async fn spawn(asked: Spawning, context: &ToolContext) -> Result<Value, ToolError> {
    let run = &context.run;
    let Some(parts) = run.parts() else {
        return Err(ToolError::failed("only an agent that runs in the loop spawns others"));
    };
    let tool = called(&asked, run, parts)?;
    // One that an earlier process had let begin goes on.
    if !asked.detach && !context.resumed {
        room(run)?;
    }
    begin(asked, tool, parts, context).await
}

async fn begin(
    asked: Spawning,
    tool: Arc<Registered>,
    parts: &LoopParts,
    context: &ToolContext,
) -> Result<Value, ToolError> {
    let run = &context.run;
    if asked.detach {
        return detach::detach(asked, tool, parts, context).await;
    }
    let spawned = spawned::spawn(run, tool, asked.input(&context.effect));
    run.begin_workers();
    Ok(json!({"handle": spawned.handle, "agent": spawned.agent}))
}

/// Whether one more agent may work beside the run.
fn room(run: &Run) -> Result<(), ToolError> {
    let most = run.parts().map_or(0, |parts| parts.definition.limits.max_active_children);
    let at_work = run.at_work_beside();
    if at_work < usize::try_from(most).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(Refused::Limit(format!(
        "{at_work} agents work beside you, and `max_active_children` is {most}: wait for one, or close one"
    ))
    .into())
}

/// The tool that is called when an agent is spawned so.
fn called(asked: &Spawning, run: &Run, parts: &LoopParts) -> Result<Arc<Registered>, ToolError> {
    match (&asked.agent, &asked.instructions) {
        (Some(agent), None) => {
            if !asked.tools.is_empty() || asked.model.is_some() {
                return Err(ToolError::failed(
                    "`tools` and `model` go with `instructions`: an agent of yours has its own",
                ));
            }
            let is = |tool: &&Arc<Registered>| tool.tool().agent().is_some_and(|called| called.id == agent);
            let found = parts.registry.iter().find(is).cloned().ok_or_else(|| not_found(agent, parts))?;
            match (found.tool().agent(), &asked.context) {
                (Some(CalledAgent { takes_json: true, .. }), Some(_)) => Err(ToolError::failed(format!(
                    "agent `{agent}` takes JSON of its own form as its task, and no `context`"
                ))),
                (Some(CalledAgent { takes_json: true, .. }), None) => {
                    found.parameters(&asked.task).map_err(ToolError::failed)?;
                    Ok(found)
                }
                _ => Ok(found),
            }
        }
        (None, Some(instructions)) if asked.detach => {
            let _ = instructions;
            Err(ToolError::failed(
                "an agent with `instructions` lives in this turn alone: `detach` needs `agent`",
            ))
        }
        (None, Some(instructions)) => described::agent(instructions, asked, run, parts),
        _ => Err(ToolError::failed("give either `agent` or `instructions`")),
    }
}

fn not_found(agent: &AgentId, parts: &LoopParts) -> ToolError {
    let agents = parts.registry.iter().filter_map(|tool| Some(tool.tool().agent()?.id.as_str()));
    let agents: Vec<&str> = agents.collect();
    let have = if agents.is_empty() {
        "you have none".to_owned()
    } else {
        format!("yours are {}", agents.join(", "))
    };
    Refused::NotFound(format!("there is no agent `{agent}` for you; {have}")).into()
}

/// The agent of that handle, if this run spawned it.
fn own(handle: &str, run: &Run) -> Result<Arc<SpawnedAgent>, ToolError> {
    match run.scope.spawned.of(handle) {
        Some(spawned) if spawned.owner == run.id => Ok(spawned),
        Some(_) => Err(Refused::NotYours(format!("`{handle}` was spawned by another agent")).into()),
        None => {
            let own = run.scope.spawned.owned_by(&run.id);
            let own: Vec<&str> = own.iter().map(|spawned| spawned.handle.as_str()).collect();
            let have = if own.is_empty() { "you have spawned none".to_owned() } else { own.join(", ") };
            Err(Refused::NotFound(format!("no agent has the handle `{handle}`: {have}")).into())
        }
    }
}

fn send(Sending { handle, text }: Sending, context: &ToolContext) -> Result<Value, ToolError> {
    let spawned = own(&handle, &context.run)?;
    // One that has answered works again with this.
    if !spawned.is_at_work() && !context.resumed {
        room(&context.run)?;
    }
    let input = Input { effect: context.effect.clone(), text, context: None, by_a_person: false };
    let told = match spawned.send(input, context.resumed) {
        Ok(Sent::Waits) => "it reads this between two steps",
        Ok(Sent::Begins) => "it begins anew with this",
        Err(Unsent::Closed) => {
            return Err(Refused::Closed(format!("`{handle}` is closed: spawn another one")).into());
        }
        Err(Unsent::Busy(waiting)) => {
            let reason = format!("{waiting} texts wait for `{handle}` already: wait for it first");
            return Err(Refused::Busy(reason).into());
        }
    };
    Ok(json!({"handle": handle, "state": "working", "told": told}))
}

async fn wait(
    Waiting { handles, timeout_ms, mode }: Waiting,
    context: &ToolContext,
) -> Result<Value, ToolError> {
    let spawned: Vec<_> = handles.iter().map(|handle| own(handle, &context.run)).collect::<Result<_, _>>()?;
    let idle = spawned.iter().map(|spawned| Box::pin(spawned.until_idle()));
    let answered = async {
        match mode {
            Mode::All => drop(join_all(idle).await),
            Mode::Any => drop(select_all(idle).await),
        }
    };
    let timeout = Duration::from_millis(timeout_ms.unwrap_or(USUAL_WAIT_MS).min(LONGEST_WAIT_MS));
    // While all that is waited for waits for a person, nobody's time is used up, this one's neither.
    let patience = context.time.below(timeout);
    let times = || spawned.iter().filter_map(|spawned| spawned.time()).collect();
    let waited = async {
        tokio::select! {
            biased;
            () = patience.beside(times, || context.run.scope.spawned.changed(), answered) => true,
            () = patience.over() => false,
        }
    };
    let in_time = context.share.wait(waited, context.run.over()).await;
    let standing: Vec<Value> = spawned.iter().map(|spawned| told(spawned)).collect();
    let mut given = json!({"agents": standing});
    if !in_time {
        given["timed_out"] = true.into();
    }
    Ok(given)
}

async fn close(Closing { handle }: Closing, context: &ToolContext) -> Result<Value, ToolError> {
    let spawned = own(&handle, &context.run)?;
    spawned.close();
    context.share.wait(spawned.ended(), context.run.over()).await;
    Ok(told(&spawned))
}

/// How an agent stands, as its caller's model reads it.
fn told(spawned: &SpawnedAgent) -> Value {
    let standing = spawned.standing();
    let mut told = json!({"handle": spawned.handle, "agent": spawned.agent, "state": standing.name});
    if let Some((status, content)) = standing.result {
        told["status"] = json!(status);
        told["result"] = serde_json::from_str(&content).unwrap_or(Value::String(content));
    }
    told
}
