//! Every fault on the wire, in every kind: what becomes of it, after how many attempts, and how soon.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use serde_json::json;

use crate::{
    door::{ATTEMPT_MS, KINDS, Kind, STALL_MS, ask, model, request},
    script::{self, Part, Stop, data, events, hello},
    server::{Act, Server},
};

/// The good answer that a second attempt gets.
const GOOD: &str = "hello end/7,2,5";
const CALL: Part = Part::Call("a", "kv_set", r#"{"key":"a","value":"b"}"#);

/// A fault, what it comes to, and the requests that the server sees.
struct Case {
    name: &'static str,
    act: Act,
    outcome: String,
    attempts: usize,
}

fn case(name: &'static str, act: Act, outcome: impl Into<String>, attempts: usize) -> Case {
    Case { name, act, outcome: outcome.into(), attempts }
}

fn again(class: &str) -> String {
    format!("retry/{class} {GOOD}")
}

/// After bytes of an answer, and with its cost where it had one.
fn begun(class: &str, cost: &str) -> String {
    format!("retry/{class}+{cost} {GOOD}")
}

/// What is known of the cost of an answer of which so many bytes came: one kind counts its input at the start.
fn early(kind: Kind, bytes: usize) -> String {
    let tokens = bytes.div_ceil(3);
    if kind == Kind::Messages { format!("7,2,{tokens}") } else { format!("0,0,{tokens}") }
}

/// Bytes of what came up to the call, which not each kind begins with its arguments; or of all of it.
fn came(kind: Kind, whole: bool) -> usize {
    let Part::Call(_, name, arguments) = CALL else { unreachable!("it is a call") };
    let arguments = match kind {
        _ if whole => arguments.len(),
        Kind::Chat => arguments.len() / 2,
        Kind::Responses | Kind::Messages => 0,
        Kind::Gemini => arguments.len(),
    };
    "so".len() + name.len() + arguments
}

fn bytes(events: &[String]) -> Vec<Vec<u8>> {
    events.iter().map(|event| event.clone().into_bytes()).collect()
}

/// The events of an answer with a tool call, up to the first or the last that speaks of the call's arguments.
fn until_call(kind: Kind, whole: bool) -> Vec<Vec<u8>> {
    let events = events(kind, &[Part::Say("so"), CALL], Stop::Calls);
    let speaks = |event: &String| event.contains("kv_set") || event.contains("value");
    let at = match whole {
        true => events.iter().rposition(speaks),
        false => events.iter().position(speaks),
    };
    bytes(&events[..=at.unwrap()])
}

/// Answers with a status in place of a stream.
fn refusals(kind: Kind) -> Vec<Case> {
    let error = |text: &str, code: &str| match kind {
        Kind::Chat | Kind::Responses => {
            json!({"error": {"message": text, "type": "invalid_request_error", "code": code}}).to_string()
        }
        Kind::Messages => json!({"type": "error", "error": {"type": code, "message": text}}).to_string(),
        Kind::Gemini => {
            json!({"error": {"code": 0, "message": text, "status": code, "details": [{"reason": code}]}})
                .to_string()
        }
    };
    let quota = match kind {
        Kind::Chat | Kind::Responses => Act::status(429, "", &error("pay", "insufficient_quota")),
        Kind::Messages => {
            Act::status(400, "", &error("Your credit balance is too low", "invalid_request_error"))
        }
        Kind::Gemini => {
            let details = json!([{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}]);
            let body = json!({"error": {"code": 429, "message": "pay", "details": details}}).to_string();
            Act::status(429, "", &body)
        }
    };
    let too_long = match kind {
        Kind::Chat | Kind::Responses => error("too long", "context_length_exceeded"),
        Kind::Messages => error("prompt is too long: 9 tokens > 8 maximum", "invalid_request_error"),
        Kind::Gemini => {
            error("The input token count (9) exceeds the maximum number of tokens", "INVALID_ARGUMENT")
        }
    };
    let past = "retry-after: Wed, 01 Jan 2020 00:00:00 GMT\r\n";
    vec![
        case("429, wait in seconds", Act::status(429, "retry-after: 0\r\n", ""), again("RateLimit"), 2),
        case("429, wait as a date", Act::status(429, past, ""), again("RateLimit"), 2),
        case("429, wait too long", Act::status(429, "retry-after: 3600\r\n", ""), "failed/RateLimit", 1),
        case("500", Act::status(500, "", &error("oops", "server_error")), again("Model"), 2),
        case("529", Act::status(529, "", &error("busy", "overloaded_error")), again("Model"), 2),
        case("502, HTML", Act::status(502, "content-type: text/html\r\n", "<html>"), again("Network"), 2),
        case("200, HTML", Act::status(200, "content-type: text/html\r\n", "<html>"), "failed/Config", 1),
        case(
            "200, plain text",
            Act::status(200, "content-type: text/plain\r\n", "hi"),
            "failed/Config+0,0,1",
            1,
        ),
        case(
            "200, JSON",
            Act::status(200, "content-type: application/json\r\n", "{}"),
            "failed/Config+0,0,1",
            1,
        ),
        case(
            "200, an error in JSON",
            Act::status(200, "content-type: application/json\r\n", r#"{"error":{"code":503,"message":"x"}}"#),
            again("Network"),
            2,
        ),
        case("200, gzip", Act::status(200, "content-encoding: gzip\r\n", "\u{1f}"), "failed/Config+0,0,1", 1),
        case("redirect", Act::status(302, "location: http://127.0.0.1:1/\r\n", ""), "failed/Config", 1),
        case("401", Act::status(401, "", &error("no", "authentication_error")), "failed/Auth", 1),
        case("401 with a dripping body", Act::Drip(401), "failed/Auth", 1),
        case("403", Act::status(403, "", &error("no", "permission_error")), "failed/Auth", 1),
        case("404, no such model", Act::status(404, "", &error("no", "not_found")), "failed/Config", 1),
        case("quota used up", quota, "failed/RateLimit", 1),
        case("request too long", Act::status(400, "", &too_long), "failed/Model", 1),
        case("refused by a filter", Act::status(400, "", &error("no", "content_filter")), "failed/Model", 1),
    ]
}

/// Connections that fail.
fn breaks(kind: Kind) -> Vec<Case> {
    let half = || until_call(kind, false);
    let comments = match kind {
        Kind::Messages => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        _ => ": keep-alive\n\n",
    };
    let ended = |class: &str, bytes: usize| format!("so {}", begun(class, &early(kind, bytes)));
    vec![
        case("closed before headers", Act::Hangup, again("Network"), 2),
        case("reset before headers", Act::Reset, again("Network"), 2),
        case("silence before headers", Act::Silence, again("Timeout"), 2),
        case("stall before the first event", Act::Stall(vec![]), again("Timeout"), 2),
        case("stall in the middle", Act::Stall(half()), ended("Timeout", came(kind, false)), 2),
        case("cut in the middle", Act::Cut(half()), ended("Network", came(kind, false)), 2),
        case("cut after the call", Act::Cut(until_call(kind, true)), ended("Network", came(kind, true)), 2),
        case(
            "an end before the end",
            Act::Stream(until_call(kind, true)),
            ended("Network", came(kind, true)),
            2,
        ),
        case("a line of 100 MB", Act::Flood(100 << 20), begun("Model", "0,0,100"), 2),
        case("pings without end", Act::Endless(comments.into()), begun("Timeout", ""), 2),
    ]
}

/// Streams that make no sense, and some that only look so.
fn streams(kind: Kind) -> Vec<Case> {
    let error = match kind {
        Kind::Chat => json!({"error": {"message": "x", "code": 500}}),
        Kind::Responses => json!({"type": "error", "code": "server_error", "message": "x", "param": null}),
        Kind::Messages => json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}),
        Kind::Gemini => json!({"error": {"code": 500, "message": "x", "status": "INTERNAL"}}),
    };
    let with = |more: Vec<Vec<u8>>| Act::Stream([until_call(kind, true), more].concat());
    let ended = |bytes: usize| format!("so {}", begun("Model", &early(kind, bytes)));
    let unread = |data: &[u8]| ended(came(kind, true) + data.len());
    let good = bytes(&hello(kind));
    let later = bytes(&events(kind, &[Part::Say("more"), CALL], Stop::Calls));
    let broken = Part::Call("a", "kv_set", "{broken");
    // Where arguments are part of the event, the event is broken.
    let (wrong, attempts) = match kind {
        Kind::Gemini => {
            let event = &events(kind, &[broken], Stop::Calls)[0];
            (begun("Model", &early(kind, event.trim().len() - "data: ".len())), 2)
        }
        _ => ("a:kv_set{broken tool_calls/7,2,5".to_owned(), 1),
    };
    let twice = [Part::Call("a", "f", "{}"), Part::Call("a", "g", "{}")];
    let split = |size: usize| {
        let text = script::events(kind, &[Part::Say("süß 🍒")], Stop::End).concat().into_bytes();
        Act::Stream(text.chunks(size).map(<[u8]>::to_vec).collect())
    };
    vec![
        case("an error event", with(vec![data(&error).into()]), ended(came(kind, true)), 2),
        case(
            "[DONE] in the middle of a call",
            Act::Stream([until_call(kind, false), vec![b"data: [DONE]\n\n".to_vec()]].concat()),
            // One kind does not know it.
            ended(came(kind, false) + if kind == Kind::Messages { "[DONE]".len() } else { 0 }),
            2,
        ),
        case(
            "half a JSON line",
            with(vec![b"data: {\"type\":\"x\n\n".to_vec()]),
            unread(b"{\"type\":\"x"),
            2,
        ),
        case("no text at all", with(vec![b"data: \xff\xfe\n\n".to_vec()]), unread(b"\xff\xfe"), 2),
        case(
            "half a character, in a field that nobody reads",
            with(vec![b"data: {\"type\":\"x\",\"more\":\"\xc3\"}\n\n".to_vec()]),
            unread(b"{\"type\":\"x\",\"more\":\"\xc3\"}"),
            2,
        ),
        case(
            "arguments that are no JSON",
            script::stream(&events(kind, &[broken], Stop::Calls)),
            wrong,
            attempts,
        ),
        case("an empty answer", script::stream(&events(kind, &[], Stop::End)), begun("Model", "7,2,5"), 2),
        case(
            "filtered without a word",
            script::stream(&events(kind, &[], Stop::Filter)),
            if kind == Kind::Messages { "refusal/7,2,5" } else { "filter/7,2,5" },
            1,
        ),
        case("characters in pieces of 1", split(1), "süß 🍒 end/7,2,5", 1),
        case("characters in pieces of 3", split(3), "süß 🍒 end/7,2,5", 1),
        case(
            "a second end mark",
            Act::Stream([good.clone(), vec![good.last().unwrap().clone()]].concat()),
            GOOD,
            1,
        ),
        case("data after the end", Act::Stream([good, later].concat()), GOOD, 1),
        case(
            "two calls with one id",
            script::stream(&events(kind, &twice, Stop::Calls)),
            "a:f{} a_1:g{} tool_calls/7,2,5",
            1,
        ),
    ]
}

