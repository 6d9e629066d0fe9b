//! The events of a session as a stream.

use drupe_extension_api::{Event, EventBody, Fault, SessionId, control::EventsSubscribe};
use drupe_handles::{Credit, Given, Source};

use super::*;
use crate::{Events, Kept};

/// What is kept of the session, as numbers; reading fails while there is nothing.
#[derive(Default)]
struct Rows(Mutex<Vec<u64>>);

impl Kept for Rows {
    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, Fault>> {
        let kept = self.0.lock().unwrap().clone();
        let page = kept.into_iter().filter(move |seq| *seq > after).take(most);
        let page = page.map(|seq| event(session.as_str(), seq)).collect();
        async move { Ok(page) }.boxed()
    }
}

fn event(session: &str, seq: u64) -> Event {
    Event {
        seq,
        time: "2026-03-01T10:00:00Z".parse().unwrap(),
        session: session.parse().unwrap(),
        turn: None,
        correlation_id: None,
        agent: None,
        body: EventBody::Diagnostic { code: "x".into(), message: String::new() },
    }
}

struct Scene {
    bus: Bus,
    rows: Arc<Rows>,
    events: Events,
}

fn scene(kept: impl Iterator<Item = u64>, after: u64, follow: bool) -> Scene {
    let (bus, rows) = (Bus::default(), Arc::new(Rows(Mutex::new(kept.collect()))));
    let ask = EventsSubscribe { session: "s".parse().unwrap(), after, follow };
    let clock = Arc::new(drupe_agent::ManualClock::default());
    let events = Events::new(&bus, Arc::clone(&rows) as Arc<dyn Kept>, clock, ask);
    Scene { bus, rows, events }
}

impl Scene {
    /// Happens, and is kept before that where it has a number.
    fn happens(&self, seq: u64) {
        if seq > 0 {
            self.rows.0.lock().unwrap().push(seq);
        }
        self.bus.event(Arc::new(event("s", seq)));
    }

    /// What there is to read now: numbers, 0 for a live one and -1 for the notice that some were skipped; none where it
    /// is to be waited for.
    fn read(&mut self, items: usize) -> Option<Vec<i64>> {
        self.read_within(Credit { items, bytes: 1 << 20 })
    }

    fn read_within(&mut self, credit: Credit) -> Option<Vec<i64>> {
        let Given::Items(items) = self.events.next(credit).now_or_never()?.unwrap() else { panic!("items") };
        let read = |item: &drupe_handles::Item| {
            let event: Event = serde_json::from_str(item.get()).unwrap();
            match event.body {
                EventBody::StreamSkipped => -1,
                _ => i64::try_from(event.seq).unwrap(),
            }
        };
        Some(items.iter().map(read).collect())
    }
}

#[test]
fn kept_events_come_first_then_those_that_happen_and_none_twice() {
    let mut scene = scene(1..=3, 1, true);
    scene.happens(4);
    scene.happens(0);
    assert_eq!(scene.read(2).unwrap(), [2, 3]);
    assert_eq!(scene.read(9).unwrap(), [4, 0]);
    assert_eq!(scene.read(9), None, "it waits");
    scene.happens(5);
    assert_eq!(scene.read(9).unwrap(), [5]);
}

#[test]
fn a_stream_that_does_not_follow_ends_after_the_kept_ones() {
    let mut scene = scene(1..=600, 0, false);
    scene.happens(601);
    let mut read = Vec::new();
    while let Some(some) = scene.read(100).filter(|some| !some.is_empty()) {
        read.extend(some);
    }
    assert_eq!(read, (1..=601).collect::<Vec<_>>());
    assert_eq!(scene.read(1).unwrap(), [0; 0], "that was the end");
}

#[test]
fn a_reader_that_is_too_slow_is_told_and_misses_live_ones_alone() {
    let mut scene = scene(1..=1, 0, true);
    assert_eq!(scene.read(9).unwrap(), [1]);
    for seq in 2..=300 {
        scene.happens(seq);
        scene.happens(0);
    }
    let mut read = Vec::new();
    while let Some(some) = scene.read(1000) {
        read.extend(some);
    }
    assert_eq!(read[0], -1);
    assert_eq!(read[1..], (2..=300).collect::<Vec<i64>>());
}

#[test]
fn nothing_is_lost_where_a_question_is_given_up_and_no_more_bytes_come_than_are_taken() {
    let mut scene = scene(0..0, 0, true);
    assert_eq!(scene.read(9), None);
    (1..=9).for_each(|seq| scene.happens(seq));
    let one = serde_json::to_string(&event("s", 1)).unwrap().len();
    assert_eq!(scene.read_within(Credit { items: 9, bytes: one + 1 }).unwrap(), [1, 2]);
    assert_eq!(scene.read_within(Credit { items: 9, bytes: 1 }).unwrap(), [3]);
    assert_eq!(scene.read(99).unwrap(), [4, 5, 6, 7, 8, 9]);
}
