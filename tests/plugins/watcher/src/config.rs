//! What the configuration has the watcher do. Without one it does nothing but emit.

use drupe_extension_api::prelude::*;
use serde_json::Value;

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What the names of its tools begin with, in place of `watcher`.
    pub prefix: Option<String>,
    /// Where its hook is called.
    pub points: Vec<HookPoint>,
    /// What the hook does there; nothing, where nothing is said.
    pub hooks: Vec<HookAct>,
    /// The text for the orchestrator.
    pub context: Option<ContextAct>,
    /// A topic that it follows, durably.
    pub follow: Option<String>,
    /// What it does at set times.
    pub schedules: Vec<Schedule>,
    /// Whether that fails.
    pub fail_schedules: bool,
}

/// What a hook does at a point.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookAct {
    pub at: HookPoint,
    /// Of this agent's run alone.
    #[serde(default)]
    pub agent: Option<String>,
    /// Of this tool alone.
    #[serde(default)]
    pub tool: Option<String>,
    pub does: Act,
}

/// What it gives to the orchestrator's context.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextAct {
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub priority: i32,
    #[serde(default)]
    pub does: Option<Act>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Blocks what it is asked about.
    Block,
    /// Never answers.
    Hang,
    /// Ends with a fault.
    Fail,
}

impl Config {
    /// What its hook does about these facts.
    pub fn act(&self, call: &HookCall) -> Option<Act> {
        let is = |wanted: &Option<String>, fact: &Value| wanted.as_deref().is_none_or(|w| fact == w);
        let facts = &call.facts;
        let mut acts = self.hooks.iter().filter(|act| act.at == call.point);
        acts.find(|act| is(&act.agent, &facts["agent"]) && is(&act.tool, &facts["tool"])).map(|act| act.does)
    }
}
