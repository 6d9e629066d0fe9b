//! Long turns: how much of them is read when they go on, and what becomes of a checkpoint that cannot be read.

use std::ops::RangeInclusive;

use drupe_agent::{Compaction, Journal, MemoryJournal, RecordedTurn};
use rusqlite::Connection;

use super::{
    crash::{REACHED, Victim},
    resume::goes_on,
    *,
};

/// Bytes of each result.
const RESULT: usize = 20_000;

/// A turn whose root has begun.
async fn begun(store: &Store) -> TurnId {
    let turn = store.accept(message("s", "1", "hello")).await.unwrap().turn;
    let root = ids::root_invocation(&turn);
    store.start_turn(TurnStart { root: root.clone(), ..start(&turn, "s", vec![]) }).await.unwrap();
    store
        .commit(batch_of(&turn, vec![begin(root.as_str(), "main", None, "hello"), first(&root)]))
        .await
        .unwrap();
    turn
}

fn first(root: &InvocationId) -> Entry {
    moved(step("r", 1), root)
}

/// An entry as one of that run.
fn moved(entry: Entry, root: &InvocationId) -> Entry {
    let text = serde_json::to_string(&entry).unwrap();
    serde_json::from_str(&text.replace(invocation("r").as_str(), root.as_str())).unwrap()
}

/// Commits of some steps of a turn, a call each; each tenth sets the older results aside, as one does whose window is full.
fn steps(turn: &TurnId, steps: RangeInclusive<u32>) -> Vec<Batch> {
    let root = ids::root_invocation(turn);
    let mut batches = Vec::new();
    for at in steps {
        let effect = ids::effect(turn, &root, at, 0);
        let call = |entry: Entry| {
            let text = serde_json::to_string(&moved(entry, &root)).unwrap();
            let known = self::effect("r", at, 0);
            serde_json::from_str::<Entry>(&text.replace(known.as_str(), effect.as_str())).unwrap()
        };
        let asked = vec![
            moved(answer("r", at, "", &[&format!("tool_{at}")]), &root),
            call(intent("r", at, 0, EffectClass::Pure)),
        ];
        let mut went_on = vec![call(result("r", at, 0, &"x".repeat(RESULT)))];
        if at.is_multiple_of(10) {
            went_on.push(Entry::Compacted {
                invocation: root.clone(),
                step: at + 1,
                compaction: Compaction::Elided { before: at - 1 },
                model: String::new(),
                usage: Usage::default(),
                cost_usd: Some(0.0),
                estimated: false,
                stop: Default::default(),
                told: None,
            });
        }
        went_on.push(moved(step("r", at + 1), &root));
        batches.extend([asked, went_on].map(|entries| batch_of(turn, entries)));
    }
    batches
}

async fn record(store: &Store, turn: &TurnId, of: RangeInclusive<u32>) {
    for batch in steps(turn, of) {
        store.commit(batch).await.unwrap();
    }
}

/// The row that the checkpoint of the only turn reaches to, and its size.
fn checkpoint(home: &Home) -> Option<(i64, usize)> {
    let db = Connection::open(home.path()).unwrap();
    let mut find = db.prepare("SELECT upto, length(body) FROM checkpoints").unwrap();
    let mut all = find.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?))).unwrap();
    all.next().map(Result::unwrap).map(|(upto, size)| (upto, usize::try_from(size).unwrap()))
}

fn pruned(mut turn: RecordedTurn) -> RecordedTurn {
    turn.prune();
    turn
}

/// What a turn comes to that is read from its first row on.
async fn from_the_log(store: &Store, home: &Home, turn: &TurnId) -> RecordedTurn {
    Connection::open(home.path()).unwrap().execute("DELETE FROM checkpoints", []).unwrap();
    store.recorded(turn).await.unwrap()
}

/// The victim of the test below.
pub async fn work_on(storage: &Storage) {
    let store = Home::new().open_as(storage).unwrap();
    let turn = begun(&store).await;
    record(&store, &turn, 1..=500).await;
}

