//! Hooks and texts of extensions, asked by a real kernel: what they may stop, and that what fails in them stops nothing.

mod behalf;
mod context;

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
    until,
};

const KEEPER: &str = "id: keeper\nname: Keeper\ndescription: Keeps things.\nagent:\n  model: default\n  instructions: You keep things.\n  uses_tools: [kv]\n";

/// All points, in the order in which a turn comes to them first.
const POINTS: [&str; 8] = [
    "turn_start",
    "before_model",
    "after_model",
    "before_agent",
    "before_tool",
    "after_tool",
    "after_agent",
    "turn_end",
];

/// A model that gives the keeper a task, and as the keeper sets a key.
fn delegating(request: &Value) -> Say {
    let asked = latest(request).0 == "user";
    match (asked, offered(request).contains(&"agent_keeper".to_owned())) {
        (true, true) => Say::Call(vec![("agent_keeper".into(), json!({"task": "keep it"}))]),
        (true, false) => Say::Call(vec![("kv_set".into(), json!({"key": "k", "value": "v"}))]),
        (false, _) => Say::Text(format!("I heard: {}", latest(request).1)),
    }
}

/// A turn of the orchestrator that has the keeper set a key, watched.
struct Watched {
    server: ModelServer,
    daemon: Daemon,
    turn: Value,
}

impl Watched {
    /// With hooks that do this: a list of `{at, does, agent?, tool?}`.
    fn turn(hooks: Value) -> Self {
        let (server, daemon) = Self::daemon(hooks);
        let turn = daemon.turn("s", "keep it");
        Self { server, daemon, turn }
    }

    fn daemon(hooks: Value) -> (ModelServer, Daemon) {
        let server = ModelServer::start(delegating);
        let mut daemon = Daemon::home(&server.config());
        let config = json!({"points": POINTS, "hooks": hooks});
        daemon.plugin("watcher", "watcher", &format!("config: {config}\n"));
        daemon.write("extensions/keeper/manifest.yaml", KEEPER);
        daemon.run();
        (server, daemon)
    }

    /// Status and answer.
    fn end(&self) -> (&str, &str) {
        let field = |name: &str| self.turn[name].as_str().unwrap_or_default();
        (field("status"), field("content"))
    }

    /// How often each agent's model was asked: the orchestrator's, the keeper's.
    fn asked(&self) -> (usize, usize) {
        let requests = self.server.requests();
        let root = requests.iter().filter(|r| offered(r).contains(&"agent_keeper".to_owned())).count();
        (root, requests.len() - root)
    }

    /// Whether the keeper's tool has run.
    fn kept(&self) -> bool {
        let file = self.daemon.path().join("data/kv/agents/keeper.json");
        fs::read_to_string(file).is_ok_and(|keys| keys.contains("\"k\""))
    }

