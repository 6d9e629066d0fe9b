//! What is found by meaning, with a model for vectors that knows four meanings.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use drupe_extension_api::{
    Fault, FaultCode,
    testing::{Harness, block_on},
};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::{By, MAIN, Scene};
use crate::file;

/// Words of each meaning; a text's vector counts them.
const MEANINGS: [&[&str]; 4] = [
    &["dog", "terrier", "puppy", "hund"],
    &["car", "vehicle", "saab"],
    &["doctor", "physician", "clinic"],
    &["sea", "beach", "coast"],
];

fn vector(text: &str) -> Vec<f32> {
    let text = text.to_lowercase();
    let counts = MEANINGS.iter().map(|words| words.iter().filter(|word| text.contains(**word)).count());
    // A text of none of them has a direction, too.
    counts.map(|count| count as f32).chain([0.3]).collect()
}

/// A memory whose model has that name.
fn memory(folder: Option<&Path>, model: &str, config: Value) -> Scene {
    let mut setup = Harness::setup().id("memory").config(config).embedding_model(model);
    if let Some(folder) = folder {
        setup = setup.data_folder(folder);
    }
    let memory = block_on(setup.start()).expect("it starts");
    memory.host().answer_embeddings_with(|texts| Ok(texts.iter().map(|text| vector(text)).collect()));
    Scene { memory }
}

const FACTS: [&str; 6] = [
    "Rex is a terrier of seven years.",
    "The Saab is in the garage.",
    "The physician moved to Harbour Street.",
    "Tea is at four.",
    "The cello stands in the hall.",
    "Ida was born in May.",
];

fn filled(folder: Option<&Path>, config: Value) -> Scene {
    let scene = memory(folder, "p/four", config);
    FACTS.iter().for_each(|fact| drop(scene.save(fact)));
    scene
}

fn numbers_of_vectors(scene: &Scene) -> i64 {
    let db = Connection::open(scene.memory.data_folder().join("memory.sqlite")).expect("a file");
    db.query_row("SELECT count(*) FROM vectors", [], |row| row.get(0)).expect("a number")
}

#[test]
fn what_shares_no_word_with_a_question_is_found_by_what_it_means() {
    let scene = filled(None, json!({}));
    assert!(scene.memory.host().embedded().is_empty(), "to keep a fact waits for no model");
    for _ in 0..2 {
        let found = scene.search("how old is my dog");
        assert!(found.starts_with("[1] "), "{found}");
    }
    let asked = scene.memory.host().embedded();
    assert_eq!(asked[0].len(), 1 + FACTS.len(), "facts get their vectors with the first question");
    assert_eq!(asked[1], ["how old is my dog"], "and keep them");
    assert!(scene.context("what about the puppy").is_some_and(|text| text.contains("Rex")));
    assert_eq!(scene.context("thanks, and now a poem"), None, "nothing stands out");
    let by_word = scene.search("cello");
    assert!(by_word.starts_with("[5] "), "{by_word}");
}

#[test]
fn without_an_answer_of_the_model_facts_are_found_by_their_words() {
    let scene = filled(None, json!({}));
    scene.memory.host().answer_embeddings_with(|_| Err(Fault::new(FaultCode::Budget, "used up")));
    assert_eq!(scene.search("puppy"), "nothing that was kept fits");
    assert!(scene.search("the terrier").contains("Rex"));
    assert!(scene.context("the terrier").is_some());
    // Too few, and of no direction.
    scene.memory.host().answer_embeddings_with(|_| Ok(Vec::new()));
    assert!(scene.search("the terrier").contains("Rex"));
    scene.memory.host().answer_embeddings_with(|texts| Ok(vec![vec![0.0; 5]; texts.len()]));
    assert!(scene.search("the terrier").contains("Rex"));
    assert_eq!(numbers_of_vectors(&scene), 0);
}

#[test]
fn a_model_is_asked_for_no_more_than_is_set() {
    for (vectors, in_search, in_turns) in [("none", 0, 0), ("search", 1, 0), ("turns", 1, 1)] {
        let scene = filled(None, json!({"vectors": vectors}));
        scene.search("dog");
        assert_eq!(scene.memory.host().embedded().len(), in_search, "{vectors}");
        scene.context("dog");
        assert_eq!(scene.memory.host().embedded().len(), in_search + in_turns, "{vectors}");
    }
    let scene = filled(None, json!({}));
    scene.context("and then?");
    assert!(scene.memory.host().embedded().is_empty(), "a message that is about nothing is not sent");
    let without = super::support::memory(json!({}));
    without.save(FACTS[0]);
    assert!(without.search("terrier").contains("Rex"), "there is no model");
}

#[test]
fn only_facts_of_whoever_asks_go_to_the_model() {
    let scene = filled(None, json!({}));
    let other = By { agent: "other", ..MAIN };
    scene
        .call(other, None, "memory_save", json!({"text": "The other one has a puppy."}))
        .expect("it is kept");
    scene.call(other, None, "memory_search", json!({"query": "dog"})).expect("it is found");
    assert_eq!(scene.memory.host().embedded(), [["dog", "The other one has a puppy."]]);
}