#[tokio::test]
async fn a_long_turn_whose_process_was_killed_reads_its_checkpoint_and_the_rows_after_it() {
    let home = Home::new();
    let mut victim = Victim::start("work 0", &home.path());
    while victim.line() != REACHED {}
    victim.kill();
    let store = home.open();
    let turn = store.unfinished().await.unwrap().remove(0).turn;
    let rows = store.turn_rows(&turn).await.unwrap().unwrap();
    let (_, kept) = checkpoint(&home).expect("it is long");
    let resumed = store.resume(&turn).await.unwrap();
    assert!(resumed.rows * 4 < 1_000, "{} of a thousand rows and more", resumed.rows);
    assert!(resumed.bytes < 500 * RESULT / 4 && resumed.bytes > kept, "{resumed:?}", resumed = resumed.bytes);
    assert_eq!(rows.entries.iter().filter(|(_, entry)| matches!(entry, Entry::Result { .. })).count(), 500);
    assert_eq!(pruned(resumed.recorded), pruned(from_the_log(&store, &home, &turn).await));
    let whole = store.resume(&turn).await.unwrap();
    assert!(whole.rows > 1_000 && whole.bytes > 500 * RESULT, "{} rows, {} bytes", whole.rows, whole.bytes);
}

#[tokio::test]
async fn a_turn_goes_on_from_a_checkpoint_and_takes_it_along_when_it_ends() {
    let home = Home::new();
    let store = home.open();
    let turn = begun(&store).await;
    record(&store, &turn, 1..=120).await;
    assert!(checkpoint(&home).is_some());
    goes_on(&store, &turn).await;
    store.finish_turn(done(&turn, "done")).await.unwrap();
    assert_eq!(checkpoint(&home), None);
    // One that was begun before the end comes too late.
    store.check_point(1).await;
    assert_eq!(checkpoint(&home), None);
    assert_eq!(store.recorded(&turn).await, Ok(RecordedTurn::default()));
}

#[tokio::test]
async fn a_short_turn_has_no_checkpoint() {
    let home = Home::new();
    let store = home.open();
    let turn = begun(&store).await;
    record(&store, &turn, 1..=40).await;
    assert_eq!(checkpoint(&home), None);
}

#[tokio::test]
async fn checkpoints_come_to_less_than_the_log_and_none_is_written_that_spares_nothing() {
    for compacts in [true, false] {
        let home = Home::new();
        let store = home.open_as(&Storage::Process(home.path())).unwrap();
        let turn = begun(&store).await;
        let (mut last, mut written, mut logged) = (None, 0, 0);
        for mut batch in steps(&turn, 1..=300) {
            batch.entries.retain(|entry| compacts || !matches!(entry, Entry::Compacted { .. }));
            logged += serde_json::to_string(&batch.entries).unwrap().len();
            store.commit(batch).await.unwrap();
            let now = checkpoint(&home);
            if now != last {
                written += now.expect("it stays").1;
                last = now;
            }
        }
        let resumed = store.resume(&turn).await.unwrap();
        let Some((_, kept)) = last else {
            assert!(!compacts && resumed.bytes >= logged, "{} of {logged}", resumed.bytes);
            continue;
        };
        assert!(compacts && written < logged / 2, "{written} for {logged}");
        assert!(resumed.bytes < kept + 1_200_000, "{} bytes from {kept}", resumed.bytes);
    }
}

