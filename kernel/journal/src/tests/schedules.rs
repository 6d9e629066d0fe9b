//! Slots of schedules: each is settled once and begun once, whatever ends the kernel in between.

use std::collections::BTreeSet;

use drupe_extension_api::control::ScheduleRunState as State;
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::{RunEnded, SlotEntry};

fn waiting(slot: Timestamp) -> SlotEntry {
    SlotEntry { slot, last: None, slots: 1, state: State::Waiting, detail: None }
}

fn ended(state: State) -> RunEnded {
    RunEnded { state, detail: None, failures: 0, held_until: None, paused: None }
}

fn inbound(slot: Timestamp) -> Inbound {
    let session = SessionId::new("schedule:tea").unwrap();
    Inbound::new(
        Submit::new(session, slot.as_millisecond().to_string(), "drink tea"),
        Origin::Schedule("tea".into()),
    )
}

/// What a kernel does at a slot, up to a point at which it is killed; whether it got to the end.
async fn at_slot(store: &Store, slot: Timestamp, killed_after: usize) -> bool {
    let steps = async |step: usize| match step {
        0 => store.settle_slots("tea".into(), Some(slot), vec![waiting(slot)]).await.map(|_| ()),
        1 => store.begin_run("tea".into(), slot, Some(inbound(slot))).await.map(|_| ()),
        _ => store.end_run("tea".into(), slot, ended(State::Done)).await.map(|_| ()),
    };
    for step in 0..3 {
        if step == killed_after {
            return false;
        }
        steps(step).await.unwrap();
    }
    true
}

#[tokio::test]
async fn two_hundred_kernels_that_are_killed_around_slots_do_each_of_them_once() {
    let home = Home::new();
    let begin = Timestamp::from_millisecond(1_700_000_000_000).unwrap();
    let mut store = home.open();
    assert!(store.add_schedule("tea".into(), Some("{}".into()), "* * * * *".into()).await.unwrap());
    assert!(
        !store.add_schedule("tea".into(), None, String::new()).await.unwrap(),
        "there is one of that name"
    );
    let (mut kills, mut slot) = (0, begin);
    let mut turns = BTreeSet::new();
    while kills < 200 {
        slot = slot.checked_add(SignedDuration::from_mins(1)).unwrap();
        // One kernel after the other dies at some point of it, until one gets to the end.
        for killed_after in [kills % 3, (kills / 3) % 3, 3] {
            if !at_slot(&store, slot, killed_after).await {
                kills += 1;
                drop(store);
                store = home.open();
            }
        }
        let newest = store.schedule_runs("tea".into(), 1).await.unwrap().remove(0);
        assert_eq!((newest.slot, newest.state), (slot, State::Done));
        assert!(turns.insert(newest.turn.unwrap()), "a turn of its own");
    }
    let count = i64::try_from(turns.len()).unwrap();
    let rows = |db: &rusqlite::Connection| {
        Ok(db.query_row("SELECT count(*) FROM turns", [], |row| row.get::<_, i64>(0))?)
    };
    assert_eq!(store.read(rows).await.unwrap(), count, "one turn a slot");
    assert_eq!(
        store.schedule_runs("tea".into(), 1_000).await.unwrap().len(),
        turns.len().min(129),
        "the newest that are over, and one"
    );
    assert!(store.open_runs().await.unwrap().is_empty());
    // A clock that went back, or rows that were let go, bring no slot again.
    for slot in [begin.checked_add(SignedDuration::from_mins(1)).unwrap(), slot] {
        assert!(!store.settle_slots("tea".into(), Some(slot), vec![waiting(slot)]).await.unwrap());
        assert!(store.begin_run("tea".into(), slot, Some(inbound(slot))).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_is_paused_resumed_and_removed_is_so_in_the_next_kernel() {
    let home = Home::new();
    let store = home.open();
    store.add_schedule("tea".into(), Some("{}".into()), "* * * * *".into()).await.unwrap();
    store.add_schedule("mail/hourly".into(), None, "@hourly".into()).await.unwrap();
    let slot = Timestamp::from_millisecond(1_700_000_060_000).unwrap();
    store.settle_slots("tea".into(), Some(slot), vec![waiting(slot)]).await.unwrap();
    store.begin_run("tea".into(), slot, None).await.unwrap().unwrap();
    let failed = RunEnded {
        detail: Some("no water".into()),
        failures: 5,
        held_until: Some(slot),
        paused: Some("5 failed".into()),
        ..ended(State::Failed)
    };
    assert!(store.end_run("tea".into(), slot, failed.clone()).await.unwrap());
    assert!(!store.end_run("tea".into(), slot, failed).await.unwrap(), "it has ended");
    drop(store);
    let store = home.open();
    let tea = store.schedules().await.unwrap().remove(1);
    assert_eq!((tea.failures, tea.held_until, tea.paused.as_deref()), (5, Some(slot), Some("5 failed")));
    assert!(store.pause_schedule("tea".into(), None).await.unwrap());
    let tea = store.schedules().await.unwrap().remove(1);
    assert_eq!((tea.failures, tea.held_until, tea.paused), (0, None, None));
    assert!(!store.remove_schedule("mail/hourly".into()).await.unwrap(), "an extension has it");
    assert!(store.remove_schedule("tea".into()).await.unwrap());
    assert!(store.schedule_runs("tea".into(), 10).await.unwrap().is_empty());
}
