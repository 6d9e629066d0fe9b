//! Deletion deletes: no byte of a forgotten text is left in the files.

use std::{collections::HashSet, fs, path::Path};

use serde_json::json;

use super::support::{Scene, memory};
use crate::{
    asks::forget_one,
    keep::{self, FactBounds, WantedFact},
    store::FactStore,
};

const FACTS: u64 = 900;

/// Words that stand nowhere else, long enough not to come about by chance; the index has their beginnings in common with others.
const SECRET: &str = "Zanzibarquokka plimsollvortex Überkrautjongleur 水母灯塔";
const PARTS: [&str; 5] = ["quokka", "vortex", "krautjongleur", "水母", "灯塔"];

/// The parts that are in some file of the data folder.
fn left(folder: &Path) -> Vec<&'static str> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        bytes.extend(fs::read(entry.expect("an entry").path()).expect("a file").to_ascii_lowercase());
    }
    PARTS
        .into_iter()
        .filter(|part| bytes.windows(part.len()).any(|window| window == part.as_bytes()))
        .collect()
}

/// Facts that share words and beginnings of words with it, so that its words stand between others.
fn crowd(scene: &Scene, rounds: usize) {
    for n in 0..rounds {
        scene.save(&format!(
            "Zanzibarq number {n} met plimsollv{n} at the Überkraut{n} of Bergen, 水{n}母灯."
        ));
    }
}

#[test]
fn nothing_of_a_forgotten_fact_is_left_in_the_file() {
    for (before, after) in [(0, 0), (3, 3), (30, 30)] {
        let scene = memory(json!({}));
        let folder = scene.memory.data_folder().to_owned();
        crowd(&scene, before);
        let said = scene.save(SECRET);
        let id: i64 = said.split_whitespace().nth(3).and_then(|id| id.parse().ok()).expect("an id");
        for n in 0..after {
            scene.save(&format!("Between {n} and the plimsollw{n}."));
        }
        assert_eq!(left(&folder), PARTS, "the test would see it");
        scene.says("memory_forget", json!({"id": id}));
        assert_eq!(left(&folder), Vec::<&str>::new(), "{before} before, {after} after");
        assert!(!scene.search("plimsollvortex").contains("quokka"));
    }
}

#[test]
fn nothing_is_left_of_a_text_that_was_replaced_edited_or_went_with_its_namespace() {
    let scene = memory(json!({}));
    let folder = scene.memory.data_folder().to_owned();
    crowd(&scene, 20);
    let held = |what: &str| {
        scene.save(SECRET);
        assert_eq!(left(&folder), PARTS, "{what}: the test would see it");
    };
    held("replaced");
    scene.says("memory_save", json!({"text": "Something else.", "replaces": 21}));
    assert_eq!(left(&folder), Vec::<&str>::new(), "replaced");
    held("edited");
    scene.asks("edit", json!({"id": 22, "text": "Another thing."})).expect("it is edited");
    assert_eq!(left(&folder), Vec::<&str>::new(), "edited");
    held("a namespace");
    scene.asks("forget", json!({"namespace": "orchestrator"})).expect("it is forgotten");
    assert_eq!(left(&folder), Vec::<&str>::new(), "a namespace");
}

#[test]
fn nothing_is_left_of_any_of_many_facts_that_go_out_of_the_midst_of_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = FactStore::new(folder.path());
    // Words of one beginning and of endings that stand nowhere else: the index writes the latter out.
    let ending = |n: u64| {
        let mixed = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:016x}", (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9))
    };
    let bounds = FactBounds { fact_bytes: 1024, facts: 10_000 };
    store
        .write(|db| {
            for n in 0..FACTS {
                let wanted = WantedFact {
                    namespace: "orchestrator".to_owned(),
                    text: format!("Number {n} is word{} and x{}.", ending(n), ending(n + FACTS)),
                    confidence: 1.0,
                    replaces: None,
                    session: "s".to_owned(),
                    turn: "t".to_owned(),
                    agent: "orchestrator".to_owned(),
                    effect: n.to_string(),
                    strangers: false,
                    now_ms: 0,
                };
                keep::keep(db, &wanted, bounds)?;
            }
            Ok(())
        })
        .expect("they fit");
    let gone: Vec<u64> = (0..FACTS).filter(|n| n % 9 == 1).collect();
    let endings = |n: u64| [ending(n), ending(n + FACTS)].map(|ending| ending.as_bytes()[6..].to_vec());
    let forgotten: HashSet<Vec<u8>> = gone.iter().flat_map(|n| endings(*n)).collect();
    let left = || {
        let bytes = fs::read(folder.path().join("memory.sqlite")).expect("a file");
        bytes.windows(10).filter(|window| forgotten.contains(*window)).count()
    };
    assert!(left() >= forgotten.len(), "the test would see them");
    for n in gone {
        assert_eq!(forget_one(&store, i64::try_from(n + 1).expect("an id"), None), Ok(true));
    }
    assert_eq!(left(), 0);
}
