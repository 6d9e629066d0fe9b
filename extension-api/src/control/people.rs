//! People of chat services, as the operator decides about them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Allowance;

/// Somebody who wrote through a channel whose senders are to be known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonStatus {
    /// `channel/id`, by which they are revoked; the second part is the service's own id of them.
    pub id: String,
    /// What they called themselves when they wrote first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub state: PersonState,
    /// What they were shown, while they wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// When they were shown it.
    pub asked: Timestamp,
    /// Until when the code holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Timestamp>,
    /// Whether their answers to questions about calls count.
    pub may_approve: bool,
    /// What may be used in their sessions in a day (UTC).
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day: Allowance,
}

/// What the operator said of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PersonState {
    /// Nothing yet: nobody answers them.
    Waiting,
    Allowed,
    /// They are shown nothing from now on.
    Denied,
}

/// Parameters of [`method::PEOPLE_ANSWER`](super::method::PEOPLE_ANSWER): what the operator says of whoever was shown a code.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PersonAnswer {
    /// The code that they were shown, in capitals or not, with its dash or without.
    pub code: String,
    pub allow: bool,
    /// Whether their answers to questions about calls count from now on.
    #[serde(default)]
    pub may_approve: bool,
    /// What may be used in their sessions in a day (UTC).
    #[serde(default, skip_serializing_if = "Allowance::is_empty")]
    pub per_day: Allowance,
}
