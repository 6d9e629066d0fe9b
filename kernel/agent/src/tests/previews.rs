//! What a call would change, told with the question about it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use drupe_extension_api::{
    EffectClass, EffectId, Fault, ToolPreview, ToolSpec, ToolStatus,
    control::{ApprovalState, CallPreview},
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json, value::RawValue};

use super::{approvals::Asks, *};
use crate::*;

/// A tool that says what a call would change, and which seal each call that runs gets back.
struct Previewing {
    spec: Arc<ToolSpec>,
    /// None hangs.
    says: Option<Result<ToolPreview, Fault>>,
    asked: Arc<Mutex<usize>>,
    shown: Arc<Mutex<Vec<Option<String>>>>,
}

impl Tool for Previewing {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        "fake"
    }

    fn call(&self, _: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        self.shown.lock().expect("it is whole").push(context.agreement.shown);
        let given = context.agreement.given.unwrap_or_else(|| "ran".into());
        Box::pin(std::future::ready(Ok(ToolOutput::text(given))))
    }

    fn preview<'a>(
        &'a self,
        _: Box<RawValue>,
        _: EffectId,
        _: &'a Run,
    ) -> BoxFuture<'a, Result<ToolPreview, Fault>> {
        *self.asked.lock().expect("it is whole") += 1;
        match self.says.clone() {
            Some(said) => Box::pin(std::future::ready(said)),
            None => Box::pin(std::future::pending()),
        }
    }
}

#[derive(Default)]
struct Scene {
    asked: Arc<Mutex<usize>>,
    shown: Arc<Mutex<Vec<Option<String>>>>,
    journal: Arc<MemoryJournal>,
}

impl Scene {
    fn tool(&self, name: &str, says: Option<Result<ToolPreview, Fault>>) -> Arc<Registered> {
        let asks = matches!(&says, Some(Ok(preview)) if preview.input.is_some());
        let annotations = json!({
            "needs_approval": true, "previews": true, "needs_input": asks, "effect": EffectClass::Idempotent,
        });
        let spec = json!({"name": name, "description": "", "input_schema": {"type": "object"}, "annotations": annotations});
        let spec = Arc::new(serde_json::from_value(spec).expect("a tool"));
        let (asked, shown) = (Arc::clone(&self.asked), Arc::clone(&self.shown));
        Registered::new(Arc::new(Previewing { spec, says, asked, shown })).expect("a valid schema")
    }

    /// A turn that calls each of the tools in one step.
    async fn run(&self, says: Vec<Option<Result<ToolPreview, Fault>>>, resumed: bool) -> Seen {
        let names: Vec<String> = (0..says.len()).map(|n| format!("t{n}")).collect();
        let calls: Vec<_> = names.iter().map(|name| (name.as_str(), "{}")).collect();
        let script = [call(&calls), say("done")];
        let tools = names.iter().zip(says).map(|(name, says)| self.tool(name, says));
        let policy = Asks::answers(ApprovalState::Allowed, Duration::from_secs(60));
        let journal = Arc::clone(&self.journal);
        Case { policy, journal, resumed, ..Case::of(&script, tools.collect::<Vec<_>>()) }.run().await
    }
}

fn says(text: &str, seal: &str) -> Option<Result<ToolPreview, Fault>> {
    Some(Ok(ToolPreview { text: text.into(), seal: Some(seal.into()), input: None }))
}

