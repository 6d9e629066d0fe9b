//! Whether a tool call may run: the one place in every call's path that decides it.

use drupe_extension_api::ToolSpec;
use futures_util::future::BoxFuture;

use crate::run::Run;

/// Decides about every tool call of every origin, after its parameters were validated and before it is recorded as
/// intended.
pub trait Policy: Send + Sync {
    /// The decision; may wait for a person.
    fn decide<'a>(&'a self, call: PolicyCall<'a>) -> BoxFuture<'a, Decision>;
}

/// A call that waits for a decision.
#[derive(Clone, Copy)]
pub struct PolicyCall<'a> {
    /// Who calls.
    pub run: &'a Run,
    /// What is called.
    pub spec: &'a ToolSpec,
    /// The parameters as JSON text.
    pub params: &'a str,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not, for this reason, which the model reads.
    Deny(String),
}

/// Allows what an invocation's registry holds (nothing else reaches it) and denies what needs a person's agreement,
/// since nobody can be asked.
#[derive(Debug, Default, Clone, Copy)]
pub struct Allowlist;

impl Policy for Allowlist {
    fn decide<'a>(&'a self, call: PolicyCall<'a>) -> BoxFuture<'a, Decision> {
        let decision = if call.spec.annotations.needs_approval {
            Decision::Deny(format!(
                "`{}` needs the operator's approval, and nobody can be asked for it",
                call.spec.name
            ))
        } else {
            Decision::Allow
        };
        Box::pin(std::future::ready(decision))
    }
}
