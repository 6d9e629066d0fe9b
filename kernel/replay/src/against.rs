//! A recorded message with another model. Its tools are answered from the recording, so that nothing is done a second time.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use drupe_agent::{
    Agent, AgentTool, Behalf, Decision, LoopAgent, Model, Policy, PolicyCall, Recipe, Registry,
    RegistryError, Task, Tool, ToolContext, ToolError, ToolFuture, ToolOutput, TurnRoot, TurnScope, ids,
    read_output, run::TurnOutcome,
};
use drupe_extension_api::{
    AgentId, AgentInvocationContext, ControlTransfer, Definition, Image, ToolSpec, ToolStatus,
    wire::ClientTool,
};
use serde_json::{Value, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{
    invocations::{Invocations, Recording, RootContext, RunRecord},
    tools,
};

/// Why a message cannot be put to another model.
#[derive(Debug, thiserror::Error)]
pub enum Incomparable {
    /// No run of the loop answered it.
    #[error("no agent of the loop answered it whose recipe is kept")]
    NoRecipe,
    /// The model cannot be asked as the agent asks its own.
    #[error("`{agent}` cannot be asked with it: {reason}")]
    Model {
        agent: AgentId,
        /// What is in the way.
        reason: String,
    },
    /// What it was offered can be offered no more.
    #[error("a tool of `{agent}` cannot be offered: {error}")]
    Tools {
        agent: AgentId,
        /// What is wrong with it.
        error: RegistryError,
    },
}

/// The model for an agent of that definition, which names it, or why there is none.
pub type Resolve = Arc<dyn Fn(&Definition) -> Result<Arc<dyn Model>, Incomparable> + Send + Sync>;

/// How the message was answered.
pub struct Compared {
    pub outcome: TurnOutcome,
    /// Calls that were answered with an error, because the recording has none with these parameters.
    pub unknown_calls: u32,
}

/// Lets every call be answered: no tool of a comparison does anything.
pub struct AnsweredFromRecords;

impl Policy for AnsweredFromRecords {
    fn decide(&self, _: PolicyCall<'_>) -> Decision {
        Decision::Allow { by: None }
    }
}

type Given = (ToolStatus, String, Vec<Image>);

/// What a recording knows of tools.
struct Answers {
    /// What calls gave, in order, by tool and parameters.
    given: Mutex<HashMap<(String, String), Vec<Given>>>,
    /// What the agents that tools stand for are made of.
    agents: BTreeMap<String, Recipe>,
    client_tools: Vec<ClientTool>,
    /// The name of the model.
    model: String,
    resolve: Resolve,
    unknown: AtomicU32,
}

/// The parameters in the one form that all spellings of them have.
fn canonical(params: &str) -> String {
    let text = if params.trim().is_empty() { "{}" } else { params };
    serde_json::from_str::<Value>(text).map_or_else(|_| text.to_owned(), |value| value.to_string())
}

impl Answers {
    fn of(runs: &Invocations, recording: &Recording, model: &str, resolve: Resolve) -> Self {
        let mut given: HashMap<(String, String), Vec<Given>> = HashMap::new();
        let mut agents = BTreeMap::new();
        for record in runs.order.iter().filter_map(|run| runs.get(run)) {
            for call in &record.calls {
                let key = (call.tool.clone(), canonical(&call.arguments));
                if let Some(result) = call.result.clone() {
                    given.entry(key).or_default().push(result);
                }
                let child = runs.get(&ids::child_of_effect(&call.effect));
                let recipe = child.and_then(|child| recording.recipes.get(child.recipe.as_ref()?));
                if let Some(recipe) = recipe {
                    agents.insert(call.tool.clone(), recipe.clone());
                }
            }
        }
        // Those that came first are given first.
        given.values_mut().for_each(|all| all.reverse());
        Self {
            given: Mutex::new(given),
            agents,
            client_tools: recording.client_tools.clone(),
            model: model.to_owned(),
            resolve,
            unknown: AtomicU32::new(0),
        }
    }

    /// What a call gave, the last of several equal ones as often as it is made.
    fn take(&self, tool: &str, params: &str) -> Option<Given> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let left = given.get_mut(&(tool.to_owned(), canonical(params)))?;
        if left.len() > 1 { left.pop() } else { left.last().cloned() }
    }
}

/// A tool that is answered from the recording.
struct KnownTool {
    spec: Arc<ToolSpec>,
    own: Option<Arc<drupe_agent::Registered>>,
    answers: Arc<Answers>,
}

