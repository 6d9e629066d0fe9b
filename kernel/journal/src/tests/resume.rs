//! How long a long turn takes to go on after a restart, and what others notice of it. Prints figures; run it with
//! `cargo test --release -p drupe-journal resume -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use drupe_agent::{
    Agent, Definition, Journal, LoopAgent, RegistryBuilder, ScriptedModel, Task, TurnScope, ids, run_turn,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

/// Records a turn of so many calls with results of so many bytes, whose last step was cut off.
async fn recorded(store: &Store, calls: u32, bytes: usize) -> TurnId {
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let run = ids::root_invocation(&turn);
    let root = run.as_str();
    let begun = TurnStart { root: run.clone(), ..start(&turn, "s", vec![]) };
    store.start_turn(begun).await.unwrap();
    let batch = |entries| batch_of(&turn, entries);
    store.commit(batch(vec![begin(root, "main", None, "hello"), step(root, 1)])).await.unwrap();
    for at in 1..=calls {
        let effect = ids::effect(&turn, &run, at, 0);
        let mut intent = intent(root, at, 0, EffectClass::Pure);
        let mut result = result(root, at, 0, &"x".repeat(bytes));
        if let (Entry::Intent { effect: of, .. }, Entry::Result { effect: to, .. }) =
            (&mut intent, &mut result)
        {
            (*of, *to) = (effect.clone(), effect);
        }
        store.commit(batch(vec![answer(root, at, "", &[&format!("tool_{at}")]), intent])).await.unwrap();
        store.commit(batch(vec![result, step(root, at + 1)])).await.unwrap();
    }
    turn
}

/// Time until the turn has its answer, and the longest that a question about another session took meanwhile.
pub async fn goes_on(store: &Store, turn: &TurnId) -> (Duration, Duration) {
    let definition = json!({"id": "main", "instructions": "Work.", "limits": {
        "max_turns": 1_000, "max_tool_calls": 1_000, "max_tokens_per_invocation": 100_000_000}});
    let definition: Definition = serde_json::from_value(definition).unwrap();
    let limits = definition.limits.clone();
    let model = Arc::new(ScriptedModel::new([ScriptedModel::say("done")]));
    let tools = Arc::new(RegistryBuilder::default().build());
    let agent: Arc<dyn Agent> = Arc::new(LoopAgent::new(definition, tools, model, true));
    let journal = Arc::new(store.clone());
    let resumed = store.resume(turn).await.unwrap();
    let scope = TurnScope {
        records: resumed.recorded.into(),
        ..TurnScope::new(session("s"), turn.clone(), "hello".into(), journal)
    };
    let asking = async {
        let mut longest = Duration::ZERO;
        loop {
            let asked = Instant::now();
            store.used_by_session(&session("other")).await.unwrap();
            store.session(&session("other"), 0, false).await.unwrap();
            longest = longest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(2)).await;
            LONGEST.with(|of| of.set(longest));
        }
    };
    let began = Instant::now();
    let (task, cancel) = (Task::new("hello"), CancellationToken::new());
    let running = run_turn(Arc::new(scope), &agent, task, &limits, cancel);
    let outcome = tokio::select! {
        outcome = running => outcome,
        () = asking => unreachable!("it asks for ever"),
    };
    assert_eq!(outcome.response.content, "done", "{:?}", outcome.response);
    (began.elapsed(), LONGEST.with(std::cell::Cell::get))
}

thread_local! {
    static LONGEST: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

#[tokio::test]
#[ignore = "prints figures"]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn how_long_a_long_turn_takes_to_go_on() {
    for calls in [75, 150, 300] {
        let home = Home::new();
        let store = home.open_as(&Storage::Process(home.path())).unwrap();
        let turn = recorded(&store, calls, 256 * 1024).await;
        store.close().await.unwrap();
        let store = home.open_as(&Storage::Process(home.path())).unwrap();
        store.accept(message("other", "2", "hello")).await.unwrap();
        let (took, others) = goes_on(&store, &turn).await;
        println!(
            "{calls:>4} calls of 256 KiB: {took:>8.0?} until the model is asked; others wait {others:.0?} at most"
        );
    }
}

#[tokio::test]
async fn a_turn_with_many_results_goes_on_where_it_was_cut_off() {
    let home = Home::new();
    let store = home.open();
    let turn = recorded(&store, 8, 300_000).await;
    let (_, _) = goes_on(&store, &turn).await;
}
