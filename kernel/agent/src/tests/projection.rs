//! By which events each entry is told, and in which form it is kept: a file holds an example of every entry in every form
//! that was ever written, with its events.
//!
//! The numbers of a session's events count on it: were an entry of an old row told otherwise by a later release, readers who
//! go on from a number would miss events or see them twice. So lines are added to the file, and none is changed.

use std::collections::BTreeSet;

use drupe_extension_api::EventBody;
use serde::{Deserialize, Serialize};

use crate::journal::Entry;

const EXAMPLES: &str = include_str!("entries.json");

/// An entry as it is kept, what it is read as, and its events.
#[derive(Serialize, Deserialize)]
struct Example {
    kept: serde_json::Value,
    events: Vec<EventBody>,
}

/// The names of all entries. One that is added needs an example.
const ALL: [&str; 16] = [
    "begin",
    "step",
    "answer",
    "failed",
    "compacted",
    "steered",
    "asked",
    "decided",
    "intent",
    "started",
    "result",
    "note",
    "end",
    "told",
    "tainted",
    "embedded",
];

fn name(entry: &Entry) -> &'static str {
    let at = match entry {
        Entry::Begin { .. } => 0,
        Entry::Step { .. } => 1,
        Entry::Answer { .. } => 2,
        Entry::Failed { .. } => 3,
        Entry::Compacted { .. } => 4,
        Entry::Steered { .. } => 5,
        Entry::Asked { .. } => 6,
        Entry::Decided { .. } => 7,
        Entry::Intent { .. } => 8,
        Entry::Started { .. } => 9,
        Entry::Result { .. } => 10,
        Entry::Note { .. } => 11,
        Entry::End { .. } => 12,
        Entry::Told { .. } => 13,
        Entry::Tainted { .. } => 14,
        Entry::Embedded { .. } => 15,
    };
    ALL[at]
}

#[test]
fn every_entry_is_told_by_the_events_by_which_it_always_was() {
    let examples: Vec<Example> = serde_json::from_str(EXAMPLES).expect("examples");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for Example { kept, events } in &examples {
        let entry: Entry =
            serde_json::from_value(kept.clone()).expect("an entry that an older release kept is read");
        seen.insert(name(&entry));
        if entry.events() != *events {
            let told = serde_json::to_string(&entry.events()).expect("events are JSON");
            wrong.push(format!("{kept}\nis told by\n{told}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(seen, ALL.into(), "each entry has an example");
}

#[test]
fn what_an_example_says_is_read_back_from_what_is_kept_of_it() {
    let examples: Vec<Example> = serde_json::from_str(EXAMPLES).expect("examples");
    for Example { kept, .. } in examples {
        let entry: Entry = serde_json::from_value(kept).expect("an entry");
        let again = serde_json::to_value(&entry).expect("entries are JSON");
        assert_eq!(serde_json::from_value::<Entry>(again).expect("an entry"), entry);
    }
}
