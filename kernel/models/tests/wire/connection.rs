//! Connections, headers, and when things arrive.

use drupe_agent::ModelEvent;
use drupe_extension_api::Reasoning;
use drupe_models::{
    Models, ModelsSettings, NamedBy, ProfileSettings, ProviderKind, ProviderSettings, Thinking,
};
use futures_util::StreamExt;
use tokio::{io::AsyncReadExt, net::TcpListener};

use crate::{
    door::{KINDS, Kind, ask, endpoint, model, request, sized},
    script::{Part, Stop, events, hello, stream},
    server::{Act, Server},
};

#[tokio::test]
async fn a_request_goes_out_in_full_to_the_place_that_each_api_has() {
    for (kind, line, parts) in [
        (
            Kind::Chat,
            "POST /v1/chat/completions HTTP/1.1",
            ["authorization: Bearer sk-secret", r#""role":"system""#],
        ),
        (
            Kind::Responses,
            "POST /v1/responses HTTP/1.1",
            ["authorization: Bearer sk-secret", r#""store":false"#],
        ),
        (
            Kind::Messages,
            "POST /v1/messages HTTP/1.1",
            ["x-api-key: sk-secret", "anthropic-version: 2023-06-01"],
        ),
        (
            Kind::Gemini,
            "POST /v1/models/m:streamGenerateContent?alt=sse HTTP/1.1",
            ["x-goog-api-key: sk-secret", r#""systemInstruction""#],
        ),
    ] {
        let server = Server::start(vec![stream(&hello(kind))]).await;
        let (words, _) = ask(&model(kind, &server), request(0)).await;
        assert_eq!(words, "hello end/7,2,5");
        let seen = server.requests().remove(0);
        assert!(seen.starts_with(line), "{seen}");
        for part in
            parts.into_iter().chain(["x-team: cherry", "user-agent: drupe/", "accept-encoding: identity"])
        {
            assert!(seen.contains(part), "{part} in {seen}");
        }
    }
}

#[tokio::test]
async fn four_calls_use_one_connection() {
    for kind in KINDS {
        let server = Server::start(vec![stream(&hello(kind)); 4]).await;
        let model = model(kind, &server);
        for _ in 0..4 {
            assert_eq!(ask(&model, request(0)).await.0, "hello end/7,2,5");
        }
        assert_eq!((server.requests().len(), server.connections()), (4, 1), "{}", kind.name());
    }
}

#[tokio::test]
async fn deltas_arrive_while_the_answer_is_under_way() {
    for kind in KINDS {
        let server = Server::start(vec![Act::Stall(begun(kind))]).await;
        let mut stream = model(kind, &server).stream(request(0));
        assert_eq!(stream.next().await, Some(ModelEvent::Text("early".to_owned())));
        assert!(matches!(stream.next().await, Some(ModelEvent::Failed(_))));
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test]
async fn dropping_the_stream_closes_the_request() {
    for kind in KINDS {
        let server = Server::start(vec![Act::Stall(begun(kind))]).await;
        let mut stream = model(kind, &server).stream(request(0));
        assert!(stream.next().await.is_some());
        drop(stream);
        server.closed().await;
    }
}

/// An answer without its end.
fn begun(kind: Kind) -> Vec<Vec<u8>> {
    let events = events(kind, &[Part::Say("early")], Stop::End);
    let end = events.iter().position(|event| event.contains("early")).unwrap();
    events[..=end].iter().map(|event| event.clone().into_bytes()).collect()
}

#[tokio::test]
async fn an_answer_that_has_its_reason_to_stop_is_whole_without_its_end_mark() {
    for kind in [Kind::Chat, Kind::Messages, Kind::Gemini] {
        let mut events: Vec<Vec<u8>> = hello(kind).into_iter().map(String::into_bytes).collect();
        if kind != Kind::Gemini {
            events.pop();
        }
        for act in [Act::Stream(events.clone()), Act::Stall(events.clone()), Act::Cut(events)] {
            let server = Server::start(vec![act]).await;
            assert_eq!(ask(&model(kind, &server), request(0)).await.0, "hello end/7,2,5", "{}", kind.name());
        }
    }
}

#[tokio::test]
async fn a_model_that_is_not_there_is_told_with_what_the_catalogue_has() {
    let act = Act::status(404, "", r#"{"error":{"message":"no such model"}}"#);
    let server = Server::start(vec![act]).await;
    let fault = ask(&model(Kind::Messages, &server), request(0)).await.1.unwrap();
    assert!(fault.message.contains("spelled alike: `m-2`)"), "{}", fault.message);
}

#[tokio::test]
async fn a_secret_in_a_providers_words_is_not_repeated() {
    let act = Act::status(401, "", r#"{"error":{"message":"wrong key sk-secret"}}"#);
    let server = Server::start(vec![act]).await;
    let fault = ask(&model(Kind::Chat, &server), request(0)).await.1.unwrap();
    assert_eq!(fault.message, "`mock/m`: 401 Unauthorized: wrong key [secret]");
}

#[tokio::test]
async fn a_sparing_request_names_the_least_reasoning_that_its_model_takes_and_no_less() {
    const ALWAYS: &[Reasoning] = &[Reasoning::Low, Reasoning::Medium, Reasoning::High];
    const NONE: &[Reasoning] = &[Reasoning::None, Reasoning::Low];
    let adaptive = Thinking::Adaptive { between_tools: false };
    for (kind, efforts, thinking, has, lacks) in [
        (Kind::Messages, Some(ALWAYS), adaptive, r#""effort":"low""#, "disabled"),
        (Kind::Messages, Some(NONE), adaptive, r#""thinking":{"type":"disabled"}"#, "effort"),
        (Kind::Messages, None, adaptive, r#""max_tokens""#, "thinking"),
        (Kind::Responses, Some(ALWAYS), Thinking::Effort, r#""reasoning":{"effort":"low"}"#, "none"),
        (Kind::Chat, Some(NONE), Thinking::Effort, r#""reasoning_effort":"none""#, "low"),
        (Kind::Chat, Some(&[]), Thinking::Effort, r#""max_tokens""#, "reasoning_effort"),
        (Kind::Gemini, Some(ALWAYS), Thinking::Level, r#""thinkingLevel":"low""#, "minimal"),
    ] {
        let server = Server::start(vec![stream(&hello(kind)); 2]).await;
        let profile = ProfileSettings {
            efforts: efforts.map(|efforts| efforts.iter().copied().collect()),
            thinking: Some(thinking),
            ..ProfileSettings::default()
        };
        let model = sized(kind, &server, profile);
        for sparing in [true, false] {
            let request = drupe_agent::ModelRequest { sparing, ..request(0) };
            assert_eq!(ask(&model, request).await.0, "hello end/7,2,5");
        }
        let [spared, plain] = <[String; 2]>::try_from(server.requests()).unwrap();
        assert!(spared.contains(has) && !spared.contains(lacks), "{spared}");
        assert!(!["effort", "thinking"].iter().any(|key| plain.contains(key)), "{plain}");
    }
}

#[tokio::test]
async fn a_request_is_not_sent_before_there_is_a_connection_that_it_can_be_written_to() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://{}/v1", listener.local_addr().unwrap());
    let provider = ProviderSettings::new("mock", ProviderKind::OpenAiChat(endpoint(&address)));
    let models = Models::new(ModelsSettings { providers: vec![provider], ..ModelsSettings::default() });
    let model = models.unwrap().resolve(NamedBy::Operator, &["mock/m".to_owned()]).unwrap().model;
    let asked = request(0);
    let dispatch = asked.dispatch.clone();
    let mut events = model.stream(asked);
    // The other side hears that somebody wants to speak in secret, and says nothing.
    let hello = async {
        let mut socket = listener.accept().await.unwrap().0;
        let mut bytes = [0; 16];
        socket.read_exact(&mut bytes).await.unwrap();
        socket
    };
    tokio::select! {
        event = events.next() => panic!("nobody answers: {event:?}"),
        _socket = hello => assert!(dispatch.is_unsent(), "there is no connection yet"),
    }
}
