//! Servers that hang, die, flood and lie.

use std::time::Duration;

use drupe_extension_api::{prelude::*, testing::FakeProcess};
use serde_json::json;

use super::played::*;

fn one(server: serde_json::Value) -> drupe_extension_api::testing::Setup<crate::Mcp> {
    setup(json!({"a": server}), json!({}))
}

#[test]
fn one_that_hangs_at_a_call_is_left_after_its_time_and_ended_after_three_of_these() {
    let setup = one(json!({"command": "a", "timeout_s": 7}));
    plays(&setup, "a", Played::new().process());
    plays(&setup, "a", Played::new().on("tools/call", |_| None).process());
    plays(&setup, "a", Played::new().process());
    let harness = started(setup, &["a"]);
    for _ in 0..3 {
        let turning = std::sync::atomic::AtomicBool::new(true);
        let fault = std::thread::scope(|scope| {
            scope.spawn(|| {
                while turning.load(std::sync::atomic::Ordering::Relaxed) {
                    harness.host().advance(Duration::from_secs(1));
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let fault = calls(&harness, "s", "a__say", json!({})).expect_err("it hangs");
            turning.store(false, std::sync::atomic::Ordering::Relaxed);
            fault
        });
        assert!(fault.code == FaultCode::Timeout && fault.message.contains("no answer in 7 s"), "{fault}");
        assert!(!fault.retriable, "it may have happened");
    }
    assert_eq!(calls(&harness, "s", "a__say", json!({"text": "again"})).as_deref(), Ok("again"));
}

#[test]
fn one_that_never_begins_is_told_with_its_last_lines_and_no_secret_of_it() {
    let setup = one(json!({"command": "a", "env": {"TOKEN": "hunter2-hunter2"}}));
    // The first failure is followed by another start at once, and each has two ways to begin.
    for _ in 0..4 {
        plays(
            &setup,
            "a",
            FakeProcess::ending(3).stderr(b"starting with hunter2-hunter2\ncannot open the database\n"),
        );
    }
    let harness = drupe_extension_api::testing::block_on(setup.start()).expect("it starts without it");
    until("it failed", || state(&harness, "a")["state"] == "failed");
    let error = state(&harness, "a")["error"].to_string();
    assert!(
        error.contains("it ended with status 3") && error.contains("cannot open the database"),
        "{error}"
    );
    assert!(error.contains("[secret]") && !error.contains("hunter2"), "{error}");
    assert!(offered(&harness).is_empty());
}

#[test]
fn one_that_cannot_even_be_started_is_told_by_the_words_of_the_kernel() {
    let setup = one(json!({"command": "a"}));
    for _ in 0..2 {
        setup.host().answer_open_process("a", Err(Fault::not_found("there is no program `a`")));
    }
    let harness = drupe_extension_api::testing::block_on(setup.start()).expect("it starts without it");
    until("it failed", || state(&harness, "a")["state"] == "failed");
    assert!(state(&harness, "a")["error"].to_string().contains("there is no program `a`"));
}

#[test]
fn one_that_ends_at_a_call_leaves_it_open_what_happened_and_is_started_again() {
    for (rules, code) in
        [(json!({}), FaultCode::OutcomeUnknown), (json!({"read_only": ["*"]}), FaultCode::Unavailable)]
    {
        let setup = one(json!({"command": "a", "tools": rules}));
        plays(&setup, "a", Played::new().process());
        // What is no message and never ends: it is stopped, as one that breaks off.
        plays(&setup, "a", Played::new().raw(vec![b'x'; crate::process::MESSAGE + 1]).process());
        plays(&setup, "a", Played::new().process());
        let harness = started(setup, &["a"]);
        let fault = calls(&harness, "s", "a__say", json!({})).expect_err("it breaks off");
        assert_eq!(fault.code, code, "{fault}");
        assert!(fault.message.contains("without the end of a message"), "{fault}");
        assert_eq!(calls(&harness, "s", "a__say", json!({"text": "again"})).as_deref(), Ok("again"));
    }
}

#[test]
fn one_that_writes_without_end_what_nobody_asked_for_is_stopped() {
    let setup = one(json!({"command": "a"}));
    let line = format!(
        "{}\n",
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x".repeat(1 << 20)}})
    );
    plays(&setup, "a", Played::new().process());
    plays(&setup, "a", Played::new().raw(line.repeat(70)).process());
    let harness = started(setup, &["a"]);
    let fault = calls(&harness, "s", "a__say", json!({})).expect_err("it is stopped");
    assert!(fault.message.contains("that nobody asked for"), "{fault}");
}

#[test]
fn of_a_large_result_the_beginning_is_given() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({"output_kb": 1}));
    for _ in 0..2 {
        let much = json!({"content": [{"type": "text", "text": "y".repeat(4 << 20)}]});
        plays(&setup, "a", Played::new().on("tools/call", move |_| Some(Ok(much.clone()))).process());
    }
    let harness = started(setup, &["a"]);
    let given = calls(&harness, "s", "a__say", json!({})).expect("it answers");
    assert!(given.starts_with("yyy") && given.ends_with("bytes are cut off here]") && given.len() < 1200);
}

#[test]
fn errors_of_a_tool_and_of_the_protocol_are_errors_and_end_nothing() {
    let setup = one(json!({"command": "a"}));
    plays(&setup, "a", Played::new().process());
    let mut count = 0;
    let answers = move |_: &serde_json::Value| {
        count += 1;
        match count {
            1 => Some(Ok(json!({"content": [{"type": "text", "text": "no such file"}], "isError": true}))),
            2 => Some(Err((-32602, "bad \u{1b}[2J arguments".to_owned()))),
            _ => Some(Ok(json!({"content": []}))),
        }
    };
    plays(&setup, "a", Played::new().on("tools/call", answers).process());
    let harness = started(setup, &["a"]);
    let told = |expected: &str| {
        let fault = calls(&harness, "s", "a__say", json!({})).expect_err("an error");
        assert_eq!(fault.message, expected);
    };
    told("no such file");
    told("the server answers with the error -32602: bad [2J arguments");
    assert!(calls(&harness, "s", "a__say", json!({})).is_ok());
    assert_eq!(harness.host().opened_processes().len(), 2);
}

#[test]
fn a_server_that_hangs_keeps_no_other_one_waiting() {
    let setup = setup(json!({"a": {"command": "a"}, "b": {"command": "b"}}), json!({}));
    plays(&setup, "a", Played::new().on("server/discover", |_| None).on("initialize", |_| None).process());
    for _ in 0..2 {
        plays(&setup, "b", Played::new().process());
    }
    let harness = started(setup, &["b"]);
    assert_eq!(state(&harness, "a")["state"], "starting");
    assert_eq!(calls(&harness, "s", "b__say", json!({"text": "x"})).as_deref(), Ok("x"));
}

#[test]
fn lists_without_end_and_tools_that_cannot_be_offered_do_no_harm() {
    let setup = one(json!({"command": "a"}));
    let endless = |_: &serde_json::Value| {
        let bad = json!({"name": "bad", "inputSchema": {"type": "object", "properties": {"a b": {}}}});
        Some(Ok(json!({"tools": [tool("say", "Says it."), bad], "nextCursor": "more"})))
    };
    plays(&setup, "a", Played::new().on("tools/list", endless).process());
    let harness = started(setup, &["a"]);
    assert_eq!(offered(&harness), ["a__say"]);
    let unfit = state(&harness, "a")["unfit"].to_string();
    assert!(unfit.contains("the parameter `a b`") && unfit.contains("told twice"), "{unfit}");
}

#[test]
fn a_server_gets_no_models_work() {
    let setup = setup(json!({"a": {"command": "a", "workspace": true, "share": true}}), json!({}));
    let asks = ["roots/list", "sampling/createMessage", "elicitation/create"].map(|method| {
        let params = match method {
            "sampling/createMessage" => json!({"messages": [], "maxTokens": 1}),
            "elicitation/create" => {
                json!({"message": "your password?", "requestedSchema": {"type": "object", "properties": {}}})
            }
            _ => json!({}),
        };
        format!("{}\n", json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params}))
    });
    plays(&setup, "a", Played::new().process());
    let played = Played::new().raw(asks.concat());
    let asked = played.asked();
    plays(&setup, "a", played.process());
    let harness = started(setup, &["a"]);
    let workspace = harness.workspace().canonicalize().expect("a folder").display().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| calls(&harness, "s", "a__say", json!({})));
        let answer = |id: &str| {
            asked
                .lock()
                .expect("a lock")
                .iter()
                .find(|said| said["id"] == id && said.get("method").is_none())
                .cloned()
        };
        until("all are answered", || {
            ["roots/list", "sampling/createMessage", "elicitation/create"]
                .iter()
                .all(|id| answer(id).is_some())
        });
        let roots = answer("roots/list").expect("an answer");
        assert_eq!(roots["result"]["roots"][0]["uri"], format!("file://{workspace}"));
        assert_eq!(answer("sampling/createMessage").expect("an answer")["error"]["code"], -32601);
        // Nobody is there to be asked here.
        assert_eq!(answer("elicitation/create").expect("an answer")["result"], json!({"action": "cancel"}));
        // The call ends with its time.
        while harness.host().open_handles() > 0
            && state(&harness, "a")["instances"] == 1
            && Duration::from_secs(300) > harness.host().elapsed()
        {
            harness.host().advance(Duration::from_secs(61));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn the_one_that_makes_room_is_ended() {
    let setup = setup(json!({"a": {"command": "a"}}), json!({"instances": 1}));
    for _ in 0..3 {
        plays(&setup, "a", Played::new().process());
    }
    let harness = started(setup, &["a"]);
    calls(&harness, "one", "a__say", json!({})).expect("it answers");
    calls(&harness, "two", "a__say", json!({})).expect("it answers");
    until("only one is left", || {
        harness.host().advance(Duration::from_secs(3));
        harness.host().open_handles() == 4
    });
}
