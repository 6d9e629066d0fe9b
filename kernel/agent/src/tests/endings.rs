//! How an answer ended, and what follows: each row of the table in docs/agent-loop.md.

use std::sync::Arc;

use drupe_extension_api::{
    EffectClass, EventBody, FailureClass, Message, ResponseStatus, SessionId, ToolCallRequest, ToolStatus,
    TurnId, Usage,
};

use super::*;
use crate::*;

const LENGTH: StopReason = StopReason::Length { dropped_calls: 0 };

/// Text and reasoning, and that end.
fn ends(text: &str, reasoning: &str, stop: StopReason) -> Reply {
    let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
    let mut events = Vec::new();
    if !reasoning.is_empty() {
        events.push(ModelEvent::Reasoning(reasoning.into()));
    }
    if !text.is_empty() {
        events.push(ModelEvent::Text(text.into()));
    }
    events.push(ModelEvent::Done { usage: Some(usage), stop, model: "plays/script".into() });
    Reply::Gives(events)
}

/// Plays the n-th of them to the n-th step; steps are told by how much of the conversation there is, so that a run that
/// goes on after a crash gets the same.
fn play(replies: Vec<Reply>) -> impl Fn(&Arc<MemoryJournal>, bool) -> Case {
    move |journal, resumed| {
        let replies = replies.clone();
        let mut model = Plays::new(&[]);
        model.by_request = Some(Box::new(move |request| {
            let spoken = |m: &&Arc<Message>| !matches!(***m, Message::Tool { .. });
            let asked = |m: &&Arc<Message>| matches!(&***m, Message::User { .. });
            let called = |m: &&Arc<Message>| matches!(&***m, Message::Assistant { tool_calls, .. } if !tool_calls.is_empty());
            let spoken = request.messages.iter().filter(spoken);
            let step = spoken.filter(|m| asked(m) || called(m)).count() - 1;
            Some(replies[step].clone())
        }));
        let model = Arc::new(model);
        let tool = Fake::says("a").class(EffectClass::Pure).registered();
        let agent = looping(definition("main"), &model, [tool]);
        Case { journal: Arc::clone(journal), resumed, ..Case::new(agent, &model) }
    }
}

/// What a person gets of it, also after a cut at any commit.
async fn check(
    replies: Vec<Reply>,
    status: ResponseStatus,
    class: Option<FailureClass>,
    says: &[&str],
    diagnostics: &[&str],
) -> Seen {
    let seen = same_after_any_cut(play(replies)).await;
    assert_eq!((seen.response.status, seen.response.class), (status, class), "{}", seen.response.content);
    for part in says {
        assert!(seen.response.content.contains(part), "{} does not say {part}", seen.response.content);
    }
    assert_eq!(seen.diagnostics(), diagnostics);
    seen
}

#[tokio::test]
async fn an_answer_of_which_nothing_is_seen_is_no_success() {
    for nothing in ["", "\u{200b}\u{feff}", " \n", "\u{2060}\u{3164} "] {
        let says = ["empty answer", "Done so far: 1 step, 0 tool calls."];
        let seen = check(vec![say(nothing)], ERROR.0, ERROR.1, &says, &[]).await;
        assert_eq!((seen.response.turns_used, seen.spend.turns), (Some(1), 1), "{nothing:?}");
    }
}

#[tokio::test]
async fn a_report_counts_the_step_whose_model_gave_no_answer() {
    let failed = ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "it failed"));
    let replies = vec![call(&[("a", "{}")]), Reply::Gives(vec![failed])];
    let seen = check(replies, ERROR.0, ERROR.1, &["Done so far: 2 steps, 1 tool call."], &[]).await;
    assert_eq!((seen.response.turns_used, seen.spend.turns), (Some(2), 2));
}

const ERROR: (ResponseStatus, Option<FailureClass>) = (ResponseStatus::Error, Some(FailureClass::Model));

#[tokio::test]
async fn text_that_was_cut_at_its_bound_is_gone_on_with_and_is_one_answer() {
    let replies = vec![ends("The first half, ", "", LENGTH), say("and the second.")];
    let seen = check(replies, ResponseStatus::Success, None, &[], &["answer_cut"]).await;
    assert_eq!(seen.response.content, "The first half, and the second.");
    assert_eq!(seen.spend.turns, 2);
    let last = seen.model.requests().pop().expect("it was asked");
    let Some(Message::User { content }) = last.messages.last().map(|m| &**m) else { panic!("{last:?}") };
    assert_eq!(*content, prompt::go_on(0));
}

