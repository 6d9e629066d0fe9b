//! Files that are no files, bombs, and arbitrary bytes: a diagnostic each, and never a panic.

use std::{fs, os::unix::fs::symlink, path::Path};

use drupe_config::{adopt_agent, load_config, load_manifest};
use drupe_extension_api::ExtensionId;
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::Value;

use crate::home::{Home, places};

fn codes_of(text: impl AsRef<[u8]>) -> Vec<&'static str> {
    let faults = Home::new().manifest(text).unwrap_err();
    assert!(!faults.render(false).is_empty());
    faults.iter().map(|fault| fault.code).collect()
}

#[test]
fn a_manifest_that_is_no_regular_file_is_refused_at_once() {
    let check = |make: &dyn Fn(&std::path::Path), code: &str| {
        let home = Home::new();
        make(&home.demo().join("manifest.yaml"));
        let faults = load_manifest(&home.demo(), home.path()).unwrap_err();
        assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), [code]);
    };
    check(&|_| {}, "not_found");
    check(&|path| fs::create_dir(path).unwrap(), "not_a_file");
    check(&|path| symlink("prompt.md", path).unwrap(), "symlink");
    check(&|path| mkfifo(path), "not_a_file");
    check(&|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()), "unreadable");
}

fn mkfifo(path: &std::path::Path) {
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn bytes_that_are_not_utf_8_are_named_by_their_line() {
    let faults = Home::new().manifest(b"id: demo\nname: \xff\n").unwrap_err();
    assert_eq!(places(&faults), ["2:1 not_utf8 "]);
}

#[test]
fn a_file_of_more_than_a_mebibyte_is_refused_and_one_of_less_is_read() {
    let padded =
        |size: usize| format!("id: demo\nname: Demo\nentrypoint: libdemo\nsummary: {}\n", "x".repeat(size));
    assert_eq!(codes_of(padded(1024 * 1024)), ["too_large"]);
    assert!(Home::new().manifest(padded(900 * 1024)).is_ok());
}

#[test]
fn depth_and_aliases_and_number_of_values_are_bounded() {
    let deep = |levels: usize| {
        format!(
            "id: demo\nname: Demo\nentrypoint: x\nconfig: {{ a: {}{} }}\n",
            "[".repeat(levels),
            "]".repeat(levels)
        )
    };
    assert!(Home::new().manifest(deep(60)).is_ok());
    assert_eq!(codes_of(deep(64)), ["syntax"]);
    assert_eq!(codes_of(deep(100_000)), ["syntax"]);

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert_eq!(codes_of(bomb), ["syntax"]);
    assert_eq!(codes_of(format!("config: [{}]", "1,".repeat(400_000))), ["syntax"]);
    assert_eq!(codes_of("a: b\n---\na: b\n"), ["syntax"]);
}

#[test]
fn of_very_many_faults_a_hundred_are_kept() {
    let mut text = "id: demo\nname: Demo\nentrypoint: x\n".to_owned();
    for number in 0..4_000 {
        text.push_str(&format!("key{number}: {{x: 1}}\n"));
    }
    let faults = Home::new().manifest(&text).unwrap_err();
    assert_eq!(faults.len(), 100);
    assert!(faults.render(false).ends_with("more\n"));
}

#[test]
fn a_hostile_expression_is_refused() {
    let text = "id: demo\nname: D\ndescription: d\nagent: {model: m, instructions: '', offline: [{when: '((a{100}){100}){100}', say: x}]}";
    assert_eq!(codes_of(text)[..1], ["undocumented_agent"]);
    assert!(codes_of(text).contains(&"invalid_regex"));
}

#[test]
fn a_schema_that_refers_to_itself_is_no_trap() {
    for schema in
        ["{$ref: '#'}", "{$defs: {a: {$ref: '#/$defs/b'}, b: {$ref: '#/$defs/a'}}, $ref: '#/$defs/a'}"]
    {
        let home = Home::new();
        let text = format!("id: demo\nname: D\nentrypoint: x\nconfig: {{a: 1}}\nconfig_schema: {schema}");
        if let Ok(manifest) = home.manifest(text) {
            let config = home.config("").unwrap().value;
            let _ = manifest.value.effective_config(&config);
        }
    }
}

fn runner() -> TestRunner {
    let config = Config { cases: 400, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn arbitrary_bytes_never_panic() {
    let home = Home::new();
    runner()
        .run(&proptest::collection::vec(any::<u8>(), 0..200), |bytes| {
            let _ = home.manifest(&bytes).map_err(|faults| faults.render(true));
            let _ = home.config(&bytes).map_err(|faults| faults.render(false));
            Ok(())
        })
        .unwrap();
}

/// Known keys with arbitrary values, nested: past the parser, into every reader.
fn yaml() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        Just("null".to_owned()),
        Just("\"${A\"".to_owned()),
        Just("\"{{x\"".to_owned()),
        Just("../..".to_owned()),
        Just("é.md".to_owned()),
        "[ -~é]{0,12}".prop_map(|text| format!("'{}'", text.replace('\'', "''"))),
    ];
    let key = prop::sample::select(vec![
        "id",
        "name",
        "description",
        "agent",
        "model",
        "models",
        "config",
        "offline",
        "when",
        "say",
        "call",
        "with",
        "limits",
        "max_turns",
        "context",
        "instructions",
        "input",
        "schema",
        "format",
        "config_schema",
        "secrets",
        "orchestrator",
        "providers",
        "kind",
        "aliases",
        "extensions",
        "paths",
        "env",
        "log",
        "uses_tools",
        "entrypoint",
    ]);
    scalar.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(", "))),
            proptest::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                let entries: Vec<_> = entries.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                format!("{{{}}}", entries.join(", "))
            }),
        ]
    })
}

