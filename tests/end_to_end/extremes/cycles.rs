//! Agents that call themselves or each other: refused when they are loaded, and where they try while they run, without a
//! model being asked.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
};

/// Calls of other agents need the operator's agreement, which is not what this is about.
const AGREED: &str = "approvals: {preauthorized: all}\n";

fn agent(id: &str, uses: &str) -> String {
    format!(
        "id: {id}\nname: {id}\ndescription: The agent {id}.\nagent:\n  model: default\n  instructions: You are {id}.\n  uses_agents: [{uses}]\n"
    )
}

/// A daemon with agents that use each other in a circle; each reason names all of them.
fn check(members: &[String]) {
    let server = ModelServer::start(|_| Say::Text("done".into()));
    let mut daemon = Daemon::home(&(server.config() + AGREED));
    for (at, id) in members.iter().enumerate() {
        let next = &members[(at + 1) % members.len()];
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &agent(id, next));
    }
    daemon.run();
    let (state, reason) = daemon.extension(&members[0]);
    println!(
        "| a circle of {} at load | {state}: {} | 0 requests | – | – |",
        members.len(),
        reason.replace('\n', " ")
    );
    for id in members {
        let (state, reason) = daemon.extension(id);
        let says = if members.len() == 1 { "names the extension itself" } else { "in a circle" };
        assert!(state == "failed" && reason.contains(says), "{id}: {state}: {reason}");
        for other in members {
            assert!(reason.contains(other.as_str()), "{id}: `{other}` is missing in {reason}");
        }
        let turn = daemon.turn("s", &format!("@{id} go"));
        assert_eq!(turn["status"], "error", "{turn}");
    }
    assert!(server.requests().is_empty(), "no model is asked");
}

#[test]
fn circles_of_one_two_and_ten_agents_are_refused_at_load_by_name() {
    for size in [1, 2, 10] {
        check(&(0..size).map(|n| format!("member{n}")).collect::<Vec<_>>());
    }
}

#[test]
fn a_circle_that_an_edit_closes_is_refused_while_the_daemon_runs() {
    let server = ModelServer::start(|_| Say::Text("done".into()));
    let mut daemon = Daemon::home(&(server.config() + AGREED));
    daemon.write("extensions/one/manifest.yaml", &agent("one", "two"));
    daemon.write("extensions/two/manifest.yaml", &agent("two", ""));
    daemon.run();
    assert_eq!(daemon.turn("s", "@one go")["content"], "done");
    daemon.write("extensions/two/manifest.yaml", &agent("two", "one"));
    let shown = crate::harness::until("it is told", || {
        let list = daemon.client().ask("extensions.list", json!({})).ok()?;
        let told = |e: &&Value| e["reason"].as_str().is_some_and(|r| r.contains("one") && r.contains("two"));
        list.as_array()?.iter().find(told).cloned()
    });
    let shown = shown.unwrap_or_else(|| panic!("{}", daemon.log()));
    println!("| a circle by an edit | {}: {} | – | – | – |", shown["state"], shown["reason"]);
}

#[test]
fn whoever_calls_back_while_it_runs_is_refused_and_no_model_is_asked() {
    // `one` may call `two`, who tries to call `one` and itself by every name that a tool could have.
    let server = ModelServer::start(|request| {
        let first = latest(request).0 == "user";
        match (first, offered(request).contains(&"agent_two".to_owned())) {
            (true, true) => Say::Call(vec![("agent_two".into(), json!({"task": "go"}))]),
            (true, false) => {
                let names = ["agent_one", "agent_two", "handoff_one", "one", "two", "agent_orchestrator"];
                Say::Call(names.iter().map(|name| ((*name).to_owned(), json!({"task": "again"}))).collect())
            }
            (false, _) => Say::Text("done".into()),
        }
    });
    let mut daemon = Daemon::home(&(server.config() + AGREED));
    daemon.write("extensions/one/manifest.yaml", &(agent("one", "two") + "  infer: false\n"));
    daemon.write("extensions/two/manifest.yaml", &(agent("two", "") + "  infer: false\n"));
    daemon.run();
    let turn = daemon.turn("s", "@one go");
    let runs = turn["invocations"].as_array().map(Vec::len);
    println!(
        "| calls back while it runs | {} | {} requests, {runs:?} runs | – | – |",
        turn["status"],
        server.requests().len()
    );
    assert_eq!(
        (turn["content"].as_str(), runs, server.requests().len()),
        (Some("done"), Some(2), 4),
        "{turn}"
    );
    let tried = turn["transcript"].as_array().expect("a list").iter();
    let tried: Vec<&Value> = tried.filter(|e| e["role"] == "tool" && e["agent"] == "two").collect();
    assert!(tried.len() == 6 && tried.iter().all(|e| e["status"] == "refused"), "{tried:?}");
}

#[test]
fn of_two_hundred_and_fifty_agents_at_once_as_many_run_as_a_tree_may_have() {
    let server = ModelServer::start(|request| match latest(request).0 == "user" {
        true if offered(request).contains(&"agent_two".to_owned()) => {
            Say::Call((0..250).map(|n| ("agent_two".to_owned(), json!({"task": n.to_string()}))).collect())
        }
        _ => Say::Text("done".into()),
    });
    let profile = "  profiles: {local/test: {context_window: 1000000}}\n";
    let mut daemon = Daemon::home(&(server.config() + profile + AGREED));
    let limits = "  limits: {max_tool_calls: 1000, max_tool_calls_per_step: 256, max_invocations: 32, max_tokens_per_invocation: 10000000}\n";
    daemon.write("extensions/one/manifest.yaml", &(agent("one", "two") + limits));
    daemon.write("extensions/two/manifest.yaml", &agent("two", ""));
    daemon.run();
    let turn = daemon.turn("s", "@one go");
    let (runs, asked) = (turn["invocations"].as_array().map(Vec::len), server.requests().len());
    println!("| 250 agents at once | {} | {asked} requests, {runs:?} runs of 32 | – | – |", turn["status"]);
    // Two requests of `one`, and one of each `two`.
    assert_eq!((turn["content"].as_str(), runs, asked), (Some("done"), Some(32), 33), "{turn}");
}
