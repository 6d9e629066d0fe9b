//! What a turn leaves in the log: rows and bytes. Prints figures; run it with
//! `cargo test -p drupe-journal sizes -- --ignored --nocapture`.

use drupe_agent::{
    Agent, Definition, Journal, LoopAgent, RegistryBuilder, ScriptedModel, Task, TurnScope, run_turn,
    update_plan,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;

/// A turn of one agent, with a plan and another call before its answer.
async fn works(store: &Store, n: usize) {
    let id = format!("turn {n}");
    let turn = store.accept(message("s", &id, "What do you think of the weather?")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let plan = json!({"items": [{"step": "look", "status": "in_progress"}]}).to_string();
    let definition = json!({"id": "main", "instructions": "Work."});
    let definition: Definition = serde_json::from_value(definition).unwrap();
    let limits = definition.limits.clone();
    let model = ScriptedModel::new([
        ScriptedModel::call(&[("update_plan", &plan)]),
        ScriptedModel::call(&[("weather", r#"{"of": "today"}"#)]),
        ScriptedModel::say("An answer of a usual length, that says something about the weather."),
    ]);
    let mut tools = RegistryBuilder::default();
    tools.add(update_plan::tool()).unwrap();
    let agent: Arc<dyn Agent> =
        Arc::new(LoopAgent::new(definition, Arc::new(tools.build()), Arc::new(model), true));
    let scope = TurnScope::new(session("s"), turn, "hello".into(), Arc::new(store.clone()));
    let outcome =
        run_turn(Arc::new(scope), &agent, Task::new("hello"), &limits, CancellationToken::new()).await;
    store.commit(outcome.last).await.unwrap();
}

#[expect(clippy::print_stderr, reason = "its output is its purpose")]
#[tokio::test]
#[ignore = "prints figures"]
async fn what_a_turn_leaves_in_the_log() {
    let home = Home::new();
    let store = home.open();
    for n in 0..100 {
        works(&store, n).await;
    }
    let figures: (u32, u32, u32, u32) = store
        .read(|db| {
            let sql = "SELECT count(*), sum(positions), sum(octet_length(events)), sum(octet_length(entries)) FROM log";
            Ok(db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?)
        })
        .await
        .unwrap();
    let [rows, positions, events, entries] = <[u32; 4]>::from(figures).map(|sum| sum / 100);
    eprintln!("a turn: {rows} rows, {positions} events, {events} bytes of them, {entries} bytes of entries");
}
