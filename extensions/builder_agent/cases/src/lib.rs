//! Cases: messages with what is expected of their answers. `drupe eval` asks them of agents that are active, the builder of
//! those that it makes. What a file of them means, and whether an answer is as expected, is known here and nowhere else.
//!
//! Asks nobody, and reads no file.

mod expected;
mod judge;

use std::collections::BTreeSet;

use drupe_extension_api::AgentId;
use serde::Deserialize;

pub use self::{
    expected::{CaseAnswer, ExpectedAnswer, Texts},
    judge::{Judgment, verdict_schema},
};

/// The file in the folder of an agent that holds its cases.
pub const FILE: &str = "cases.yaml";

/// Seconds that the turn of a case may take which says nothing of it.
const USUAL: f64 = 120.0;

/// What a file of cases holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// Who answers the cases that name nobody; the orchestrator without it.
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// Who says whether answers are right where a case has a `judge`; the orchestrator without it.
    #[serde(default)]
    pub judge: Option<AgentId>,
    pub cases: Vec<Case>,
}

/// One message, and what is expected of its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    pub message: String,
    #[serde(default)]
    pub agent: Option<AgentId>,
    /// Seconds that the turn may take.
    #[serde(default = "usual")]
    pub timeout_s: f64,
    #[serde(default)]
    pub expect: ExpectedAnswer,
}

fn usual() -> f64 {
    USUAL
}

/// Why a text is no file of cases.
#[derive(Debug, thiserror::Error)]
pub enum CasesFault {
    #[error("{0}")]
    Form(String),
    #[error("there are no cases")]
    None,
    #[error("case `{case}`: {why}")]
    Case { case: String, why: String },
}

impl Cases {
    /// Reads the text of a file, and checks all of it.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(text: &str) -> Result<Self, CasesFault> {
        let cases: Self = serde_yaml::from_str(text).map_err(|error| CasesFault::Form(error.to_string()))?;
        cases.check()?;
        Ok(cases)
    }

    /// Who is asked a case; nobody in particular is the orchestrator.
    pub fn asked<'a>(&'a self, case: &'a Case) -> Option<&'a AgentId> {
        case.agent.as_ref().or(self.agent.as_ref())
    }

    /// What no type can say.
    fn check(&self) -> Result<(), CasesFault> {
        if self.cases.is_empty() {
            return Err(CasesFault::None);
        }
        let mut names = BTreeSet::new();
        for case in &self.cases {
            let wrong = |why: &str| CasesFault::Case { case: case.name.clone(), why: why.to_owned() };
            if case.name.trim().is_empty() || !names.insert(&case.name) {
                return Err(wrong("each case has a name of its own"));
            }
            if case.message.trim().is_empty() {
                return Err(wrong("the message is empty"));
            }
            if !(case.timeout_s > 0.0 && case.timeout_s <= 86_400.0) {
                return Err(wrong("`timeout_s` is more than 0 and at most 86400"));
            }
            case.expect.check().map_err(|why| wrong(&why.to_string()))?;
        }
        Ok(())
    }
}

impl Case {
    /// The time that it may take, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        (self.timeout_s * 1000.0).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_means_nothing_is_refused_with_the_case() {
        for (text, part) in [
            ("cases: []", "there are no cases"),
            ("cases: [{name: a, message: x}, {name: a, message: y}]", "a name of its own"),
            ("cases: [{name: a, message: ' '}]", "case `a`: the message is empty"),
            ("cases: [{name: a, message: x, expect: {matches: '('}}]", "`matches`"),
            ("cases: [{name: a, message: x, expect: {schema: {type: 7}}}]", "`schema`"),
            ("cases: [{name: a, message: x, timeout_s: 0}]", "`timeout_s`"),
            ("cases: [{name: a, message: x, timeout_s: .nan}]", "`timeout_s`"),
            ("cases: [{name: a, message: x, expects: {}}]", "unknown field"),
            ("agent: 'no id'\ncases: [{name: a, message: x}]", ""),
            ("", ""),
        ] {
            let refused = Cases::read(text).expect_err(text).to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_case_asks_its_own_agent_before_that_of_the_file() {
        let text = "agent: haiku\ncases: [{name: a, message: x}, {name: b, message: x, agent: poet}]";
        let cases = Cases::read(text).expect("cases");
        let asked: Vec<_> = cases.cases.iter().map(|case| cases.asked(case).map(AgentId::as_str)).collect();
        assert_eq!(asked, [Some("haiku"), Some("poet")]);
    }
}
