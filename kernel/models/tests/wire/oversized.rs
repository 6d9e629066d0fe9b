//! Answers that go on past their bound, from servers that do not keep it: cut off, told as that, and not asked for again.

use drupe_extension_api::{FailureClass, ResponseStatus};
use drupe_models::ProfileSettings;

use crate::{
    budgets::turn,
    door::{KINDS, Kind, ask, model, request, sized},
    script::{self, Part, Stop, events, whole},
    server::{Act, Server},
};

/// The bound of the requests here.
const BOUND: u32 = 100;
/// A text that goes past it in some pieces.
const PIECE: usize = 40_000;

fn piece() -> &'static str {
    String::leak("so ".repeat(PIECE / 3))
}

fn arguments() -> &'static str {
    String::leak(format!(r#"{{"k":"{}"}}"#, "v".repeat(3 * PIECE)))
}

fn parts() -> [(&'static str, Vec<Part>); 3] {
    [
        ("text", vec![Part::Say(piece()); 3]),
        ("reasoning", vec![Part::Think(piece()); 3]),
        ("a call", vec![Part::Call("a", "f", arguments())]),
    ]
}

/// The answer as far as its last words, and then nothing more: only who leaves is done with it.
fn unending(kind: Kind, parts: &[Part]) -> Act {
    let mut events = events(kind, parts, Stop::End);
    let end = events.iter().rposition(|event| event.len() > 1_000).unwrap() + 1;
    events.truncate(end);
    Act::Stall(events.into_iter().map(String::into_bytes).collect())
}

#[tokio::test]
async fn an_answer_that_goes_on_past_its_bound_is_cut_off_and_not_asked_for_again() {
    for kind in KINDS {
        for (what, parts) in parts() {
            let server = Server::start(vec![unending(kind, &parts)]).await;
            let asked = request(2);
            assert_eq!(asked.max_output_tokens, BOUND);
            let (words, fault) = ask(&model(kind, &server), asked).await;
            let (name, fault) = (kind.name(), fault.unwrap());
            assert_eq!(fault.class, FailureClass::Model, "{name}, {what}: {fault}");
            for part in ["mock/m", "goes on past its bound of 100 tokens"] {
                assert!(fault.message.contains(part), "{name}, {what}: {fault}");
            }
            assert!(fault.began && !words.contains("retry"), "{name}, {what}");
            let used = fault.usage.map_or(0, |usage| usage.output_tokens);
            assert!(used <= u64::from(BOUND), "{name}, {what}: {used}");
            server.closed().await;
            assert_eq!(server.requests().len(), 1, "{name}, {what}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_comes_at_once_has_the_same_bound() {
    for kind in KINDS {
        let text = String::leak("so ".repeat(PIECE));
        for (what, part) in [("text", Part::Say(text)), ("a call", Part::Call("a", "f", arguments()))] {
            let body = whole(kind, &[part], Stop::End);
            let act = Act::status(200, "content-type: application/json\r\n", &body);
            let server = Server::start(vec![act]).await;
            let (_, fault) = ask(&model(kind, &server), request(0)).await;
            let fault = fault.unwrap_or_else(|| panic!("{}, {what}: it passed", kind.name()));
            assert!(fault.message.contains("past its bound of 100"), "{}, {what}: {fault}", kind.name());
        }
    }
}

#[tokio::test]
async fn what_is_only_long_is_an_answer() {
    // Sixteen bytes a token are more than any text has.
    for kind in KINDS {
        let server =
            Server::start(vec![script::stream(&events(kind, &[Part::Say(piece())], Stop::End))]).await;
        let (words, fault) = ask(&model(kind, &server), request(0)).await;
        assert!(fault.is_none() && words.ends_with("end/7,2,5"), "{}: {fault:?}", kind.name());
    }
}

#[tokio::test]
async fn a_turn_whose_answer_goes_on_past_its_bound_fails_as_the_models_and_is_charged_within_the_bound() {
    for kind in KINDS {
        let small = ProfileSettings {
            max_output_tokens: Some(BOUND),
            context_window: Some(32_768),
            ..ProfileSettings::default()
        };
        let server = Server::start(vec![unending(kind, &[Part::Say(piece()); 3])]).await;
        let (outcome, _) = turn(sized(kind, &server, small)).await;
        let response = outcome.response;
        assert_eq!((response.status, response.class), (ResponseStatus::Error, Some(FailureClass::Model)));
        assert!(response.content.contains("past its bound of 100 tokens"), "{}", response.content);
        // What was shown of it counts, up to twice the bound and what is granted beyond it.
        let used = outcome.spend.usage.output_tokens;
        assert!((100..=4_296).contains(&used), "{}: {used}", kind.name());
        assert_eq!(server.requests().len(), 1);
    }
}
