//! How an answer ended, in every kind: none of these endings passes as a whole answer, and none as a fault of the wire.

use drupe_agent::ModelEvent;
use futures_util::StreamExt;

use crate::{
    door::{KINDS, Kind, ask, model, play, request},
    script::{self, Part, Stop, data, events, hello},
    server::Act,
};

const CALL: Part = Part::Call("a", "kv_set", r#"{"key":"a","value":"b"}"#);

/// Plays an answer in each kind.
async fn check(parts: &[Part], stop: Stop, expected: [&str; 4]) {
    for (kind, expected) in KINDS.into_iter().zip(expected) {
        let good = script::stream(&hello(kind));
        let (words, fault) = play(kind, vec![script::stream(&events(kind, parts, stop)), good]).await;
        assert_eq!(words, expected, "{} {stop:?}: {fault:?}", kind.name());
    }
}

/// The same in all kinds.
async fn check_all(parts: &[Part], stop: Stop, expected: &str) {
    check(parts, stop, [expected; 4]).await;
}

#[tokio::test]
async fn calls_of_an_answer_that_was_cut_off_are_counted_and_not_given_out() {
    check_all(&[Part::Say("I will store it."), CALL], Stop::Length, "I will store it. length-1/7,2,5").await;
    check_all(&[CALL, CALL], Stop::Length, "length-2/7,2,5").await;
}

#[tokio::test]
async fn an_answer_that_a_filter_cut_off_says_so_with_and_without_text_and_calls() {
    check_all(&[Part::Say("The first step")], Stop::Filter, "The first step filter/7,2,5").await;
    check_all(&[Part::Say("so"), CALL], Stop::Filter, "so filter-1/7,2,5").await;
    let silent = "filter/7,2,5";
    check(&[], Stop::Filter, [silent, silent, "refusal/7,2,5", silent]).await;
}

#[tokio::test]
async fn a_refusal_without_a_word_is_a_refusal() {
    for (kind, event) in [
        (Kind::Chat, r#"{"choices":[{"index":0,"delta":{"refusal":"No."},"finish_reason":"stop"}]}"#),
        (
            Kind::Messages,
            r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","explanation":"No."}}}"#,
        ),
    ] {
        let server = crate::server::Server::start(vec![Act::Stream(vec![data_of(event)])]).await;
        assert_eq!(ask(&model(kind, &server), request(0)).await.0, "No. refusal/0,0,0", "{}", kind.name());
    }
    check(&[], Stop::Filter, ["filter/7,2,5", "filter/7,2,5", "refusal/7,2,5", "filter/7,2,5"]).await;
}

#[tokio::test]
async fn reasoning_that_used_the_bound_up_is_a_cut_and_no_empty_answer() {
    check_all(&[Part::Think("hm")], Stop::Length, "hm length/7,2,5").await;
    check_all(&[], Stop::Length, "length/7,2,5").await;
}

#[tokio::test]
async fn an_answer_of_which_nothing_is_seen_is_empty() {
    for kind in KINDS {
        for nothing in ["\u{200b}\u{200d}\u{feff}", " \n\t ", "\u{2060} \u{ad}"] {
            let only = script::stream(&events(kind, &[Part::Say(nothing)], Stop::End));
            let (words, fault) = play(kind, vec![only.clone(), only]).await;
            assert!(words.contains("retry/Model+7,2,5"), "{} {nothing:?}: {words:?}", kind.name());
            let message = fault.unwrap().message;
            assert!(message.ends_with("its answer is empty"), "{} {nothing:?}: {message}", kind.name());
        }
    }
}

#[tokio::test]
async fn reasoning_that_nothing_follows_is_told_as_that() {
    for kind in KINDS {
        let only = script::stream(&events(kind, &[Part::Think("hm")], Stop::End));
        let (words, fault) = play(kind, vec![only.clone(), only]).await;
        assert_eq!(words, "hm retry/Model+7,2,5 hm failed/Model+7,2,5", "{}", kind.name());
        let message = fault.unwrap().message;
        assert!(message.ends_with("it reasoned and then gave no answer"), "{message}");
    }
}

#[tokio::test]
async fn an_ending_that_is_no_good_one_is_told_by_its_own_name() {
    let incomplete = |reason: &str| {
        format!(
            r#"{{"type":"response.incomplete","response":{{"status":"incomplete","incomplete_details":{{"reason":"{reason}"}}}}}}"#
        )
    };
    let stopped =
        |reason: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
    let finished = |reason: &str| format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#);
    let chose =
        |reason: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
    for (kind, event, name) in [
        (Kind::Chat, chose("repetition"), "`repetition`"),
        (Kind::Chat, chose("later"), "`later`"),
        (Kind::Responses, incomplete("later"), "`later`"),
        (Kind::Messages, stopped("pause_turn"), "`pause_turn`"),
        (Kind::Messages, stopped("later"), "`later`"),
        (Kind::Gemini, finished("MALFORMED_FUNCTION_CALL"), "`MALFORMED_FUNCTION_CALL`"),
        (Kind::Gemini, finished("MALFORMED_RESPONSE"), "`MALFORMED_RESPONSE`"),
        (Kind::Gemini, finished("LATER"), "`LATER`"),
    ] {
        // With text before it, too: what came is not the whole answer.
        let texts = [vec![], vec![events(kind, &[Part::Say("so")], Stop::End)]];
        for text in texts.into_iter().filter(|text| text.is_empty() || kind != Kind::Chat) {
            let end = text.iter().flatten().position(|event| event.contains("so\"")).map_or(0, |at| at + 1);
            let before = text.iter().flatten().take(end).map(|event| event.clone().into_bytes());
            let server =
                crate::server::Server::start(vec![Act::Stream(before.chain([data_of(&event)]).collect())])
                    .await;
            let (words, fault) = ask(&model(kind, &server), request(0)).await;
            assert!(words.contains("failed/Model+"), "{} {name}: {words}", kind.name());
            let message = fault.unwrap().message;
            assert!(message.contains(name), "{}: {message}", kind.name());
        }
    }
}

#[tokio::test]
async fn a_window_that_is_full_cuts_an_answer_off() {
    let event = r#"{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}"#;
    let server = crate::server::Server::start(vec![Act::Stream(vec![data_of(event)])]).await;
    assert_eq!(ask(&model(Kind::Messages, &server), request(0)).await.0, "length/0,0,0");
}

fn data_of(event: &str) -> Vec<u8> {
    data(&serde_json::from_str(event).unwrap()).into_bytes()
}

#[tokio::test]
async fn a_request_that_is_turned_away_once_the_stream_is_open_has_cost_nothing() {
    let created = r#"{"type":"response.created","response":{"status":"in_progress"}}"#;
    for (code, nothing) in
        [("insufficient_quota", true), ("rate_limit_exceeded", true), ("server_error", false)]
    {
        let failed = format!(
            r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"m"}}}}}}"#
        );
        let act = Act::Stream(vec![data_of(created), data_of(&failed)]);
        let server = crate::server::Server::start(vec![act]).await;
        let fault = ask(&model(Kind::Responses, &server), request(0)).await.1.unwrap();
        assert_eq!(fault.used_nothing(), nothing, "{code}: {fault:?}");
    }
    // After a part of an answer the provider has worked.
    let begun = events(Kind::Responses, &[Part::Say("so")], Stop::End).remove(1);
    let failed = r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#;
    let server =
        crate::server::Server::start(vec![Act::Stream(vec![begun.into_bytes(), data_of(failed)])]).await;
    assert!(!ask(&model(Kind::Responses, &server), request(0)).await.1.unwrap().used_nothing());
}

