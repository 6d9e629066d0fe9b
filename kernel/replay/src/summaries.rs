//! Summaries by the model, and those of older turns that came to nothing: the answer stood, and a later turn tried again. What
//! stopped these, such as a person or a limit, is not played.

use std::collections::{HashMap, HashSet};

use drupe_agent::{Compaction, Entry, budget::Spent, prompt};
use drupe_extension_api::{EventBody, InvocationId, ResponseStatus};

use crate::invocations::RunRecord;

/// The code of the remark that tells of it.
const CODE: &str = "conversation_not_summarised";

/// What the model gave where it was asked for a summary.
pub(crate) fn given(compaction: &Compaction) -> Option<String> {
    match compaction {
        // What stands for a summary that was none.
        Compaction::Summarised { summary, .. } if summary == prompt::NO_SUMMARY => Some(String::new()),
        Compaction::Summarised { summary, .. } | Compaction::Condensed { summary } => Some(summary.clone()),
        Compaction::Elided { .. } | Compaction::Forced => None,
    }
}

/// Behind which step each run asked for such a summary.
pub(crate) struct CameToNothing<'a>(HashMap<&'a InvocationId, u32>);

impl<'a> CameToNothing<'a> {
    pub fn of(entries: &'a [Entry]) -> Self {
        let (mut answered, mut asked, mut came, mut well) =
            (HashMap::new(), HashSet::new(), HashSet::new(), HashSet::new());
        for entry in entries {
            match entry {
                Entry::Answer { invocation, step, .. } => drop(answered.insert(invocation, *step)),
                Entry::Step { invocation, shown: false, step, .. } => drop(asked.insert((invocation, *step))),
                Entry::Compacted { invocation, compaction: Compaction::Condensed { .. }, .. } => {
                    came.insert(invocation);
                }
                Entry::End { invocation, response, .. } if response.status == ResponseStatus::Success => {
                    well.insert(invocation);
                }
                _ => {}
            }
        }
        answered.retain(|run, step| {
            well.contains(run) && !came.contains(run) && asked.contains(&(*run, *step + 1))
        });
        Self(answered)
    }

    /// Whether an entry is of one of them.
    pub fn holds(&self, entry: &Entry) -> bool {
        let Some(last) = self.0.get(entry.invocation()) else { return false };
        match entry {
            Entry::Step { step, .. } | Entry::Failed { step, .. } => step > last,
            Entry::Told { event: EventBody::Diagnostic { code, .. }, .. } => code == CODE,
            _ => false,
        }
    }

    /// Charges the runs for what they cost.
    pub fn charge(&self, entries: &[Entry], runs: &mut HashMap<InvocationId, RunRecord>) {
        for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| self.holds(entry)) {
            if let Entry::Failed { invocation, usage, cost_usd, lost_tokens, lost_usd, .. } = entry {
                let mut spent = Spent::of(*usage, *cost_usd);
                spent += Spent::lost(*lost_tokens, *lost_usd);
                runs.entry(invocation.clone()).or_default().beside.push((at, spent));
            }
        }
    }
}
