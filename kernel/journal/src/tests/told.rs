//! Events of runs: made from the entries of their row, and read as they were published.

use drupe_agent::{Batch, Journal};

use super::*;

/// Commits these entries of two runs; gives how many events tell of them.
async fn commit(store: &Store, turn: &TurnId, entries: Vec<Entry>) -> usize {
    let batch = Batch { runs: vec![place("a"), place("b")], ..batch_of(turn, entries) };
    let told = batch.events().len();
    store.commit(batch).await.unwrap();
    told
}

async fn kept(store: &Store) -> String {
    let last = "SELECT events FROM log ORDER BY id DESC LIMIT 1";
    store.read(move |db| Ok(db.query_row(last, [], |row| row.get(0))?)).await.unwrap()
}

/// A call of the first run, and between a remark of the other.
fn call(index: u32, content: &str) -> Vec<Entry> {
    let mut intent = intent("a", 1, index, EffectClass::Pure);
    if let Entry::Intent { input, .. } = &mut intent {
        *input = Some(drupe_extension_api::Preview::of("{}"));
    }
    let between = Entry::Told { invocation: invocation("b"), event: remark("between").1 };
    vec![intent, between, result("a", 1, index, content)]
}

#[tokio::test]
async fn events_of_runs_are_not_kept_and_are_read_as_they_were_published() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "go")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let mut told = commit(&store, &turn, call(0, "the result")).await;
    let row = kept(&store).await;
    assert_eq!((told, row.contains("kind"), row.matches("invocation").count()), (3, false, 2), "{row}");
    // Who reads events need not read what is long.
    told += commit(&store, &turn, call(1, &"x".repeat(100_000))).await;
    let row = kept(&store).await;
    assert!(row.matches("\"kind\":").count() >= 3 && row.len() < 20_000, "{}", &row[..200]);
    // The turn's own events stand around those of its last entries.
    let end = Entry::Told { invocation: invocation("a"), event: remark("last").1 };
    let done = TurnDone {
        last: Batch { runs: vec![place("a")], ..batch_of(&turn, vec![end]) },
        ..done(&turn, "hi")
    };
    store.finish_turn(done).await.unwrap();
    told += 2;
    let published: Vec<Event> =
        home.published.lock().unwrap().iter().map(|event| (**event).clone()).collect();
    assert_eq!(published.len(), told);
    assert!(published.iter().take(told - 1).all(|event| event.agent.is_some()));
    assert_eq!(store.events_after(&session("s"), 0, 99).await.unwrap(), published);
    // From any position, and after the next start.
    store.close().await.unwrap();
    let store = home.open();
    for after in 0..told {
        let read = store.events_after(&session("s"), after as u64, 99).await.unwrap();
        assert_eq!(read, published[after..]);
    }
}

#[tokio::test]
async fn a_row_that_refers_to_single_events_of_its_entries_is_read() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "go")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    commit(&store, &turn, call(0, "the result")).await;
    let before = store.events_after(&session("s"), 0, 99).await.unwrap();
    let of = |run, at: u32| {
        format!(r#"{{"agent":{},"of":[{at},0]}}"#, serde_json::to_string(&place(run)).unwrap())
    };
    let row = format!("[{},{},{}]", of("a", 0), of("b", 1), of("a", 2));
    let change = "UPDATE log SET events = ?1 WHERE id = (SELECT max(id) FROM log)";
    rusqlite::Connection::open(home.path()).unwrap().execute(change, [row]).unwrap();
    assert_eq!(store.events_after(&session("s"), 0, 99).await.unwrap(), before);
}

#[tokio::test]
async fn what_a_process_left_open_is_closed_by_an_entry() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "go")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let mut step = step("a", 1);
    if let Entry::Step { shown, .. } = &mut step {
        *shown = true;
    }
    commit(&store, &turn, vec![begin("a", "agent", None, "go"), step]).await;
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 1);
    let row = kept(&store).await;
    assert!(!row.contains("kind"), "{row}");
    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    assert!(matches!(rows.entries.last(), Some((_, Entry::Told { .. }))));
    let last = rows.events.last().unwrap();
    assert_eq!(last.agent, Some(place("a")));
    assert!(matches!(last.body, EventBody::ItemCompleted { outcome: ItemOutcome::Interrupted, .. }));
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 0);
}
