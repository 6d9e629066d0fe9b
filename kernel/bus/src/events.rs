//! The events of one session as a stream: first those that are kept after a position, then those that happen.
//!
//! A reader that is too slow for live ones is told so by `stream.skipped`, and reads the kept ones again from where it
//! was. So it misses what is never kept, text deltas, and nothing else; and what is held for it never grows beyond what
//! a [`Watch`] holds and a page of the journal.

use std::{collections::VecDeque, sync::Arc};

use drupe_agent::Clock;
use drupe_extension_api::{Event, EventBody, Fault, SessionId, control::EventsSubscribe};
use drupe_handles::{Credit, Given, Item, Source};
use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    Bus, Watch,
    given::Items,
    live::{Shown, Watching},
};

/// Kept events that are read at once. A page with fewer is the last.
const PAGE: usize = 256;

/// Where the kept events of a session are read: those after a position, at most so many.
pub trait Kept: Send + Sync {
    /// The events of the session after `after`, in order, at most `most`.
    fn events_after<'a>(
        &'a self,
        session: &'a SessionId,
        after: u64,
        most: usize,
    ) -> BoxFuture<'a, Result<Vec<Event>, Fault>>;
}

/// A stream of a session's events, for whoever pulls it: an extension by a handle, a client by the control socket.
pub struct Events {
    kept: Arc<dyn Kept>,
    clock: Arc<dyn Clock>,
    session: SessionId,
    live: Watch,
    /// The position of the last event that was given, or is about to be.
    after: u64,
    follow: bool,
    /// Kept events that were read and not given yet, and the notice that some were skipped.
    ready: VecDeque<Item>,
    reading: Reading,
}

/// What is read next, when nothing is ready.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    Kept,
    Live,
    Ended,
}

impl Events {
    /// The events that were asked for, from now on.
    pub fn new(bus: &Bus, kept: Arc<dyn Kept>, clock: Arc<dyn Clock>, ask: EventsSubscribe) -> Self {
        let EventsSubscribe { session, after, follow } = ask;
        // Before anything is read, so that what happens in between is seen by one of the two.
        let live = bus.watch(&session);
        let (ready, reading) = (VecDeque::new(), Reading::Kept);
        Self { kept, clock, session, live, after, follow, ready, reading }
    }

    async fn read(&mut self, credit: Credit) -> Result<Given, Fault> {
        let mut items = Items::within(credit);
        loop {
            while items.have_room()
                && let Some(item) = self.ready.pop_front()
            {
                items.push(item);
            }
            if !items.is_empty() {
                // What waits behind the kept ones fills the rest; a future that is dropped must not lose what it has.
                while items.have_room()
                    && self.reading == Reading::Live
                    && let Some(watched) = self.live.try_shown()
                {
                    self.take(watched)?;
                    self.ready.drain(..).for_each(|item| items.push(item));
                }
                return Ok(items.given());
            }
            match self.reading {
                Reading::Ended => return Ok(items.given()),
                Reading::Kept => self.read_kept().await?,
                Reading::Live => {
                    let watched = self.live.shown().await;
                    self.take(watched)?;
                }
            }
        }
    }

    async fn read_kept(&mut self) -> Result<(), Fault> {
        let page = self.kept.events_after(&self.session, self.after, PAGE).await?;
        if page.len() < PAGE {
            self.reading = if self.follow { Reading::Live } else { Reading::Ended };
        }
        for event in page {
            self.after = event.seq;
            self.ready.push_back(Shown::new(Arc::new(event)).item()?);
        }
        Ok(())
    }

    fn take(&mut self, watched: Watching) -> Result<(), Fault> {
        match watched {
            Watching::Event(shown) if shown.event.seq == 0 || shown.event.seq > self.after => {
                self.after = self.after.max(shown.event.seq);
                self.ready.push_back(shown.item()?);
            }
            // It was among the kept ones.
            Watching::Event(_) => {}
            Watching::Skipped => {
                self.ready.push_back(Shown::new(Arc::new(self.skipped())).item()?);
                self.reading = Reading::Kept;
            }
        }
        Ok(())
    }

    /// Tells a reader that it was too slow for what is not kept.
    fn skipped(&self) -> Event {
        Event {
            seq: 0,
            time: jiff::Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default(),
            session: self.session.clone(),
            turn: None,
            correlation_id: None,
            agent: None,
            body: EventBody::StreamSkipped,
        }
    }
}

impl Source for Events {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        self.read(credit).boxed()
    }
}
