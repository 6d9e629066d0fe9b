//! Conversations with all that a replay has to know of, which a model on loopback plays the same way each time.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{answer, call, task};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
    wire::Wire,
};

/// What the home holds beside the model's address. Each tool that is offered makes the records longer.
pub const SETTINGS: &str = "\
approvals:
  rules:
    - {tool: kv_delete, then: ask}
extensions:
  builder_agent: {enabled: false}
  code_reviewer: {enabled: false}
  files: {enabled: false}
  http: {enabled: false}
  mcp: {enabled: false}
  memory: {enabled: false}
  scheduler: {enabled: false}
  shell: {enabled: false}
  terminal: {enabled: false}
  web: {enabled: false}
";

const SKILL: &str =
    "---\nname: tidy\ndescription: Keeps things tidy.\nallowed-tools: kv_list\n---\nTidy up.\n";

/// The agents, by their ids: what they are told, and the rest of their manifests.
const AGENTS: [(&str, &str, &str); 3] = [
    ("keeper", "You keep.", "  uses_tools: [kv]\n"),
    ("poet", "You are the poet.", "  integration_mode: handoff\n"),
    (
        "counter",
        "You count.",
        "  output:\n    format: json\n    schema: {type: object, properties: {n: {type: integer}}, required: [n]}\n",
    ),
];

/// What has happened in the session of spawned agents, by which the model knows when to go on.
#[derive(Default)]
struct Moments {
    slow_is_asked: AtomicBool,
    forever_is_asked: AtomicBool,
    slow_was_told: AtomicBool,
}

fn wait_for(moment: &AtomicBool) {
    until("the other agent has come as far", || moment.load(Ordering::SeqCst).then_some(()));
}

/// A home with these agents and a daemon, and the model that they have.
pub fn start(home: fn(&str) -> Daemon) -> (ModelServer, Daemon) {
    let moments = Moments::default();
    let server = ModelServer::start(move |request| model(request, &moments));
    let mut daemon = home(&(server.config() + SETTINGS));
    for (id, prompt, more) in AGENTS {
        super::agent(&daemon, id, prompt, more);
    }
    daemon.write("skills/tidy/SKILL.md", SKILL);
    daemon.run();
    (server, daemon)
}

/// Has all of them take place.
pub fn play(daemon: &Daemon) {
    let says = |session: &str, text: &str| {
        let turn = daemon.turn(session, text);
        assert_eq!(turn["status"], "success", "{text}: {turn}");
    };
    says("agents", "fan out");
    says("agents", "count to three");
    says("agents", "@counter four");
    says("agents", "skill please");
    says("poem", "verse one");
    says("poem", "more");
    says("poem", "weather now");
    for (text, verb) in [("drop one", "allow"), ("drop two", "deny")] {
        let turn = daemon.submit("asked", text);
        answer(daemon, verb);
        assert_eq!(daemon.wait(&turn)["status"], "success");
    }
    spawned(daemon);
}

/// Has several agents work beside the orchestrator, and waits for the report of the one that outlives the turn.
pub fn spawned(daemon: &Daemon) {
    let turn = daemon.turn("work", "work on all");
    assert_eq!(turn["content"], "all is done", "{turn}");
    until("the report is answered", || {
        let shown = daemon.client().ask("sessions.show", json!({"id": "work"})).expect("it is there");
        let turns = shown["turns"].as_array().expect("a list").clone();
        (turns.len() == 2 && turns.iter().all(|turn| turn["status"] == "success")).then_some(())
    })
    .expect("it is");
}

/// The sessions of a daemon.
pub fn sessions(daemon: &Daemon) -> Vec<String> {
    let list = daemon.client().ask("sessions.list", json!({})).expect("a list");
    let ids = list.as_array().expect("a list").iter().filter_map(|session| session["id"].as_str());
    ids.map(str::to_owned).collect()
}

