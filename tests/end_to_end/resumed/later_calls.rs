//! Code of a tool that asks for an agent, with a kill between two of its calls, and with its own end in the middle of one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    until,
};

const OWN: &str = "You are the watcher's own.";

fn is_own(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(OWN))
}

fn results(request: &Value) -> usize {
    request["messages"].as_array().expect("messages").iter().filter(|one| one["role"] == "tool").count()
}

/// A call of the tool that has an agent of its own answer.
fn run(ends: bool) -> Say {
    let definition = json!({
        "id": "watcher", "name": "Watcher", "description": "", "instructions": OWN, "models": ["default"],
    });
    Say::Call(vec![(
        "watcher_run".to_owned(),
        json!({"task": "the same", "definition": definition, "ends": ends}),
    )])
}

/// What the calls of the last request gave.
fn given(server: &ModelServer) -> Vec<String> {
    let last = server.requests().pop().expect("one was made");
    let given = last["messages"].as_array().expect("messages").iter().filter(|one| one["role"] == "tool");
    given.filter_map(|one| one["content"].as_str().map(str::to_owned)).collect()
}

#[test]
fn what_a_call_had_asked_for_when_its_code_ended_is_not_asked_for_again() {
    for isolation in ["inproc", "process"] {
        let answers = AtomicUsize::new(0);
        let server = ModelServer::start(move |request| match (is_own(request), results(request)) {
            (true, _) => Say::Text(format!("answer {}", answers.fetch_add(1, Ordering::SeqCst) + 1)),
            (false, 0) => run(true),
            (false, _) => Say::Text("done".to_owned()),
        });
        let mut daemon = Daemon::home(&server.config());
        daemon.plugin_in(isolation, "watcher", "watcher", "description: Watches.\n");
        daemon.run();
        assert_eq!(daemon.turn("s", "ask")["content"], "done", "{isolation}");
        assert_eq!(server.requests().iter().filter(|one| is_own(one)).count(), 1, "{isolation}");
        let [given] = given(&server).try_into().expect("one call");
        // The next kernel finds its answer. The next process of the extension alone cannot, so the call is not made again.
        match isolation {
            "inproc" => assert_eq!(given, "answer 1"),
            _ => assert!(given.contains("is not made again"), "{given}"),
        }
    }
}

#[test]
fn a_later_call_is_not_given_what_an_earlier_one_had_before_a_kill() {
    let goes = Arc::new(AtomicBool::new(false));
    let (go, answers) = (Arc::clone(&goes), AtomicUsize::new(0));
    // Its own agent answers with the number of the answer. The orchestrator asks twice, for the second time once it may.
    let server = ModelServer::start(move |request| {
        if is_own(request) {
            return Say::Text(format!("answer {}", answers.fetch_add(1, Ordering::SeqCst) + 1));
        }
        while results(request) == 1 && !go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        match results(request) {
            0 | 1 => run(false),
            _ => Say::Text("done".to_owned()),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("watcher", "watcher", "description: Watches.\n");
    daemon.run();
    let turn = daemon.submit("s", "ask twice");
    let between = |request: &Value| !is_own(request) && results(request) == 1;
    until("it is between the two", || server.requests().iter().any(between).then_some(()))
        .unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.kill_kernel();
    daemon.until_ready();
    goes.store(true, Ordering::SeqCst);
    assert_eq!(daemon.wait(&turn)["content"], "done");
    assert_eq!(given(&server), ["answer 1", "answer 2"]);
}
