//! Rules by which an agent tells the offline model what to do.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One rule; of an agent's list the first that matches acts.
///
/// Templates name groups of the trigger's regular expression, `{{task}}`, and, after a tool, `{{result}}`:
/// `{{name}}` is replaced as text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfflineRule {
    pub trigger: OfflineTrigger,
    pub action: OfflineAction,
}

/// When an [`OfflineRule`] applies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfflineTrigger {
    /// The task matches this regular expression; named groups fill templates.
    When(String),
    /// The last tool that ran has this name.
    After(String),
}

/// What an [`OfflineRule`] does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfflineAction {
    Call {
        tool: String,
        /// Its parameters; every string in it is a template.
        #[serde(default)]
        with: Map<String, Value>,
    },
    /// Answers with a template.
    Say(String),
}
