//! What is kept in memory of turns that have ended.

use super::*;
use crate::shared::lock;

/// Ends a turn; whether its result is kept, and what is told of it in full.
async fn ended(store: &Store, id: &str, text: &str, change: impl FnOnce(&mut TurnDone)) -> (bool, String) {
    let turn = store.accept(message("s", id, text)).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    let mut done = TurnDone { outbox: None, ..done(&turn, "yes") };
    change(&mut done);
    store.finish_turn(done).await.unwrap();
    let kept = lock(&store.recent).brief(&turn).is_some();
    let told = store.turn_result(&turn, false).await.unwrap().unwrap();
    let all = [told.input, told.content, told.error.unwrap_or_default(), told.diagnostics.concat()];
    (kept, all.concat())
}

#[tokio::test]
async fn what_is_long_of_a_turn_that_ended_is_read_back_and_not_kept_in_memory() {
    let home = Home::new();
    let store = home.open();
    let long = "x".repeat(100 * 1024);
    assert_eq!(ended(&store, "0", "ask", |_| {}).await, (true, "askyes".into()));
    for (id, text, change) in [
        ("1", "", (|done, long| done.response.content = long) as fn(&mut TurnDone, String)),
        ("2", "", |done, long| done.response.error = Some(long)),
        ("3", "", |done, long| done.diagnostics = vec![long]),
        ("4", &*long, |_, _| {}),
    ] {
        let (kept, told) = ended(&store, id, text, |done| change(done, long.clone())).await;
        assert!(!kept && told.contains(&long), "{id}: kept {kept}, {} bytes told", told.len());
    }
}
