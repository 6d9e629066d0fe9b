//! What the code of tools asks for on behalf of their calls, after a cut: each call comes back to what it asked for itself.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, EffectId};

use super::*;
use crate::*;

/// What a tool asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Tool,
    OwnLoop,
    OtherAgent,
}

/// A root that calls a tool in each of two steps, whose code asks both times for the same; `says` is what it is given.
fn case(asked: Asked, journal: &Arc<MemoryJournal>, resumed: bool, says: &str) -> Case {
    let twice = [call(&[("outer", "{}")]), call(&[("outer", "{}")]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &twice), ("asked", &[say(says)])]));
    let agent = looping(definition("asked"), &model, []);
    let does = match asked {
        Asked::Tool => {
            let inner = Fake::new("inner", Does::Says(says.into())).class(EffectClass::Pure);
            Does::Calls(registry([inner.registered()]), "inner")
        }
        Asked::OwnLoop => Does::Runs(agent, true),
        Asked::OtherAgent => Does::Runs(agent, false),
    };
    let outer = Fake::new("outer", does).class(EffectClass::Idempotent).registered();
    let root = looping(definition("main"), &model, [outer]);
    Case { journal: Arc::clone(journal), resumed, ..Case::new(root, &model) }
}

/// How much of what was asked for has its answer in the journal.
fn answered(journal: &MemoryJournal) -> usize {
    let entries = journal.batches().into_iter().flat_map(|batch| batch.entries);
    let inner = entries.filter(|entry| match entry {
        Entry::Result { tool, .. } => tool == "inner",
        Entry::End { below, .. } => *below,
        _ => false,
    });
    inner.count()
}

#[tokio::test]
async fn a_later_call_is_not_given_what_an_earlier_one_was_given_before_a_cut() {
    for asked in [Asked::Tool, Asked::OwnLoop, Asked::OtherAgent] {
        let journal = Arc::new(MemoryJournal::default());
        let whole = case(asked, &journal, false, "old").run().await;
        assert!(whole.told().len() == 2 && whole.told().iter().all(|told| told.contains("old")));
        let commits = journal.batches().len();
        let mut seen_between = false;
        for (commits, checkpoint) in (0..commits).flat_map(|n| [(n, false), (n, true)]) {
            let cut = crashed(&journal, commits).await;
            let known = answered(&cut);
            let seen = Case { checkpoint, ..case(asked, &cut, true, "new") }.run().await;
            if known == 2 && seen.told().is_empty() {
                continue;
            }
            let given: Vec<bool> = seen.told().iter().map(|told| told.contains("old")).collect();
            assert_eq!(given, [known > 0, known > 1], "{asked:?}, cut after {commits}: {:?}", seen.told());
            seen_between |= known == 1;
        }
        assert!(seen_between, "one cut was between the two calls");
    }
}

#[tokio::test]
async fn each_call_that_asks_for_the_same_gets_an_answer_of_its_own() {
    let journal = Arc::new(MemoryJournal::default());
    let seen = case(Asked::Tool, &journal, false, "old").run().await;
    let inner = |entry: &Entry| match entry {
        Entry::Intent { tool, effect, .. } if tool == "inner" => Some(effect.clone()),
        _ => None,
    };
    let effects: Vec<EffectId> = seen.entries.iter().filter_map(inner).collect();
    assert!(effects.len() == 2 && effects[0] != effects[1], "{effects:?}");
}