#[tokio::test]
async fn text_that_is_cut_twice_in_a_row_is_an_error_with_all_of_it() {
    let replies = vec![ends("one ", "", LENGTH), ends("two", "", LENGTH)];
    let says = ["cut off at its bound of 100 on tokens", "`max_output_tokens`", "Last words: one two"];
    check(replies, ERROR.0, ERROR.1, &says, &["answer_cut"; 2]).await;
}

#[tokio::test]
async fn a_call_that_a_cut_took_along_is_called_again_and_what_came_before_it_is_no_answer() {
    let cut = ends("I will now store your number.", "", StopReason::Length { dropped_calls: 1 });
    let replies = vec![cut.clone(), call(&[("a", "{}")]), say("stored")];
    let seen = check(replies, ResponseStatus::Success, None, &[], &["answer_cut"]).await;
    assert_eq!((seen.response.content.as_str(), seen.statuses()), ("stored", vec![ToolStatus::Ok]));
    let replies = vec![cut.clone(), cut];
    let says = ["the tool call that it had begun was dropped and did not run", "bound of 100"];
    let seen = check(replies, ERROR.0, ERROR.1, &says, &["answer_cut"; 2]).await;
    assert_eq!(seen.spend.tool_calls, 0);
    // Nothing but calls came: no message without content goes to the provider.
    let replies = vec![ends("", "", StopReason::Length { dropped_calls: 2 }), say("done")];
    let seen = check(replies, ResponseStatus::Success, None, &["done"], &["answer_cut"]).await;
    let last = seen.model.requests().pop().expect("it was asked");
    let empty = |m: &Arc<Message>| matches!(&**m, Message::Assistant { content, .. } if content.is_empty());
    assert!(!last.messages.iter().any(empty));
    assert!(
        matches!(&**last.messages.last().expect("one"), Message::User { content } if content.contains("of 2 begun"))
    );
}

#[tokio::test]
async fn reasoning_that_used_the_whole_bound_says_so() {
    let says = ["bound of 100", "reasoning used all of it", "`max_output_tokens`"];
    check(vec![ends("", "hm", LENGTH)], ERROR.0, ERROR.1, &says, &["answer_cut"]).await;
    let says = ["no word of an answer came"];
    check(vec![ends("", "", LENGTH)], ERROR.0, ERROR.1, &says, &["answer_cut"]).await;
}

