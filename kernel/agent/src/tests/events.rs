//! What people and the bus are told of a run.

use std::sync::{Arc, Mutex, PoisonError};

use drupe_extension_api::{
    Event, EventBody, FailureClass, Item, ItemKind, ItemOutcome, Preview, SessionId, ToolStatus,
};

use super::*;
use crate::*;

/// The items of that kind as they completed.
fn completed(seen: &Seen, kind: ItemKind) -> Vec<(Item, ItemOutcome)> {
    let of = |e: &EventBody| match e {
        EventBody::ItemCompleted { item, outcome, .. } if item.kind == kind => Some((item.clone(), *outcome)),
        _ => None,
    };
    seen.events.iter().filter_map(|(_, e)| of(e)).collect()
}

fn text(preview: &Option<Preview>) -> &str {
    preview.as_ref().map_or("", |p| p.text.as_str())
}

fn reasons(before: &str, after: Vec<ModelEvent>) -> Reply {
    Reply::Gives([vec![ModelEvent::Reasoning(before.into())], after].concat())
}

#[tokio::test]
async fn reasoning_is_an_item_of_its_own() {
    let script = [reasons("I should call.", ScriptedModel::call(&[("a", "{}")])), say("done")];
    let seen = Case::of(&script, [Fake::says("a").registered()]).run().await;
    let items = completed(&seen, ItemKind::Reasoning);
    assert_eq!(items.len(), 1, "a step without reasoning has no such item");
    assert_eq!((text(&items[0].0.output), items[0].1), ("I should call.", ItemOutcome::Ok));
    assert!(items[0].0.id.ends_with(".1.1.r"), "{}", items[0].0.id);
}

#[tokio::test]
async fn reasoning_of_an_attempt_that_is_repeated_is_one_item() {
    let fault = ModelFault::transient(FailureClass::Model, "it broke");
    let retry =
        ModelEvent::Retry { fault, model: "plays/script".into(), next: "plays/script".into(), usage: None };
    let again = reasons("half", vec![retry, ModelEvent::Reasoning("whole".into())]);
    let Reply::Gives(events) = again else { panic!("it gives") };
    let events = [events, ScriptedModel::say("done")].concat();
    let seen = Case::of(&[Reply::Gives(events)], []).run().await;
    let items = completed(&seen, ItemKind::Reasoning);
    assert_eq!((items.len(), text(&items[0].0.output)), (1, "whole"));
    assert!(seen.spend.usage.total() > 15, "what nobody reported is estimated");
    assert!(seen.entries.iter().any(|e| matches!(e, Entry::Failed { estimated: true, repeated: true, .. })));
    assert!(seen.entries.iter().any(|e| matches!(e, Entry::Answer { estimated: false, .. })));
}

#[tokio::test]
async fn a_failure_that_belongs_to_no_item_is_one() {
    let steps: Vec<Reply> = (0..4).map(|n| call(&[("a", &format!(r#"{{"n": {n}}}"#))])).collect();
    let mut few = definition("main");
    few.limits.max_turns = 2;
    let seen = Case::defined(few, &steps, [Fake::says("a").registered()]).run().await;
    let items = completed(&seen, ItemKind::Error);
    assert_eq!((items.len(), items[0].1), (1, ItemOutcome::Error));
    assert!(text(&items[0].0.output).contains("`max_turns`"));
}

#[tokio::test]
async fn a_failure_of_a_model_or_a_sub_agent_belongs_to_its_item() {
    let broken = Reply::Gives(vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "it broke"))]);
    let seen = Case::of(std::slice::from_ref(&broken), []).run().await;
    assert!(completed(&seen, ItemKind::Error).is_empty());
    assert_eq!(completed(&seen, ItemKind::AgentMessage)[0].1, ItemOutcome::Error);
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &[call(&[("a", "{}")])])]));
    let mut sub = definition("sub");
    sub.limits.max_turns = 1;
    let sub = looping(sub, &model, [Fake::says("a").registered()]);
    let seen = Case::new(looping(definition("main"), &model, [as_tool(&sub)]), &model).run().await;
    assert!(completed(&seen, ItemKind::Error).is_empty());
    assert_eq!(seen.statuses(), [ToolStatus::Error]);
}