    fn diagnostics(&self) -> Vec<String> {
        let told = self.turn["diagnostics"].as_array().cloned().unwrap_or_default();
        told.iter().map(|d| d.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// What the hook was told, in order.
    fn told(&self) -> Vec<Value> {
        let file = self.daemon.path().join("data/watcher/hooks.jsonl");
        let lines = fs::read_to_string(file).unwrap_or_default();
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

const NO: &str = "blocked by `watcher`: the watcher says no";

/// Blocks at a point of one agent's run: the turn's status, a part of its answer, how often the models were asked, and
/// whether the tool ran.
fn check_block(at: &str, agent: &str, status: &str, says: &str, asked: (usize, usize), kept: bool) {
    let watched = Watched::turn(json!([{"at": at, "agent": agent, "does": "block"}]));
    let (ended, content) = watched.end();
    println!("block {at} of {agent}: {ended}: {content}");
    assert!(ended == status && content.contains(says), "{at} {agent}: {}", watched.turn);
    assert_eq!((watched.asked(), watched.kept()), (asked, kept), "{at} {agent}: {}", watched.turn);
}

#[test]
fn a_hook_blocks_a_turn_a_model_a_tool_and_a_sub_agent() {
    check_block("turn_start", "orchestrator", "refused", NO, (0, 0), false);
    check_block("before_model", "orchestrator", "refused", NO, (0, 0), false);
    check_block("before_tool", "orchestrator", "success", &format!("not run: {NO}"), (2, 0), false);
}

#[test]
fn a_hook_blocks_what_sub_agents_do_as_well() {
    check_block("before_agent", "keeper", "success", NO, (2, 0), false);
    check_block("before_model", "keeper", "success", NO, (2, 0), false);
    check_block("before_tool", "keeper", "success", &format!("not run: {NO}"), (2, 2), false);
}

#[test]
fn after_something_has_happened_nothing_can_be_blocked() {
    for at in ["after_model", "after_tool", "after_agent", "turn_end"] {
        let watched = Watched::turn(json!([{"at": at, "does": "block"}]));
        assert_eq!((watched.end().0, watched.asked()), ("success", (2, 2)), "{at}: {}", watched.turn);
        assert!(watched.kept() && !watched.turn.to_string().contains("blocked by"), "{at}: {}", watched.turn);
    }
}

/// A hook that does not decide lets the work go on, and that is told.
fn check_passed_over(at: &str, does: &str, reported: &str) {
    let watched = Watched::turn(json!([{"at": at, "agent": "keeper", "does": does}]));
    assert_eq!((watched.end().0, watched.asked()), ("success", (2, 2)), "{at} {does}: {}", watched.turn);
    assert!(watched.kept(), "{at} {does}: {}", watched.turn);
    let diagnostics = watched.diagnostics();
    println!("{does} at {at}: {diagnostics:?}");
    let about = |d: &String| d.starts_with("hook_late: ") && d.contains("`watcher`") && d.contains(reported);
    assert!(diagnostics.iter().any(about), "{at} {does}: {diagnostics:?}");
    let events = watched.daemon.events("s");
    assert!(
        events.iter().any(|e| e["data"]["code"] == "hook_late" && e["agent"]["id"] == "keeper"),
        "{events:#?}"
    );
}

#[test]
fn a_hook_that_is_late_is_passed_over_and_reported() {
    check_passed_over("before_tool", "hang", "did not answer within 1000 ms at `before_tool`");
    check_passed_over("before_agent", "hang", "did not answer within 1000 ms at `before_agent`");
}

#[test]
fn a_hook_that_is_late_again_and_again_is_not_asked_for_a_while_which_is_told() {
    let watched = Watched::turn(json!([{"at": "before_model", "does": "hang"}]));
    assert_eq!((watched.end().0, watched.asked()), ("success", (2, 2)), "{}", watched.turn);
    let rests = |d: &String| d.contains("`watcher` was not asked") && d.contains("rests for");
    assert_eq!(watched.diagnostics().iter().filter(|d| rests(d)).count(), 1, "{:?}", watched.diagnostics());
    let again = watched.daemon.turn("s", "keep it");
    assert_eq!(again["status"], "success", "{again}");
    let told = watched.told();
    let at = |point: &str| told.iter().filter(|call| call["point"] == point).count();
    // The orchestrator's model was asked twice a turn, and the keeper's as often.
    assert_eq!((at("before_model"), at("after_model")), (3, 8), "{told:#?}");
}

#[test]
fn a_hook_that_fails_is_passed_over_and_reported() {
    check_passed_over("before_model", "fail", "failed at `before_model`");
    check_passed_over("after_tool", "fail", "failed at `after_tool`");
}

#[test]
fn a_hook_is_told_what_happens_where_and_for_whom() {
    let watched = Watched::turn(json!([]));
    let told = watched.told();
    let seen: Vec<String> = told
        .iter()
        .map(|call| {
            let field = |value: &Value| value.as_str().unwrap_or("?").to_owned();
            format!("{} {}", field(&call["point"]), field(&call["facts"]["agent"]))
        })
        .collect();
    let expected = [
        "turn_start orchestrator",
        "before_model orchestrator",
        "after_model orchestrator",
        "before_tool orchestrator",
        "before_agent keeper",
        "before_model keeper",
        "after_model keeper",
        "before_tool keeper",
        "after_tool keeper",
        "before_model keeper",
        "after_model keeper",
        "after_agent keeper",
        "after_tool orchestrator",
        "before_model orchestrator",
        "after_model orchestrator",
        "turn_end orchestrator",
    ];
    assert_eq!(seen, expected, "{told:#?}");
    let mut facts: BTreeMap<String, Value> = BTreeMap::new();
    for (seen, call) in seen.iter().zip(&told) {
        assert_eq!((&call["facts"]["session"], &call["facts"]["turn"]), (&json!("s"), &watched.turn["turn"]));
        facts.entry(seen.clone()).or_insert(call["facts"].clone());
    }
    let fact = |at: &str, name: &str| facts[at][name].to_string();
    for (at, name, part) in [
        ("turn_start orchestrator", "message", "keep it"),
        ("before_tool keeper", "tool", "kv_set"),
        ("before_tool keeper", "params", "\\\"k\\\""),
        ("before_tool keeper", "path", "[\"orchestrator\",\"keeper\"]"),
        ("after_tool keeper", "status", "ok"),
        ("before_agent keeper", "task", "keep it"),
        ("after_agent keeper", "status", "success"),
        ("before_model keeper", "model", "local/test"),
        ("turn_end orchestrator", "status", "success"),
    ] {
        assert!(fact(at, name).contains(part), "{at} {name}: {}", facts[at]);
    }
}

/// Else a hook that ends the kernel would be asked about the same turn for ever.
#[test]
fn a_turn_has_begun_before_its_first_hook_is_asked() {
    let (_server, daemon) = Watched::daemon(json!([{"at": "turn_start", "does": "hang"}]));
    let turn = daemon.submit("s", "keep it");
    let told = daemon.path().join("data/watcher/hooks.jsonl");
    until("the hook is asked", || told.exists().then_some(())).expect("the hook is asked");
    daemon.kill_kernel();
    assert_eq!(daemon.wait(&turn)["status"], "success");
    let why = daemon.json(&["why", &turn, "--json"]);
    assert!(why["sentences"].to_string().contains("It was begun 2 times"), "{why}");
}
