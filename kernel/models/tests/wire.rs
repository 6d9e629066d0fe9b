//! Chat Completions over real sockets: a server that speaks the format, and misbehaves in every way that we know.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "wire/server.rs"]
mod server;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use drupe_agent::{AgentCard, Model, ModelEvent, ModelFault, ModelRequest};
use drupe_extension_api::{AgentId, FailureClass, Message};
use drupe_models::{Models, ModelsSettings, ProviderKind, ProviderSettings};
use futures_util::{StreamExt, future::join_all};
use server::{Act, Server, delta, sse};

const STALL_MS: u64 = 150;

fn model(server: &Server) -> Arc<dyn Model> {
    let kind = ProviderKind::OpenAiChat {
        base_url: server.url(),
        api_key: Some("sk-secret".to_owned()),
        headers: BTreeMap::from([("x-team".to_owned(), "cherry".to_owned())]),
        ca_file: None,
    };
    let provider = ProviderSettings { stall_timeout_ms: STALL_MS, ..ProviderSettings::new("mock", kind) };
    let settings = ModelsSettings { providers: vec![provider], ..ModelsSettings::default() };
    Models::new(settings).unwrap().resolve(&["mock/m".to_owned()]).unwrap().model
}

fn request(max_retries: u32) -> ModelRequest {
    ModelRequest {
        agent: Arc::new(AgentCard {
            id: AgentId::new("main").unwrap(),
            name: String::new(),
            description: String::new(),
            offline: Vec::new(),
            root: true,
        }),
        system: "be brief".into(),
        messages: vec![Arc::new(Message::User { content: "hi".to_owned() })],
        tools: Arc::new([]),
        parameters: Arc::default(),
        max_output_tokens: 100,
        output: None,
        timeout_ms: 10_000,
        max_retries,
    }
}

/// What came of a request, in short, and the fault if it failed.
async fn ask(model: &Arc<dyn Model>, max_retries: u32) -> (String, Option<ModelFault>) {
    let mut fault = None;
    let events: Vec<ModelEvent> = model.stream(request(max_retries)).collect().await;
    let words = events.into_iter().map(|event| match event {
        ModelEvent::Text(text) => text,
        ModelEvent::Reasoning(text) => format!("({text})"),
        ModelEvent::ToolCall(call) => format!("{}:{}{}", call.call_id, call.name, call.arguments),
        ModelEvent::Retry { fault, .. } => format!("retry/{:?}", fault.class),
        ModelEvent::Done { stop, usage, .. } => format!("{}/{}", stop.name(), usage.map_or(0, |u| u.total())),
        ModelEvent::Failed(found) => {
            fault = Some(found);
            "failed".to_owned()
        }
    });
    (words.collect::<Vec<_>>().join(" "), fault)
}

