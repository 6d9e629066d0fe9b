//! What passes between an agent and whoever calls it.

use serde::{Deserialize, Serialize};

use crate::{AgentId, CorrelationId, ToolCallRequest};

/// What an agent learns of the conversation: nothing but this, and each part is optional.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentInvocationContext {
    /// The caller's summary of what matters here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_summary: Option<String>,
    /// The user's message that set the turn off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_message: Option<String>,
    /// Links the runs of one turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
}

/// How an agent's run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentResponse {
    /// Done, failed, or not this agent's business.
    pub status: ResponseStatus,
    /// The answer, or the report of a run that stopped early. Never empty.
    pub content: String,
    /// Why it did not succeed; present exactly when `status` is not `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kind of failure, where `status` is not `success`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// Input and output tokens, those of sub-agents included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_used: Option<u64>,
    /// Steps of the loop: model calls with the tool calls that each asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_used: Option<u32>,
    /// The run ended with these calls of tools that its client brought along and runs itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_calls: Vec<ToolCallRequest>,
    /// Who talks with the user from here on, where that changes. It means something only in the run that answers the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transfer: Option<ControlTransfer>,
}

/// A conversation goes from one agent to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControlTransfer {
    /// The orchestrator hands it over. Only the orchestrator can.
    HandOver {
        /// The agent that takes it over.
        to: AgentId,
        /// What that needs to know of the conversation.
        summary: String,
    },
    /// The agent that took it over gives it back.
    Return {
        /// What the orchestrator needs to know of it.
        summary: String,
        /// Whether the response's content answers the user. If not, the orchestrator answers the same message.
        answered: bool,
    },
}

impl AgentResponse {
    /// A run that did what it was asked.
    pub fn success(content: impl Into<String>) -> Self {
        Self {
            status: ResponseStatus::Success,
            content: content.into(),
            error: None,
            class: None,
            tokens_used: None,
            turns_used: None,
            client_calls: Vec::new(),
            transfer: None,
        }
    }

    /// A run that failed; `content` repeats the error until a report replaces it.
    pub fn error(class: FailureClass, error: impl Into<String>) -> Self {
        let error = error.into();
        Self {
            status: ResponseStatus::Error,
            content: error.clone(),
            error: Some(error),
            class: Some(class),
            tokens_used: None,
            turns_used: None,
            client_calls: Vec::new(),
            transfer: None,
        }
    }

    /// The end of an agent's part in a conversation that it had taken over: `content` is its last answer to the user, and the
    /// orchestrator is told `summary`. With an empty `content` the orchestrator answers the user's message itself.
    pub fn returning(content: impl Into<String>, summary: impl Into<String>) -> Self {
        let (content, summary) = (content.into(), summary.into());
        let answered = !content.trim().is_empty();
        let transfer = Some(ControlTransfer::Return { summary: summary.clone(), answered });
        Self { transfer, ..Self::success(if answered { content } else { summary }) }
    }

    /// A run that was not this agent's business.
    pub fn refused(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self {
            status: ResponseStatus::Refused,
            content: reason.clone(),
            error: Some(reason),
            class: Some(FailureClass::Refused),
            tokens_used: None,
            turns_used: None,
            client_calls: Vec::new(),
            transfer: None,
        }
    }
}

/// The three ways in which a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    Success,
    /// Failed; may be tried again.
    Error,
    /// Not this agent's business.
    Refused,
}

/// Kinds of failure, the same everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// Wrong or missing configuration.
    Config,
    /// A key that is missing, wrong, or not allowed to do this.
    Auth,
    /// A time budget is used up.
    Timeout,
    /// The other side could not be reached, or the connection broke.
    Network,
    /// The provider asks for a slower pace.
    RateLimit,
    /// The model or its provider failed.
    Model,
    /// The answer does not have the form that was asked for, after it was asked for once more.
    Output,
    Tool,
    /// A limit on steps, tokens, cost or calls is reached.
    Budget,
    /// The same call over and over, or an agent that would call itself.
    Loop,
    Cancelled,
    Refused,
    /// A fault of drupe itself.
    Internal,
}

impl FailureClass {
    /// A short remedy for people.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Config => "correct the configuration or the name that the message gives",
            Self::Auth => "check the provider's key",
            Self::Timeout => "raise the time budget, or ask for less at once",
            Self::Network => "check the connection and the provider's address",
            Self::RateLimit => "wait, or lower the concurrency of the provider",
            Self::Model => "try again, or choose another model",
            Self::Output => "ask for a form that the model can give, or choose another model",
            Self::Tool => "read the tool's error and correct the call",
            Self::Budget => "raise the limit that the message names, or ask for less",
            Self::Loop => "rephrase the task, or choose another agent",
            Self::Cancelled => "ask again to continue",
            Self::Refused => "choose another agent for this task",
            Self::Internal => "report this as a fault of drupe",
        }
    }
}

/// What an agent says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentDescriptor {
    /// The agent's id; equals the id of its extension.
    pub id: AgentId,
    /// For people.
    pub name: String,
    /// For the model that routes: when to use, when not to, what it can do.
    pub description: String,
    /// How the orchestrator uses it.
    #[serde(default)]
    pub integration_mode: IntegrationMode,
}

/// How the orchestrator uses an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IntegrationMode {
    /// Called like any tool; answers the orchestrator.
    #[default]
    Tool,
    /// Takes the conversation over.
    Handoff,
}
