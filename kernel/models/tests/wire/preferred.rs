//! The model of a provider that nobody named.

use std::sync::Arc;

use drupe_agent::{Model, ModelEvent};
use drupe_extension_api::{DefinitionLimits, FailureClass, ModelParameters};
use drupe_models::{
    CatalogueEntry, Models, ModelsSettings, NamedBy, ProfileSettings, ProviderKind, ProviderSettings,
};
use futures_util::StreamExt;

use crate::{
    door::{KINDS, Kind, ask, endpoint, request},
    script::{hello, stream},
    server::{Act, Server},
};

/// The model of the provider that speaks so, prefers `new`, then `old`, then `plain`, and is named alone.
fn alone(kind: Kind, base_url: &str, parameters: &ModelParameters) -> Arc<dyn Model> {
    let endpoint = endpoint(base_url);
    let way = match kind {
        Kind::Chat => ProviderKind::OpenAiChat(endpoint),
        Kind::Responses => ProviderKind::OpenAi(endpoint),
        Kind::Messages => ProviderKind::Anthropic(endpoint),
        Kind::Gemini => ProviderKind::Gemini(endpoint),
    };
    let preferred = ["new", "old", "plain"].map(str::to_owned).to_vec();
    let provider = ProviderSettings { preferred, ..ProviderSettings::new("mock", way) };
    let entry = |name: &str, usd: f64, sampling| {
        let profile = ProfileSettings {
            input_usd: Some(usd),
            output_usd: Some(usd),
            sampling: Some(sampling),
            ..ProfileSettings::default()
        };
        (name.to_owned(), CatalogueEntry { provider: "mock".to_owned(), profile, retires: None })
    };
    let settings = ModelsSettings {
        providers: vec![provider],
        catalogue: [entry("new", 3.0, false), entry("old", 5.0, false), entry("plain", 1.0, true)].into(),
        ..ModelsSettings::default()
    };
    let models = Models::new(settings).unwrap();
    models
        .resolve_for(NamedBy::Operator, &["mock".to_owned()], parameters, &DefinitionLimits::default())
        .unwrap()
        .model
}

