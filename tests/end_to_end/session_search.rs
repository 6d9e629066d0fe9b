//! What a model finds of its conversation beyond the turns that it is shown.

use serde_json::{Value, json};

use crate::{
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
    },
    long_conversations::is_for_a_summary,
};

/// Looks for what the message asks for, and repeats what it finds. It sums up as much as it is asked for, and nothing of worth.
fn model(request: &Value) -> Say {
    if is_for_a_summary(request) {
        return Say::Text("It was fine. ".repeat(200));
    }
    let (role, text) = latest(request);
    let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned();
    match (role.as_str(), task.strip_prefix("find ")) {
        ("user", Some(words)) => {
            Say::Call(vec![("session_search".into(), json!({"query": words, "limit": 2}))])
        }
        ("user", None) => Say::Text(format!("noted: {task}")),
        _ => Say::Text(task),
    }
}

#[test]
fn a_fact_of_long_ago_is_found_in_its_own_conversation_alone_and_requests_do_not_grow() {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    daemon.turn("other", "the code of the SAFE is 1234");
    let mut sizes = Vec::new();
    for nth in 0..60 {
        let text = match nth {
            7 => "Anna's boat is called Grün".to_owned(),
            _ => format!("the weather of day {nth} is fine"),
        };
        daemon.turn("s", &text);
        sizes.push(server.requests().last().expect("one").to_string().len());
    }
    let seen = server.requests().last().expect("one").to_string();
    assert!(!seen.contains("Anna"), "it is not shown any more");
    // Both are the last before older turns are summed up again.
    let grown = sizes[59] as f64 / sizes[39] as f64;
    assert!(grown < 1.05, "the last request is {grown} times that of turn 40");
    let found = daemon.turn("s", "find boat of ANNA");
    let content = found["content"].as_str().expect("text");
    assert!(
        content.contains("Anna's boat is called Grün") && content.contains("noted: Anna's boat"),
        "{content}"
    );
    assert!(!content.contains("day 8"), "the best first, and no more than were asked for: {content}");
    let none = daemon.turn("s", "find safe 1234");
    assert!(none["content"].as_str().expect("text").contains("nothing in this conversation"), "{none}");
}

/// `cargo test -p drupe --test end_to_end session_search::a_thousand -- --ignored --nocapture`
#[test]
#[ignore = "it takes minutes"]
fn a_thousand_turns_of_one_conversation_cost_as_much_at_the_end_as_at_the_fortieth() {
    let server = ModelServer::measuring(model);
    let mut daemon = Daemon::home(
        &(server.config() + "limits: {session: {max_tokens: 1000000000}, day: {max_tokens: 1000000000}}\n"),
    );
    daemon.run();
    let mut seen: Vec<(usize, u64, std::time::Duration)> = Vec::new();
    for nth in 1..=1_000 {
        let text = match nth {
            7 => "Anna's boat is called Grün".to_owned(),
            _ => format!("the weather of day {nth:04} is fine"),
        };
        let began = std::time::Instant::now();
        let turn = daemon.turn("s", &text);
        let took = began.elapsed();
        let bytes = server.size_of_last();
        seen.push((bytes, turn["spend"]["usage"]["input_tokens"].as_u64().expect("a number"), took));
    }
    let found = daemon.turn("s", "find boat of ANNA");
    assert!(found["content"].as_str().expect("text").contains("Anna's boat is called Grün"), "{found}");
    let middle = |range: std::ops::Range<usize>| {
        let mut times: Vec<_> = seen[range].iter().map(|(.., took)| *took).collect();
        times.sort();
        times[times.len() / 2]
    };
    println!(
        "turn 40: {} bytes, {} tokens, {:?}; turn 1,000: {} bytes, {} tokens, {:?} (medians of 8 turns)",
        seen[39].0,
        seen[39].1,
        middle(32..40),
        seen[999].0,
        seen[999].1,
        middle(992..1000)
    );
    assert!(seen[999].0 as f64 / seen[39].0 as f64 <= 1.05);
}