/// The previews of all questions.
fn previews(seen: &Seen) -> Vec<CallPreview> {
    let of = |entry: &Entry| match entry {
        Entry::Asked { question, .. } => question.preview.clone(),
        _ => None,
    };
    seen.entries.iter().filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_question_tells_what_the_call_would_change_and_the_call_gets_the_seal_of_that() {
    let scene = Scene::default();
    let seen = scene.run(vec![says("-a\n+b\n", "seal")], false).await;
    assert_eq!(previews(&seen), [CallPreview { text: "-a\n+b\n".into(), failed: false, input: None }]);
    assert_eq!(*scene.shown.lock().expect("it is whole"), [Some("seal".to_owned())]);
    // By every process that goes on with it, whether it asks or only runs, and what was shown is not asked for again.
    for cut in 1..scene.journal.batches().len() {
        let after = Scene { journal: crashed(&scene.journal, cut).await, ..Scene::default() };
        let seen = after.run(vec![says("another", "another")], true).await;
        assert_eq!(seen.statuses(), [ToolStatus::Ok]);
        let asked_before = *after.asked.lock().expect("it is whole") == 0;
        let expected = if asked_before { "seal" } else { "another" };
        assert!(
            after.shown.lock().expect("it is whole").iter().all(|shown| shown.as_deref() == Some(expected)),
            "cut after {cut}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_gets_what_a_person_filled_in_whichever_process_runs_it() {
    let asks = |schema: Value| {
        let preview = ToolPreview { text: "How long?".into(), seal: None, input: Some(schema) };
        vec![Some(Ok(preview))]
    };
    let days = json!({"type": "object", "properties": {"days": {"type": "integer"}}});
    let scene = Scene::default();
    let seen = scene.run(asks(days.clone()), false).await;
    assert_eq!(previews(&seen)[0].input, Some(days.clone()));
    assert_eq!(seen.told(), [r#"{"days":3}"#]);
    for cut in 1..scene.journal.batches().len() {
        let after = Scene { journal: crashed(&scene.journal, cut).await, ..Scene::default() };
        let seen = after.run(asks(days.clone()), true).await;
        assert_eq!(seen.told(), [r#"{"days":3}"#], "cut after {cut}");
    }
    // What nobody can be asked for is not asked for, and the call is told so.
    let seen = Scene::default().run(asks(json!({"type": "string"})), false).await;
    let preview = &previews(&seen)[0];
    assert!(preview.failed && preview.input.is_none(), "{preview:?}");
    assert_eq!(seen.told(), ["ran"]);
}

#[tokio::test(start_paused = true)]
async fn a_preview_that_fails_hangs_or_is_huge_holds_up_no_question() {
    let scene = Scene::default();
    let huge = "ä".repeat(ToolPreview::MAX);
    let long = "s".repeat(ToolPreview::LONGEST_SEAL + 1);
    let all = vec![None, None, Some(Err(Fault::invalid("no such file"))), says(&huge, ""), says("x", &long)];
    let seen = scene.run(all, false).await;
    assert_eq!(seen.statuses(), [ToolStatus::Ok; 5]);
    // One deadline for all of them, and the minute in which the person answers.
    assert_eq!(seen.elapsed.as_secs(), 62, "{:?}", seen.elapsed);
    let shown = previews(&seen);
    for (index, text) in
        [(0, "longer than 2 s"), (1, "longer than 2 s"), (2, "no such file"), (4, "its seal has 257")]
    {
        assert!(shown[index].failed && shown[index].text.contains(text), "{:?}", shown[index]);
    }
    assert!(!shown[3].failed && shown[3].text.len() < ToolPreview::MAX + 100, "{}", shown[3].text.len());
    assert!(shown[3].text.ends_with("[32768 more bytes are not shown]"));
    let sealed = scene.shown.lock().expect("it is whole").iter().flatten().count();
    assert_eq!(sealed, 1, "what was not shown has no seal");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_is_asked_about_is_not_asked_for_a_preview() {
    let scene = Scene::default();
    let quiet = scene.tool("t0", says("x", "x"));
    let mut spec = (**quiet.spec()).clone();
    spec.annotations.needs_approval = false;
    let (asked, shown) = (Arc::clone(&scene.asked), Arc::clone(&scene.shown));
    let tool = Previewing { spec: Arc::new(spec), says: says("x", "x"), asked, shown };
    let script = [call(&[("t0", "{}")]), say("done")];
    let seen = Case::of(&script, [Registered::new(Arc::new(tool)).expect("a valid schema")]).run().await;
    assert_eq!((seen.statuses(), *scene.asked.lock().expect("it is whole")), (vec![ToolStatus::Ok], 0));
    assert_eq!(*scene.shown.lock().expect("it is whole"), [None]);
}
