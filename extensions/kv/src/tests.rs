use std::fs;

use drupe_extension_api::{
    EffectClass, Fault, FaultCode,
    testing::{Harness, block_on},
};
use serde_json::{Value, json};

use crate::{Kv, namespace::matches};

fn kv(config: Value) -> Harness<Kv> {
    block_on(Harness::setup().id("kv").config(config).start()).expect("it starts")
}

fn call(kv: &Harness<Kv>, agent: &str, tool: &str, params: Value) -> Result<String, Fault> {
    block_on(kv.calling().agent(agent).call(tool, params))
}

fn set(kv: &Harness<Kv>, agent: &str, key: &str, value: Value) -> Result<String, Fault> {
    call(kv, agent, "kv_set", json!({"key": key, "value": value}))
}

fn get(kv: &Harness<Kv>, agent: &str, key: &str) -> Result<String, FaultCode> {
    call(kv, agent, "kv_get", json!({"key": key})).map_err(|fault| fault.code)
}

#[test]
fn a_value_comes_back_as_it_was_stored() {
    let kv = kv(json!({}));
    for (value, expected) in [(json!("a text"), "a text"), (json!({"n": [1, null]}), r#"{"n":[1,null]}"#)] {
        assert_eq!(set(&kv, "one", "key", value), Ok("stored `key`".to_owned()));
        assert_eq!(get(&kv, "one", "key"), Ok(expected.to_owned()));
    }
    let delete = || call(&kv, "one", "kv_delete", json!({"key": "key"}));
    assert_eq!(delete(), Ok("deleted `key`".to_owned()));
    assert_eq!(delete(), Ok("nothing was stored under `key`".to_owned()));
    assert_eq!(get(&kv, "one", "key"), Err(FaultCode::NotFound));
}

#[test]
fn each_agent_has_its_own_keys_unless_they_are_shared() {
    for (config, expected) in
        [(json!({}), Err(FaultCode::NotFound)), (json!({"namespace": "shared"}), Ok("1".to_owned()))]
    {
        let kv = kv(config);
        assert!(set(&kv, "one", "key", json!(1)).is_ok());
        assert_eq!(get(&kv, "other", "key"), expected);
        assert_eq!(get(&kv, "one", "key"), Ok("1".to_owned()));
    }
}

#[test]
fn keys_are_listed_by_pattern_in_order() {
    let kv = kv(json!({}));
    for key in ["note/b", "note/a", "plan"] {
        assert!(set(&kv, "one", key, json!(1)).is_ok());
    }
    let list = |params| call(&kv, "one", "kv_list", params);
    assert_eq!(list(json!({})), Ok(r#"["note/a","note/b","plan"]"#.to_owned()));
    assert_eq!(list(json!({"pattern": "note/*"})), Ok(r#"["note/a","note/b"]"#.to_owned()));
}

#[test]
fn a_pattern_matches_with_stars_and_in_bounded_time() {
    for (pattern, text, expected) in [
        ("*", "", true),
        ("", "a", false),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("*b*", "abc", true),
        ("a?c", "abc", false),
        ("ä*", "äb", true),
        ("**a", "bca", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
    assert!(!matches(&"a*".repeat(2000), &"a".repeat(1999)));
}

#[test]
fn what_was_stored_outlives_the_instance() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || block_on(Harness::<Kv>::setup().data_folder(folder.path()).start()).expect("it starts");
    assert!(set(&open(), "one", "key", json!("kept")).is_ok());
    assert_eq!(get(&open(), "one", "key"), Ok("kept".to_owned()));
    let files: Vec<_> = fs::read_dir(folder.path().join("agents"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(files, ["one.json"]);
}

#[test]
fn a_crash_between_write_and_rename_leaves_the_old_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || block_on(Harness::<Kv>::setup().data_folder(folder.path()).start()).expect("it starts");
    assert!(set(&open(), "one", "key", json!("old")).is_ok());
    fs::write(folder.path().join("agents/one.new"), b"{\"key\": \"ne").expect("a file");
    assert_eq!(get(&open(), "one", "key"), Ok("old".to_owned()));
    assert!(set(&open(), "one", "key", json!("new")).is_ok());
    assert_eq!(get(&open(), "one", "key"), Ok("new".to_owned()));
}

#[test]
fn a_damaged_file_is_named_and_left_alone() {
    let kv = kv(json!({}));
    let file = kv.data_folder().join("agents/one.json");
    fs::create_dir_all(kv.data_folder().join("agents")).expect("a folder");
    fs::write(&file, b"{\"key\": ").expect("a file");
    let fault = set(&kv, "one", "key", json!(1)).expect_err("a fault");
    assert!(fault.message.contains("agents/one.json is damaged"), "{fault}");
    assert_eq!(fs::read(&file).expect("a file"), b"{\"key\": ");
}

#[test]
fn what_cannot_be_written_did_not_happen() {
    let kv = kv(json!({}));
    assert!(set(&kv, "one", "key", json!("old")).is_ok());
    fs::remove_dir_all(kv.data_folder()).expect("a folder");
    fs::write(kv.data_folder(), b"in the way").expect("a file");
    assert!(
        set(&kv, "one", "key", json!("new"))
            .expect_err("a fault")
            .message
            .contains("`key` could not be stored")
    );
    assert_eq!(get(&kv, "one", "key"), Ok("old".to_owned()));
}

#[test]
fn bounds_are_refused_with_the_limit_in_the_message() {
    let kv = kv(json!({"max_value_bytes": 10, "max_keys": 2, "max_bytes": 14}));
    let check = |key: &str, value: &str, expected: &str| match set(&kv, "one", key, json!(value)) {
        Ok(done) => assert_eq!(done, expected),
        Err(fault) => {
            assert!(fault.code == FaultCode::Invalid && fault.message.contains(expected), "{fault}")
        }
    };
    check("", "x", "a key has 1 to 256 bytes, this one 0");
    check("a", "too long a", "the limit is 10");
    check("a", "12345678", "stored `a`");
    check("b", "", "stored `b`");
    check("c", "", "the limit of 2");
    check("b", "1", "the store would hold 15 bytes, the limit is 14");
    check("a", "1", "stored `a`");
    check("b", "1", "stored `b`");
}

#[test]
fn a_turn_has_a_namespace_that_its_agents_share_and_nobody_else() {
    let kv = kv(json!({}));
    let call = |turn: &str, agent: &str, tool: &str, params| {
        block_on(kv.calling().turn(turn).agent(agent).call(tool, params)).map_err(|fault| fault.code)
    };
    let key = || json!({"key": "k", "scope": "turn"});
    let set = |turn: &str, value: &str| {
        call(turn, "one", "kv_set", json!({"key": "k", "value": value, "scope": "turn"}))
    };
    assert!(set("t1", "v").is_ok());
    assert_eq!(call("t1", "two", "kv_get", key()), Ok("v".to_owned()));
    assert_eq!(call("t2", "one", "kv_get", key()), Err(FaultCode::NotFound));
    assert_eq!(call("t1", "one", "kv_get", json!({"key": "k"})), Err(FaultCode::NotFound));
    assert!(fs::read_dir(kv.data_folder()).expect("a folder").next().is_none());
    for turn in 0..256 {
        assert!(set(&format!("later-{turn}"), "v").is_ok());
    }
    assert_eq!(call("t1", "two", "kv_get", key()), Err(FaultCode::NotFound));
}

#[test]
fn a_wrong_configuration_or_parameter_is_refused_by_name() {
    let fault = block_on(Harness::<Kv>::start(json!({"namespaces": "shared"}))).expect_err("a fault");
    assert!(fault.message.contains("namespaces"), "{fault}");
    let kv = kv(json!({}));
    let fault = call(&kv, "one", "kv_get", json!({"key": "a", "scop": "turn"})).expect_err("a fault");
    assert!(fault.message.contains("scop"), "{fault}");
}

#[test]
fn reading_is_pure_and_writing_is_idempotent() {
    let tools = kv(json!({})).describe().expect("a description").tools;
    let effects: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.annotations.effect)).collect();
    assert_eq!(
        effects,
        [
            ("kv_get", EffectClass::Pure),
            ("kv_set", EffectClass::Idempotent),
            ("kv_delete", EffectClass::Idempotent),
            ("kv_list", EffectClass::Pure),
        ]
    );
}

#[test]
fn what_was_stored_where_strangers_were_read_says_so_to_whoever_reads_it_until_it_is_stored_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || block_on(Harness::setup().id("kv").data_folder(folder.path()).start()).expect("it starts");
    let untrusted = |kv: &Harness<Kv>, tool: &str, params: Value| {
        block_on(kv.calling().agent("one").result(tool, params)).expect("it works").untrusted
    };
    let kv = open();
    let page = json!({"key": "page", "value": "what a page says"});
    block_on(kv.calling().agent("one").tainted().call("kv_set", page)).expect("it is stored");
    set(&kv, "one", "own", json!(1)).expect("it is stored");
    // In this process, and in the next one.
    for kv in [kv, open()] {
        assert!(untrusted(&kv, "kv_get", json!({"key": "page"})));
        assert!(!untrusted(&kv, "kv_get", json!({"key": "own"})));
        assert!(untrusted(&kv, "kv_list", json!({})), "keys are text, too");
        assert!(!untrusted(&kv, "kv_list", json!({"pattern": "o*"})));
    }
    let kv = open();
    set(&kv, "one", "page", json!("what a page says")).expect("it is stored");
    assert!(!untrusted(&kv, "kv_get", json!({"key": "page"})), "somebody else said it");
    assert!(!untrusted(&open(), "kv_list", json!({})));
}
