//! Which calls run, which a person is asked about, and what an answer holds for: by modes, rules, labels and text of strangers.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

/// A daemon whose model calls what its message names, with tools that read strangers, reach out and destroy.
struct Scene {
    _server: ModelServer,
    daemon: Daemon,
    effects: std::path::PathBuf,
}

fn scene(settings: &str) -> Scene {
    scene_with(settings, &[])
}

/// The same, with agents of these ids and this beside what all have.
fn scene_with(settings: &str, agents: &[(&str, &str)]) -> Scene {
    let server = ModelServer::obedient();
    let effects = std::env::temp_dir().join(format!("policy-{}", crate::harness::unique()));
    for folder in ["in", "kept"] {
        fs::create_dir_all(effects.join(folder)).expect("a folder");
    }
    let mut daemon = Daemon::home(&(server.config() + settings));
    daemon.plugin("pages", "faulty", "config: {prefix: pages, labels: {echo: [reads_untrusted]}}\n");
    daemon.plugin("post", "faulty", "config: {prefix: post, labels: {effect_append: [outward, folder]}}\n");
    daemon.plugin(
        "wipe",
        "faulty",
        "config: {prefix: wipe, labels: {effect_append: [destructive, folder]}}\n",
    );
    for (id, more) in agents {
        let manifest = format!(
            "id: {id}\nname: Agent\ndescription: Does it.\nagent: {{model: default, instructions: Do., uses_tools: [post, wipe]{more}}}\n"
        );
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
    }
    daemon.run();
    Scene { _server: server, daemon, effects }
}

const READ: &str = "pages_echo {\"value\": \"what a page says\"}";

impl Scene {
    /// A message upon which the model appends a line to the file of a name.
    fn effect(&self, tool: &str, file: &str) -> String {
        let params = json!({"path": self.effects.join(file), "nonce": "x"});
        format!("{tool}_effect_append {params}")
    }

    fn ran(&self, file: &str) -> usize {
        fs::read_to_string(self.effects.join(file)).unwrap_or_default().lines().count()
    }

    /// What a turn gave that nobody need be asked about.
    fn says(&self, session: &str, message: &str) -> String {
        self.daemon.turn(session, message)["content"].as_str().expect("text").to_owned()
    }

    /// The question that waits.
    fn question(&self) -> Value {
        let waits = || {
            let list = self.daemon.client().ask("approvals.list", json!({})).expect("a list");
            let mut all = list.as_array().expect("a list").clone();
            all.retain(|one| one["call"].is_object() && one["state"] == "pending");
            all.pop()
        };
        until("a question waits", waits).unwrap_or_else(|| panic!("{}", self.daemon.log()))
    }

    /// Sends a message that has a call asked about, answers it, and gives why it was asked and how the turn ended.
    fn asked(&self, session: &str, message: &str, answer: &[&str]) -> (Value, String) {
        let turn = self.daemon.submit(session, message);
        let question = self.question();
        let id = question["id"].as_str().expect("an id");
        self.daemon.says(&[&["approvals", answer[0], id], &answer[1..]].concat());
        let ended = self.daemon.wait(&turn);
        (question, ended["content"].as_str().expect("text").to_owned())
    }
}

fn need(question: &Value) -> &str {
    question["needs"][0].as_str().expect("a reason")
}

#[test]
fn a_rule_a_mode_and_a_label_decide_and_are_named() {
    let scene = scene(
        "approvals:\n  preauthorized: all\n  rules:\n    - {tool: wipe_*, params: {path: '*/kept/*'}, then: deny}\n    \
         - {tool: wipe_*, params: {path: '*/free'}, then: allow}\n    - {tool: post_*, then: ask}\n",
    );
    let (question, said) = scene.asked("s", &scene.effect("wipe", "a"), &["allow"]);
    assert!(need(&question).contains("may destroy what cannot be restored"), "{question}");
    assert!(said.contains("appended") && scene.ran("a") == 1, "{said}");
    let refused = scene.says("s", &scene.effect("wipe", "in/../kept/b"));
    assert!(refused.contains("`approvals.rules[0]` forbids it") && scene.ran("kept/b") == 0, "{refused}");
    scene.says("s", &scene.effect("wipe", "free"));
    assert_eq!(scene.ran("free"), 1, "nobody is asked about what a rule allows");
    let events = scene.daemon.events("s");
    let of_call = |event: &&Value| event["data"]["item"]["name"] == "wipe_effect_append";
    let last = events.iter().rfind(of_call).expect("it was called")["data"]["item"]["id"].clone();
    let why = scene.daemon.says(&["why", last.as_str().expect("an id")]);
    assert!(why.contains("was allowed by `approvals.rules[1]`"), "{why}");
    let (question, _) = scene.asked("s", &scene.effect("post", "c"), &["deny"]);
    assert!(need(&question).contains("`approvals.rules[2]`") && scene.ran("c") == 0, "{question}");
}

#[test]
fn where_nobody_is_asked_what_would_be_is_refused() {
    let scene = scene("approvals: {preauthorized: all, mode: never}\n");
    let refused = scene.says("s", &scene.effect("wipe", "a"));
    assert!(refused.contains("`approvals.mode` is `never`") && scene.ran("a") == 0, "{refused}");
    scene.says("s", &scene.effect("post", "b"));
    assert_eq!(scene.ran("b"), 1);
    scene.says("s", READ);
    let refused = scene.says("s", &scene.effect("post", "b"));
    assert!(refused.contains("strangers") && scene.ran("b") == 1, "{refused}");
}

