//! What runs tell the bus, and by whom a turn was set off.
//!
//! An agent that follows a topic is run by its messages, and its run gives messages of its own. The [`Chain`] that
//! goes with each message keeps such agents from running in circles: who is in it is not run again, and it ends
//! after [`MAX_HOPS`].

use drupe_extension_api::{AgentId, CorrelationId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Hops after which a chain of events is cut: enough for a pipeline of agents, few against a circle through code.
pub const MAX_HOPS: u32 = 8;

/// A run began.
pub const INVOKED: &str = "agent_invoked";

/// A run ended with `success`.
pub const RESULT: &str = "agent_result";

/// A run ended with `error` or `refused`.
pub const ERROR: &str = "agent_error";

/// What set a turn off through events; empty where a person did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// How many messages of the bus stand between the first turn and this one.
    pub hops: u32,
    /// The agents that were at work when they were published.
    pub ancestors: Vec<AgentId>,
}

impl Chain {
    /// The chain of what a run of `path` sets off.
    #[must_use]
    pub fn after(&self, path: &[AgentId]) -> Self {
        let mut ancestors = self.ancestors.clone();
        for agent in path {
            if !ancestors.contains(agent) {
                ancestors.push(agent.clone());
            }
        }
        Self { hops: self.hops.saturating_add(1), ancestors }
    }
}

/// A message for all who follow a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicMessage {
    /// The topic.
    pub topic: String,
    /// The message.
    pub payload: Value,
    /// What set it off.
    pub chain: Chain,
    /// Links it to the turn that set it off.
    pub correlation: Option<CorrelationId>,
}

/// Knows who follows what.
pub trait Topics: Send + Sync {
    /// Whether anybody follows `topic`, durable or live. Asked before a message is made; must not block.
    fn listens(&self, topic: &str) -> bool;
}

/// Nobody follows anything.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoTopics;

impl Topics for NoTopics {
    fn listens(&self, _: &str) -> bool {
        false
    }
}
