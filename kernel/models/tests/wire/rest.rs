//! Who rests for failures on the wire: the model that they are of, or the provider with all of its models.

use std::sync::Arc;

use drupe_agent::Model;
use drupe_models::{NamedBy, ProfileSettings};
use serde_json::json;

use crate::{
    door::{KINDS, Kind, ask, provider, request},
    script::{data, hello, stream},
    server::{Act, Server},
};

/// As many failures in a row as begin a rest.
const FAILURES: usize = 5;

/// Two models of one provider.
fn two(kind: Kind, server: &Server) -> [Arc<dyn Model>; 2] {
    let all = provider(kind, server, ProfileSettings::default());
    ["mock/m", "mock/other"].map(|name| all.resolve(NamedBy::Operator, &[name.to_owned()]).unwrap().model)
}

/// Answers that are a fault of the model, with what they are.
fn of_a_model() -> Vec<(&'static str, Act)> {
    let error = |text: &str, code: &str| json!({"error": {"message": text, "code": code}}).to_string();
    let quota = json!([{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]);
    let quota = json!({"error": {"code": 429, "message": "pay", "details": quota}}).to_string();
    let broken = vec![data(&json!("nonsense")).into_bytes()];
    vec![
        ("500", Act::status(500, "", "")),
        ("502", Act::status(502, "", "")),
        ("503", Act::status(503, "", "")),
        ("529", Act::status(529, "", &error("busy", "overloaded_error"))),
        ("403 of one model", Act::status(403, "", &error("no access to model `m`", "model_not_found"))),
        ("the quota of one model", Act::status(429, "", &quota)),
        ("no event", Act::Stream(broken)),
        ("closed before headers", Act::Hangup),
        (
            "an error in the stream",
            Act::Stream(vec![data(&json!({"type": "error", "error": {"message": "x"}})).into()]),
        ),
    ]
}

/// Answers that are a fault of the account.
fn of_the_account() -> Vec<(&'static str, Act)> {
    let error = |text: &str, code: &str| json!({"error": {"message": text, "code": code}}).to_string();
    let json = "content-type: application/json\r\n";
    vec![
        ("401", Act::status(401, "", &error("scope model.request is missing", "invalid_api_key"))),
        ("403", Act::status(403, "", "")),
        ("402", Act::status(402, "", "")),
        ("the quota of the account", Act::status(429, "", &error("pay", "insufficient_quota"))),
        ("200, a wrong key", Act::status(200, json, r#"{"error":{"code":401,"message":"no"}}"#)),
    ]
}

/// Answers that are a fault of the request, or none.
fn of_nobody() -> Vec<(&'static str, Act)> {
    let error = |text: &str| json!({"error": {"message": text}}).to_string();
    vec![
        ("400", Act::status(400, "", "")),
        ("404", Act::status(404, "", "")),
        ("429", Act::status(429, "retry-after: 3600\r\n", "")),
        (
            "403 of a filter",
            Act::status(403, "", &error("the chosen model requires moderation, and your input was flagged")),
        ),
    ]
}

/// Fails with the first model as often as begins a rest; what both say then, in short.
async fn after(kind: Kind, act: Act) -> [String; 2] {
    let good = stream(&hello(kind));
    let server = Server::start([vec![act; FAILURES], vec![good; 2]].concat()).await;
    let [first, second] = two(kind, &server);
    for _ in 0..FAILURES {
        let (words, fault) = ask(&first, request(0)).await;
        assert!(fault.is_some_and(|fault| !fault.message.contains("rests")), "{words}");
    }
    let mut said = Vec::new();
    for model in [first, second] {
        said.push(match ask(&model, request(0)).await {
            (_, Some(fault)) if fault.message.starts_with("model `mock/m` rests") => "model",
            (_, Some(fault)) if fault.message.starts_with("provider `mock` rests") => "provider",
            (words, _) if words.starts_with("hello end") => "answer",
            other => panic!("{other:?}"),
        });
    }
    [said[0].to_owned(), said[1].to_owned()]
}

#[tokio::test]
async fn a_broken_model_does_not_keep_the_others_of_its_provider_from_being_asked() {
    for kind in KINDS {
        for (name, act) in of_a_model() {
            assert_eq!(after(kind, act).await, ["model", "answer"], "{}: {name}", kind.name());
        }
    }
}

#[tokio::test]
async fn a_fault_of_the_account_rests_all_models_of_a_provider() {
    for kind in KINDS {
        for (name, act) in of_the_account() {
            assert_eq!(after(kind, act).await, ["provider", "provider"], "{}: {name}", kind.name());
        }
    }
}

#[tokio::test]
async fn a_fault_of_the_request_rests_nobody() {
    for kind in KINDS {
        for (name, act) in of_nobody() {
            assert_eq!(after(kind, act).await, ["answer", "answer"], "{}: {name}", kind.name());
        }
    }
}

#[tokio::test]
async fn a_host_that_is_not_there_rests_all_models_of_a_provider() {
    let server = Server::start(Vec::new()).await;
    let [first, second] = two(Kind::Chat, &server);
    server.stop().await;
    for _ in 0..FAILURES {
        ask(&first, request(0)).await;
    }
    let message = ask(&second, request(0)).await.1.unwrap().message;
    assert!(message.starts_with("provider `mock` rests") && message.contains("no connection"), "{message}");
}