/// An answer of plain text, with usage.
fn hello() -> Act {
    Act::stream(&[
        &delta(r#"{"role":"assistant","content":"hel"}"#),
        &delta(r#"{"content":"lo"}"#),
        &server::end("stop"),
    ])
}

/// Plays acts with one retry allowed and no longer than a second.
async fn check(acts: Vec<Act>) -> (String, Option<ModelFault>) {
    let server = Server::start(acts).await;
    let begun = Instant::now();
    let result = ask(&model(&server), 1).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{result:?}");
    result
}

#[tokio::test]
async fn a_request_goes_out_in_full_and_its_answer_comes_back_with_usage() {
    let server = Server::start(vec![hello()]).await;
    let (words, _) = ask(&model(&server), 0).await;
    assert_eq!(words.replace("hel lo", "hello"), "hello stop/12".replace("stop", "end"));
    let seen = server.requests();
    assert!(seen[0].starts_with("POST /v1/chat/completions HTTP/1.1"), "{}", seen[0]);
    for part in [
        "authorization: Bearer sk-secret",
        "x-team: cherry",
        "user-agent: drupe/",
        r#""include_usage":true"#,
        r#""role":"system""#,
    ] {
        assert!(seen[0].contains(part), "{part} in {}", seen[0]);
    }
}

#[tokio::test]
async fn four_calls_use_one_connection() {
    let server = Server::start(vec![hello(), hello(), hello(), hello()]).await;
    let model = model(&server);
    for _ in 0..4 {
        assert!(ask(&model, 0).await.0.ends_with("end/12"));
    }
    assert_eq!((server.requests().len(), server.connections()), (4, 1));
}

#[tokio::test]
async fn parallel_tool_calls_are_put_together_from_fragments() {
    let part = |index: u32, rest: &str| delta(&format!(r#"{{"tool_calls":[{{"index":{index},{rest}}}]}}"#));
    let (words, _) = check(vec![Act::stream(&[
        &part(0, r#""id":"a","type":"function","function":{"name":"kv_get","arguments":""}"#),
        &part(1, r#""id":"b","type":"function","function":{"name":"kv_set","arguments":"{\"k"}"#),
        &part(0, r#""function":{"arguments":"{}"}"#),
        &part(1, r#""function":{"arguments":"\":1}"}"#),
        &server::end("tool_calls"),
    ])])
    .await;
    assert_eq!(words, r#"a:kv_get{} b:kv_set{"k":1} tool_calls/12"#);
}

#[tokio::test]
async fn a_character_that_two_packets_share_stays_whole() {
    let whole = sse(&[&delta(r#"{"content":"süß 🍒"}"#), &server::end("stop")]);
    for size in [1, 2, 3, 7] {
        let (words, _) = check(vec![Act::Stream(whole.chunks(size).map(<[u8]>::to_vec).collect())]).await;
        assert_eq!(words, "süß 🍒 end/12", "by {size}");
    }
}

#[tokio::test]
async fn failures_that_may_pass_are_repeated() {
    let half = || {
        sse_part(&delta(
            r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"kv_set","arguments":"{\"k\":1}"}}]}"#,
        ))
    };
    let cases = [
        (Act::status(500, "", r#"{"error":{"message":"oops"}}"#), FailureClass::Model),
        (Act::status(503, "", ""), FailureClass::Network),
        (Act::status(429, "retry-after: 0\r\n", ""), FailureClass::RateLimit),
        (Act::Cut(vec![half()]), FailureClass::Network),
        (Act::Cut(vec![]), FailureClass::Network),
        (Act::Stream(vec![half()]), FailureClass::Network),
        (Act::Stall(vec![half()]), FailureClass::Timeout),
        (Act::Silence, FailureClass::Timeout),
        (
            Act::Stream(vec![
                half(),
                b"data: {\"choices\":[{\"delta\":{\"con\n\n".to_vec(),
                b"data: [DONE]\n\n".to_vec(),
            ]),
            FailureClass::Model,
        ),
        (
            Act::Stream(vec![half(), b"data: \xff\xfe\n\n".to_vec(), b"data: [DONE]\n\n".to_vec()]),
            FailureClass::Model,
        ),
        (
            Act::Stream(vec![b"data: {\"error\":{\"message\":\"overloaded\"}}\n\n".to_vec()]),
            FailureClass::Model,
        ),
        (Act::Hangup, FailureClass::Network),
    ];
    let played = cases.into_iter().map(|(act, class)| async move {
        let name = format!("{act:?}");
        let (words, _) = check(vec![act, hello()]).await;
        // The call of the broken answer is nowhere.
        assert_eq!(words.replace("hel lo", "hello"), format!("retry/{class:?} hello end/12"), "{name}");
    });
    join_all(played).await;
}

fn sse_part(event: &str) -> Vec<u8> {
    format!("data: {event}\n\n").into_bytes()
}

#[tokio::test]
async fn failures_that_stay_are_not_repeated() {
    for (act, class, part) in [
        (
            Act::status(401, "", r#"{"error":{"message":"wrong key sk-secret"}}"#),
            FailureClass::Auth,
            "wrong key [key]",
        ),
        (Act::status(400, "", r#"{"error":{"message":"bad schema"}}"#), FailureClass::Model, "bad schema"),
        (
            Act::status(429, "", r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#),
            FailureClass::RateLimit,
            "pay",
        ),
        (Act::status(404, "", "no such model"), FailureClass::Config, "no such model"),
        (Act::status(302, "location: http://127.0.0.1:1/\r\n", ""), FailureClass::Config, "redirects"),
        (Act::status(200, "content-type: text/html\r\n", "<html>"), FailureClass::Config, "base_url"),
    ] {
        let (words, fault) = check(vec![act, hello()]).await;
        let fault = fault.unwrap();
        assert_eq!((words.as_str(), fault.class, fault.retriable), ("failed", class, false));
        assert!(fault.message.starts_with("`mock/m`: ") && fault.message.contains(part), "{}", fault.message);
    }
}

#[tokio::test]
async fn the_wait_that_a_provider_asks_for_is_kept() {
    let server = Server::start(vec![Act::status(429, "retry-after: 1\r\n", ""), hello()]).await;
    let begun = Instant::now();
    let (words, _) = ask(&model(&server), 1).await;
    assert!(words.starts_with("retry/RateLimit") && words.ends_with("end/12"), "{words}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_fails_at_once_and_is_told() {
    let server = Server::start(vec![Act::status(429, "retry-after: 3600\r\n", ""), hello()]).await;
    let (words, fault) = ask(&model(&server), 1).await;
    assert_eq!((words.as_str(), fault.and_then(|f| f.retry_after_ms)), ("failed", Some(3_600_000)));
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_is_refused_soon() {
    let server = Server::start(vec![Act::Flood(100 << 20)]).await;
    let begun = Instant::now();
    let (words, fault) = ask(&model(&server), 0).await;
    assert_eq!(words, "failed");
    assert!(fault.unwrap().message.contains("more than an answer can hold"));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn deltas_arrive_while_the_answer_is_under_way() {
    let server = Server::start(vec![Act::Stall(vec![sse_part(&delta(r#"{"content":"early"}"#))])]).await;
    let model = model(&server);
    let mut stream = model.stream(request(0));
    assert_eq!(stream.next().await, Some(ModelEvent::Text("early".to_owned())));
    assert!(matches!(stream.next().await, Some(ModelEvent::Failed(_))));
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn dropping_the_stream_closes_the_request() {
    let server = Server::start(vec![Act::Stall(vec![sse_part(&delta(r#"{"content":"early"}"#))])]).await;
    let model = model(&server);
    let mut stream = model.stream(request(0));
    assert!(stream.next().await.is_some());
    drop(stream);
    server.closed().await;
}

#[tokio::test]
async fn an_answer_that_ends_without_its_mark_but_with_its_reason_is_whole() {
    let bytes = sse_part(&server::end("stop"));
    let (words, _) = check(vec![Act::Stream(vec![sse_part(&delta(r#"{"content":"a"}"#)), bytes])]).await;
    assert_eq!(words, "a end/12");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_network_fault() {
    let server = Server::start(Vec::new()).await;
    let model = model(&server);
    server.stop().await;
    let (words, fault) = ask(&model, 1).await;
    assert_eq!(words, "retry/Network failed");
    assert_eq!(fault.map(|f| f.class), Some(FailureClass::Network));
}