#[tokio::test]
async fn what_a_preview_cuts_can_be_read_by_its_handle() {
    let long = "x".repeat(Preview::MAX + 1);
    let script = [call(&[("a", "{}"), ("b", "{}")]), say(&long)];
    let tools = [Fake::new("a", Does::Says(long.clone())).registered(), Fake::says("b").registered()];
    let seen = Case::of(&script, tools).run().await;
    let results = completed(&seen, ItemKind::ToolCall);
    let handles: Vec<Option<&str>> =
        results.iter().map(|(item, _)| item.output.as_ref().and_then(|p| p.handle.as_deref())).collect();
    let expected: Vec<Option<&str>> = results
        .iter()
        .map(|(item, _)| (item.name.as_deref() == Some("a")).then_some(item.id.as_str()))
        .collect();
    assert_eq!(handles, expected);
    let (answer, _) = completed(&seen, ItemKind::AgentMessage).pop().expect("an answer");
    assert_eq!(answer.output.and_then(|p| p.handle), Some(answer.id));
}

#[tokio::test]
async fn attempts_tell_their_cost_where_the_price_is_known() {
    for (price, expected) in [(None, None), (Some(Price::flat(10.0, 1.0, 20.0)), Some(200.0 / 1e6))] {
        let mut model = Plays::new(&[("main", &[say("done")])]);
        model.profile.price = price;
        let model = Arc::new(model);
        let seen = Case::new(looping(definition("main"), &model, []), &model).run().await;
        let costs = seen.events.iter().filter_map(|(_, e)| match e {
            EventBody::ModelAttempt { cost_usd, .. } => Some(*cost_usd),
            _ => None,
        });
        assert_eq!(costs.collect::<Vec<_>>(), [expected]);
    }
}

fn plan(steps: &[(&str, &str)]) -> String {
    let item = |(step, status): &(&str, &str)| format!(r#"{{"step":"{step}","status":"{status}"}}"#);
    format!(r#"{{"items":[{}]}}"#, steps.iter().map(item).collect::<Vec<_>>().join(","))
}

/// What is told of the plan: begun, each update, completed.
fn plans(seen: &Seen) -> Vec<String> {
    let of = |e: &EventBody| match e {
        EventBody::ItemStarted { item } if item.kind == ItemKind::TodoList => Some("begun".into()),
        EventBody::ItemUpdated { item: ItemKind::TodoList, delta, .. } => Some(delta.clone()),
        EventBody::ItemCompleted { item, outcome: ItemOutcome::Ok, .. }
            if item.kind == ItemKind::TodoList =>
        {
            Some(format!("done {}", text(&item.output)))
        }
        _ => None,
    };
    seen.events.iter().filter_map(|(_, e)| of(e)).collect()
}

#[tokio::test]
async fn a_plan_is_one_item_that_completes_with_the_run() {
    let (first, second) = (plan(&[("read", "in_progress"), ("write", "pending")]), plan(&[("read", "done")]));
    let script = [call(&[("update_plan", &first)]), call(&[("update_plan", &second)]), say("done")];
    let seen = Case::of(&script, [update_plan::tool()]).run().await;
    let said = plans(&seen);
    assert_eq!(said, ["begun".to_owned(), first, second.clone(), format!("done {second}")]);
    assert_eq!(seen.told(), ["the plan is shown: 0 of 2 steps done", "the plan is shown: 1 of 1 steps done"]);
    let case = |journal: &Arc<MemoryJournal>, resumed| Case {
        journal: Arc::clone(journal),
        resumed,
        ..Case::of(&script, [update_plan::tool()])
    };
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false).run().await;
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        assert_eq!(plans(&case(&cut, true).run().await).last(), said.last(), "cut after {commits}");
    }
}

#[tokio::test]
async fn a_plan_that_is_no_overview_is_refused() {
    let step = "x".repeat(201);
    let wide = "é".repeat(150);
    let many: Vec<(&str, &str)> = vec![("s", "done"); 51];
    for (plan, status) in [
        (plan(&[(&step, "done")]), ToolStatus::Refused),
        (plan(&many), ToolStatus::Refused),
        (plan(&[("s", "perhaps")]), ToolStatus::Refused),
        (plan(&[(&wide, "done")]), ToolStatus::Error),
        (plan(&many[..50]), ToolStatus::Ok),
    ] {
        let seen =
            Case::of(&[call(&[("update_plan", &plan)]), say("done")], [update_plan::tool()]).run().await;
        assert_eq!(seen.statuses(), [status], "{:?}", seen.told());
        assert_eq!(plans(&seen).is_empty(), status != ToolStatus::Ok);
    }
}

/// Somebody follows those topics.
struct Follows(&'static [&'static str]);

impl Topics for Follows {
    fn listens(&self, topic: &str) -> bool {
        self.0.contains(&topic)
    }
}

