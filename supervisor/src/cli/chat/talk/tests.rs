//! Conversations with a daemon that answers at once.

use drupe_extension_api::control::ReplyBody;
use serde_json::json;

use super::*;
use crate::cli::{
    chat::screen::{Mode, Paper},
    fake::Fake,
};

/// A session in which the turn `t-1` ends well and the turn `t-2` does not; each message sets off the first of them that
/// its text names.
fn answer(asked: &str, params: &Value) -> Vec<ReplyBody> {
    let result = match asked {
        method::SESSIONS_LIST => json!([]),
        method::TURN_SUBMIT => json!({"turn": params["text"], "duplicate": false}),
        method::EVENTS_SUBSCRIBE => return vec![ended("t-1", "success"), ended("t-2", "error")],
        _ => Value::Null,
    };
    vec![ReplyBody::Result(result)]
}

fn ended(turn: &str, status: &str) -> ReplyBody {
    let event = json!({
        "seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "turn": turn, "kind": "interaction.turn.completed",
        "data": {"status": status, "spend": {}},
    });
    ReplyBody::Event(Box::new(serde_json::from_value(event).expect("an event")))
}

fn with_talk(fake: &Fake, act: impl FnOnce(&mut Talk<'_>)) {
    let interrupt = Interrupt::take().expect("signals can be taken");
    let session = SessionId::new("s").expect("an id");
    let paper = Paper { out: Box::new(std::io::sink()), ..Paper::default() };
    let screen = Arc::new(Mutex::new(Screen::new(fake.context.console, Mode::Free, paper)));
    let talk = Talk::join(&fake.context, &interrupt, session, None, screen, None);
    act(&mut talk.unwrap_or_else(|failure| panic!("{failure}")));
}

/// The same in a session in which nothing happens.
fn quiet(asked: &str, params: &Value) -> Vec<ReplyBody> {
    if asked == method::EVENTS_SUBSCRIBE { Vec::new() } else { answer(asked, params) }
}

/// How the turns of these messages end, taken together.
fn check(messages: &[&str], expected: bool) {
    with_talk(&Fake::start(answer), |talk| {
        for message in messages {
            assert!(talk.say(message).is_ok_and(|taken| taken), "{message}");
        }
        assert!(talk.waits());
        assert_eq!(talk.wait(None).ok(), Some(Outcome::Ended(expected)), "{messages:?}");
        assert!(!talk.waits());
    });
}

#[test]
fn every_turn_is_waited_for_and_one_that_fails_is_told() {
    check(&["t-1"], true);
    check(&["t-2"], false);
    check(&["t-1", "t-2"], false);
    check(&["t-2", "t-1"], false);
}

#[test]
fn a_message_says_what_becomes_of_it_while_a_turn_runs_where_somebody_chose() {
    let fake = Fake::start(answer);
    with_talk(&fake, |talk| {
        for queue in [None, Some(QueueMode::Steer), Some(QueueMode::Interrupt), Some(QueueMode::Followup)] {
            talk.queue = queue;
            assert!(talk.say("t-1").is_ok());
        }
    });
    let asked = fake.asked();
    let submits = asked.iter().filter(|(method, _)| method == method::TURN_SUBMIT);
    let queues: Vec<_> = submits.map(|(_, params)| params.get("queue").cloned()).collect();
    assert_eq!(queues, [None, Some(json!("steer")), Some(json!("interrupt")), Some(json!("followup"))]);
}

#[test]
fn the_turn_that_runs_is_stopped_and_without_one_nothing_is() {
    let fake = Fake::start(quiet);
    with_talk(&fake, |talk| {
        assert!(talk.stop_running().is_ok_and(|stopped| !stopped));
        locked(&talk.screen).renderer.runs(TurnId::new("t-9").expect("an id"));
        assert!(talk.stop_running().is_ok_and(|stopped| stopped));
    });
    assert!(fake.asked().contains(&(method::TURN_STOP.into(), json!({"turn": "t-9", "brief": true}))));
}

#[test]
fn a_long_answer_is_recalled_by_its_beginning() {
    assert_eq!(beginning("a\nb"), "a\nb");
    let long = "x\n".repeat(40);
    assert_eq!(beginning(&long).lines().count(), LINES + 1);
    assert!(beginning(&long).ends_with("x\n…"));
}
