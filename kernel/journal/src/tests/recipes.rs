//! What runs are made of: kept once for each content, and as long as a turn names it.

use drupe_agent::{
    Agent, Definition, LoopAgent, RegistryBuilder, ScriptedModel, Task, TurnScope, run_turn, update_plan,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Retention;

fn definition(instructions: &str) -> Definition {
    serde_json::from_value(json!({"id": "main", "instructions": instructions})).unwrap()
}

/// Runs a turn of an agent with these instructions.
async fn works(store: &Store, n: usize, instructions: &str) -> TurnId {
    let turn = store.accept(message("s", &n.to_string(), "hello")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let mut tools = RegistryBuilder::default();
    tools.add(update_plan::tool()).unwrap();
    let model = Arc::new(ScriptedModel::new([ScriptedModel::say("done")]));
    let agent = LoopAgent::new(definition(instructions), Arc::new(tools.build()), model, true);
    let (limits, agent): (_, Arc<dyn Agent>) = (agent.definition().limits.clone(), Arc::new(agent));
    let scope = TurnScope::new(session("s"), turn.clone(), "hello".into(), Arc::new(store.clone()));
    let outcome =
        run_turn(Arc::new(scope), &agent, Task::new("hello"), &limits, CancellationToken::new()).await;
    store.finish_turn(TurnDone { last: outcome.last, outbox: None, ..done(&turn, "done") }).await.unwrap();
    turn
}

async fn kept(store: &Store) -> (u32, u32) {
    let count = "SELECT (SELECT count(*) FROM recipes), (SELECT count(*) FROM recipe_uses)";
    store.read(move |db| Ok(db.query_row(count, [], |row| Ok((row.get(0)?, row.get(1)?)))?)).await.unwrap()
}

#[tokio::test]
async fn what_a_run_was_made_of_is_read_back_as_it_was_and_kept_once() {
    let home = Home::new();
    let store = home.open();
    for n in 0..3 {
        works(&store, n, "Work.").await;
    }
    let turn = works(&store, 3, "Rest.").await;
    assert_eq!(kept(&store).await, (2, 2));
    store.close().await.unwrap();
    let store = home.open();
    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    let named = rows.entries.iter().find_map(|(_, entry)| match entry {
        Entry::Begin { recipe, .. } => recipe.clone(),
        _ => None,
    });
    let recipe = &rows.recipes[&named.unwrap()];
    assert_eq!(recipe.definition, definition("Rest."));
    assert_eq!(recipe.tools, [(**update_plan::tool().spec()).clone()]);
}

#[tokio::test]
async fn it_leaves_with_the_last_turn_that_names_it() {
    let home = Home::new();
    let store = home.open();
    works(&store, 0, "Once.").await;
    works(&store, 1, "Work.").await;
    home.clock.advance(10 * 86_400_000);
    works(&store, 2, "Work.").await;
    works(&store, 3, "Rest.").await;
    assert_eq!(kept(&store).await, (3, 3));
    let keep = Retention { max_age_ms: Some(86_400_000), max_bytes: None };
    while store.let_go(keep).await.unwrap().more {}
    assert_eq!(kept(&store).await, (2, 2), "what the latest turns name is there");
}
