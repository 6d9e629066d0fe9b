//! What can be asked to do a task.

use std::sync::{Arc, OnceLock};

use drupe_extension_api::{
    AgentId, AgentInvocationContext, AgentResponse, Definition, DefinitionLimits, Message,
};
use futures_util::future::BoxFuture;

use crate::{
    model::{AgentCard, Model},
    recipe::KeptRecipe,
    registry::Registry,
    run::Run,
    turn_loop,
};

/// Something that does tasks: an agent that runs in the loop, or one that is code.
pub trait Agent: Send + Sync {
    /// Its id.
    fn id(&self) -> &AgentId;

    /// What one run of it may spend.
    fn limits(&self) -> &DefinitionLimits;

    /// What a run of it is made of; none where it is code, which says so of the runs of its own loop.
    fn recipe(&self) -> Option<&KeptRecipe> {
        None
    }

    /// The model that answers for it; none where it is code.
    fn language_model(&self) -> Option<&Arc<dyn Model>> {
        None
    }

    /// Whose budgets of session and day count it, where another agent described it.
    fn charged_to(&self) -> Option<&AgentId> {
        None
    }

    /// Does a task within `run`, which was begun for it. Must return soon after `run.cancel` is cancelled.
    fn invoke(&self, task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse>;
}

/// What an agent is asked to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Task {
    /// The task, in words, or JSON where the agent has a JSON input.
    pub text: String,
    /// What it learns of the conversation.
    pub context: AgentInvocationContext,
    /// Texts that stand before the task, delimited as data, after `context`.
    pub notes: Vec<String>,
    /// Earlier messages of the conversation; only the root of a turn gets them.
    pub history: Vec<Arc<Message>>,
    /// What of the conversation is to be summed up for the turns to come, once the run has its answer; usually nothing.
    pub to_sum_up: Vec<Arc<Message>>,
}

impl Task {
    /// A task without context.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// An agent that runs in the loop.
pub struct LoopAgent {
    pub(crate) definition: Arc<Definition>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) shared: turn_loop::Shared,
    /// Made when a run begins.
    recipe: OnceLock<KeptRecipe>,
    charged_to: Option<AgentId>,
}

/// What an agent that runs in the loop is made of.
#[derive(Clone)]
pub(crate) struct LoopParts {
    pub definition: Arc<Definition>,
    pub registry: Arc<Registry>,
    pub model: Arc<dyn Model>,
}

impl LoopAgent {
    /// An agent of that definition with exactly those tools. `root` tells whether a person talks to it directly.
    pub fn new(definition: Definition, registry: Arc<Registry>, model: Arc<dyn Model>, root: bool) -> Self {
        let card = AgentCard {
            id: definition.id.clone(),
            name: definition.name.clone(),
            description: definition.description.clone(),
            offline: definition.offline.clone(),
            root,
        };
        let shared = turn_loop::Shared::new(&definition, &registry, card, model.profile().tools);
        Self {
            definition: Arc::new(definition),
            registry,
            model,
            shared,
            recipe: OnceLock::new(),
            charged_to: None,
        }
    }

    /// One that another agent describes, which is charged for it.
    pub fn described_by(caller: AgentId, agent: Self) -> Self {
        Self { charged_to: Some(caller), ..agent }
    }

    /// What it is.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// What a run of its loop keeps of it.
    pub(crate) fn parts(&self) -> LoopParts {
        let (definition, registry) = (Arc::clone(&self.definition), Arc::clone(&self.registry));
        LoopParts { definition, registry, model: Arc::clone(&self.model) }
    }

    /// Its tools.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Its model.
    pub fn model(&self) -> &Arc<dyn Model> {
        &self.model
    }
}

impl Agent for LoopAgent {
    fn id(&self) -> &AgentId {
        &self.definition.id
    }

    fn limits(&self) -> &DefinitionLimits {
        &self.definition.limits
    }

    fn language_model(&self) -> Option<&Arc<dyn Model>> {
        Some(&self.model)
    }

    fn charged_to(&self) -> Option<&AgentId> {
        self.charged_to.as_ref()
    }

    fn recipe(&self) -> Option<&KeptRecipe> {
        Some(self.recipe.get_or_init(|| self.shared.recipe(&self.definition, self.model.profile())))
    }

    fn invoke(&self, task: Task, run: Arc<Run>) -> BoxFuture<'_, AgentResponse> {
        Box::pin(turn_loop::run(self, task, run))
    }
}