fn model(request: &Value, moments: &Moments) -> Say {
    let system = request["messages"][0]["content"].as_str().unwrap_or_default();
    let (role, said) = latest(request);
    let (task, first_step) = (task(request), calls_before(request) == 0);
    if system.contains("You are the poet.") {
        return match task.starts_with("weather") {
            true => call(&[("return_control", json!({"summary": "verses were made"}))]),
            false => Say::Text(format!("poet: {task}")),
        };
    }
    if system.contains("You keep.") {
        return keeper(&task, first_step, request, moments);
    }
    if system.contains("You count.") {
        // The first answer is none, so that it is asked once more.
        return match task.contains("JSON") {
            true => Say::Text(r#"{"n": 3}"#.into()),
            false => Say::Text("three".into()),
        };
    }
    if system.contains("Be brief.") {
        return match first_step {
            true => call(&[("kv_list", json!({}))]),
            false => Say::Text("in short".into()),
        };
    }
    let worker = |task: &str| json!({"task": task});
    match (role.as_str(), task.split(' ').next().unwrap_or_default()) {
        ("user", "fan") => call(&[
            ("agent_keeper", worker("two")),
            ("kv_set", json!({"key": "three", "value": "3"})),
            ("agent_keeper", worker("four")),
        ]),
        ("user", "count") => call(&[("agent_counter", worker("three"))]),
        ("user", "skill") => call(&[("load_skill", json!({"name": "tidy"}))]),
        ("tool", _) if said.contains("Tidy up.") => call(&[("kv_set", json!({"key": "a", "value": "b"}))]),
        ("user", "verse") => call(&[("handoff_poet", json!({"summary": "they like crabs"}))]),
        ("user", "drop") => call(&[("kv_delete", json!({"key": "three"}))]),
        ("user", "(This") => Say::Text("I have read the report".into()),
        _ => orchestrated(request, moments).unwrap_or_else(|| Say::Text(format!("main: {said}"))),
    }
}

/// Calls that the run has made, each with its step.
fn calls_before(request: &Value) -> usize {
    let messages = request["messages"].as_array().expect("messages");
    messages.iter().filter(|message| message["tool_calls"].is_array()).count()
}

fn keeper(task: &str, first_step: bool, request: &Value, moments: &Moments) -> Say {
    match (task.split(' ').next().unwrap_or_default(), first_step) {
        ("forever", _) => {
            moments.forever_is_asked.store(true, Ordering::SeqCst);
            Say::Fail(Wire::Stall("a half"))
        }
        (name, true) => {
            if name == "slow" {
                moments.slow_is_asked.store(true, Ordering::SeqCst);
                wait_for(&moments.slow_was_told);
            }
            call(&[("kv_set", json!({"key": name, "value": task}))])
        }
        _ => Say::Text(match request.to_string().contains("in French") {
            true => "c'est fait".into(),
            false => "kept".into(),
        }),
    }
}

/// The orchestrator with several agents: it tells one more, closes one, and asks another a second time.
fn orchestrated(request: &Value, moments: &Moments) -> Option<Say> {
    let messages = request["messages"].as_array().expect("messages");
    messages
        .iter()
        .find(|message| message["content"].as_str().is_some_and(|text| text.contains("work on all")))?;
    let given = messages.iter().filter(|message| message["role"] == "tool");
    let given = given.filter_map(|message| serde_json::from_str::<Value>(message["content"].as_str()?).ok());
    let handles: Vec<String> =
        given.filter_map(|given| given["handle"].as_str().map(str::to_owned)).collect();
    let keeper = |task: &str, detach: bool| json!({"agent": "keeper", "task": task, "detach": detach});
    Some(match calls_before(request) {
        0 => call(&[
            ("spawn_agent", keeper("slow verse", false)),
            ("spawn_agent", keeper("quick", false)),
            ("spawn_agent", json!({"instructions": "Be brief.", "tools": ["kv_list"], "task": "short"})),
            ("spawn_agent", keeper("forever", false)),
            ("spawn_agent", keeper("errand", true)),
        ]),
        1 => {
            wait_for(&moments.slow_is_asked);
            call(&[("send_input", json!({"handle": handles[0], "text": "in French"}))])
        }
        2 => {
            moments.slow_was_told.store(true, Ordering::SeqCst);
            wait_for(&moments.forever_is_asked);
            call(&[("close_agent", json!({"handle": handles[3]}))])
        }
        3 => call(&[("wait_agent", json!({"handles": handles[..3]}))]),
        4 => call(&[("send_input", json!({"handle": handles[1], "text": "once more"}))]),
        5 => call(&[("wait_agent", json!({"handles": [handles[1]]}))]),
        _ => Say::Text("all is done".into()),
    })
}
