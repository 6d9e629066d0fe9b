//! A history that outgrows the model's window many times over.

use serde_json::{Value, json};

use super::{Scene, answers};
use crate::harness::model_server::{Say, latest, offered};

/// Tokens of the window, and the bytes that the model server takes them for.
const WINDOW: usize = 8_000;
const BYTES: usize = 4 * WINDOW;

/// What the model asks for in turn.
fn work(n: usize) -> Say {
    let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
    match n {
        // First results, which can be set aside.
        0..70 => call("faulty_big", json!({"bytes": 4_000 + n})),
        // Then what it says itself, which can only be summed up.
        70..90 => call("faulty_echo", json!({"n": n, "text": "word ".repeat(400)})),
        // Then more at once than there is room for.
        _ => call("faulty_echo", json!({"n": n, "text": "word ".repeat(3_000)})),
    }
}

#[test]
fn a_history_ten_times_the_window_is_set_aside_summed_up_and_ended_with_an_answer() {
    let done = std::sync::atomic::AtomicUsize::new(0);
    let profile = format!("context_window: {WINDOW}, max_output_tokens: 1000");
    let limits = "max_turns: 200, max_tokens_per_invocation: 10000000, max_tool_calls: 1000";
    let scene = Scene::run(&profile, limits, move |request| {
        let system = request["messages"][0]["content"].as_str().unwrap_or_default();
        if system.starts_with("You sum up") {
            return Say::Text("SUMMARY: much was done.".into());
        }
        match offered(request).is_empty() {
            true => Say::Text("This is what I have.".into()),
            false => work(done.fetch_add(1, std::sync::atomic::Ordering::SeqCst)),
        }
    });
    let turn = scene.turn("a history of ten windows", "8000 tokens a request");
    let requests = scene.server.requests();
    let sizes: Vec<usize> = requests.iter().map(|request| request["messages"].to_string().len()).collect();
    let largest = sizes.iter().max().copied().unwrap_or(0);
    let results =
        turn["transcript"].as_array().expect("a list").iter().map(|e| e["content"].to_string().len());
    let history: usize = results.sum();
    println!(
        "largest request: {largest} bytes of {BYTES}; history: {history} bytes; {} requests",
        requests.len()
    );
    assert!(history >= 10 * BYTES, "{history}");
    assert!(largest <= BYTES, "{largest}: {sizes:?}");

    let told = turn["diagnostics"].to_string();
    for code in ["context_elided", "context_summarised", "context_forced"] {
        assert!(told.contains(code), "{code}: {told}");
    }
    let seen = |part: &str| requests.iter().any(|request| request["messages"].to_string().contains(part));
    assert!(seen("set aside; `read_output`") && seen("SUMMARY: much was done."));
    let last = requests.last().expect("a request");
    assert!(offered(last).is_empty() && latest(last).1.contains("Answer now"), "{last}");
    assert_eq!((&turn["status"], &turn["content"]), (&json!("success"), &json!("This is what I have.")));
    for request in &requests {
        assert_whole(request);
    }
    assert!(answers(last) > 0);
}

/// No call stands there without its result, and no result without its call.
fn assert_whole(request: &Value) {
    let messages = request["messages"].as_array().expect("messages");
    let mut open: Vec<&Value> = Vec::new();
    for message in messages {
        if message["role"] == "tool" {
            let at = open.iter().position(|id| **id == message["tool_call_id"]);
            open.remove(at.unwrap_or_else(|| panic!("a result without its call: {message}")));
        } else {
            assert!(open.is_empty(), "calls without results: {open:?}");
            let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
            open.extend(calls.iter().map(|call| &call["id"]));
        }
    }
    assert!(open.is_empty(), "calls without results: {open:?}");
}
