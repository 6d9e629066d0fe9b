//! Answers that come at once where a stream was asked for.

use crate::{
    door::{KINDS, Kind, ask, model, play, request},
    script::{self, Part, Stop, hello, whole},
    server::{Act, Server},
};

const JSON: &str = "content-type: application/json\r\n";

/// Asks a server that answers so, with no further attempt.
async fn once(kind: Kind, act: Act) -> (String, String) {
    let server = Server::start(vec![act]).await;
    let (words, fault) = ask(&model(kind, &server), request(0)).await;
    (words, fault.map(|fault| fault.message).unwrap_or_default())
}

#[tokio::test]
async fn a_whole_answer_is_taken_as_the_stream_of_it_would_be() {
    let calls = [Part::Call("a", "f", r#"{"k":"1"}"#), Part::Call("b", "g", "{}")];
    let all = [Part::Think("hm"), Part::Say("süß 🍒"), calls[0], calls[1]];
    for kind in KINDS {
        for (parts, stop) in [
            (&all[1..2], Stop::End),
            (&all[..2], Stop::End),
            (&all[..], Stop::Calls),
            (&calls[..], Stop::Calls),
            (&all[1..2], Stop::Length),
            (&all[1..3], Stop::Length),
            (&all[1..2], Stop::Filter),
            (&[], Stop::End),
        ] {
            let streamed = once(kind, script::stream(&script::events(kind, parts, stop))).await;
            let body = whole(kind, parts, stop);
            for headers in [JSON, "", "content-type: text/event-stream\r\n", "content-type: text/html\r\n"] {
                let at_once = once(kind, Act::status(200, headers, &format!("\n {body}"))).await;
                assert_eq!(at_once, streamed, "{} {headers:?} {body}", kind.name());
            }
        }
    }
}

#[tokio::test]
async fn gemini_gives_a_list_to_those_who_ask_for_no_events() {
    let answer = |text| whole(Kind::Gemini, &[Part::Say(text)], Stop::End);
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"hel"}]}}]}"#;
    let act = Act::status(200, JSON, &format!("[{first}\n,{}]", answer("lo")));
    assert_eq!(once(Kind::Gemini, act).await.0, "hello end/7,2,5");
}

#[tokio::test]
async fn events_are_read_whatever_they_say_that_they_are() {
    for kind in KINDS {
        for headers in [JSON, "content-type: text/plain; charset=utf-8\r\n", ""] {
            let act = Act::status(200, headers, &hello(kind).concat());
            assert_eq!(once(kind, act).await.0, "hello end/7,2,5", "{} {headers}", kind.name());
        }
    }
}

#[tokio::test]
async fn json_that_is_no_answer_is_told_and_counts_as_what_came() {
    for kind in KINDS {
        // An answer of another API, a list of models, and what is none of all.
        let other = if kind == Kind::Gemini { Kind::Messages } else { Kind::Gemini };
        let other = whole(other, &[Part::Say("hello")], Stop::End);
        for body in
            [other.as_str(), r#"{"object":"list","data":[]}"#, r#"{"ok":true}"#, "[]", r#"["a"]"#, "[1,2]"]
        {
            let (words, message) = once(kind, Act::status(200, JSON, body)).await;
            let tokens = body.len().div_ceil(3).min(100);
            assert_eq!(words, format!("failed/Config+0,0,{tokens}"), "{} {body}", kind.name());
            assert!(message.contains("neither an answer nor a stream of one"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_is_repeated_and_counts_as_what_came() {
    for kind in KINDS {
        let body = whole(kind, &[Part::Say("hello")], Stop::End);
        let half = &body[..body.len() - 9];
        let again = |tokens: usize| format!("retry/Network+0,0,{tokens} hello end/7,2,5");
        let tokens = half.len().div_ceil(3).min(100);
        for act in [Act::status(200, JSON, half), Act::Cut(vec![half.as_bytes().to_vec()])] {
            let played = play(kind, vec![act, script::stream(&hello(kind))]).await;
            assert_eq!(played.0, again(tokens), "{}", kind.name());
        }
    }
}

#[tokio::test]
async fn an_error_in_place_of_an_answer_is_judged_as_one() {
    for kind in KINDS {
        for body in [
            r#"{"error":{"code":401,"message":"no"}}"#,
            r#"[{"error":{"code":401,"message":"no","status":"UNAUTHENTICATED"}}]"#,
        ] {
            let (words, message) = once(kind, Act::status(200, JSON, body)).await;
            assert_eq!(words, "failed/Auth", "{}: {message}", kind.name());
        }
    }
}