#[test]
fn arbitrary_yaml_never_panics() {
    let home = Home::new();
    runner()
        .run(&yaml(), |text| {
            if let Err(faults) = home.manifest(&text) {
                prop_assert!(faults.has_errors());
                faults.render(false);
            }
            let mut sources = home.sources(&text);
            sources.environment.insert("DRUPE_MODELS__PROVIDERS".into(), text.clone());
            if let Err(faults) = load_config(&sources) {
                prop_assert!(faults.has_errors());
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn lists_whose_items_each_cost_something_are_bounded() {
    let agent =
        "id: demo\nname: D\ndescription: d\nagent: {model: m, instructions: '', usage: u, output: {}, ";
    let check = |key: &str, item: &str, most: usize| {
        let of = |count| format!("{agent}{key}: [{}]}}\n", format!("{item},").repeat(count));
        let home = Home::new();
        assert!(home.manifest(of(most)).is_ok(), "{most} of {key}");
        let faults = home.manifest(of(most + 1)).unwrap_err();
        let fault = faults.iter().next().unwrap();
        assert_eq!((fault.code, fault.field.as_str()), ("too_many", format!("agent.{key}[{most}]").as_str()));
    };
    check("context", "prompt.md", 64);
    check("offline", "{when: x, say: y}", 256);
    let follow = |count: usize| {
        let items: String = (0..count).map(|n| format!("{{topic: kv.t{n}, task: t}},")).collect();
        format!("subscribe: [{items}]\n{agent}}}\n")
    };
    let home = Home::new();
    assert_eq!(home.manifest(follow(32)).unwrap().value.subscribe.len(), 32);
    assert_eq!(home.manifest(follow(33)).unwrap_err().iter().next().unwrap().field, "subscribe[32]");
}

#[test]
fn a_configuration_too_large_for_its_schema_is_refused_rather_than_tried() {
    let home = Home::new();
    let text = |items: usize| {
        let consts: String = (0..500).map(|number| format!("{{const: k{number}}},")).collect();
        format!(
            "id: demo\nname: D\nentrypoint: x\nconfig: {{a: [{}]}}\nconfig_schema: {{properties: {{a: {{items: {{anyOf: [{consts}]}}}}}}}}\n",
            "1,".repeat(items)
        )
    };
    let config = home.config("").unwrap().value;
    let messages = |items: usize| -> Vec<String> {
        let manifest = home.manifest(text(items)).unwrap().value;
        let faults = manifest.effective_config(&config).unwrap_err();
        faults.iter().map(|fault| format!("{} {}", fault.field, fault.message)).collect()
    };
    // Every fault, the first one, none at all.
    assert_eq!(messages(20).len(), 20);
    assert_eq!(messages(1_000).len(), 1);
    let refused = messages(5_000);
    assert!(refused.len() == 1 && refused[0].contains("steps"), "{refused:?}");
}

#[test]
fn what_a_file_says_cannot_steer_the_terminal_that_shows_it() {
    let text = "id: demo\nname: Demo\nentrypoint: x\n\"k\\x1b[2J\": \u{202e}1\nscope: \"\\x1b]0;t\\x07\"\nversion: \u{85}\u{2028}\n";
    let faults = Home::new().manifest(text).unwrap_err();
    let shown = format!("{}{faults}", faults.render(false));
    assert!(shown.contains("\\u{1b}"), "{shown}");
    let acts =
        |letter: char| letter != '\n' && (letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter));
    assert!(!shown.chars().any(acts), "{shown:?}");
}

/// Whatever stands in the keys of other systems, what becomes of it is a file that reads to the same, or faults with places.
#[test]
fn an_agent_of_another_system_becomes_a_readable_file_or_is_refused() {
    const KEYS: [&str; 22] = [
        "name",
        "description",
        "tools",
        "disallowedTools",
        "permission",
        "permissions",
        "permissionMode",
        "sandbox_mode",
        "agents",
        "mode",
        "kind",
        "disable",
        "effort",
        "timeout_mins",
        "model",
        "display_name",
        "uses_tools",
        "approvals",
        "limits",
        "mcpServers",
        "hooks",
        "other",
    ];
    let text = prop_oneof![
        "[a-zA-Z*?(), ]{0,12}",
        ".{0,12}",
        prop::sample::select(vec![
            "Read",
            "edit",
            "allow",
            "ask",
            "deny",
            "plan",
            "read-only",
            "Agent(a, b)",
            "high",
            "\u{7f}\n---\n"
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from)
    ];
    let value = leaf.prop_recursive(3, 12, 4, |inner| {
        let key = prop::sample::select(vec![
            "read", "edit", "*", "bash", "action", "resource", "effect", "mode", "rules",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|entries| entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    });
    let keys = prop::collection::vec((prop::sample::select(KEYS.to_vec()), value), 0..6);
    let id = ExtensionId::new("demo").unwrap();
    let home = Home::new();
    runner()
        .run(&(keys, ".{0,40}"), |(keys, prompt)| {
            let lines: String = keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
            let text = format!("---\ndescription: d\n{lines}---\n{prompt}\n");
            match adopt_agent(Path::new("theirs.md"), &id, text.clone()) {
                Err(faults) => prop_assert!(!faults.render(false).is_empty()),
                Ok(loaded) => {
                    let file = loaded.value.file();
                    let again = adopt_agent(Path::new("ours.md"), &id, file.clone());
                    let again = again.unwrap_or_else(|faults| panic!("{faults}\n{text}\n{file}")).value;
                    prop_assert_eq!(&again.agent, &loaded.value.agent, "{}\n{}", text, file);
                    prop_assert_eq!(&again.manifest, &loaded.value.manifest, "{}\n{}", text, file);
                    // As it would lie there it is taken, or refused at a place.
                    drop(home.agent_file(&file));
                }
            }
            Ok(())
        })
        .unwrap();
}
