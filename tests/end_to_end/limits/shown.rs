//! Limits of what a model is shown: results, tools, and texts of extensions.

use serde_json::{Value, json};

use super::{House, results, row};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, offered},
};

#[test]
fn a_result_is_shown_up_to_so_many_bytes_and_the_rest_can_be_read() {
    let config = "tool_response_max_bytes: 1024\n";
    let house = House::on(ModelServer::obedient(), "", config, &[("one", "  uses_tools: [faulty]\n")]);
    let turn = house.daemon.turn("s", "@one faulty_big {\"bytes\": 5000}");
    let requests = house.server.requests();
    let messages = requests[1]["messages"].as_array().expect("messages");
    let shown = messages.last().expect("a result")["content"].as_str().unwrap_or_default().to_owned();
    row("tool_response_max_bytes", &turn, &shown[shown.len() - 120..], house.requests());
    assert!((900..=1024).contains(&shown.len()), "{}", shown.len());
    assert!(shown.contains("of 5000 bytes") && shown.contains("`read_output`"), "{shown}");
    assert!(results(&turn).iter().all(|(status, _)| status == "ok"), "{turn}");
}

#[test]
fn beyond_so_many_tools_only_their_names_are_sent() {
    for (threshold, deferred) in [(4, true), (100, false)] {
        let server = ModelServer::start(|_| Say::Text("done".into()));
        let daemon = Daemon::home(&format!("{}tool_search: {{threshold: {threshold}}}\n", server.config()));
        let mut daemon = daemon;
        daemon.run();
        let turn = daemon.turn("s", "go");
        let request = server.requests()[0].clone();
        let tools = offered(&request);
        let system = request["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        row(&format!("tool_search.threshold: {threshold}"), &turn, &format!("{} schemas", tools.len()), 1);
        let searched = tools.contains(&"search_tools".to_owned());
        assert_eq!(searched && !tools.contains(&"kv_get".to_owned()), deferred, "{tools:?}");
        assert!(!deferred || system.contains("kv_get"), "it is named: {system}");
    }
}

#[test]
fn texts_of_extensions_take_so_many_tokens() {
    for (tokens, fits) in [(10, false), (1000, true)] {
        let server = ModelServer::start(|_| Say::Text("done".into()));
        let config = format!("{}orchestrator: {{context_tokens: {tokens}}}\n", server.config());
        let mut daemon = Daemon::home(&config);
        let text = "likes tea ".repeat(20);
        daemon.plugin("watcher", "watcher", &format!("config: {}\n", json!({"context": {"text": text}})));
        daemon.run();
        let turn = daemon.turn("s", "go");
        let events = daemon.events("s");
        let told: Vec<&Value> = events.iter().filter(|e| e["data"]["code"] == "context").collect();
        let told = json!(told).to_string();
        row(&format!("orchestrator.context_tokens: {tokens}"), &turn, &told, server.requests().len());
        assert_eq!(server.requests()[0].to_string().contains("likes tea"), fits, "{turn}");
        assert_eq!(told.contains("`orchestrator.context_tokens` (10)"), !fits, "{told}");
    }
}
