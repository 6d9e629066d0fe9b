//! Events that the entries of their row tell of: kept as references, read back as they were published.

use drupe_agent::{Batch, Journal};

use super::*;

fn place(id: &str) -> AgentRef {
    AgentRef { id: "agent".parse().unwrap(), invocation: invocation(id), parent: None, depth: 0 }
}

/// Commits these entries with the events by which the loop tells them, and a remark between.
async fn commit(store: &Store, turn: &TurnId, entries: Vec<Entry>) -> usize {
    let told =
        |entry: &Entry| entry.events().into_iter().map(|body| (Some(place("a")), body)).collect::<Vec<_>>();
    let mut events: Vec<_> = entries.iter().flat_map(told).collect();
    events.insert(1, remark("between"));
    let told = events.len();
    let (session, messages) = (session("s"), Vec::new());
    store.commit(Batch { session, turn: turn.clone(), entries, events, messages }).await.unwrap();
    told
}

async fn kept(store: &Store) -> String {
    let last = "SELECT events FROM log ORDER BY id DESC LIMIT 1";
    store.read(move |db| Ok(db.query_row(last, [], |row| row.get(0))?)).await.unwrap()
}

#[tokio::test]
async fn what_an_entry_says_is_not_kept_twice_and_is_read_as_it_was_published() {
    let home = Home::new();
    let store = home.open();
    let turn = store.accept(message("s", "1", "go")).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let call = |index, content: &str| {
        let mut intent = intent("a", 1, index, EffectClass::Pure);
        if let Entry::Intent { input, .. } = &mut intent {
            *input = Some(drupe_extension_api::Preview::of("{}"));
        }
        vec![intent, result("a", 1, index, content)]
    };
    let told = commit(&store, &turn, call(0, "the result")).await;
    let row = kept(&store).await;
    assert_eq!((told, row.matches("\"of\":").count(), row.contains("the result")), (3, 2, false), "{row}");
    // Who reads events need not read what is long.
    let told = told + commit(&store, &turn, call(1, &"x".repeat(100_000))).await;
    let row = kept(&store).await;
    assert!(!row.contains("\"of\":"), "{}", &row[..200]);
    let published: Vec<Event> =
        home.published.lock().unwrap().iter().map(|event| (**event).clone()).collect();
    assert_eq!(published.len(), told);
    assert_eq!(store.events_after(&session("s"), 0, 99).await.unwrap(), published);
    // From any position, and after the next start.
    store.close().await.unwrap();
    let store = home.open();
    for after in 0..told {
        let read = store.events_after(&session("s"), after as u64, 99).await.unwrap();
        assert_eq!(read, published[after..]);
    }
}