/// What is said of the end of an answer.
async fn said(kind: Kind, event: &str) -> String {
    let server = crate::server::Server::start(vec![Act::Stream(vec![data_of(event)])]).await;
    let events: Vec<ModelEvent> = model(kind, &server).stream(request(0)).collect().await;
    let said = events.into_iter().filter_map(|event| match event {
        ModelEvent::Said(words) => Some(words),
        _ => None,
    });
    said.collect::<Vec<_>>().join("|")
}

#[tokio::test]
async fn the_providers_word_for_a_filter_is_passed_on() {
    let chat = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"content_filter","content_filter_results":{"hate":{"filtered":true},"violence":{"filtered":false}}}]}"#;
    let responses = r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#;
    let refused = r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"I do not help with that."}}}"#;
    let finished = r#"{"candidates":[{"finishReason":"PROHIBITED_CONTENT","finishMessage":"The text\n is \u001b[31mnot\u202e allowed.","safetyRatings":[{"category":"HARM_CATEGORY_HARASSMENT","blocked":true},{"category":"HARM_CATEGORY_HATE_SPEECH"}]}]}"#;
    let blocked = r#"{"promptFeedback":{"blockReason":"BLOCKLIST","blockReasonMessage":"sk-secret"}}"#;
    for (kind, event, expected) in [
        (Kind::Chat, chat, "`content_filter` (hate)"),
        (Kind::Responses, responses, "`content_filter`"),
        (Kind::Messages, refused, "`refusal` (cyber)"),
        (
            Kind::Gemini,
            finished,
            "`PROHIBITED_CONTENT` (HARM_CATEGORY_HARASSMENT): The text is [31mnot allowed.",
        ),
        (Kind::Gemini, blocked, "`BLOCKLIST`: [secret]"),
    ] {
        assert_eq!(said(kind, event).await, expected, "{}", kind.name());
    }
    for reason in ["SAFETY", "RECITATION", "SPII", "LANGUAGE", "MODEL_ARMOR"] {
        let event = format!(r#"{{"candidates":[{{"finishReason":"{reason}"}}]}}"#);
        assert_eq!(said(Kind::Gemini, &event).await, format!("`{reason}`"));
    }
    let long = finished.replace("The text", &"word ".repeat(200));
    let told = said(Kind::Gemini, &long).await;
    assert!(told.chars().count() == 301 && told.ends_with('…'), "{told}");
}

#[tokio::test]
async fn what_is_told_beside_the_answer_holds_no_key() {
    let refusal = r#"{"choices":[{"index":0,"delta":{"refusal":"no sk-"},"finish_reason":null}]}"#;
    let rest = r#"{"choices":[{"index":0,"delta":{"refusal":"secret"},"finish_reason":"stop"}]}"#;
    let call = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"sk-secret","function":{"name":"sk-secret","arguments":"{}"}}]},"finish_reason":"stop"}]}"#;
    for (events, expected) in [
        (vec![data_of(refusal), data_of(rest)], "no [secret] refusal/0,0,0"),
        (vec![data_of(call)], "[secret]:[secret]{} tool_calls/0,0,0"),
    ] {
        let server = crate::server::Server::start(vec![Act::Stream(events)]).await;
        assert_eq!(ask(&model(Kind::Chat, &server), request(0)).await.0, expected);
    }
}
