//! What agents may do, and what becomes of it.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

const KEEPER: &str = "id: keeper\nname: Keeper\ndescription: Keeps secrets under keys. Use it to keep something.\n\
                      agent:\n  model: default\n  instructions: You keep things.\n  uses_tools: [kv]\n";

fn call(name: &str, parameters: Value) -> (String, Value) {
    (name.to_owned(), parameters)
}

fn assistant_messages(request: &Value) -> usize {
    request["messages"].as_array().expect("messages").iter().filter(|m| m["role"] == "assistant").count()
}

#[test]
fn a_tool_that_an_agent_was_not_given_does_not_run_by_any_spelling() {
    let spellings = [
        "files_write",
        "FILES_WRITE",
        "files.write",
        "files_write ",
        "files-write",
        "files/files_write",
        "fіles_write",
        "files_write\u{200b}",
        "agent_builder_agent",
        "builder_write",
    ];
    let server = ModelServer::start(move |request| {
        let keeper = !offered(request).iter().any(|t| t.starts_with("agent_"));
        match (keeper, assistant_messages(request)) {
            (true, 0) => Say::Call(
                spellings
                    .iter()
                    .map(|s| call(s, json!({"path": "stolen.txt", "content": "x", "id": "a", "file": "b"})))
                    .collect(),
            ),
            (true, _) => Say::Text("I could not.".into()),
            (false, 0) => Say::Call(vec![call("agent_keeper", json!({"task": "write a file"}))]),
            (false, _) => Say::Text(format!("The keeper says: {}", latest(request).1)),
        }
    });
    let daemon = Daemon::home(&server.config());
    daemon.write("extensions/keeper/manifest.yaml", KEEPER);
    let mut daemon = daemon;
    daemon.run();
    let turn = daemon.turn("s", "keep this");
    assert_eq!(turn["status"], "success", "{turn}");
    assert!(turn["content"].as_str().is_some_and(|c| c.contains("I could not.")), "{turn}");
    let tools: Vec<&Value> = turn["transcript"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|e| e["agent"] == "keeper" && e["role"] == "tool")
        .collect();
    assert_eq!(tools.len(), 10, "{turn}");
    assert!(tools.iter().all(|t| t["status"] == "refused"), "{tools:?}");
    assert!(!daemon.path().join("workspace/stolen.txt").exists());
}

#[test]
fn error_and_refused_reach_the_orchestrator_as_such_and_it_goes_on() {
    let server = ModelServer::start(|request| {
        let keeper = !offered(request).iter().any(|t| t.starts_with("agent_"));
        let (_, text) = latest(request);
        match (keeper, assistant_messages(request)) {
            (true, _) if text.contains("fail") => Say::Call(vec![call("kv_get", json!({"key": "k"}))]),
            (true, _) => Say::Call(vec![call("refuse", json!({"reason": "not my business"}))]),
            (false, 0) => Say::Call(vec![call("agent_keeper", json!({"task": "something else"}))]),
            (false, 1) => Say::Call(vec![call("agent_keeper", json!({"task": "fail, please: fail fail"}))]),
            (false, _) => Say::Text("I went on.".into()),
        }
    });
    let daemon = Daemon::home(&server.config());
    // One step only, so that a call of a tool uses its limit up.
    daemon.write("extensions/keeper/manifest.yaml", &format!("{KEEPER}  limits: {{max_turns: 1}}\n"));
    let mut daemon = daemon;
    daemon.run();
    let turn = daemon.turn("s", "go");
    assert_eq!((&turn["status"], &turn["content"]), (&json!("success"), &json!("I went on.")), "{turn}");
    let statuses: Vec<&Value> =
        turn["invocations"].as_array().expect("a list").iter().map(|i| &i["status"]).collect();
    assert_eq!(statuses, ["success", "refused", "error"], "{turn}");
    let told: Vec<Value> = turn["transcript"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|e| e["agent"] == "orchestrator" && e["role"] == "tool")
        .map(|e| serde_json::from_str(e["content"].as_str().expect("text")).expect("JSON"))
        .collect();
    assert_eq!((&told[0]["status"], &told[0]["content"]), (&json!("refused"), &json!("not my business")));
    assert_eq!((&told[1]["status"], &told[1]["class"]), (&json!("error"), &json!("budget")));
    assert!(told[1]["content"].as_str().is_some_and(|c| c.contains("max_turns")), "{told:?}");
}

#[test]
fn an_agents_model_does_not_see_the_conversation_but_what_the_orchestrator_gives() {
    let server = ModelServer::start(|request| {
        let keeper = !offered(request).iter().any(|t| t.starts_with("agent_"));
        match (keeper, latest(request).0.as_str()) {
            (true, _) => Say::Text("kept".into()),
            (false, "tool") => Say::Text("done".into()),
            (false, _) => Say::Call(vec![call(
                "agent_keeper",
                json!({"task": "keep it", "context": "Ada asked before"}),
            )]),
        }
    });
    let daemon = Daemon::home(&server.config());
    daemon.write("extensions/keeper/manifest.yaml", KEEPER);
    let mut daemon = daemon;
    daemon.run();
    daemon.turn("s", "the first secret is 4711");
    daemon.turn("s", "now keep it");
    let asked = server
        .requests()
        .into_iter()
        .rfind(|r| !offered(r).iter().any(|t| t.starts_with("agent_")))
        .expect("it ran");
    let text = asked["messages"].to_string();
    assert!(
        text.contains("keep it") && text.contains("Ada asked before") && text.contains("now keep it"),
        "{text}"
    );
    assert!(!text.contains("4711"), "{text}");
}

#[test]
fn five_tool_extensions_behind_an_agent_shrink_the_orchestrators_request() {
    let sizes: Vec<usize> = ["shared", "agents"]
        .into_iter()
        .map(|scope| {
            let server = ModelServer::start(|_| Say::Text("hello".into()));
            // All schemas are sent, however many there are: what is measured is who gets them.
            let daemon = Daemon::home(&(server.config() + "tool_search: {threshold: 1000}\n"));
            let names: Vec<String> = (0..5).map(|n| format!("many{n}")).collect();
            for name in &names {
                daemon.plugin(name, "faulty", &format!("scope: {scope}\nconfig: {{prefix: {name}}}\n"));
            }
            daemon.write(
                "extensions/keeper/manifest.yaml",
                &KEEPER.replace("uses_tools: [kv]", &format!("uses_tools: [{}]", names.join(", "))),
            );
            let mut daemon = daemon;
            daemon.run();
            daemon.turn("s", "hello");
            server.requests()[0].to_string().len()
        })
        .collect();
    println!("bytes of the orchestrator's request: {} shared, {} behind one agent", sizes[0], sizes[1]);
    assert!(sizes[1] + 5 * 100 < sizes[0], "{sizes:?}");
}

#[test]
fn an_unknown_agent_is_an_error_that_names_near_ones() {
    let daemon = Daemon::home("");
    daemon.write("extensions/keeper/manifest.yaml", KEEPER);
    let mut daemon = daemon;
    daemon.run();
    let turn = daemon.turn("s", "@keper hello");
    assert_eq!((&turn["status"], &turn["class"]), (&json!("error"), &json!("config")), "{turn}");
    assert!(turn["error"].as_str().is_some_and(|e| e.contains("did you mean `keeper`")), "{turn}");
}
