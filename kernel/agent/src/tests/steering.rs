//! Further messages of the user while a turn runs.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, EventBody, FailureClass, Message, TurnId};

use super::*;
use crate::*;

fn message(text: &str) -> Steered {
    Steered { turn: TurnId::new(text).expect("a valid id"), text: text.into(), strangers: None }
}

/// The case, with messages that wait from the beginning.
fn steered(case: Case, texts: &'static [&'static str]) -> Case {
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| {
        for text in texts {
            scope.steering.push(message(text)).expect("it takes messages");
        }
    });
    Case { scope, ..case }
}

/// What the root's model was told by the user, in its last request.
fn told(seen: &Seen) -> Vec<String> {
    let last = seen.model.requests().into_iter().rfind(|r| r.agent.id.as_str() == "main").expect("it asked");
    let user = |m: &Arc<Message>| match &**m {
        Message::User { content } => Some(content.clone()),
        _ => None,
    };
    last.messages.iter().filter_map(user).collect()
}

fn recorded(seen: &Seen) -> Vec<(u32, String)> {
    let of = |e: &Entry| match e {
        Entry::Steered { step, turn, .. } => Some((*step, turn.to_string())),
        _ => None,
    };
    seen.entries.iter().filter_map(of).collect()
}

/// Nothing says that a message was taken in: no record, no event, no model. So it is answered like any other.
fn not_taken_in(seen: &Seen) {
    assert_eq!((told(seen), recorded(seen)), (vec!["do it".to_owned()], vec![]));
    assert!(!seen.events.iter().any(|(_, e)| matches!(e, EventBody::TurnSteered { .. })));
}

#[tokio::test]
async fn messages_are_taken_in_after_the_results_of_a_step() {
    let case = Case::of(&[call(&[("a", "{}")]), say("done")], [Fake::says("a").registered()]);
    let seen = steered(case, &["more", "and-more"]).run().await;
    assert_eq!(told(&seen), ["do it", "more", "and-more"]);
    assert_eq!(recorded(&seen), [(1, "more".into()), (1, "and-more".into())]);
    let events = seen.events.iter().filter(|(_, e)| matches!(e, EventBody::TurnSteered { .. }));
    assert_eq!(events.count(), 2);
}

#[tokio::test]
async fn a_message_of_strangers_that_is_taken_in_is_text_of_strangers_from_there_on() {
    for (strangers, expected) in [(None, vec![]), (Some("token:mail"), vec!["token:mail"])] {
        let case = Case::of(&[call(&[("a", "{}")]), say("done")], [Fake::says("a").registered()]);
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| {
            let steered = Steered { strangers: strangers.map(str::to_owned), ..message("more") };
            scope.steering.push(steered).expect("it takes messages");
        });
        let seen = Case { scope, ..case }.run().await;
        assert_eq!(tainted(&seen.entries), expected);
    }
}

#[tokio::test]
async fn a_tool_that_strangers_describe_is_text_of_strangers_before_anything_is_called() {
    for (described_by_strangers, expected) in [(false, vec![]), (true, vec!["description of a"])] {
        let tool = Fake::says("a").with(|labels| labels.described_by_strangers = described_by_strangers);
        let seen = Case::of(&[say("done")], [tool.registered()]).run().await;
        assert_eq!(tainted(&seen.entries), expected);
    }
}

/// By what text of strangers came in.
fn tainted(entries: &[Entry]) -> Vec<&str> {
    let all = entries.iter().filter_map(|entry| match entry {
        Entry::Tainted { tool, .. } => Some(tool.as_str()),
        _ => None,
    });
    all.collect()
}

#[tokio::test]
async fn a_message_that_waits_when_the_model_has_answered_is_not_taken_in() {
    let seen = steered(Case::of(&[say("first"), say("never")], []), &["more"]).run().await;
    assert_eq!(seen.response.content, "first");
    not_taken_in(&seen);
}

#[tokio::test]
async fn what_was_taken_in_for_a_step_that_never_came_is_not_recorded() {
    let mut short = definition("main");
    short.limits.max_tool_calls = 1;
    short.limits.max_tokens_per_invocation = 160;
    let long = "x".repeat(400);
    let tool = Fake::says("a").registered();
    let script = [call(&[("a", &format!(r#"{{"x": "{long}"}}"#))]), say("never")];
    let seen = steered(Case::defined(short, &script, [tool]), &["more"]).run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Budget));
    assert_eq!(recorded(&seen), vec![]);
    assert!(!seen.events.iter().any(|(_, e)| matches!(e, EventBody::TurnSteered { .. })));
}

#[tokio::test]
async fn what_nobody_could_answer_any_more_is_not_taken_in() {
    let mut short = definition("main");
    short.limits.max_turns = 1;
    let seen = steered(Case::defined(short, &[say("first"), say("never")], []), &["more"]).run().await;
    assert_eq!(seen.response.content, "first");
    not_taken_in(&seen);
}

#[tokio::test]
async fn only_the_root_takes_messages_in() {
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let sub = [call(&[("a", "{}")]), say("a part")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &sub)]));
    let sub = looping(definition("sub"), &model, [Fake::says("a").registered()]);
    let case = Case::new(looping(definition("main"), &model, [as_tool(&sub)]), &model);
    let seen = steered(case, &["more"]).run().await;
    assert_eq!(told(&seen), ["do it", "more"]);
    assert_eq!(recorded(&seen).len(), 1);
    for request in seen.model.requests().iter().filter(|r| r.agent.id.as_str() == "sub") {
        let says = |m: &Arc<Message>| matches!(&**m, Message::User { content } if content == "more");
        assert!(!request.messages.iter().any(says));
    }
}

#[tokio::test]
async fn what_was_taken_in_stays_so_after_a_cut() {
    for script in [vec![call(&[("a", "{}")]), say("done")]] {
        let whole = same_after_any_cut(|journal, resumed| {
            let tool = Fake::says("a").class(EffectClass::Pure).registered();
            let case = Case { journal: Arc::clone(journal), resumed, ..Case::of(&script, [tool]) };
            // A message that is recorded as taken in waits no more.
            let taken =
                journal.batches().iter().flat_map(|b| &b.entries).any(|e| matches!(e, Entry::Steered { .. }));
            if taken { case } else { steered(case, &["more"]) }
        })
        .await;
        assert_eq!(recorded(&whole).len(), 1);
    }
}
