//! Agents that one session was given: who may be given, what they may do, and that they live and die with it.

use std::process::Stdio;

use drupe_link::Home;
use serde_json::{Value, json};

use crate::harness::{
    Client, Daemon,
    model_server::{ModelServer, Say, latest, offered},
    text,
};

const PLANNER: &str = "You are the planner of this session.";

fn is_planner(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(PLANNER))
}

/// Calls what a message names, and then says what came of it, and who says so.
fn model(request: &Value) -> Say {
    let (role, text) = latest(request);
    let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned();
    let who = if is_planner(request) { "planner" } else { "main" };
    let call = task.split_once(' ').and_then(|(tool, parameters)| {
        let parameters: Value = serde_json::from_str(parameters).ok()?;
        (role == "user" && parameters.is_object()).then(|| (tool.to_owned(), parameters))
    });
    call.map_or(Say::Text(format!("{who}: {task}")), |call| Say::Call(vec![call]))
}

fn planner(more: Value) -> Value {
    let mut planner = json!({"name": "planner", "description": "Plans trips.", "prompt": PLANNER});
    planner.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    planner
}

fn give(daemon: &Daemon, session: &str, personas: Value) -> Result<Value, String> {
    daemon.client().ask("session.personas", json!({"session": session, "personas": personas}))
}

fn says(daemon: &Daemon, session: &str, text: &str) -> String {
    daemon.turn(session, text)["content"].as_str().expect("text").to_owned()
}

#[test]
fn a_session_has_them_as_its_own_over_a_restart_and_no_other_does() {
    let server = ModelServer::start(model);
    let daemon = Daemon::start(&server.config());
    give(&daemon, "s", json!([planner(json!({"tools": ["kv_set"]}))])).expect("it is given");
    assert_eq!(says(&daemon, "s", "@planner a trip"), "planner: a trip");
    let request = server.requests().pop().expect("one was made");
    let tools = offered(&request);
    assert!(tools.contains(&"kv_set".to_owned()) && !tools.contains(&"kv_get".to_owned()), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool.starts_with("agent_") || tool == "spawn_agent"), "{tools:?}");
    daemon.kill_kernel();
    daemon.until_ready();
    // The orchestrator knows it, and may choose it.
    let heard = says(&daemon, "s", r#"agent_planner {"task": "a tour"}"#);
    assert!(heard.contains("planner: a tour"), "{heard}");
    let request = server.requests().pop().expect("one was made");
    let system = request["messages"][0]["content"].as_str().expect("a system prompt");
    assert!(system.contains("Agents of this conversation alone:\n- planner: Plans trips."), "{system}");
    daemon.client().ask("session.select", json!({"session": "s", "agent": "planner"})).expect("it is chosen");
    assert_eq!(says(&daemon, "s", "still you?"), "planner: still you?");
    let other = daemon.turn("other", "@planner a trip");
    assert!(other["error"].as_str().expect("one").contains("there is no agent `planner`"), "{other}");
    let shown = daemon.json(&["session", "show", "s", "--json"]);
    assert_eq!(shown["personas"][0]["name"], "planner", "{shown}");
    let refused = give(&daemon, "s", json!([])).expect_err("it has begun");
    assert!(refused.contains("session `s` has begun"), "{refused}");
}

#[test]
fn one_can_do_nothing_that_the_orchestrator_could_not() {
    let server = ModelServer::start(model);
    let rules = "approvals: {rules: [{tool: kv_set, agent: orchestrator, then: deny}]}\n";
    let daemon = Daemon::start(&(server.config() + rules));
    give(&daemon, "s", json!([planner(json!({}))])).expect("it is given");
    let set = r#"kv_set {"key": "a", "value": "b"}"#;
    for text in
        [format!("@planner {set}"), json!({"task": set}).to_string().replacen('{', "agent_planner {", 1)]
    {
        daemon.turn("s", &text);
        let told = server.requests().iter().rfind(|one| is_planner(one)).map(|one| latest(one).1);
        assert!(told.is_some_and(|told| told.contains("`approvals.rules[0]` forbids it")), "{text}");
    }
}

#[test]
fn what_cannot_be_given_is_refused_by_name() {
    let server = ModelServer::start(model);
    let daemon = Daemon::start(&server.config());
    let many: Vec<Value> = (0..17).map(|n| planner(json!({"name": format!("p{n}")}))).collect();
    for (personas, why) in [
        (json!([planner(json!({})), planner(json!({}))]), "two personas are named `planner`"),
        (json!([planner(json!({"name": "code-reviewer"}))]), "an agent of the daemon has this name"),
        (json!([planner(json!({"name": "orchestrator"}))]), "the kernel's own"),
        (json!([planner(json!({"prompt": " "}))]), "its `prompt` has 1 to"),
        (json!([planner(json!({"tools": ["nothing"]}))]), "the orchestrator has no tool `nothing`"),
        (json!([planner(json!({"tools": ["spawn_agent"]}))]), "the orchestrator has no tool `spawn_agent`"),
        (
            json!([planner(json!({"mcp_servers": ["time"]}))]),
            "no tools of an MCP server `time`; it has those of none",
        ),
        (json!([planner(json!({"url": "http://127.0.0.1:1/"}))]), "unknown field `url`"),
        (json!(many), "at most 16 personas, and these are 17"),
    ] {
        let refused = give(&daemon, "s", personas).expect_err(why);
        assert!(refused.contains(why), "{why}: {refused}");
    }
    let token = daemon.json(&[
        "token",
        "new",
        "shop",
        "--may",
        "submit,read,direct",
        "--agent",
        "code_reviewer",
        "--json",
    ]);
    let token = token["token"].as_str().expect("a token").to_owned();
    let home = Home::new(daemon.path()).expect("a home");
    let mut client = Client::with_token(&home, &token).expect("it is let in");
    let asked = json!({"session": "token.shop:s", "personas": [planner(json!({}))]});
    let refused = client.ask("session.personas", asked).expect_err("it reaches one agent alone");
    assert!(refused.contains("does not reach the orchestrator"), "{refused}");
}

#[test]
fn a_chat_takes_them_from_a_file() {
    let server = ModelServer::start(model);
    let daemon = Daemon::start(&server.config());
    daemon.write(
        "team.yaml",
        &format!("- name: planner\n  display_name: The planner\n  prompt: {PLANNER}\n  infer: false\n"),
    );
    let file = daemon.path().join("team.yaml");
    let file = file.to_str().expect("text");
    let chat = |args: &[&str], lines: &str| {
        let mut child = daemon
            .command(&[&["chat"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), lines.as_bytes())
            .expect("it reads");
        child.wait_with_output().expect("it ends")
    };
    let said = chat(&["--personas", file], "/agents\n@planner a trip\nhello\n");
    let told = text(&said.stdout) + &text(&said.stderr);
    assert!(
        told.contains("@planner") && told.contains("planner: a trip") && told.contains("main: hello"),
        "{told}"
    );
    // People alone choose it.
    assert!(!server.requests().iter().any(|one| offered(one).contains(&"agent_planner".to_owned())));
    daemon.turn("main", "hello");
    let said = chat(&["--personas", file, "--session", "main"], "x\n");
    assert!(text(&said.stderr).contains("session `main` has begun"), "{said:?}");
    daemon.write("team.yaml", "- name: planner\n  prompt: x\n  command: sh\n");
    let said = chat(&["--personas", file], "x\n");
    assert!(text(&said.stderr).contains("unknown field `command`"), "{said:?}");
    assert_eq!(said.status.code(), Some(78));
}
