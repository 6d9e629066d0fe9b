//! What a run that goes on reads no more, and which a checkpoint therefore does not keep.
//!
//! A turn that goes on is done again from its records, without its model and its tools. Pruned records lead it to the same
//! place: the same messages for its model, the same sums, the same decisions. They never say less of what has no end yet,
//! nor of what code did outside the loop, which may ask for it again at any time. To prune may happen at any time and any
//! number of times: with what is recorded later, pruned records come to the same as whole ones.

use std::collections::HashSet;

use drupe_extension_api::{InvocationId, Message};
use sha2::{Digest, Sha256};

use super::{Compaction, RecordedEffect, RecordedInvocation, RecordedStep, RecordedTurn};
use crate::{
    budget::Spent,
    core_tools::{load_skill, search_tools, spawn_agent, update_plan},
    dispatch::OUTSIDE,
    ids, prompt,
};

/// Bytes of a result that may give way to what stands in its place. What a model is shown of it has at least half of them,
/// whatever the bound on that: so it did give way.
const LONG: usize = 1024;

/// Tools that keep something in the run, and read their parameters again when it goes on.
const READ_AGAIN: [&str; 5] =
    [update_plan::NAME, load_skill::NAME, spawn_agent::SPAWN, spawn_agent::SEND, spawn_agent::CLOSE];

/// What stands for the parameters of a call where only counts whether another one has the same: their hash, where that is
/// shorter.
pub(crate) fn sameness(arguments: &str) -> String {
    let hash = || ids::hex(&Sha256::digest(arguments));
    if arguments.len() > 2 * Sha256::output_size() { hash() } else { arguments.to_owned() }
}

impl RecordedTurn {
    /// Lets go of all that no run of the turn reads when it goes on.
    pub fn prune(&mut self) {
        let over: Vec<(InvocationId, Spent)> = self
            .0
            .iter()
            .filter(|(id, _)| self.is_over(id))
            .map(|(id, run)| (id.clone(), run.beside_its_sum(self.below(run).into_iter())))
            .collect();
        let mut within = HashSet::new();
        for (id, beside) in over {
            let Some(run) = self.0.get_mut(&id) else { continue };
            within.extend(std::mem::take(&mut run.below));
            (run.steps, run.beside) = (Vec::new(), beside);
        }
        self.0.retain(|id, _| !within.contains(id));
        let mut reported = HashSet::new();
        for run in self.0.values_mut() {
            run.prune();
            let ended = run.steps.iter().filter(|step| step.step != OUTSIDE).flat_map(|step| &step.effects);
            let ended = ended.filter(|effect| effect.result.is_some());
            reported.extend(ended.map(|effect| ids::child_of_effect(&effect.effect)));
        }
        // The result of the call that asked for it says what it said.
        for id in reported {
            if let Some(response) = self.0.get_mut(&id).and_then(|run| run.response.as_mut()) {
                response.content.clear();
                response.error = None;
            }
        }
    }

    /// Whether a run and all below it have ended, so that nothing of them is done again.
    fn is_over(&self, id: &InvocationId) -> bool {
        self.0.get(id).is_none_or(|run| {
            run.response.is_some()
                && run.steps.iter().all(|step| step.reserved_tokens == 0)
                && run.below.iter().all(|below| self.is_over(below))
        })
    }

    /// What each run below one has spent.
    fn below(&self, run: &RecordedInvocation) -> Vec<Spent> {
        let known = run.below.iter().filter_map(|id| self.0.get(id));
        known.map(|run| run.spent(self.below(run).into_iter())).collect()
    }
}

impl RecordedInvocation {
    /// Lets go of the texts for which something else stands in the transcript by now.
    fn prune(&mut self) {
        let (mut summed_up, mut set_aside) = (0, 0);
        for compaction in self.steps.iter().flat_map(|step| &step.compactions) {
            match compaction {
                Compaction::Summarised { before, .. } => summed_up = summed_up.max(*before),
                Compaction::Elided { before } => set_aside = set_aside.max(*before),
                Compaction::Forced | Compaction::Condensed { .. } => {}
            }
        }
        let (mut is_last_summary, mut is_last_text) = (true, true);
        for step in self.steps.iter_mut().rev().filter(|step| step.step != OUTSIDE) {
            for compaction in step.compactions.iter_mut().rev() {
                if let Compaction::Summarised { summary, .. } = compaction
                    && !std::mem::take(&mut is_last_summary)
                {
                    summary.clear();
                }
            }
            if step.step < summed_up {
                step.sum_up(is_last_text);
            } else if step.step < set_aside {
                step.effects.iter_mut().for_each(RecordedEffect::set_aside);
            }
            let said = |answer: &Message| matches!(answer, Message::Assistant { content, .. } if !content.is_empty());
            is_last_text &= !step.answer.as_ref().is_some_and(said);
        }
    }
}

impl RecordedStep {
    /// Lets go of what a summary stands for, unless it is the last text, which the report of a run that is stopped quotes.
    /// An answer that was not whole or called no tool decides how the run went on, and stays.
    fn sum_up(&mut self, is_last_text: bool) {
        let calls = self.effects.len();
        if !self.stop.is_whole() || self.effects.iter().any(|effect| effect.result.is_none()) {
            return;
        }
        let Some(Message::Assistant { content, reasoning, tool_calls, provider_items }) = &mut self.answer
        else {
            return;
        };
        if tool_calls.is_empty() || tool_calls.len() != calls {
            return;
        }
        (*reasoning, *provider_items) = (None, None);
        if !is_last_text {
            content.clear();
        }
        for call in tool_calls {
            if !READ_AGAIN.contains(&call.name.as_str()) {
                call.arguments = sameness(&call.arguments);
            }
        }
        for effect in self.effects.iter_mut().filter(|effect| effect.tool != search_tools::NAME) {
            effect.size = None;
            effect.images.clear();
            if let Some((_, content)) = &mut effect.result {
                content.clear();
            }
        }
        let steered = self.steered.iter_mut().map(|(_, message)| message);
        for message in steered.chain(&mut self.given) {
            if let Message::User { content } = message {
                content.clear();
            }
        }
        self.model.clear();
    }
}

impl RecordedEffect {
    /// Keeps of its result what stands in its place in the transcript. What a search found is read again.
    fn set_aside(&mut self) {
        let Some((_, content)) = &mut self.result else { return };
        let stub = prompt::elided(&self.tool, content.len(), &self.effect);
        let gave_way = content.len() > LONG && stub.len() < LONG / 2;
        if gave_way && self.size.is_none() && self.tool != search_tools::NAME {
            let stub = stub + &prompt::elided_images(self.images.len());
            self.size = Some(std::mem::replace(content, stub).len());
            self.images.clear();
        }
    }
}