/// The faults after which another attempt follows.
pub fn repeatable(kind: Kind) -> Vec<(&'static str, Act)> {
    let all = [refusals(kind), breaks(kind), streams(kind)];
    let repeated = all.into_iter().flatten().filter(|case| case.attempts == 2);
    repeated.map(|case| (case.name, case.act)).collect()
}

/// Plays a case; what is wrong with the outcome, and a line of the table.
async fn play(kind: Kind, case: Case) -> (Option<String>, String) {
    let server = Server::start(vec![case.act, script::stream(&hello(kind))]).await;
    let begun = Instant::now();
    let (words, fault) = ask(&model(kind, &server), request(1)).await;
    let took = begun.elapsed();
    let attempts = server.requests().len();
    let line =
        format!("{:<12} {:<30} {words:<52} {attempts} {:>6} ms", kind.name(), case.name, took.as_millis());
    let bound = Duration::from_millis(ATTEMPT_MS + STALL_MS + 5_000);
    let right = words == case.outcome && attempts == case.attempts && took < bound;
    (
        (!right).then(|| format!("{line}\n  expected {} after {} ({fault:?})", case.outcome, case.attempts)),
        line,
    )
}

#[tokio::test]
async fn a_server_that_only_shows_that_it_is_there_is_told_apart_from_one_that_is_slow() {
    for kind in KINDS {
        let sign =
            if kind == Kind::Messages { "event: ping\ndata: {\"type\": \"ping\"}\n\n" } else { ": x\n\n" };
        let words =
            events(kind, &[Part::Say("so")], Stop::End).into_iter().find(|event| event.contains("\"so\""));
        for (sent, only) in [(sign.to_owned(), true), (words.unwrap(), false)] {
            let server = Server::start(vec![Act::Endless(sent.into_bytes())]).await;
            let fault = ask(&model(kind, &server), request(0)).await.1.unwrap();
            let said = fault.message.contains("nothing but signs that it is there");
            assert!(fault.message.contains("in time") && said == only, "{}: {fault:?}", kind.name());
        }
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the table is for whoever reads the output")]
async fn every_fault_ends_soon_and_as_its_class_says_and_runs_no_tool() {
    let cases = KINDS.into_iter().flat_map(|kind| {
        let all = [refusals(kind), breaks(kind), streams(kind)];
        all.into_iter().flatten().map(move |case| play(kind, case))
    });
    // A few at a time: what is measured is the fault and not the queue.
    let played: Vec<_> = stream::iter(cases).buffered(16).collect().await;
    println!("{:<12} {:<30} {:<52} attempts, time", "kind", "fault", "outcome");
    let mut wrong = Vec::new();
    for (fault, line) in played {
        println!("{line}");
        wrong.extend(fault);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_fault() {
    for kind in KINDS {
        let server = Server::start(Vec::new()).await;
        let model = model(kind, &server);
        server.stop().await;
        let (words, fault) = ask(&model, request(1)).await;
        assert_eq!(words, "retry/Network failed/Network", "{}", kind.name());
        assert!(fault.unwrap().used_nothing());
    }
}

#[tokio::test]
async fn the_wait_that_a_provider_asks_for_is_kept() {
    let slow = Act::status(429, "retry-after-ms: 1200\r\n", "");
    let server = Server::start(vec![slow, script::stream(&hello(Kind::Chat))]).await;
    let begun = Instant::now();
    assert_eq!(ask(&model(Kind::Chat, &server), request(1)).await.0, again("RateLimit"));
    assert!(begun.elapsed() >= Duration::from_millis(1_200));
}

#[tokio::test]
async fn an_answer_that_cannot_be_used_does_not_rest_the_provider() {
    for kind in KINDS {
        let empty = script::stream(&events(kind, &[], Stop::End));
        let wrong = json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]});
        let wrong = match kind {
            Kind::Gemini => Act::Stream(vec![data(&wrong).into()]),
            _ => script::stream(&events(kind, &[Part::Call("a", "", "{}")], Stop::Calls)),
        };
        // As many of each in a row as failures would rest it.
        let acts = [vec![empty; 5], vec![wrong; 5], vec![script::stream(&hello(kind))]].concat();
        let server = Server::start(acts).await;
        let model = model(kind, &server);
        for _ in 0..10 {
            let words = ask(&model, request(0)).await.0;
            assert!(words.starts_with("failed/Model+"), "{}: {words}", kind.name());
        }
        assert_eq!(ask(&model, request(0)).await.0, GOOD, "{}", kind.name());
    }
}

#[tokio::test]
async fn a_request_that_was_turned_away_or_failed_at_once_has_cost_nothing() {
    for kind in KINDS {
        for (act, nothing) in [
            (Act::status(400, "", "{}"), true),
            (Act::status(401, "", "{}"), true),
            (Act::status(500, "", "{}"), true),
            // One behind the server may have worked on it.
            (Act::status(504, "", "{}"), false),
            (Act::Silence, false),
            (Act::Cut(until_call(kind, true)), false),
        ] {
            let server = Server::start(vec![act.clone()]).await;
            let fault = ask(&model(kind, &server), request(0)).await.1.unwrap();
            assert_eq!(fault.used_nothing(), nothing, "{} {act:?}: {fault:?}", kind.name());
        }
    }
}
