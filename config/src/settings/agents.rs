//! `orchestrator` and `agents`: the agent that talks with the user, and what holds for all others.

use drupe_extension_api::{DefinitionLimits, ExtensionId, ModelParameters};

use crate::{
    ContextSource, Instructions, ToolSelector,
    agent_keys::{LIMITS, PARAMETERS},
    declare::keys,
    forms,
    shape::{EMPTY, Shape, each_its_own},
};

pub(super) const MODEL: Shape = Shape::OneOrMany(&Shape::Text(&forms::MODEL));

keys! {
    /// The orchestrator.
    #[derive(PartialEq)]
    pub struct OrchestratorConfig in ORCHESTRATOR("`orchestrator`") {
        /// How the assistant calls itself.
        name: String = "drupe" => Shape::Text(&forms::SETTING);
        /// A model, an alias, or a list to try in order.
        models as "model": Vec<String> = ["default"] => MODEL;
        /// Replaces the built-in prompt: a text, or a path ending in .jinja2, .j2, .md or .txt.
        instructions (skip_deserializing): Option<Instructions> => Shape::Text(&forms::NON_EMPTY);
        /// How the model is asked.
        parameters (default): ModelParameters => Shape::Record(&PARAMETERS);
        /// What a turn may spend.
        limits: DefinitionLimits = DefinitionLimits::default() => Shape::Record(&LIMITS);
        /// Whether clients of the HTTP APIs may bring tools of their own along.
        client_tools: bool = true => Shape::Bool;
        /// Only these extensions' tools, or `id/tool_name`; absent: every shared tool.
        uses_tools: Option<Vec<ToolSelector>> => Shape::List(&Shape::Text(&forms::SELECTOR));
        /// Given to the model before the task, as data: a text, or a list of files.
        context (skip_deserializing): Vec<ContextSource> = EMPTY =>
            Shape::OneOrMany(&Shape::Text(&forms::NON_EMPTY));
        /// Notes of projects: files of the workspace, such as AGENTS.md, that the assistant is given with each message.
        project_notes: Vec<String> = EMPTY => Shape::List(&Shape::Text(&forms::WORKSPACE_FILE));
        /// Whether it sums up what is older than the latest 20 turns, once for every ten, with a call of its model.
        summarise_history: bool = true => Shape::Bool;
        /// What texts that extensions add to its context may take, together.
        context_tokens: u32 = 2_000 => Shape::Integer { min: 0, max: 100_000 };
        /// Extensions whose tools an agent from the builder may use without being asked about.
        builder_may_use: Vec<ExtensionId> = ["kv", "files"] => Shape::List(&Shape::Text(&forms::ID));
    }
}

keys! {
    /// What holds for every agent.
    pub struct AgentsConfig in AGENTS("`agents`") {
        /// What holds where a manifest says nothing.
        defaults: AgentDefaults = each_its_own() => Shape::Record(&DEFAULTS);
    }
}

keys! {
    /// What holds where a manifest says nothing.
    #[derive(PartialEq)]
    pub struct AgentDefaults in DEFAULTS("`agents.defaults`") {
        /// For agents whose manifest names none.
        models as "model": Vec<String> = ["default"] => MODEL;
        /// How the model is asked.
        parameters (default): ModelParameters => Shape::Record(&PARAMETERS);
        /// Whether clients of the HTTP APIs may bring tools of their own along.
        client_tools: bool = true => Shape::Bool;
        /// What a run may spend.
        limits: DefinitionLimits = DefinitionLimits::default() => Shape::Record(&LIMITS);
    }
}
