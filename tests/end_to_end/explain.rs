//! What operators read afterwards: explanations, traces, usage, exports, and texts behind their previews.

mod door;
mod faults;

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::harness::{Daemon, until};
use door::{Fault, INPUT, OUTPUT, nodes, tokens};

/// An agent that can call the tools of `faulty`.
fn sub(daemon: &Daemon) {
    let manifest = "id: sub\nname: Sub\ndescription: Does things.\nagent:\n  model: default\n  \
                    instructions: You are sub.\n  uses_tools: [faulty]\n";
    daemon.write("extensions/sub/manifest.yaml", manifest);
}

/// A message that has `sub` call a tool.
const BELOW: &str = r#"agent_sub {"task": "faulty_echo {\"a\": 1}"}"#;

fn names(nodes: &Value) -> Vec<String> {
    let nodes = nodes.as_array().map_or(&[][..], Vec::as_slice);
    nodes
        .iter()
        .map(|n| format!("{} {}", n["kind"].as_str().unwrap_or(""), n["name"].as_str().unwrap_or("")))
        .collect()
}

#[test]
fn a_trace_shows_the_tree_of_a_turn_with_what_each_part_took() {
    let asked = Fault::obedient().prepare(sub).ask("faulty_error {}").again(BELOW);
    let trace = asked.daemon.json(&["trace", "s", "--turn", "-1", "--json"]);
    assert_eq!(
        (trace.as_array().map(Vec::len), &trace[0]["turn"]),
        (Some(1), &json!(asked.turn)),
        "{trace:#}"
    );
    let root = &trace[0]["nodes"][0];
    assert_eq!(names(&trace[0]["nodes"]), ["run orchestrator"]);
    assert_eq!(names(&root["nodes"]), ["model local/test", "tool agent_sub", "model local/test"]);
    let call = &root["nodes"][1];
    assert_eq!(names(&call["nodes"]), ["run sub"]);
    let below = &call["nodes"][0];
    assert_eq!(names(&below["nodes"]), ["model local/test", "tool faulty_echo", "model local/test"]);
    assert_eq!(below["path"], json!(["orchestrator", "sub"]));
    for (run, calls) in [(root, 4), (below, 2)] {
        let used = (run["usage"]["input_tokens"].as_u64(), run["usage"]["output_tokens"].as_u64());
        assert_eq!(
            used,
            (Some(INPUT * calls), Some(OUTPUT * calls)),
            "those below are counted once: {run:#}"
        );
    }
    let echo = &below["nodes"][1];
    assert_eq!((&echo["bytes_in"], &echo["bytes_out"]), (&json!(7), &json!(7)), "{echo:#}");
    let all = nodes(&trace[0]["nodes"]);
    assert!(all.iter().all(|n| n["elapsed_ms"].is_u64() && n["outcome"].is_string()), "{all:#?}");
    // The first turn, and the same as a tree for people.
    let first = asked.daemon.json(&["trace", "s", "--turn", "1", "--json"]);
    let failed = nodes(&first[0]["nodes"]).into_iter().find(|n| n["kind"] == "tool").expect("a call");
    assert!(failed["outcome"].as_str().is_some_and(|o| o.starts_with("error")), "{failed:#}");
    let drawn = asked.daemon.says(&["trace", "s"]);
    for part in ["@orchestrator", "├─ agent_sub", "└─ @sub", "├─ faulty_echo", "local/test"] {
        assert!(drawn.contains(part), "{part}\n{drawn}");
    }
    println!("{drawn}");
    assert_eq!(asked.daemon.drupe(&["trace", "s", "--turn", "3"]).status.code(), Some(1));
}

#[test]
fn usage_is_what_the_model_counted_by_whatever_it_is_asked_and_no_restart_or_crash_takes_it_back() {
    let asked = Fault::obedient().prepare(sub).ask(BELOW).again("hello");
    let daemon = &asked.daemon;
    let by = |key: &str| -> Vec<(String, u64, u64)> {
        let rows = daemon.json(&["usage", "--by", key, "--json"]);
        let rows = rows.as_array().expect("rows").clone();
        let row = |r: &Value| {
            let total = tokens(&json!([r]));
            (
                r["key"].as_str().expect("a key").to_owned(),
                r["invocations"].as_u64().unwrap_or(0),
                total.0 + total.1,
            )
        };
        rows.iter().map(row).collect()
    };
    let row = |key: &str, runs, calls| (key.to_owned(), runs, (INPUT + OUTPUT) * calls);
    let check = |s: u64, other: u64| {
        assert_eq!(by("agent"), [row("orchestrator", 1 + s + other, 2 + s + other), row("sub", 1, 2)]);
        let models: Vec<_> = by("model").into_iter().filter(|(key, ..)| key == "local/test").collect();
        assert_eq!(models.iter().map(|m| m.2).sum::<u64>(), (4 + s + other) * (INPUT + OUTPUT));
        let sessions = [row("other", other, other), row("s", 2 + s, 4 + s)];
        assert_eq!(by("session"), if other == 0 { vec![sessions[1].clone()] } else { sessions.to_vec() });
        let (runs, all) = by("day").iter().fold((0, 0), |(runs, all), day| (runs + day.1, all + day.2));
        assert_eq!((runs, all), (2 + s + other, (INPUT + OUTPUT) * (4 + s + other)));
        let answered = asked.answered.load(std::sync::atomic::Ordering::SeqCst) as u64;
        assert_eq!(all, (INPUT + OUTPUT) * answered, "what the model itself counted");
    };
    check(1, 0);
    daemon.kill_kernel();
    check(1, 0);
    daemon.turn("other", "hello");
    daemon.client().ask("restart", json!({})).expect("it is agreed");
    until("the next kernel", || (daemon.until_ready()["restarts"] == 2).then_some(())).expect("it restarts");
    daemon.turn("s", "hello");
    check(2, 1);
    let only = daemon.json(&["usage", "--session", "other", "--json"]);
    assert_eq!(tokens(&only), (INPUT, OUTPUT));
    assert_eq!(daemon.json(&["usage", "--since", "2100-01-01", "--json"]), json!([]));
    let shown = daemon.says(&["usage", "--by", "agent"]);
    assert!(shown.contains('?') && shown.contains("is unknown"), "an unknown price is not zero:\n{shown}");
    println!("{shown}");
}