#[tokio::test]
async fn a_checkpoint_that_cannot_be_read_is_no_fault() {
    let broken = [
        "UPDATE checkpoints SET body = '{'",
        "UPDATE checkpoints SET body = '{\"recorded\":{\"r\":1},\"open\":[]}'",
        "UPDATE checkpoints SET version = 99",
        "UPDATE checkpoints SET upto = upto * 2",
        "UPDATE checkpoints SET upto = 0",
    ];
    let home = Home::new();
    let store = home.open();
    let turn = begun(&store).await;
    record(&store, &turn, 1..=120).await;
    let db = Connection::open(home.path()).unwrap();
    let kept: (i64, i64, String) = db
        .query_row("SELECT upto, version, body FROM checkpoints", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap();
    let whole = from_the_log(&store, &home, &turn).await;
    for how in broken {
        db.execute("INSERT OR REPLACE INTO checkpoints VALUES (1, ?1, ?2, ?3)", kept.clone()).unwrap();
        assert_ne!(store.recorded(&turn).await.unwrap(), whole, "the whole one is used");
        assert_eq!(db.execute(how, []).unwrap(), 1);
        assert_eq!(store.recorded(&turn).await.unwrap(), whole, "{how}");
    }
    // And it is replaced by the next.
    db.execute("UPDATE checkpoints SET version = 99", []).unwrap();
    store.check_point(1).await;
    assert_ne!(store.recorded(&turn).await.unwrap(), whole);
}

#[tokio::test]
async fn what_a_turn_records_after_a_restart_counts_on_from_its_checkpoint() {
    let home = Home::new();
    let store = home.open();
    let turn = begun(&store).await;
    record(&store, &turn, 1..=100).await;
    let before = checkpoint(&home).expect("it is long");
    for at in 101..=140 {
        // Each time by a process of its own.
        let store = home.open();
        record(&store, &turn, at..=at).await;
    }
    let after = checkpoint(&home).expect("it is long");
    assert!(after.0 > before.0, "{before:?} {after:?}");
    let memory = MemoryJournal::default();
    let root = ids::root_invocation(&turn);
    memory
        .commit(batch_of(&turn, vec![begin(root.as_str(), "main", None, "hello"), first(&root)]))
        .await
        .unwrap();
    for batch in steps(&turn, 1..=140) {
        memory.commit(batch).await.unwrap();
    }
    assert_eq!(pruned(store.recorded(&turn).await.unwrap()), pruned(memory.recorded(&turn)));
}

#[tokio::test]
async fn an_item_that_was_open_at_a_checkpoint_is_closed_when_the_turn_goes_on() {
    let home = Home::new();
    let store = home.open();
    let turn = begun(&store).await;
    let told = [item_started("before"), item_started("ended"), item_completed("ended")];
    store.record_events(session("s"), Some(turn.clone()), told.into()).await.unwrap();
    home.clock.advance(250);
    record(&store, &turn, 1..=120).await;
    assert!(checkpoint(&home).is_some());
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 1);
    let events = store.turn_rows(&turn).await.unwrap().unwrap().events;
    let EventBody::ItemCompleted { item, outcome, elapsed_ms } = &events.last().unwrap().body else {
        panic!("{events:?}");
    };
    assert_eq!((item.id.as_str(), *outcome, *elapsed_ms), ("before", ItemOutcome::Interrupted, 250));
    assert_eq!(store.resume(&turn).await.unwrap().interrupted, 0);
}

#[tokio::test]
#[ignore = "prints figures"]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn what_checkpoints_cost_and_spare() {
    for (compacts, how) in [(true, "older results are set aside"), (false, "all is still in the window")] {
        let home = Home::new();
        let store = home.open_as(&Storage::Process(home.path())).unwrap();
        let turn = begun(&store).await;
        let (mut last, mut with, mut without) = (None, Vec::new(), Vec::new());
        for mut batch in steps(&turn, 1..=500) {
            batch.entries.retain(|entry| compacts || !matches!(entry, Entry::Compacted { .. }));
            let began = std::time::Instant::now();
            store.commit(batch).await.unwrap();
            let took = began.elapsed();
            let now = checkpoint(&home);
            if now == last {
                without.push(took)
            } else {
                with.push(took)
            }
            last = now;
        }
        let read = |resumed: crate::Resumed| format!("{} rows, {} KiB", resumed.rows, resumed.bytes / 1024);
        let kept = last.map_or(0, |(_, size)| size) / 1024;
        let after = read(store.resume(&turn).await.unwrap());
        Connection::open(home.path()).unwrap().execute("DELETE FROM checkpoints", []).unwrap();
        let before = read(store.resume(&turn).await.unwrap());
        without.sort();
        println!(
            "500 steps, {how}: {before} without a checkpoint, {after} with the last of {} ({kept} KiB); a commit takes {:?}, \
             those that write one {:?} in all",
            with.len(),
            without[without.len() / 2],
            with.iter().sum::<std::time::Duration>()
        );
    }
}
