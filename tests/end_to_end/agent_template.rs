//! `drupe agent template`: what it prints is an agent, and the same one.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, built};

const CONFIG: &str = "approvals: {preauthorized: all}\n\
    agents: {defaults: {model: [default, 'offline/test'], limits: {max_turns: 7}, parameters: {temperature: 0.3}}}\n";

/// An agent whose texts are hard to write down.
const ODD: &str = r##"id: odd
name: "yes"
version: 1.2.3-beta.1
description: "# no comment\n\n  indented: {not: a map}\n\ttab\n"
config: {"a: b": [1, {c: "\u202E\e[2J"}], "null": "~", "#": "- x"}
agent:
  model: default
  instructions: "---\nkey: value\n---\n\r\n   \n\u200e'\"\\ {{ no template }}\n\n\n"
  context: "# a heading\nand a line"
  usage: "'quoted': \"twice\""
  infer: false
  input: {format: json, schema: {type: object, properties: {n: {type: integer, minimum: 1}}}}
  parameters: {stop: [" a\n", "a: b"], extra: {"x y": {z: [true, null, 1.5]}}}
  limits: {max_cost_usd: 0.25, allow_unknown_price: true}
  offline:
    - {when: '(?is).*\b(?P<w>x)$', say: "one\n\n\n two {{w}}\n"}
    - {when: '.*', call: kv_set, with: {key: "{{task}}", value: [1, "a\nb\n"]}}
"##;

fn template(daemon: &Daemon, id: Option<&str>) -> (String, Option<String>) {
    let text = daemon.client().ask("agents.template", json!({ "id": id })).expect("a template");
    let part = |name: &str| text[name].as_str().map(str::to_owned);
    (part("manifest").expect("a manifest"), part("frontmatter"))
}

/// That a daemon would take what lies there.
fn accepted(daemon: &Daemon, path: &Path) {
    let output = daemon.drupe(&["ext", "check", path.to_str().expect("text"), "--json"]).stdout;
    let report: Value = serde_json::from_slice(&output).expect("a report");
    assert_eq!(report["ok"], true, "{}: {report}", path.display());
}

/// What an agent is once this text of it lies in the home.
fn again(daemon: &Daemon, id: &str, file: &str, text: &str) -> (String, Option<String>) {
    daemon.write(&format!("extensions/{file}"), text);
    daemon.until_status("it is taken in", |status| {
        let all = status["extensions"].as_array().into_iter().flatten();
        let of_home = |one: &&Value| {
            one["source"]
                .as_str()
                .is_some_and(|source| source.ends_with(file.trim_end_matches("/manifest.yaml")))
        };
        all.clone().filter(of_home).any(|one| one["id"] == id && one["state"] == "active")
    });
    template(daemon, Some(id))
}

