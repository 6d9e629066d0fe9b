//! Who waits for the end of a turn. Nobody of them watches its session: what only watchers see is not made for them.

use std::{collections::HashMap, sync::Arc};

use drupe_extension_api::{EventBody, TurnId};
use drupe_journal::{Publish, Published};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The turns whose end somebody waits for.
#[derive(Default)]
pub struct Ends(Mutex<HashMap<TurnId, Awaited>>);

#[derive(Default)]
struct Awaited {
    by: usize,
    end: CancellationToken,
}

/// Waits for the end of one turn; nothing is left of it when it goes.
pub struct Waiting<'a> {
    ends: &'a Ends,
    turn: TurnId,
    end: CancellationToken,
}

impl Ends {
    /// What the journal is to be opened with, so that ends are seen on the way to `publish`.
    pub fn on_the_way_to(self: &Arc<Self>, publish: Publish) -> Publish {
        let ends = Arc::clone(self);
        Arc::new(move |published| {
            if let Published::Event(event) = &published
                && matches!(event.body, EventBody::TurnCompleted { .. })
                && let Some(turn) = &event.turn
                && let Some(awaited) = ends.0.lock().get(turn)
            {
                awaited.end.cancel();
            }
            publish(published);
        })
    }

    /// Waits for an end that is committed from now on.
    pub fn of(&self, turn: &TurnId) -> Waiting<'_> {
        let mut awaited = self.0.lock();
        let entry = awaited.entry(turn.clone()).or_default();
        entry.by += 1;
        Waiting { ends: self, turn: turn.clone(), end: entry.end.clone() }
    }
}

impl Waiting<'_> {
    /// Returns when the turn has ended.
    pub async fn ended(&self) {
        self.end.cancelled().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut awaited = self.ends.0.lock();
        let Some(entry) = awaited.get_mut(&self.turn) else { return };
        entry.by -= 1;
        if entry.by == 0 {
            awaited.remove(&self.turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::{Event, Preview, ResponseStatus, SessionId, Spend};
    use futures_util::FutureExt;

    use super::*;

    fn turn(id: &str) -> TurnId {
        TurnId::new(id).expect("valid")
    }

    fn event(of: &str, body: EventBody) -> Published {
        let session = SessionId::new("s").expect("valid");
        let time = jiff::Timestamp::UNIX_EPOCH;
        let turn = Some(turn(of));
        Published::Event(Arc::new(Event {
            seq: 1,
            time,
            session,
            turn,
            correlation_id: None,
            agent: None,
            body,
        }))
    }

    fn completed() -> EventBody {
        let (status, spend) = (ResponseStatus::Success, Spend::default());
        EventBody::TurnCompleted { status, error: None, class: None, spend }
    }

    #[test]
    fn whoever_waits_is_told_of_the_end_of_that_turn_alone_and_all_is_passed_on() {
        let (ends, passed) = (Arc::<Ends>::default(), Arc::<Mutex<usize>>::default());
        let counted = Arc::clone(&passed);
        let publish = ends.on_the_way_to(Arc::new(move |_| *counted.lock() += 1));
        let (one, same, other) = (ends.of(&turn("1")), ends.of(&turn("1")), ends.of(&turn("2")));
        publish(event("1", EventBody::TurnStarted { input: Preview::of("hello") }));
        assert!(one.ended().now_or_never().is_none());
        publish(event("1", completed()));
        assert!(one.ended().now_or_never().is_some() && same.ended().now_or_never().is_some());
        assert!(other.ended().now_or_never().is_none());
        assert_eq!(*passed.lock(), 2);
        drop((one, same));
        assert_eq!(ends.0.lock().len(), 1);
        drop(other);
        assert!(ends.0.lock().is_empty());
    }
}