#[test]
fn a_vector_goes_with_its_text() {
    let scene = filled(None, json!({}));
    scene.search("dog");
    assert_eq!(numbers_of_vectors(&scene), 6);
    scene.says("memory_forget", json!({"id": 2}));
    scene.says("memory_save", json!({"text": "Rex is a greyhound.", "replaces": 1}));
    scene.asks("edit", json!({"id": 3, "text": "The doctor moved away."})).expect("it is edited");
    assert_eq!(numbers_of_vectors(&scene), 3);
    let file = scene.memory.data_folder().join("memory.sqlite");
    let saab: Vec<u8> = vec![0, 127, 0, 0, 38];
    let holds = || fs::read(&file).expect("a file").windows(5).any(|bytes| bytes == saab);
    assert!(!holds(), "its bytes are overwritten");
    scene.save("The Saab is in the garage.");
    scene.search("vehicle");
    assert!(holds(), "the test would see it");
    let asked = scene.memory.host().embedded();
    let again = asked.last().expect("a request");
    assert_eq!(again[1..], ["The Saab is in the garage.", "The doctor moved away.", "Rex is a greyhound."]);
}

#[test]
fn vectors_of_another_model_are_not_compared_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(Some(folder.path()), json!({})).search("dog");
    let other = memory(Some(folder.path()), "p/five", json!({}));
    other.memory.host().answer_embeddings_with(|_| Err(Fault::new(FaultCode::Unavailable, "away")));
    assert_eq!(other.search("puppy"), "nothing that was kept fits", "they are of the model before");
    let longer = |texts: &[String]| texts.iter().map(|text| [vector(text), vec![0.1]].concat()).collect();
    other.memory.host().answer_embeddings_with(move |texts| Ok(longer(texts)));
    assert!(other.search("puppy").contains("Rex"));
    assert_eq!(numbers_of_vectors(&other), 6);
}

#[test]
fn a_file_of_the_release_before_is_brought_up_with_all_that_is_in_it() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(Some(folder.path()), json!({}));
    let path = folder.path().join("memory.sqlite");
    let old = Connection::open(&path).expect("a file");
    old.execute_batch("DROP TABLE vectors; DROP TABLE vector_model; PRAGMA user_version = 1;")
        .expect("older");
    drop(old);
    let scene = memory(Some(folder.path()), "p/four", json!({}));
    assert!(scene.search("puppy").contains("Rex"));
    assert_eq!(scene.texts().len(), 6);
    drop(file::open(&path).expect("it is opened again"));
    // What it was lies beside it, whole and nobody else's.
    let kept = folder.path().join("memory.sqlite.v1");
    assert_eq!(fs::metadata(&kept).expect("a copy").permissions().mode() & 0o777, 0o600);
    assert!(!folder.path().join("memory.sqlite.upgrading").exists());
    let old = Connection::open(&kept).expect("a file");
    let form = |db: &Connection| db.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0));
    let facts = old
        .query_row("SELECT count(*) FROM facts JOIN words ON words.rowid = facts.id", [], |row| row.get(0));
    assert_eq!((form(&old), facts), (Ok(1), Ok(6)));
    drop(old);
    // Whoever goes back is told of it, and finds all that was kept then.
    let newer = Connection::open(&path).expect("a file");
    newer.pragma_update(None, "user_version", 7).expect("a form");
    drop(newer);
    let fault = file::open(&path).expect_err("it is newer");
    assert!(fault.help.is_some_and(|help| help.contains("memory.sqlite.v1` in its place")));
    fs::copy(&kept, &path).expect("a file");
    let back = memory(Some(folder.path()), "p/four", json!({}));
    assert_eq!(back.texts().len(), 6);
    back.save("The moon is full.");
    assert!(kept.exists());
    back.says("memory_forget", json!({"id": 2}));
    assert!(!kept.exists(), "what is forgotten is not kept there either");
}

#[test]
fn a_file_of_which_no_copy_can_be_made_stays_what_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    filled(Some(folder.path()), json!({}));
    let path = folder.path().join("memory.sqlite");
    let old = Connection::open(&path).expect("a file");
    old.execute_batch("DROP TABLE vectors; DROP TABLE vector_model; PRAGMA user_version = 1;")
        .expect("older");
    drop(old);
    let before = fs::read(&path).expect("a file");
    // A folder stands where the copy goes, as if somebody had put it there.
    fs::create_dir_all(folder.path().join("memory.sqlite.v1/in it")).expect("a folder");
    let fault = file::open(&path).expect_err("no copy can be made");
    assert!(fault.message.contains("no copy of it could be made"), "{fault}");
    assert!(fs::read(&path).expect("a file") == before);
    assert!(!folder.path().join("memory.sqlite.upgrading").exists());
}
