//! How a recorded run ended, where that is not for the loop to say again.

use std::collections::BTreeMap;

use drupe_agent::{Recipe, StopReason};
use drupe_extension_api::{BudgetUse, DefinitionLimits, FailureClass, LimitScope};

use crate::invocations::{AskEnd, Invocations, RunRecord};

impl Invocations {
    /// Whether agents worked beside others.
    pub fn has_spawned(&self) -> bool {
        self.all.values().any(|run| run.beside_its_caller)
    }

    /// Whether a run met a limit of its tree.
    pub fn met_a_limit(&self) -> bool {
        let mut met = self.all.values().flat_map(|run| &run.exceeded);
        met.any(|used| used.scope == LimitScope::Run)
    }

    /// Limits as they bind a replay. What works beside others has set more or less aside at a moment than it had then: a run
    /// for which that left no room ends where its records do.
    pub fn widened(&self, limits: DefinitionLimits) -> DefinitionLimits {
        match self.has_spawned() {
            true => DefinitionLimits { max_tokens_per_invocation: u64::MAX, max_cost_usd: None, ..limits },
            false => limits,
        }
    }
}

impl RunRecord {
    /// Why the loop may come to ask for more than there is, where something from outside ended the run.
    pub fn ended_from_outside(&self) -> Option<String> {
        let Some((response, _)) = &self.end else { return Some("it has no end in the records".into()) };
        if self.cut_off > 0 && self.cut_at > self.asked_at {
            return Some("a restart cut it off and it did not go on".into());
        }
        let outside = self.exceeded.iter().rev().find(|used| used.scope != LimitScope::Run);
        match response.class {
            Some(FailureClass::Cancelled) if self.beside_its_caller => {
                Some("it was closed, or ended with whoever had spawned it".into())
            }
            Some(FailureClass::Cancelled) => Some("it was cancelled".into()),
            Some(FailureClass::Timeout) => Some("its time was over".into()),
            Some(FailureClass::Internal) => Some("drupe itself failed".into()),
            Some(FailureClass::Budget) => {
                let room = |used: &&BudgetUse| used.limit.contains("tokens") || used.limit.contains("cost");
                let used = outside.or_else(|| self.exceeded.iter().rev().find(room));
                used.map(|used| format!("`{}` left no room for a further request", used.limit))
            }
            Some(FailureClass::Refused) if self.was_blocked() => Some("a hook forbade it to go on".into()),
            _ => None,
        }
    }

    /// Whether neither its model nor a tool of its own refused the task.
    fn was_blocked(&self) -> bool {
        let declined = self.asked.last().is_some_and(|asked| {
            matches!(asked.end, AskEnd::Answered { stop: StopReason::Refusal { .. }, .. })
        });
        let refused = self.calls.iter().any(|call| call.tool == drupe_agent::refuse::NAME);
        !declined && !refused
    }

    /// Whether its agent is code, or cannot be built again.
    pub fn is_code(&self, recipes: &BTreeMap<String, Recipe>) -> bool {
        self.recipe.as_ref().is_none_or(|hash| !recipes.contains_key(hash))
    }
}