#[test]
fn what_is_allowed_for_a_session_holds_there_over_a_crash_until_it_is_taken_back() {
    let scene = scene("");
    let (question, _) = scene.asked("s", &scene.effect("wipe", "in/a"), &["allow", "--session"]);
    let about = question["call"]["about"].as_str().expect("it can be allowed");
    assert_eq!(about, format!("wipe_effect_append {}/in/", scene.effects.display()));
    scene.daemon.kill_kernel();
    let said = scene.says("s", &scene.effect("wipe", "in/b"));
    assert!(said.contains("appended"), "it is the same folder: {said}");
    let (_, said) = scene.asked("s", &scene.effect("wipe", "other"), &["deny"]);
    assert!(said.contains("was denied"), "another folder: {said}");
    let (_, said) = scene.asked("another", &scene.effect("wipe", "in/c"), &["deny"]);
    assert!(said.contains("was denied"), "another session: {said}");
    let grants = scene.daemon.says(&["approvals", "grants"]);
    assert!(
        grants.contains(about) && grants.contains("session s") && grants.contains("operator"),
        "{grants}"
    );
    let id = grants.split_whitespace().find(|word| word.starts_with("g-")).expect("an id");
    scene.daemon.says(&["approvals", "revoke", id]);
    let (_, said) = scene.asked("s", &scene.effect("wipe", "in/d"), &["deny"]);
    assert!(said.contains("was denied") && scene.ran("in/d") == 0, "it is asked about again: {said}");
    let again = scene.daemon.drupe(&["approvals", "revoke", id]);
    assert!(crate::harness::text(&again.stderr).contains("nothing that was allowed has the id"), "{again:?}");
}

#[test]
fn once_strangers_were_read_what_reaches_out_is_asked_about_in_all_turns_behind_it() {
    let scene = scene("");
    scene.says("s", &scene.effect("post", "a"));
    assert_eq!(scene.ran("a"), 1, "nobody wrote anything yet");
    scene.says("s", READ);
    scene.daemon.kill_kernel();
    let (question, _) = scene.asked("s", &scene.effect("post", "a"), &["deny"]);
    let why = "`post_effect_append` reaches beyond this machine, and this conversation holds what strangers wrote, which `pages_echo` gave";
    assert_eq!((need(&question), scene.ran("a")), (why, 1));
    assert_eq!(question["call"]["for_taint"], true);
    scene.says("other", &scene.effect("post", "b"));
    assert_eq!(scene.ran("b"), 1, "another conversation holds nothing of it");
    // Whoever hands a message in that strangers wrote says so.
    let ask = json!({"session": "hook", "external_id": "1", "text": scene.effect("post", "c"), "carried": {"untrusted": true}});
    let turn = scene.daemon.client().ask("turn.submit", ask).expect("it is taken")["turn"].clone();
    let question = scene.question();
    assert!(need(&question).contains("which `operator` gave"), "{question}");
    scene.daemon.says(&["approvals", "allow", question["id"].as_str().expect("an id"), "--session"]);
    scene.daemon.wait(turn.as_str().expect("an id"));
    // That answer was given with it in view, and so it holds.
    scene.says("hook", &scene.effect("post", "c"));
    assert_eq!(scene.ran("c"), 2);
    let told = scene.daemon.events("s");
    assert!(told.iter().any(|event| event["data"]["code"] == "tainted"), "{told:?}");
}

#[test]
fn an_agent_gets_nothing_by_way_of_another_and_its_manifest_adds() {
    let rules = "rules: [{tool: post_*, agent: poster, then: allow}, {tool: post_*, then: ask}]";
    let agents = [("poster", ""), ("tidy", ", approvals: {rules: [{tool: wipe_*, then: deny}]}")];
    let scene = scene_with(&format!("approvals: {{preauthorized: all, {rules}}}\n"), &agents);
    scene.says("a", &format!("@poster {}", scene.effect("post", "a")));
    assert_eq!(scene.ran("a"), 1, "a person talks with it");
    let task = json!({"task": scene.effect("post", "a")});
    let (question, _) = scene.asked("b", &format!("agent_poster {task}"), &["deny"]);
    assert!(need(&question).contains("`approvals.rules[1]`") && scene.ran("a") == 1, "{question}");
    let refused = scene.says("c", &format!("@tidy {}", scene.effect("wipe", "c")));
    assert!(refused.contains("`agent.approvals.rules[0]` of `tidy` forbids it"), "{refused}");
}

#[test]
fn what_strangers_wrote_is_known_in_other_conversations_by_the_file_and_the_key_that_hold_it() {
    let scene = scene("");
    scene.says("reader", READ);
    let page = json!({"path": "page.txt", "content": "what a page says"});
    scene.says("reader", &format!("files_write {page}"));
    scene.says("reader", "kv_set {\"key\": \"page\", \"value\": \"what a page says\"}");
    scene.daemon.kill_kernel();
    for (session, reads, by) in [
        ("by_file", "files_read {\"path\": \"page.txt\"}", "`files_read`"),
        ("by_key", "kv_get {\"key\": \"page\"}", "`kv_get`"),
    ] {
        scene.says(session, &scene.effect("post", "before"));
        scene.says(session, reads);
        let (question, _) = scene.asked(session, &scene.effect("post", "after"), &["deny"]);
        assert!(need(&question).contains("strangers") && need(&question).contains(by), "{question}");
    }
    assert_eq!((scene.ran("before"), scene.ran("after")), (2, 0));
}
