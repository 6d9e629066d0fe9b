//! On behalf of what code asks for tools and agents.

use drupe_extension_api::EffectId;

use crate::run::Run;

/// The work on behalf of which code asks for a tool or an agent. Ids of what it asks for follow from it, and from how often the
/// same was asked for on its behalf: so work that is done again after a restart comes back to what it had asked for, and to
/// nothing that other work of the same run had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asker {
    /// The run itself, whose agent is code.
    Agent,
    /// A call of a tool.
    Call(EffectId),
}

impl Asker {
    /// Its place in that run, by which it is told apart from all other work.
    pub fn place<'a>(&'a self, run: &'a Run) -> &'a str {
        match self {
            Self::Agent => run.id.as_str(),
            Self::Call(effect) => effect.as_str(),
        }
    }
}