fn list(kind: Kind, names: &[&str]) -> Act {
    let items = |key: &str, start: &str| {
        let items: Vec<_> = names.iter().map(|name| format!(r#"{{"{key}":"{start}{name}"}}"#)).collect();
        items.join(",")
    };
    let body = match kind {
        Kind::Gemini => format!(r#"{{"models":[{}]}}"#, items("name", "models/")),
        _ => format!(r#"{{"object":"list","data":[{}]}}"#, items("id", "")),
    };
    Act::status(200, "content-type: application/json\r\n", &body)
}

#[tokio::test]
async fn the_first_that_the_provider_has_is_asked_and_the_list_once() {
    for kind in KINDS {
        let answers = [stream(&hello(kind)), stream(&hello(kind))];
        let acts = [vec![list(kind, &["other", "old-2026-03-17", "plain"])], answers.to_vec()].concat();
        let server = Server::start(acts).await;
        let model = alone(kind, &server.url(), &ModelParameters::default());
        assert!(server.requests().is_empty(), "nobody is asked before the first use");
        for _ in 0..2 {
            assert_eq!(ask(&model, request(0)).await.0, "hello end/7,2,5", "{}", kind.name());
        }
        let seen = server.requests();
        assert_eq!(seen.len(), 3, "{}", kind.name());
        assert!(seen[0].starts_with("GET /v1/models"), "{}", seen[0]);
        assert!(seen[0].contains("sk-secret"), "{}", seen[0]);
        for request in &seen[1..] {
            let named = request.contains("\"old\"") || request.contains("/models/old:");
            assert!(named, "{}: {request}", kind.name());
        }
    }
}

#[tokio::test]
async fn what_may_be_charged_is_the_highest_and_what_is_charged_that_of_the_one_that_answered() {
    let server = Server::start(Vec::new()).await;
    let model = alone(Kind::Chat, &server.url(), &ModelParameters::default());
    assert_eq!(model.profile().price.map(|price| price.input), Some(5.0));
    assert_eq!(model.price_of("mock/plain").map(|price| price.input), Some(1.0));
    assert_eq!(model.price_of("mock/nobody"), None);
}

#[tokio::test]
async fn one_that_cannot_do_what_is_asked_for_is_passed_over() {
    let warm = ModelParameters { temperature: Some(0.5), ..ModelParameters::default() };
    let kind = Kind::Chat;
    let server = Server::start(vec![list(kind, &["new", "old", "plain"]), stream(&hello(kind))]).await;
    let model = alone(kind, &server.url(), &warm);
    let mut asked = request(0);
    asked.parameters = Arc::new(warm);
    assert_eq!(ask(&model, asked).await.0, "hello end/7,2,5");
    assert!(server.requests()[1].contains(r#""model":"plain""#));
}

#[tokio::test]
async fn where_none_is_there_the_fault_names_what_to_do() {
    let server = Server::start(vec![list(Kind::Chat, &["a", "b"])]).await;
    let fault =
        ask(&alone(Kind::Chat, &server.url(), &ModelParameters::default()), request(1)).await.1.unwrap();
    assert!(fault.class == FailureClass::Config && !fault.retriable && fault.used_nothing(), "{fault:?}");
    for part in ["`new`, `old`, `plain`", "models.aliases.default: mock/MODEL", "its list has `a`, `b`"] {
        assert!(fault.message.contains(part), "{}", fault.message);
    }
}

#[tokio::test]
async fn without_a_list_or_a_way_to_it_the_most_preferred_is_asked_and_the_list_no_more_for_a_while() {
    let kind = Kind::Chat;
    for act in [Act::status(404, "", ""), Act::status(500, "", ""), Act::Hangup] {
        let server = Server::start(vec![act, stream(&hello(kind)), stream(&hello(kind))]).await;
        let model = alone(kind, &server.url(), &ModelParameters::default());
        for _ in 0..2 {
            assert_eq!(ask(&model, request(0)).await.0, "hello end/7,2,5");
        }
        let seen = server.requests();
        assert_eq!(seen.iter().filter(|request| request.starts_with("GET")).count(), 1);
        assert!(
            seen.iter().filter(|request| request.starts_with("POST")).all(|r| r.contains(r#""model":"new""#))
        );
    }
}

#[tokio::test]
async fn what_was_not_sent_yet_is_known_as_such_and_what_was_sent_to_whom() {
    let kind = Kind::Chat;
    let server = Server::start(vec![Act::Silence]).await;
    let model = alone(kind, &server.url(), &ModelParameters::default());
    let asked = request(0);
    let dispatch = asked.dispatch.clone();
    let mut events = model.stream(asked);
    while server.requests().is_empty() {
        tokio::select! {
            event = events.next() => panic!("nothing was answered: {event:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert!(dispatch.is_unsent(), "only its list was asked for");
    drop(events);

    let server = Server::start(vec![list(kind, &["old"]), Act::Silence]).await;
    let model = alone(kind, &server.url(), &ModelParameters::default());
    let asked = request(0);
    let dispatch = asked.dispatch.clone();
    let mut events = model.stream(asked);
    while server.requests().len() < 2 {
        tokio::select! {
            event = events.next() => panic!("nothing was answered: {event:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!((dispatch.is_unsent(), dispatch.model().as_deref()), (false, Some("mock/old")));
}

#[tokio::test]
async fn an_attempt_that_fails_is_that_of_the_model_that_was_asked() {
    let kind = Kind::Chat;
    let acts = vec![list(kind, &["old"]), Act::status(500, "", ""), stream(&hello(kind))];
    let server = Server::start(acts).await;
    let model = alone(kind, &server.url(), &ModelParameters::default());
    let events: Vec<_> = model.stream(request(1)).collect().await;
    let failed = events.iter().find_map(|event| match event {
        ModelEvent::Retry { model, .. } => Some(model.as_str()),
        _ => None,
    });
    assert_eq!(failed, Some("mock/old"), "{events:?}");
}
