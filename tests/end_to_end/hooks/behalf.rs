//! On whose behalf a turn is answered, as hooks and the code of tools are told it.

use serde_json::{Value, json};

use super::{Daemon, ModelServer, POINTS, Say, latest};

const POET: &str = "You are the poet.";
const PLANNER: &str = "You are the planner of this session.";

fn of(request: &Value, words: &str) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(words))
}

/// The orchestrator hands verses over, and asks the keeper for what is to be kept; all others publish something and say so.
fn model(request: &Value) -> Say {
    let (role, said) = latest(request);
    let call = |name: &str, params: Value| Say::Call(vec![(name.to_owned(), params)]);
    if role != "user" {
        return Say::Text("done".to_owned());
    }
    let others = of(request, POET) || of(request, PLANNER) || of(request, "You keep things.");
    match others {
        true => call("watcher_emit", json!({"topic": "said"})),
        false if said.ends_with("a verse") => call("handoff_poet", json!({"summary": "they like crabs"})),
        false => call("agent_keeper", json!({"task": "keep it"})),
    }
}

fn daemon(server: &ModelServer) -> Daemon {
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("watcher", "watcher", &format!("config: {}\n", json!({"points": POINTS})));
    let agent = |id: &str, more: &str, says: &str| {
        format!(
            "id: {id}\nname: {id}\ndescription: Does it.\nagent: {{model: default, instructions: {says}, uses_tools: [watcher]{more}}}\n"
        )
    };
    daemon.write("extensions/poet/manifest.yaml", &agent("poet", ", integration_mode: handoff", POET));
    daemon.write("extensions/keeper/manifest.yaml", &agent("keeper", "", "You keep things."));
    daemon.run();
    daemon
}

/// The lines that the watcher wrote since it had written so many.
fn lines(daemon: &Daemon, file: &str, since: usize) -> Vec<Value> {
    let text = std::fs::read_to_string(daemon.path().join("data/watcher").join(file)).unwrap_or_default();
    text.lines().skip(since).map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn hooks_and_tools_are_told_on_whose_behalf_a_turn_is_answered() {
    let server = ModelServer::start(model);
    let daemon = daemon(&server);
    let personas = json!([{"name": "planner", "prompt": PLANNER}]);
    daemon
        .client()
        .ask("session.personas", json!({"session": "p", "personas": personas}))
        .expect("they are given");
    let (of_the_orchestrator, of_itself) = (json!(["orchestrator"]), json!([]));
    for (session, says, expected, path) in [
        // Who answers first, and who then: the poet takes the conversation over with the first message.
        ("s", "a verse", vec![("orchestrator", &of_itself), ("poet", &of_the_orchestrator)], json!(["poet"])),
        ("s", "and one more", vec![("poet", &of_the_orchestrator)], json!(["poet"])),
        // Whoever a message names answers for itself.
        ("t", "@poet one", vec![("poet", &of_itself)], json!(["poet"])),
        (
            "t",
            "keep it",
            vec![("orchestrator", &of_itself), ("keeper", &of_itself)],
            json!(["orchestrator", "keeper"]),
        ),
        // An agent that a session was given is the orchestrator in other words.
        ("p", "@planner a trip", vec![("planner", &of_the_orchestrator)], json!(["planner"])),
    ] {
        let before = (lines(&daemon, "hooks.jsonl", 0).len(), lines(&daemon, "calls.jsonl", 0).len());
        let turn = daemon.turn(session, says);
        assert_eq!(turn["status"], "success", "{turn}");
        let asked = lines(&daemon, "hooks.jsonl", before.0);
        let mut seen: Vec<(&str, &Value)> = Vec::new();
        for call in &asked {
            let told = (call["facts"]["agent"].as_str().expect("an id"), &call["facts"]["on_behalf_of"]);
            if !seen.contains(&told) {
                seen.push(told);
            }
        }
        assert_eq!(seen, expected, "{says}: {asked:#?}");
        let behalf = expected.last().expect("one").1;
        assert_eq!(lines(&daemon, "calls.jsonl", before.1), [json!([path, behalf])], "{says}");
    }
}
