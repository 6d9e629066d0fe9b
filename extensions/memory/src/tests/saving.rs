use drupe_extension_api::{EffectClass, FaultCode, testing::block_on};
use serde_json::json;

use super::support::{By, MAIN, memory, memory_in};

#[test]
fn a_fact_that_was_kept_is_found_and_shown_with_all_that_is_known_of_it() {
    let scene = memory(json!({}));
    assert_eq!(scene.save("The user's sister is called Mara."), "kept as fact 1");
    let shown = scene.asks("show", json!({"id": 1})).expect("it is shown");
    for (key, value) in [
        ("text", json!("The user's sister is called Mara.")),
        ("namespace", json!("orchestrator")),
        ("session", json!("main")),
        ("turn", json!("turn-1")),
        ("agent", json!("orchestrator")),
        ("confidence", json!(1.0)),
        ("strangers", json!(false)),
        ("by_operator", json!(false)),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    assert!(shown["made"] == shown["changed"] && shown["recalled"].is_null(), "{shown}");
    let day = &shown["changed"].as_str().expect("a time")[..10];
    assert_eq!(scene.search("sister"), format!("[1] {day} The user's sister is called Mara."));
    let shown = scene.asks("show", json!({"id": 1})).expect("it is shown");
    assert!(shown["recalled"].is_string(), "{shown}");
}

#[test]
fn a_call_that_is_repeated_keeps_one_fact_and_changes_nothing_again() {
    let scene = memory(json!({}));
    let save = |effect, text: &str| {
        scene.call(MAIN, Some(effect), "memory_save", json!({"text": text})).expect("it works").content
    };
    assert_eq!(save("a", "The user likes tea."), "kept as fact 1");
    scene.asks("edit", json!({"id": 1, "text": "The user likes green tea."})).expect("it is edited");
    assert_eq!(save("a", "The user likes tea."), "kept as fact 1");
    assert_eq!(scene.texts(), ["The user likes green tea."]);
}

#[test]
fn what_says_the_same_is_brought_up_to_date_and_what_differs_in_a_word_that_counts_is_another_fact() {
    for (first, second, same) in [
        ("The user likes tea.", "the USER likes tea", true),
        ("The user's sister is called Mara.", "User’s sister is called Mara", true),
        ("The user likes tea.", "The user does not like tea.", false),
        ("The user flies on 3 May.", "The user flies on 4 May.", false),
        ("Mara is older than Lena.", "Lena is older than Mara.", false),
        ("The user likes tea.", "The user's brother likes tea.", false),
        ("👍", "👎", false),
    ] {
        let scene = memory(json!({}));
        scene.save(first);
        let said = scene.save(second);
        assert_eq!(said.starts_with("fact 1 says the same"), same, "{first} {second}: {said}");
        assert_eq!(scene.texts().len(), if same { 1 } else { 2 }, "{first} {second}");
        assert_eq!(scene.texts()[0], second, "the latest form of it is kept");
    }
}

#[test]
fn a_fact_takes_the_place_of_another_and_those_like_it_are_named() {
    let scene = memory(json!({}));
    scene.save("The user's office is in Oslo, in the third floor.");
    let said = scene.save("The user's office is in Bergen, in the third floor.");
    assert!(said.starts_with("kept as fact 2\nFacts like it") && said.contains("[1] "), "{said}");
    let replace = |id: i64, text: &str| {
        scene
            .call(MAIN, None, "memory_save", json!({"text": text, "replaces": id}))
            .map(|result| result.content)
    };
    let said = replace(1, "The user has no office.").expect("it works");
    assert!(said.starts_with("fact 1 says this now"), "{said}");
    assert!(!scene.search("Oslo").contains("Oslo"), "what was replaced is not found");
    assert!(scene.search("no office").contains("[1]"));
    // Where another fact says it already, one is left.
    let said = replace(2, "the user has no office").expect("it works");
    assert!(said.starts_with("fact 1 says the same"), "{said}");
    assert_eq!(scene.texts(), ["the user has no office"]);
    assert_eq!(replace(2, "x").expect_err("it is gone").code, FaultCode::NotFound);
    scene.save("The user has a dog.");
    assert_eq!(scene.texts().len(), 2);
    assert!(scene.search("dog").contains("[3]"), "an id is not given twice");
}

#[test]
fn bounds_are_refused_with_the_limit_in_the_message() {
    let scene = memory(json!({"max_fact_bytes": 20, "max_facts": 2}));
    let save = |text: &str| scene.call(MAIN, None, "memory_save", json!({"text": text}));
    for (text, expected) in [
        ("", "says nothing"),
        (" \n\u{200e}", "says nothing"),
        ("123456789012345678901", "has 21 bytes, the limit is 20"),
    ] {
        let fault = save(text).expect_err("it is refused");
        assert!(fault.code == FaultCode::Invalid && fault.message.contains(expected), "{fault}");
    }
    save("12345678901234567890").expect("it fits");
    save("two").expect("it fits");
    let fault = save("three").expect_err("it is full");
    assert!(fault.message.contains("2 facts are kept, the limit is 2"), "{fault}");
    save("TWO").expect("it is there already");
    scene
        .call(MAIN, None, "memory_save", json!({"text": "three", "replaces": 1}))
        .expect("no more than before");
    scene.says("memory_forget", json!({"id": 1}));
    save("four").expect("there is room again");
    let other = By { agent: "other", ..MAIN };
    scene.call(other, None, "memory_save", json!({"text": "two"})).expect("a namespace of its own");
    for confidence in [json!(1.5), json!(-0.1)] {
        let fault = scene.call(MAIN, None, "memory_save", json!({"text": "x", "confidence": confidence}));
        assert!(fault.expect_err("it is refused").message.contains("not from 0 to 1"));
    }
}

#[test]
fn agents_and_people_see_their_own_facts_alone() {
    let scene = memory(json!({}));
    scene.save("The user likes tea.");
    for by in [
        By { agent: "haiku", ..MAIN },
        By { session: "token.shop:ann:chat", ..MAIN },
        By { session: "token.shop", ..MAIN },
    ] {
        let call = |tool, params| scene.call(by, None, tool, params).expect("it works").content;
        assert_eq!(call("memory_search", json!({"query": "tea"})), "nothing that was kept fits");
        assert_eq!(call("memory_forget", json!({"id": 1})), "there is no fact 1");
        let replace = scene.call(by, None, "memory_save", json!({"text": "x", "replaces": 1}));
        assert_eq!(replace.expect_err("it is not theirs").code, FaultCode::NotFound);
    }
    assert!(scene.context("tea?").is_some());
    let shared = memory(json!({"namespace": "shared"}));
    shared.save("The user likes tea.");
    let call =
        |by| shared.call(by, None, "memory_search", json!({"query": "tea"})).expect("it works").content;
    assert!(call(By { agent: "haiku", ..MAIN }).contains("tea"));
    assert!(!call(By { session: "token.shop:ann", ..MAIN }).contains("tea"));
}

#[test]
fn facts_outlive_the_instance_and_when_they_were_recalled_does_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let scene = memory_in(folder.path());
    scene.save("The user likes tea.");
    assert!(scene.context("shall I make tea").is_some());
    block_on(scene.memory.stop()).expect("it stops");
    drop(scene);
    let scene = memory_in(folder.path());
    assert!(scene.context("shall I make tea").is_some_and(|text| text.contains("[1] ")));
    assert!(scene.asks("show", json!({"id": 1})).expect("it is shown")["recalled"].is_string());
}

#[test]
#[expect(clippy::print_stdout, reason = "a number that people ask for")]
fn what_is_kept_runs_again_after_a_crash_and_what_is_lost_is_asked_about() {
    let tools = memory(json!({})).memory.describe().expect("a description").tools;
    let said: Vec<_> = tools
        .iter()
        .map(|tool| {
            let is = &tool.annotations;
            (tool.name.as_str(), is.effect, is.read_only, is.remembers, is.destructive)
        })
        .collect();
    assert_eq!(
        said,
        [
            ("memory_save", EffectClass::Idempotent, false, true, false),
            ("memory_search", EffectClass::Pure, true, false, false),
            ("memory_forget", EffectClass::Idempotent, false, false, true),
        ]
    );
    let bytes: usize =
        tools.iter().map(|tool| tool.description.len() + tool.input_schema.to_string().len()).sum();
    println!("the tools take {bytes} bytes of each request");
    assert!(bytes < 1400, "{bytes} bytes stand in each request");
}
