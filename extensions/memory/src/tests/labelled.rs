//! How often a question finds its fact among ten thousand by their words. The example `recall` says how often with a model for
//! vectors.

use rusqlite::Connection;

use super::set::{LABELLED, facts};
use crate::{
    find,
    keep::{self, FactBounds, WantedFact},
    store::FactStore,
    words,
};

/// Of these questions so many find their fact among the first five. What is missed needs the meaning of words: that a freeze is what is
/// frozen, that where one eats is a restaurant.
const FLOOR: u32 = 57;

/// A store of so many facts.
fn filled(folder: &std::path::Path, count: usize) -> FactStore {
    let store = FactStore::new(folder);
    let bounds = FactBounds { fact_bytes: 1024, facts: count };
    store
        .write(|db| {
            for (at, text) in facts(count).into_iter().enumerate() {
                let wanted = WantedFact {
                    namespace: "orchestrator".to_owned(),
                    text,
                    confidence: 1.0,
                    replaces: None,
                    session: "s".to_owned(),
                    turn: "t".to_owned(),
                    agent: "orchestrator".to_owned(),
                    effect: at.to_string(),
                    strangers: false,
                    now_ms: 1_700_000_000_000,
                };
                keep::keep(db, &wanted, bounds)?;
            }
            Ok(())
        })
        .expect("they fit");
    store
}

fn found(db: &Connection, question: &str) -> Vec<String> {
    let found = find::find(db, "orchestrator", &words::search(question), None, 5, 1_700_000_000_000)
        .expect("it is found");
    found.into_iter().map(|one| one.fact.text).collect()
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are for whoever asked for them")]
fn most_questions_find_their_fact_among_ten_thousand() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = filled(folder.path(), 10_000);
    let (mut all, mut first, mut hits, mut missed) = (0, 0, 0, Vec::new());
    store
        .read(|db| {
            for (fact, questions) in LABELLED {
                for question in *questions {
                    let found = found(db, question);
                    all += 1;
                    first += usize::from(found.first().is_some_and(|text| text == fact));
                    match found.iter().any(|text| text == fact) {
                        true => hits += 1,
                        false => missed.push(format!("{question}: {found:?}")),
                    }
                }
            }
            Ok(())
        })
        .expect("it can be read");
    println!("{hits} of {all} among the first five, {first} first");
    assert!(hits >= FLOOR, "missed:\n{}", missed.join("\n"));
}
