//! Summaries by the model, and those of older turns that came to nothing: the answer stood, and a later turn tried again. What
//! stopped these, such as a person or a limit, is not played.

use std::collections::{HashMap, HashSet};

use drupe_agent::{Compaction, Entry, budget::Spent, prompt};
use drupe_extension_api::{EventBody, InvocationId, ResponseStatus};

use crate::invocations::{RunRecord, step_of};

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

/// What summaries of older turns took, behind the answer of their turn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BehindTheAnswer {
    /// The tokens and their cost.
    pub spent: Spent,
    /// The time that they took, in milliseconds.
    pub elapsed_ms: u64,
}

impl BehindTheAnswer {
    /// That of a turn. Whoever answers its message in another's place sums nothing up.
    pub fn of(entries: &[Entry]) -> Self {
        let nothing = CameToNothing::of(entries);
        let condensed = |entry: &&Entry| {
            matches!(entry, Entry::Compacted { compaction: Compaction::Condensed { .. }, .. })
        };
        let steps: HashSet<_> = entries.iter().filter(condensed).map(step).collect();
        let mut sum = Self::default();
        for entry in entries {
            let (usage, cost_usd, told) = match entry {
                Entry::Compacted { usage, cost_usd, told, .. } if condensed(&entry) => {
                    (usage, cost_usd, told.as_ref())
                }
                // The models of a list that were asked before the one that gave it.
                Entry::Failed { usage, cost_usd, told, .. }
                    if steps.contains(&step(entry)) || nothing.holds(entry) =>
                {
                    (usage, cost_usd, told.as_deref())
                }
                _ => continue,
            };
            sum.spent += Spent::of(*usage, *cost_usd);
            sum.elapsed_ms = sum.elapsed_ms.saturating_add(told.map_or(0, |told| told.latency_ms));
        }
        sum
    }
}

fn step(entry: &Entry) -> (&InvocationId, Option<u32>) {
    (entry.invocation(), step_of(entry))
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