#[test]
fn what_is_printed_is_accepted_and_reads_to_the_same_agent() {
    let mut daemon = Daemon::home(CONFIG);
    daemon.write("extensions/odd/manifest.yaml", ODD);
    daemon.run();
    for id in [None, Some("code_reviewer"), Some("builder_agent"), Some("odd")] {
        let (manifest, frontmatter) = template(&daemon, id);
        let name = id.unwrap_or("my_agent");
        let copy = daemon.path().join("copies").join(name);
        // A copy beside what it was made from would be one of two.
        if fs::remove_dir_all(daemon.path().join(format!("extensions/{name}"))).is_ok() {
            let is_it = |one: &Value| one["id"] == name;
            daemon.until_status("it is gone", |status| {
                !status["extensions"].as_array().into_iter().flatten().any(is_it)
            });
        }
        daemon.write(&format!("copies/{name}/manifest.yaml"), &manifest);
        if name == "builder_agent" {
            fs::copy(built("builder_agent"), copy.join("libbuilder_agent.so"))
                .expect("it is built with the tests");
        }
        accepted(&daemon, &copy);
        for value in ["temperature: 0.3", "max_turns: 7"] {
            assert!(name == "builder_agent" || manifest.contains(value), "{name}: {manifest}");
        }
        assert_eq!(frontmatter.is_none(), name == "builder_agent", "native code is no single file");
        if let Some(file) = &frontmatter {
            daemon.write(&format!("copies/{name}.md"), file);
            accepted(&daemon, &copy.with_extension("md"));
        }
        if name != "builder_agent" {
            let second = again(&daemon, name, &format!("{name}/manifest.yaml"), &manifest);
            assert_eq!(second.0, manifest, "{name}");
            assert_eq!(second.1, frontmatter, "{name}");
            fs::remove_dir_all(daemon.path().join(format!("extensions/{name}"))).expect("it is there");
            let file = frontmatter.expect("a single file");
            let (third, _) = again(&daemon, name, &format!("{name}.md"), &file);
            // Line ends behind a prompt are not kept below the frontmatter.
            let trimmed = |text: &str| text.replace("instructions: |\n", "instructions: |-\n");
            assert_eq!(trimmed(&third), trimmed(&manifest), "{name}");
        }
    }
}

#[test]
fn the_command_prints_what_can_be_copied_and_refuses_what_has_no_manifest() {
    let daemon = Daemon::start(CONFIG);
    let (manifest, frontmatter) = template(&daemon, Some("code_reviewer"));
    let ask = |more: &[&str]| daemon.says(&[&["agent", "template"], more].concat());
    assert_eq!(ask(&["code_reviewer", "--as", "folder"]), manifest);
    assert_eq!(ask(&["code_reviewer", "--as", "file"]), frontmatter.clone().expect("a single file"));
    let both = ask(&["code_reviewer"]);
    assert!(both.starts_with(&manifest) && both.ends_with(&frontmatter.expect("a single file")), "{both}");
    let said = daemon.drupe(&["agent", "template", "code_reviewer"]).stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("Reviews source code") && said.contains("review src/main.rs"), "{said}");
    let new = ask(&[]);
    assert!(new.contains("id: my_agent"));
    // What a list may hold is told where there is nothing in it yet.
    for key in ["schedules: []\n# each has:\n", "#   # command: ", "#   # tool: ", "#   # when: "] {
        assert!(new.contains(key), "{key}: {new}");
    }
    assert!(daemon.says(&["agent", "--help"]).contains("template"));
    for (id, words) in [("orchestrator", "drupe.yaml"), ("code_reviever", "code_reviewer")] {
        let refused = daemon.drupe(&["agent", "template", id]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(words), "{said}");
    }
    let refused = daemon.drupe(&["agent", "template", "builder_agent", "--as", "file"]);
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn secrets_of_a_template_and_agents_that_are_not_reached_stay_unseen() {
    let mut daemon = Daemon::home(CONFIG);
    daemon.write("extensions/keeper/p.j2", "The word is {{ config.word }}.");
    let manifest = "id: keeper\nname: Keeper\ndescription: Knows.\nsecrets: [USER]\nconfig: {word: '${USER}'}\n\
                    agent: {model: default, instructions: p.j2, usage: x, output: {}}\n";
    daemon.write("extensions/keeper/manifest.yaml", manifest);
    daemon.run();
    daemon.until_extension("keeper", "active");
    let refused = daemon.client().ask("agents.template", json!({"id": "keeper"})).expect_err("it is refused");
    assert!(refused.contains("may hold its secrets") && !refused.contains("tester"), "{refused}");
    let token = daemon.says(&["token", "new", "ci", "--may", "read", "--agent", "code_reviewer"]);
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let mut client = Client::with_token(&home, token.trim()).expect("it is let in");
    assert!(client.ask("agents.template", json!({"id": "code_reviewer"})).is_ok());
    assert!(client.ask("agents.template", json!({"id": "builder_agent"})).is_err());
}
