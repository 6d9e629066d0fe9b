//! Long readings let others in between, and short ones are spared what they do not need.

use std::cell::Cell;

use drupe_agent::Journal;
use drupe_extension_api::control::SessionDetail;
use futures_util::future::join;

use super::*;

/// Calls whose results fill nine parts. A short question is answered with every second part at least: the one who asks may
/// be woken after a short answer and the long one's next part are both there.
const LONG: u32 = 24;

/// A turn with so many calls, each with a result of half a megabyte; an ended one.
async fn long_turn(store: &Store, name: &str, calls: u32) -> TurnId {
    let turn = store.accept(message("s", name, name)).await.unwrap().turn;
    store.start_turn(start(&turn, "s", Vec::new())).await.unwrap();
    for at in 1..=calls {
        let first = (at == 1).then(|| begin(name, "main", None, "hello"));
        let called = [answer(name, at, "", &["one"]), intent(name, at, 0, EffectClass::Pure)];
        let entries = first.into_iter().chain(called).chain([result(name, at, 0, &"x".repeat(500_000))]);
        store.commit(batch_of(&turn, entries.collect())).await.unwrap();
    }
    store.finish_turn(done(&turn, name)).await.unwrap();
    turn
}

/// Asks for something long; gives how many short questions of others were answered meanwhile, one after the other.
async fn meanwhile<T>(store: &Store, long: impl Future<Output = T>) -> (u32, T) {
    let (over, mut answered) = (Cell::new(false), 0);
    let asked = async {
        let found = long.await;
        over.set(true);
        found
    };
    let others = async {
        while !over.get() {
            store.sessions().await.unwrap();
            answered += u32::from(!over.get());
        }
    };
    // Who asks is served in turn: with each part of the long answer a short one comes.
    let (found, ()) = join(asked, others).await;
    (answered, found)
}

#[tokio::test]
async fn others_are_answered_while_something_long_is_read() {
    let home = Home::new();
    let store = home.open();
    let turn = long_turn(&store, "a", LONG).await;
    store.close().await.unwrap();
    let store = home.open();
    let (others, detail) = meanwhile(&store, store.session(&session("s"), 0, false)).await;
    assert_eq!(
        (others > 0, detail.unwrap().unwrap().turns[0].transcript.len()),
        (true, 2 * LONG as usize + 1)
    );
    let (others, result) = meanwhile(&store, store.turn_result(&turn, false)).await;
    assert_eq!((others > 0, result.unwrap().unwrap().transcript.len()), (true, 2 * LONG as usize + 1));
    let (others, rows) = meanwhile(&store, store.turn_rows(&turn)).await;
    assert_eq!((others > 0, rows.unwrap().unwrap().entries.len()), (true, 3 * LONG as usize + 1));
    let (others, found) = meanwhile(&store, store.item(&session("s"), effect("a", 1, 0).as_str())).await;
    assert_eq!((others > 0, found.unwrap().unwrap().output.unwrap().len()), (true, 500_000));
}

#[tokio::test]
async fn others_are_answered_while_an_unknown_id_is_looked_for() {
    let home = Home::new();
    let store = home.open();
    long_turn(&store, "a", LONG).await;
    let unknown = effect("a", LONG + 1, 0);
    let (others, found) = meanwhile(&store, store.find(unknown.as_str())).await;
    assert_eq!((others > 0, found.unwrap()), (true, None));
    let (others, found) = meanwhile(&store, store.output(session("s"), unknown)).await;
    assert_eq!((others > 0, found.unwrap()), (true, None));
    let oldest = store.output(session("s"), effect("a", 1, 0)).await.unwrap();
    assert_eq!(oldest.unwrap().len(), 500_000, "it is behind all others");
}

#[tokio::test]
async fn what_cannot_be_the_id_of_a_run_or_a_call_is_not_looked_for_in_the_log() {
    let home = Home::new();
    let store = home.open();
    long_turn(&store, "a", 12).await;
    for name in ["made-up", "e-1", "call_0", "hello"] {
        let (others, found) = meanwhile(&store, store.find(name)).await;
        assert_eq!((others > 0, found.unwrap()), (false, None));
        let (others, found) = meanwhile(&store, store.output(session("s"), name.parse().unwrap())).await;
        assert_eq!((others > 0, found.unwrap()), (false, None));
    }
}

/// The inputs of a page.
fn inputs(page: &SessionDetail) -> Vec<&str> {
    page.turns.iter().map(|turn| turn.input.as_str()).collect()
}

#[tokio::test]
async fn a_session_that_is_longer_than_a_page_is_read_in_pages() {
    let home = Home::new();
    let store = home.open();
    for name in ["a", "b", "c", "d", "e"] {
        long_turn(&store, name, 9).await;
    }
    let session = session("s");
    let first = store.session(&session, 0, false).await.unwrap().unwrap();
    assert_eq!(inputs(&first), ["a", "b"]);
    let second = store.session(&session, first.next.unwrap(), false).await.unwrap().unwrap();
    assert_eq!(inputs(&second), ["c", "d"]);
    let last = store.session(&session, second.next.unwrap(), false).await.unwrap().unwrap();
    assert_eq!((inputs(&last), last.next), (vec!["e"], None));
    assert_eq!((last.status.turn_count, last.last_seq), (5, first.last_seq));
    let brief = store.session(&session, 0, true).await.unwrap().unwrap();
    assert_eq!((inputs(&brief).len(), brief.next), (5, None));
    assert!(brief.turns.iter().all(|turn| turn.transcript.is_empty() && turn.status.is_some()));
}

#[tokio::test]
async fn results_in_brief_come_in_pages_too() {
    let home = Home::new();
    let store = home.open();
    for number in 0..3 {
        store.accept(message("s", &number.to_string(), &"x".repeat(700_000))).await.unwrap();
    }
    let first = store.session(&session("s"), 0, true).await.unwrap().unwrap();
    let second = store.session(&session("s"), first.next.unwrap(), true).await.unwrap().unwrap();
    assert_eq!((first.turns.len(), second.turns.len(), second.next), (2, 1, None));
}
