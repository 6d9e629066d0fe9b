//! Vectors of texts over real sockets: what is asked, and what comes of each way in which a server fails.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drupe_agent::{Dispatch, EmbeddingModel, Embeddings, ModelFault, Price};
use drupe_models::{Models, ModelsError, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    door::{ATTEMPT_MS, STALL_MS, endpoint},
    server::{Act, Server},
};

fn settings(kind: ProviderKind, embedding: &str) -> ModelsSettings {
    let provider = ProviderSettings {
        stall_timeout_ms: STALL_MS,
        timeout_ms: ATTEMPT_MS,
        ..ProviderSettings::new("mock", kind)
    };
    ModelsSettings {
        providers: vec![provider],
        embedding: Some(embedding.to_owned()),
        ..ModelsSettings::default()
    }
}

fn made(settings: ModelsSettings) -> Arc<dyn EmbeddingModel> {
    Arc::clone(Models::new(settings).unwrap().embedding().unwrap())
}

async fn ask(model: &Arc<dyn EmbeddingModel>) -> Result<Embeddings, ModelFault> {
    let texts = ["a \"text\"".to_owned(), "another".to_owned()].into();
    model.embed(texts, Instant::now() + Duration::from_secs(10), Dispatch::default()).await
}

const JSON: &str = "content-type: application/json\r\n";

fn answer(body: &Value) -> Act {
    Act::status(200, JSON, &body.to_string())
}

#[tokio::test]
async fn a_request_has_the_form_that_servers_know_and_bears_the_key() {
    for kind in [ProviderKind::OpenAiChat as fn(_) -> _, ProviderKind::OpenAi] {
        let two = json!({"object": "list", "model": "other", "usage": {"prompt_tokens": 5, "total_tokens": 5}, "data": [
            {"object": "embedding", "index": 0, "embedding": [0.5, -1]},
            {"object": "embedding", "index": 1, "embedding": [1e-3, 2]},
        ]});
        let server = Server::start(vec![answer(&two)]).await;
        let model = made(settings(kind(endpoint(&server.url())), "mock/vectors"));
        assert_eq!(model.profile().name, "mock/vectors");
        let vectors = vec![vec![0.5, -1.0], vec![1e-3, 2.0]];
        assert_eq!(ask(&model).await.unwrap(), Embeddings { vectors, input_tokens: Some(5) });
        let request = server.requests().remove(0);
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let head = head.to_lowercase();
        assert!(head.starts_with("post /v1/embeddings http/1.1"), "{head}");
        for line in ["authorization: bearer sk-secret", "x-team: cherry", "accept: application/json"] {
            assert!(head.lines().any(|found| found == line), "{line} in {head}");
        }
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body, json!({"model": "vectors", "input": ["a \"text\"", "another"]}));
    }
}

#[tokio::test]
async fn each_failure_is_told_with_its_model_and_without_the_key() {
    let one = json!({"data": [{"index": 0, "embedding": [1]}]});
    for (act, said, used_nothing) in [
        (
            Act::status(401, "", r#"{"error": {"message": "wrong key sk-secret"}}"#),
            "wrong key [secret]",
            true,
        ),
        (Act::status(404, "", r#"{"error": {"message": "no such model"}}"#), "no such model", true),
        (Act::status(429, "retry-after: 3\r\n", ""), "", true),
        (answer(&json!({"error": {"message": "over quota", "code": 429}})), "over quota", true),
        (answer(&one), "it has 1 for 2 texts", false),
        (Act::status(200, JSON, "{"), "no vectors that could be used", false),
        (Act::Hangup, "", false),
    ] {
        let server = Server::start(vec![act]).await;
        let model = made(settings(ProviderKind::OpenAiChat(endpoint(&server.url())), "mock/vectors"));
        let fault = ask(&model).await.unwrap_err();
        assert!(fault.message.starts_with("`mock/vectors`: ") && fault.message.contains(said), "{fault}");
        assert_eq!(fault.used_nothing(), used_nothing, "{fault}");
        assert_eq!(server.requests().len(), 1, "nothing is repeated");
    }
}

#[tokio::test]
async fn one_that_fails_again_and_again_rests() {
    let server = Server::start(vec![Act::status(500, "", ""); 9]).await;
    let model = made(settings(ProviderKind::OpenAiChat(endpoint(&server.url())), "mock/vectors"));
    for _ in 0..5 {
        ask(&model).await.unwrap_err();
    }
    let fault = ask(&model).await.unwrap_err();
    assert!(fault.message.contains("rests for") && fault.unused, "{fault}");
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn what_cannot_make_vectors_is_refused_with_what_to_write() {
    let at = || endpoint("http://127.0.0.1:9");
    let refused = |settings: ModelsSettings| Models::new(settings).err().map(|error| error.to_string());
    for (settings, said) in [
        (settings(ProviderKind::Anthropic(at()), "mock/m"), "kinds `openai` and `openai_chat`"),
        (settings(ProviderKind::Gemini(at()), "mock/m"), "kinds `openai` and `openai_chat`"),
        (settings(ProviderKind::Offline, "mock/m"), "is no server that makes vectors"),
        (settings(ProviderKind::OpenAi(at()), "vectors"), "write `provider/model`"),
        (settings(ProviderKind::OpenAi(at()), "mock/"), "write `provider/model`"),
        (settings(ProviderKind::OpenAi(at()), "other/m"), "needs provider `other`, which is not configured"),
    ] {
        let error = refused(settings).unwrap();
        assert!(error.contains(said), "{error}");
    }
    let limited = ModelsSettings {
        cost_limit: Some("limits.day.max_cost_usd".to_owned()),
        ..settings(ProviderKind::OpenAi(at()), "mock/m")
    };
    assert!(matches!(Models::new(limited.clone()), Err(ModelsError::UnknownPrice(_))));
    let usd = |settings: ModelsSettings| made(settings).profile().price;
    let profile = ProfileSettings { input_usd: Some(0.5), ..ProfileSettings::default() };
    let own = ModelsSettings { profiles: [("mock/m".to_owned(), profile)].into(), ..limited.clone() };
    assert_eq!(usd(own), Some(Price::flat(0.5, 0.5, 0.0)));
    let listed = ModelsSettings { embeddings: BTreeMap::from([("mock/m".to_owned(), 0.02)]), ..limited };
    assert_eq!(usd(listed), Some(Price::flat(0.02, 0.02, 0.0)));
}
