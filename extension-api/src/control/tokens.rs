//! Named tokens: what a program shows that is not the operator, and what it may do.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::AgentId;

/// What somebody may do who speaks the control API. Each method needs one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// Read sessions: their turns, events, traces and explanations; and which agents there are.
    Read,
    Submit,
    /// Stop turns, and choose who answers in a session.
    Direct,
    /// See the daemon: its status, extensions, approvals, configuration, usage and dead messages.
    Inspect,
    Extend,
    /// Everything that decides about the daemon: stop, restart, turn extensions on and off, agree, make tokens.
    Operate,
}

impl Power {
    /// All of them, from the least.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Submit, Self::Direct, Self::Inspect, Self::Extend, Self::Operate];

    /// As requests and the command line spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Direct => "direct",
            Self::Inspect => "inspect",
            Self::Extend => "extend",
            Self::Operate => "operate",
        }
    }
}

/// Parameters of [`method::TOKENS_NEW`](super::method::TOKENS_NEW).
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenNew {
    /// 1 to 48 of a-z, 0-9, `_` and `-`, as ids of extensions.
    pub name: String,
    /// What its bearer may do; at least one.
    pub may: Vec<Power>,
    /// The sessions that its bearer reaches: the one of this name and those that begin with it and `:`. `*` stands for
    /// all; none for `token.<name>`.
    #[serde(default)]
    pub sessions: Option<String>,
    /// The agents that its bearer reaches; empty for all.
    #[serde(default)]
    pub agents: Vec<AgentId>,
    /// What may be used in its sessions in a day (UTC).
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day: Allowance,
    /// The same, for each name that is shown behind the token.
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day_each: Allowance,
}

/// How much may be used; what is not named has no bound here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// US dollars, of models whose price is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Runs of agents, sub-agents included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_invocations: Option<u64>,
}

impl Allowance {
    /// Whether it bounds nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A token that was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenMade {
    /// What its bearer shows in `hello`. It is told this once; the daemon keeps its hash alone.
    pub token: String,
    #[serde(flatten)]
    pub status: TokenStatus,
}

/// Who asks, and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Whoami {
    /// `operator`, or what kind of somebody it is with the name.
    pub name: String,
    pub may: Vec<Power>,
    /// The session that is reached, with those that begin with it and `:`; none for all.
    #[serde(default)]
    pub sessions: Option<String>,
    /// The agents that are reached; empty for all.
    #[serde(default)]
    pub agents: Vec<AgentId>,
}

/// A token that whoever shows a code is given, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenPromised {
    pub code: String,
    /// Seconds in which it must be shown; a kernel that ends takes it along.
    pub valid_for_s: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TokenStatus {
    pub name: String,
    /// What its bearer may do.
    pub may: Vec<Power>,
    /// The sessions that its bearer reaches, as in [`TokenNew::sessions`]; none for all.
    #[serde(default)]
    pub sessions: Option<String>,
    /// The agents that its bearer reaches; empty for all.
    #[serde(default)]
    pub agents: Vec<AgentId>,
    /// What may be used in its sessions in a day (UTC).
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day: Allowance,
    /// The same, for each name that is shown behind it.
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day_each: Allowance,
    pub created: Timestamp,
}