impl Tool for KnownTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        "recording"
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            if let Some(own) = &self.own {
                return own.tool().call(params, context).await;
            }
            let name = self.spec.name.as_str();
            if let Some((status, content, images)) = self.answers.take(name, params.get()) {
                return Ok(ToolOutput { status, images, ..ToolOutput::text(content) });
            }
            let Some(recipe) = self.answers.agents.get(name) else {
                self.answers.unknown.fetch_add(1, Ordering::Relaxed);
                return Err(ToolError::failed(format!(
                    "the recording holds no call of `{name}` with these parameters, and nothing is run in a comparison"
                )));
            };
            let agent = match built(&self.answers, recipe, None) {
                Ok(agent) => agent,
                Err(why) => return Err(ToolError::failed(why.to_string())),
            };
            let input = tools::own_input(&self.spec, &agent);
            let tool = AgentTool::new(agent, self.spec.name.clone(), self.spec.description.clone(), input);
            tool.call(params, context).await
        })
    }
}

/// An agent of that recipe on the other model.
fn built(
    answers: &Arc<Answers>,
    recipe: &Recipe,
    record: Option<&RunRecord>,
) -> Result<Arc<dyn Agent>, Incomparable> {
    let definition = Definition { models: vec![answers.model.clone()], ..recipe.definition.clone() };
    let model = (answers.resolve)(&definition)?;
    let registry = registry(answers, recipe, record)
        .map_err(|error| Incomparable::Tools { agent: definition.id.clone(), error })?;
    Ok(Arc::new(LoopAgent::new(definition, Arc::new(registry), model, recipe.root)))
}

fn registry(
    answers: &Arc<Answers>,
    recipe: &Recipe,
    record: Option<&RunRecord>,
) -> Result<Registry, RegistryError> {
    let builder = tools::offered(&recipe.tools, &recipe.deferred, |spec| {
        let handed = || record.and_then(|record| tools::handed_to(record, spec));
        let own = match spec.name.as_str() {
            // It reads what calls of this very turn gave.
            read_output::NAME => Some(read_output::tool()),
            _ => tools::own(spec, &answers.client_tools, handed)?,
        };
        Ok(Arc::new(KnownTool { spec: Arc::new(spec.clone()), own, answers: Arc::clone(answers) }))
    })?;
    Ok(builder.build())
}

/// Puts the message of a recorded turn to `model`, which `resolve` finds, in place of all models that answered it.
///
/// # Errors
/// Why it cannot be put to it; nothing was asked then.
pub async fn compare_with(
    scope: Arc<TurnScope>,
    recording: &Recording,
    (model, resolve): (&str, Resolve),
    cancel: &CancellationToken,
) -> Result<Compared, Incomparable> {
    let runs = Invocations::of(&recording.turn, &recording.entries);
    let answers = Arc::new(Answers::of(&runs, recording, model, resolve));
    let recipe_of = |record: &RunRecord| recording.recipes.get(record.recipe.as_ref()?);
    let roots: Vec<(&RunRecord, &Recipe)> = runs
        .roots
        .iter()
        .filter_map(|root| runs.get(root))
        .map_while(|record| recipe_of(record).map(|recipe| (record, recipe)))
        .collect();
    let (first, recipe) = roots.first().ok_or(Incomparable::NoRecipe)?;
    let RootContext { context, history, behalf, .. } = recording.roots.first().cloned().unwrap_or_default();
    let mut agent = built(&answers, recipe, Some(first))?;
    let mut root = match &behalf {
        Some((giver, limits)) => {
            let behalf = Behalf { agent: giver, limits };
            TurnRoot::on_behalf(scope, agent.id().clone(), agent.limits(), behalf, cancel)
        }
        None => TurnRoot::new(scope, agent.id().clone(), agent.limits(), cancel),
    };
    let mut task =
        Task { text: first.task.clone(), notes: first.notes.clone(), context, history, ..Task::default() };
    let mut later = roots.iter().skip(1);
    let response = loop {
        let (answered, response) = root.respond(&agent, task, Vec::new()).await;
        root = answered;
        let Some(ControlTransfer::HandOver { to, summary }) = &response.transfer else { break response };
        // Whoever takes over in the recording does so here; of nobody else is known what they are made of.
        let Some((record, recipe)) = later.find(|(record, _)| record.agent.as_ref() == Some(to)) else {
            break response;
        };
        let next = built(&answers, recipe, Some(record))?;
        root = root.then(next.id().clone(), next.limits(), Some(agent.id()));
        let context = AgentInvocationContext {
            conversation_summary: Some(summary.clone()),
            ..AgentInvocationContext::default()
        };
        task = Task { text: record.task.clone(), context, ..Task::default() };
        agent = next;
    };
    let outcome = root.finish(response).await;
    Ok(Compared { outcome, unknown_calls: answers.unknown.load(Ordering::Relaxed) })
}
