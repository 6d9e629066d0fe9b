//! The whole extension, whose requests and whose daemon are answered by the test. That a real daemon sends them to a real socket is tested in
//! `tests/end_to_end/otel.rs`.

use std::{fs, path::Path, time::Duration};

use drupe_extension_api::testing::{FakeHost, Harness};
use serde_json::{Value, json};

use super::*;

/// A finished turn with a run in which so many tools were called, the first of them with remarks.
fn trace(turn: &str, tools: usize, remarks: usize) -> Value {
    let node = |kind: &str, id: String, outcome: &str, nodes: Vec<Value>| {
        json!({"kind": kind, "id": id, "name": kind, "path": ["main"], "started": "2026-03-01T10:00:01Z", "elapsed_ms": 1,
            "outcome": outcome, "nodes": nodes})
    };
    let notes = |at| match at {
        0 => (0..remarks).map(|at| node("note", format!("n-{at}"), "long words", Vec::new())).collect(),
        _ => Vec::new(),
    };
    let tools = (0..tools).map(|at| node("tool", format!("e-{at}"), "ok", notes(at))).collect();
    json!([{"session": "main", "turn": turn, "accepted": "2026-03-01T10:00:00Z", "started": "2026-03-01T10:00:00Z",
        "status": "success", "spend": {"usage": {"input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0},
        "turns": 1, "tool_calls": 0, "invocations": 1, "elapsed_ms": 5},
        "nodes": [node("run", "i-1".to_owned(), "success", tools)]}])
}

/// The extension with turns that wait from before, and a clock that stands.
async fn scene(folder: &Path, turns: &[&str]) -> Harness<Otel> {
    fs::write(folder.join("otel.json"), json!({"waiting": turns, "sent": []}).to_string()).expect("a file");
    let config = json!({"endpoint": "http://localhost:4318", "service_name": "drupe", "content": false, "backlog": 10});
    let setup = Harness::<Otel>::setup().id("otel").config(config).data_folder(folder);
    setup.host().hold_clock();
    setup.start().await.expect("it starts")
}

fn answers(host: &FakeHost, status: u16, body: &str) {
    host.answer_sent(Ok(OutwardResponse { status, headers: Vec::new(), body: body.to_owned() }));
}

/// The turns whose trace was asked for, in their order.
fn asked(host: &FakeHost) -> Vec<String> {
    host.control_calls().iter().map(|(_, params)| params["id"].as_str().expect("an id").to_owned()).collect()
}

/// The spans of each request.
fn requests(host: &FakeHost) -> Vec<Vec<Value>> {
    let body = |request: &OutwardRequest| {
        let body: Value = serde_json::from_str(request.body.as_deref().expect("a body")).expect("JSON");
        body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone()
    };
    host.sent().iter().map(body).collect()
}

fn waiting(folder: &Path) -> Vec<String> {
    let file: Value =
        serde_json::from_slice(&fs::read(folder.join("otel.json")).expect("a file")).expect("JSON");
    serde_json::from_value(file["waiting"].clone()).expect("turns")
}

/// What a test makes of what it sees: it looks again, at once or a second later, or has seen it.
enum Seen {
    NotYet,
    LetTimePass,
    All,
}

/// Runs the service until all is seen.
async fn until(harness: &Harness<Otel>, mut look: impl FnMut() -> Seen) {
    let watching = async {
        for _ in 0..10_000 {
            match look() {
                Seen::NotYet => {}
                Seen::LetTimePass => harness.host().advance(Duration::from_secs(1)),
                Seen::All => return,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("not after a while: {:?}", harness.host().logs());
    };
    tokio::select! {
        ended = harness.run_service() => panic!("it ended: {ended:?}"),
        () = watching => {}
    }
}

/// Runs the service, without time that passes, until nothing waits.
async fn until_done(harness: &Harness<Otel>, folder: &Path) {
    until(harness, || if waiting(folder).is_empty() { Seen::All } else { Seen::NotYet }).await;
}

#[tokio::test]
async fn a_trace_that_is_refused_for_good_is_told_once_and_those_behind_it_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let turns = ["a", "b", "c", "d"];
    let harness = scene(folder.path(), &turns).await;
    for turn in turns {
        harness.host().answer_control("trace.show", Ok(trace(turn, 1, 0)));
    }
    for said in ["{\"code\":3,\"message\":\"bad a\"}", "bad b", "bad c"] {
        answers(harness.host(), 400, said);
    }
    answers(harness.host(), 200, "{}");
    until_done(&harness, folder.path()).await;
    assert_eq!(asked(harness.host()), turns, "each is asked for once, and no time passed");
    let logs = harness.host().logs();
    assert_eq!(
        logs,
        ["warn: the trace of turn a is not sent: the collector answered with status 400: bad a"]
    );
}

#[tokio::test]
async fn a_trace_that_fails_while_others_are_taken_holds_none_of_them_up_and_is_let_go_in_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let harness = scene(folder.path(), &["a", "b", "c"]).await;
    let host = harness.host();
    let fails = || {
        host.answer_sent(Err(Fault::new(FaultCode::Other, "the request failed: cut off")));
    };
    let given = |turn: &str| {
        host.answer_control("trace.show", Ok(trace(turn, 1, 0)));
    };
    // The order in which they come to be asked for; `a` fails each time, and the others are taken.
    let order = ["a", "b", "c", "a", "d", "a", "e", "a"];
    for turn in order {
        given(turn);
        match turn {
            "a" => fails(),
            _ => answers(host, 200, ""),
        }
    }
    let mut more = ["d", "e"].into_iter().zip([4, 6]).peekable();
    let mut published = None;
    until(&harness, || {
        let (count, waits) = (asked(host).len(), waiting(folder.path()));
        if let Some((turn, _)) = more.next_if(|(_, after)| count == *after && host.subscriptions().len() == 2)
        {
            assert_eq!(waits, ["a"], "it may be the way to the collector");
            host.publish("agent_result", json!({"turn": turn}));
            published = Some(turn.to_owned());
        }
        // What was published is to be there before `a` is tried again.
        match &published {
            _ if waits.is_empty() => Seen::All,
            Some(turn) if !waits.contains(turn) && count < 6 + usize::from(turn == "e") * 2 => Seen::NotYet,
            _ => Seen::LetTimePass,
        }
    })
    .await;
    assert_eq!(asked(host), order);
    let logs = host.logs();
    let told = |part: &str| logs.iter().filter(|line| line.contains(part)).count();
    assert_eq!(told("the trace of turn a is not sent: the request failed: cut off"), 1, "{logs:?}");
}

#[tokio::test]
async fn what_is_too_large_goes_in_halves_and_a_span_alone_without_its_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let harness = scene(folder.path(), &["a"]).await;
    let host = harness.host();
    host.answer_control("trace.show", Ok(trace("a", 2, 130)));
    // Four spans, two of each half, the first of the second half, and that once more.
    for status in [413, 200, 413, 413, 200, 200] {
        answers(host, status, "");
    }
    until_done(&harness, folder.path()).await;
    let sent = requests(host);
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2, 2, 1, 1, 1]);
    let (heavy, light) = (&sent[3][0], &sent[4][0]);
    assert_eq!(
        (heavy["events"].as_array().map(Vec::len), &heavy["droppedEventsCount"]),
        (Some(128), &json!(2))
    );
    assert_eq!((&light["events"], &light["droppedEventsCount"]), (&Value::Null, &json!(130)));
    assert_eq!(light["spanId"], heavy["spanId"]);
    assert!(host.logs().is_empty(), "{:?}", host.logs());
}

#[tokio::test]
async fn a_collector_that_has_no_room_for_one_span_is_asked_no_further() {
    let folder = tempfile::tempdir().expect("a folder");
    let harness = scene(folder.path(), &["a", "b"]).await;
    let host = harness.host();
    for turn in ["a", "b"] {
        host.answer_control("trace.show", Ok(trace(turn, 62, 0)));
    }
    for _ in 0..7 {
        answers(host, 413, "");
    }
    answers(host, 200, "");
    until_done(&harness, folder.path()).await;
    assert_eq!(requests(host).iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 16, 8, 4, 2, 1, 64]);
    assert!(
        host.logs()[0].contains("is not sent: the collector answered with status 413"),
        "{:?}",
        host.logs()
    );
}
