//! What is kept while text of strangers is in a conversation.

use serde_json::json;

use super::support::{By, MAIN, memory};

const TAINTED: By = By { tainted: true, ..MAIN };

#[test]
fn what_was_kept_with_strangers_is_marked_wherever_it_is_given_and_taints_who_searches_for_it() {
    let scene = memory(json!({}));
    scene.save("The user likes tea.");
    scene
        .call(TAINTED, None, "memory_save", json!({"text": "The library opens at nine."}))
        .expect("it works");
    let search =
        |query: &str| scene.call(MAIN, None, "memory_search", json!({"query": query})).expect("it works");
    assert!(!search("tea").untrusted);
    let found = search("library");
    assert!(
        found.untrusted && found.content.contains("(kept while text of strangers was read)"),
        "{found:?}"
    );
    let given = scene.context("when does the library open").expect("it fits");
    assert!(given.contains("(kept while text of strangers was read)"), "{given}");
    // It is also named where a fact like it is kept.
    let saved = scene.call(MAIN, None, "memory_save", json!({"text": "The library opens at eight."}));
    assert!(saved.is_ok_and(|saved| saved.untrusted && saved.content.contains("[2]")));
}

#[test]
fn a_mark_goes_only_by_the_hand_of_the_operator_and_strangers_change_no_text_that_had_none() {
    let scene = memory(json!({}));
    let save = |by, params| scene.call(by, None, "memory_save", params).expect("it works");
    let marked = |id: i64| scene.asks("show", json!({"id": id})).expect("it is shown")["strangers"] == true;
    save(TAINTED, json!({"text": "The library opens at nine."}));
    save(MAIN, json!({"text": "The library opens at nine"}));
    assert!(marked(1), "the same again does not wash it");
    save(MAIN, json!({"text": "The library opens at ten.", "replaces": 1}));
    assert!(marked(1), "what stands in its place may come from it");
    scene.asks("edit", json!({"id": 1, "confidence": 0.5})).expect("it is edited");
    assert!(marked(1), "its text is what it was");
    scene.asks("edit", json!({"id": 1, "text": "The library opens at eleven."})).expect("it is edited");
    assert!(!marked(1));
    save(TAINTED, json!({"text": "the LIBRARY opens: at eleven!!"}));
    assert!(!marked(1));
    assert_eq!(scene.texts(), ["The library opens at eleven."]);
    save(TAINTED, json!({"text": "The library is closed.", "replaces": 1}));
    assert!(marked(1));
}