#[tokio::test]
async fn what_cannot_be_gone_on_with_names_the_cut_and_the_limit() {
    let mut main = definition("main");
    main.limits.max_turns = 1;
    let cut = ends("half", "", StopReason::Length { dropped_calls: 3 });
    let seen = Case::defined(main, &[cut], []).run().await;
    assert_eq!(seen.response.class, Some(FailureClass::Budget));
    let error = seen.response.error.as_deref().unwrap_or_default();
    for part in ["bound of 100", "the 3 tool calls that it had begun were dropped", "`max_turns`"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(seen.response.content.contains("Last words: half"), "{}", seen.response.content);
    assert_eq!(seen.exceeded(), ["max_turns"]);
}

#[tokio::test]
async fn what_a_filter_cut_off_is_an_error_with_the_text_so_far() {
    let says = ["the provider's filter cut the answer of model `plays/script` off", "Last words: half"];
    let cut = StopReason::Filter { dropped_calls: 0 };
    check(vec![ends("half", "", cut)], ERROR.0, ERROR.1, &says, &["answer_filtered"]).await;
    let says = ["off; the tool call that it had begun was dropped and did not run"];
    let cut = StopReason::Filter { dropped_calls: 1 };
    check(vec![ends("", "", cut)], ERROR.0, ERROR.1, &says, &["answer_filtered"]).await;
}

#[tokio::test]
async fn the_providers_word_for_a_filter_or_a_refusal_is_told() {
    for (stop, expected) in [
        (
            StopReason::Filter { dropped_calls: 0 },
            "cut the answer of model `plays/script` off; the provider says `SAFETY` (HATE)",
        ),
        (
            StopReason::Refusal { dropped_calls: 0 },
            "declined the task without a word; the provider says `SAFETY` (HATE)",
        ),
    ] {
        let done = ModelEvent::Done { usage: None, stop, model: "plays/script".into() };
        let events = vec![ModelEvent::Said("`SAFETY` (HATE)".into()), done];
        let model = Arc::new(Plays::new(&[("main", &[Reply::Gives(events)])]));
        let seen = Case::new(looping(definition("main"), &model, []), &model).run().await;
        assert!(seen.response.content.contains(expected), "{}", seen.response.content);
        let told = seen.events.iter().any(|(_, event)| match event {
            EventBody::Diagnostic { code, message, .. } => {
                code == "answer_filtered" && message.contains("`SAFETY` (HATE)")
            }
            _ => false,
        });
        assert_eq!(told, matches!(stop, StopReason::Filter { .. }));

        // A crash right after the answer was recorded loses no word of it.
        let answered = |entry: &Entry| matches!(entry, Entry::Answer { .. });
        let answer = seen.entries.iter().position(answered).expect("the model answered");
        let journal = Arc::new(MemoryJournal::default());
        let (session, turn) = (SessionId::new("s").expect("valid"), TurnId::new("s").expect("valid"));
        let entries = seen.entries[..=answer].to_vec();
        let runs = seen.events.iter().find_map(|(run, _)| run.clone()).into_iter().collect();
        let batch = Batch { runs, entries, ..Batch::empty(session, turn) };
        journal.commit(batch).await.expect("a journal in memory records");
        let goes_on = Case::new(looping(definition("main"), &model, []), &model);
        let again = Case { journal, resumed: true, ..goes_on }.run().await;
        assert_eq!(again.response.content, seen.response.content);
        assert_eq!(model.requests().len(), 1, "the model is not asked again");
    }
}

#[tokio::test]
async fn a_refusal_of_the_model_is_a_refusal_in_its_words() {
    let refused = (ResponseStatus::Refused, Some(FailureClass::Refused));
    let seen = check(
        vec![ends("Not that.", "", StopReason::Refusal { dropped_calls: 0 })],
        refused.0,
        refused.1,
        &[],
        &[],
    )
    .await;
    assert_eq!(
        (seen.response.content.as_str(), seen.response.error.as_deref()),
        ("Not that.", Some("Not that."))
    );
    let says = ["model `plays/script` declined the task without a word"];
    check(vec![ends("", "", StopReason::Refusal { dropped_calls: 0 })], refused.0, refused.1, &says, &[])
        .await;
    let dropped = ends("Not that.", "", StopReason::Refusal { dropped_calls: 2 });
    let says = ["Not that.\n\n(the 2 tool calls that it had begun were dropped, and none of them ran)"];
    check(vec![dropped], refused.0, refused.1, &says, &["answer_declined"]).await;
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let sub = [ends("Not that.", "", StopReason::Refusal { dropped_calls: 0 })];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &sub)]));
    let sub = looping(definition("sub"), &model, []);
    let seen = Case::new(looping(definition("main"), &model, [as_tool(&sub)]), &model).run().await;
    assert_eq!((seen.response.content.as_str(), seen.statuses()), ("done", vec![ToolStatus::Refused]));
    assert!(seen.told()[0].contains("Not that."), "{:?}", seen.told());
}

#[tokio::test]
async fn no_tool_runs_from_an_answer_that_is_not_whole_whatever_a_provider_gives_out() {
    let request = ToolCallRequest { call_id: "c".into(), name: "a".into(), arguments: "{}".into() };
    for (stop, class) in [
        (StopReason::Filter { dropped_calls: 1 }, FailureClass::Model),
        (StopReason::Refusal { dropped_calls: 1 }, FailureClass::Refused),
    ] {
        let Reply::Gives(mut events) = ends("half", "", stop) else { unreachable!("it gives") };
        events.insert(0, ModelEvent::ToolCall(request.clone()));
        let seen = Case::of(&[Reply::Gives(events)], [Fake::says("a").registered()]).run().await;
        assert_eq!((seen.response.class, seen.spend.tool_calls), (Some(class), 0));
        assert!(seen.response.content.contains("the 2 tool calls"), "{}", seen.response.content);
    }
}

#[tokio::test]
async fn an_older_record_of_an_answer_is_whole() {
    let line = r#"{"entry": "answer", "invocation": "r", "step": 1, "message": {"role": "assistant", "content": "done"},
                   "model": "m", "usage": {}, "cost_usd": null}"#;
    let entry: Entry = serde_json::from_str(line).expect("a record");
    let Entry::Answer { stop, .. } = &entry else { panic!("{entry:?}") };
    assert!(stop.is_whole());
    assert!(!serde_json::to_string(&entry).expect("it is JSON").contains("stop"), "and costs no bytes");
    let refused = line.replace("null}", r#"null, "stop": "refusal"}"#);
    let entry: Entry = serde_json::from_str(&refused).expect("a record");
    let Entry::Answer { stop, .. } = &entry else { panic!("{entry:?}") };
    assert_eq!(*stop, StopReason::Refusal { dropped_calls: 0 });
    let again: Entry = serde_json::from_str(&serde_json::to_string(&entry).expect("JSON")).expect("a record");
    assert_eq!(again, entry);
}