/// A root whose `sub` succeeds and whose `bad` fails, with followers of those topics.
async fn followed(topics: &'static [&'static str]) -> Seen {
    let root = [call(&[("agent_sub", r#"{"task": "t"}"#), ("agent_bad", r#"{"task": "b"}"#)]), say("done")];
    let broken = Reply::Gives(vec![ModelEvent::Failed(ModelFault::fatal(FailureClass::Model, "it broke"))]);
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &[say("a part")]), ("bad", &[broken])]));
    let below = ["sub", "bad"].map(|id| as_tool(&looping(definition(id), &model, [])));
    let mut main = definition("main");
    main.limits.parallel_tool_calls = 1;
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(|scope| {
        scope.topics = Arc::new(Follows(topics));
        scope.chain = Chain { hops: 2, ancestors: vec![agent_id("earlier")] };
    });
    Case { scope, ..Case::new(looping(main, &model, below), &model) }.run().await
}

#[tokio::test]
async fn beginnings_and_ends_of_runs_are_messages_where_somebody_listens() {
    let seen = followed(&["agent_invoked", "agent_result", "agent_error"]).await;
    let told: Vec<(String, String)> = seen
        .messages
        .iter()
        .map(|m| (m.topic.clone(), m.payload["agent"].as_str().unwrap_or_default().to_owned()))
        .collect();
    let pair = |topic: &str, agent: &str| (topic.to_owned(), agent.to_owned());
    assert_eq!(
        told,
        [
            pair("agent_invoked", "main"),
            pair("agent_invoked", "sub"),
            pair("agent_result", "sub"),
            pair("agent_invoked", "bad"),
            pair("agent_error", "bad"),
            pair("agent_result", "main"),
        ]
    );
    let of = |at: usize| &seen.messages[at];
    assert_eq!(of(1).payload["task"]["text"], "t");
    assert_eq!((&of(1).payload["depth"], of(1).payload["parent"].is_string()), (&1.into(), true));
    assert_eq!(
        (&of(2).payload["content"]["text"], &of(2).payload["status"]),
        (&"a part".into(), &"success".into())
    );
    assert_eq!(
        (&of(4).payload["class"], &of(4).payload["error"]["text"]),
        (&"model".into(), &"it broke".into())
    );
    assert!(of(5).payload["spend"]["usage"].is_object() && of(5).payload.get("parent").is_none());
    let path = |ids: &[&str]| ids.iter().map(|id| agent_id(id)).collect::<Vec<_>>();
    assert_eq!(of(2).chain, Chain { hops: 3, ancestors: path(&["earlier", "main", "sub"]) });
    assert_eq!(of(5).chain, Chain { hops: 3, ancestors: path(&["earlier", "main"]) });
    assert!(seen.messages.iter().all(|m| m.correlation.as_ref().is_some_and(|c| c.as_str() == "s")));
}

#[tokio::test]
async fn nothing_is_made_for_topics_that_nobody_follows() {
    assert!(followed(&[]).await.messages.is_empty());
    assert_eq!(followed(&["agent_error"]).await.messages.len(), 1);
}

#[tokio::test]
async fn a_beginning_is_published_once_however_often_the_run_is_cut_off() {
    let script = [call(&[("a", "{}")]), say("done")];
    let case = |journal: &Arc<MemoryJournal>, resumed| {
        let scope: Box<dyn FnOnce(&mut TurnScope)> =
            Box::new(|scope| scope.topics = Arc::new(Follows(&["agent_invoked", "agent_result"])));
        let tool = Fake::says("a").registered();
        Case { journal: Arc::clone(journal), resumed, scope, ..Case::of(&script, [tool]) }
    };
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false).run().await;
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        let seen = case(&cut, true).run().await;
        let topics: Vec<&str> = seen.messages.iter().map(|m| m.topic.as_str()).collect();
        assert_eq!(topics, ["agent_invoked", "agent_result"], "cut after {commits}");
    }
}

/// Counts live events, and is there or not.
struct Watcher(bool, Mutex<Vec<EventBody>>);

impl Observer for Watcher {
    fn live(&self, event: Event) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(event.body);
    }

    fn watched(&self, _: &SessionId) -> bool {
        self.0
    }
}

#[tokio::test]
async fn parts_of_an_answer_are_made_only_for_those_who_watch() {
    for (there, expected) in [(true, 2), (false, 0)] {
        let watcher = Arc::new(Watcher(there, Mutex::default()));
        let shared = Arc::clone(&watcher);
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.observer = shared);
        Case { scope, ..Case::of(&[reasons("so", ScriptedModel::say("done"))], []) }.run().await;
        let live = watcher.1.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = live.iter().filter(|e| matches!(e, EventBody::ItemUpdated { .. })).count();
        assert_eq!((parts, live.len()), (expected, expected));
    }
}
