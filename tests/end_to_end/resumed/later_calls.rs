//! Code of a tool that asks for the same in two calls of one run, with a kill between them.

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
        let asked = json!({"task": "the same", "definition": {
            "id": "watcher", "name": "Watcher", "description": "", "instructions": OWN, "models": ["default"]}});
        match results(request) {
            0 | 1 => Say::Call(vec![("watcher_run".to_owned(), asked)]),
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
    let last = server.requests().pop().expect("one was made");
    let given = last["messages"].as_array().expect("messages").iter().filter(|one| one["role"] == "tool");
    let given: Vec<&str> = given.filter_map(|one| one["content"].as_str()).collect();
    assert_eq!(given, ["answer 1", "answer 2"]);
}