#[test]
fn an_export_holds_everything_in_each_form() {
    let asked = Fault::obedient().prepare(sub).ask(BELOW).again("hello");
    let daemon = &asked.daemon;
    let file = daemon.path().join("s.json");
    let name = file.to_str().expect("a path");
    daemon.says(&["session", "export", "s", "--output", name]);
    let mode = fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{mode:o}");
    assert!(
        !daemon.drupe(&["session", "export", "s", "--output", name]).status.success(),
        "it is not overwritten"
    );
    daemon.says(&["session", "export", "s", "--output", name, "--force"]);
    let whole: Value = serde_json::from_slice(&fs::read(&file).expect("a file")).expect("JSON");
    let shown = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("the session");
    assert_eq!(whole["session"], shown);
    assert_eq!(whole["events"], json!(daemon.events("s")));
    assert_eq!(whole["traces"], daemon.json(&["trace", "s", "--all", "--json"]));
    // The conversation, the sub-agent's one as well.
    let transcript = shown["turns"][0]["transcript"].as_array().expect("a list");
    assert_eq!(transcript.iter().filter(|e| e["agent"] == "sub").count(), 4, "{transcript:#?}");

    let lines = daemon.says(&["session", "export", "s", "--format", "jsonl"]);
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    let count = |kind: &str| lines.iter().filter(|l| l["type"] == kind).count();
    let events = whole["events"].as_array().map_or(0, Vec::len);
    assert_eq!(["session", "turn", "trace", "event"].map(count), [1, 2, 2, events]);
    let seqs: Vec<u64> = lines.iter().filter_map(|l| l["seq"].as_u64()).collect();
    assert!(seqs.len() == events && seqs.windows(2).all(|w| w[0] < w[1]), "{seqs:?}");

    let text = daemon.says(&["session", "export", "s", "--format", "markdown"]);
    for part in ["# Session s", "## Turn 1", "## Turn 2", "> hello", "@sub calls `faulty_echo`", "### Trace"]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn what_a_preview_leaves_out_can_be_read_in_full() {
    const BYTES: usize = 100_000;
    let asked = Fault::obedient().ask(&format!("faulty_big {{\"bytes\": {BYTES}}}"));
    let events = asked.daemon.events("s");
    let item = events
        .iter()
        .find(|e| e["kind"] == "interaction.item.completed" && e["data"]["item"]["name"] == "faulty_big");
    let preview = &item.unwrap_or_else(|| panic!("{events:#?}"))["data"]["item"]["output"];
    assert_eq!((&preview["truncated"], &preview["bytes"]), (&json!(true), &json!(BYTES)), "{preview}");
    assert!(preview["text"].as_str().is_some_and(|t| t.len() <= 4096));
    let handle = preview["handle"].as_str().expect("a handle");
    let show =
        |session: &str| asked.daemon.client().ask("items.show", json!({"session": session, "id": handle}));
    let whole = show("s").expect("the item");
    assert!(whole["output"].as_str().is_some_and(|t| t == "x".repeat(BYTES)), "all of it");
    assert!(whole["input"].as_str().is_some_and(|t| t.contains("100000")), "{}", whole["input"]);
    asked.daemon.turn("other", "hello");
    assert!(show("other").is_err(), "it belongs to its session");
    // A long message of the user is one, too.
    let long = "words ".repeat(2_000);
    let turn = asked.daemon.submit("s", &long);
    asked.daemon.wait(&turn);
    let events = asked.daemon.events("s");
    let started = events.iter().rfind(|e| e["kind"] == "interaction.turn.started").expect("it began");
    let (input, shown) = (&started["data"]["input"], started["data"]["input"]["text"].as_str());
    assert!(input["truncated"] == true && shown.is_some_and(|t| t.len() <= 4096), "{input}");
}
