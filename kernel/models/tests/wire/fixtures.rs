//! What providers were seen to send, in their documented forms: `tests/fixtures/<kind>/<case>.sse`.

use std::{path::Path, sync::Arc};

use drupe_agent::ModelEvent;
use drupe_extension_api::Message;
use futures_util::StreamExt;

use crate::{
    door::{KINDS, Kind, ask, model, play, request},
    script::{Part, Stop, events, hello, stream},
    server::{Act, Server},
};

fn fixture(kind: Kind, case: &str) -> Act {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind.name());
    let text = std::fs::read_to_string(folder.join(format!("{case}.sse"))).unwrap();
    Act::Stream(text.split_inclusive("\n\n").map(|event| event.as_bytes().to_vec()).collect())
}

/// Plays a fixture, and a greeting should it fail, in all kinds.
async fn check(case: &str, expected: &str) {
    for kind in KINDS {
        let (words, fault) = play(kind, vec![fixture(kind, case), stream(&hello(kind))]).await;
        assert_eq!(words, expected, "{} {case}: {fault:?}", kind.name());
    }
}

#[tokio::test]
async fn plain_text_is_the_same_from_every_provider() {
    check("text", "Hello, süß 🍒. end/21,8,6").await;
}

#[tokio::test]
async fn reasoning_and_parallel_calls_are_the_same_from_every_provider() {
    let calls = r#"call_1:kv_get{"key":"a"} call_2:kv_set{"key":"b","value":[1,{"x":"\"y\""}]}"#;
    check("tools", &format!("Two look-ups. Looking. {calls} tool_calls/120,64,50")).await;
}

/// Plays a fixture, and gives the answer as a transcript holds it.
async fn answer(kind: Kind, case: &str) -> Message {
    let server = Server::start(vec![fixture(kind, case)]).await;
    let (mut content, mut tool_calls, mut provider_items) = (String::new(), Vec::new(), None);
    let mut events = model(kind, &server).stream(request(0));
    while let Some(event) = events.next().await {
        match event {
            ModelEvent::Text(text) => content.push_str(&text),
            ModelEvent::ToolCall(call) => tool_calls.push(call),
            ModelEvent::ProviderItems(items) => provider_items = Some(items),
            _ => {}
        }
    }
    Message::Assistant { content, reasoning: None, tool_calls, provider_items }
}

#[tokio::test]
async fn what_a_provider_signed_or_sealed_goes_back_to_its_model_and_to_no_other() {
    let marks = [
        (Kind::Responses, &["gAAAAAB-whole"][..]),
        (Kind::Messages, &["EqQBCgIYAhIM", "EmwKAhgBEgy3"]),
        (Kind::Gemini, &["CiQB0e2Kb1"]),
    ];
    for (from, marks) in marks {
        let answer = Arc::new(answer(from, "tools").await);
        let Message::Assistant { provider_items: Some(items), .. } = &*answer else { panic!("{answer:?}") };
        assert_eq!(items.kind, format!("{}:mock/m", from.name()));
        for to in KINDS {
            let server = Server::start(vec![stream(&hello(to))]).await;
            let mut next = request(0);
            Arc::make_mut(&mut next.messages).push(Arc::clone(&answer));
            assert_eq!(ask(&model(to, &server), next).await.0, "hello end/7,2,5");
            let sent = server.requests().remove(0);
            for mark in marks {
                assert_eq!(sent.contains(mark), from == to, "{mark} from {} to {}", from.name(), to.name());
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_keeps_its_words_and_is_none_where_a_filter_cut_them_off() {
    for kind in KINDS {
        let ending = match kind {
            Kind::Chat | Kind::Responses => "refusal",
            Kind::Messages | Kind::Gemini => "filter",
        };
        let (words, fault) = play(kind, vec![fixture(kind, "refusal"), stream(&hello(kind))]).await;
        assert_eq!(words, format!("I can't help with that. {ending}/30,0,9"), "{}: {fault:?}", kind.name());
    }
}

#[tokio::test]
async fn an_answer_at_its_bound_has_no_half_call() {
    check("length", "Once upon length-1/12,0,16").await;
}

#[tokio::test]
async fn an_error_in_the_middle_of_an_answer_is_repeated() {
    for kind in KINDS {
        let cost = match kind {
            Kind::Chat | Kind::Responses => "",
            Kind::Messages => "12,0,1",
            Kind::Gemini => "12,0,0",
        };
        let (words, _) = play(kind, vec![fixture(kind, "overloaded"), stream(&hello(kind))]).await;
        assert_eq!(words, format!("par retry/Model+{cost} hello end/7,2,5"), "{}", kind.name());
    }
}

#[tokio::test]
async fn one_script_gives_equal_events_through_all_kinds() {
    let call = |n| {
        Part::Call(
            ["a1", "a2", "a3"][n],
            ["kv_get", "kv_set", "kv_list"][n],
            [r#"{"key":"süß"}"#, r#"{"k":{"n":[1,2]}}"#, ""][n],
        )
    };
    let scripts: [(&[Part], Stop); 6] = [
        (&[Part::Say("a"), Part::Say(" 🍒 "), Part::Say("b\n\"c\"")], Stop::End),
        (&[Part::Think("hm "), Part::Think("so"), Part::Say("a")], Stop::End),
        (&[Part::Think("hm"), Part::Say("look"), call(0), call(1), call(2)], Stop::Calls),
        (&[call(2)], Stop::Calls),
        (&[Part::Say("cut"), call(0)], Stop::Length),
        (&[Part::Say("no"), call(1)], Stop::Filter),
    ];
    for (parts, stop) in scripts {
        let mut first = None;
        for kind in KINDS {
            let server = Server::start(vec![stream(&events(kind, parts, stop))]).await;
            let played = ask(&model(kind, &server), request(0)).await;
            assert!(played.1.is_none(), "{}: {played:?}", kind.name());
            assert_eq!(first.get_or_insert_with(|| played.0.clone()), &played.0, "{}", kind.name());
        }
    }
}
