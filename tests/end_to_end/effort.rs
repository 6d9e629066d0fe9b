//! What is done at once, and what is reused.

use serde_json::json;

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
};

#[test]
fn eight_tools_of_one_step_run_at_the_same_time() {
    let server = ModelServer::start(|request| match latest(request).0.as_str() {
        "user" => Say::Call((0..8).map(|_| ("faulty_sleep50".to_owned(), json!({}))).collect()),
        _ => Say::Text("done".into()),
    });
    let daemon = Daemon::home(&server.config());
    daemon.plugin("faulty", "faulty", "");
    let mut daemon = daemon;
    daemon.run();
    let turn = daemon.turn("s", "go");
    assert_eq!(turn["content"], "done", "{turn}");
    // What overlaps is seen in the order of events: all eight began before the first ended.
    let events = daemon.events("s");
    let tools: Vec<&str> = events
        .iter()
        .filter(|e| e["data"]["item"]["name"] == "faulty_sleep50")
        .map(|e| e["kind"].as_str().expect("a kind"))
        .collect();
    let first_end = tools.iter().position(|k| k.ends_with("completed")).expect("one ends");
    assert_eq!((first_end, tools.len()), (8, 16), "{tools:?}");
    let slowest = events
        .iter()
        .filter(|e| e["kind"] == "interaction.item.completed")
        .filter_map(|e| e["data"]["elapsed_ms"].as_u64())
        .max();
    println!("the slowest of the eight took {slowest:?} ms");
}

#[test]
fn a_turn_of_four_model_calls_uses_one_connection() {
    let server = ModelServer::start(|request| {
        let answers = request["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        match answers {
            0..=2 => Say::Call(vec![("kv_list".to_owned(), json!({}))]),
            _ => Say::Text("done".into()),
        }
    });
    let daemon = Daemon::start(&server.config());
    assert_eq!(daemon.turn("s", "go")["content"], "done");
    assert_eq!((server.requests().len(), server.connections()), (4, 1));
}
