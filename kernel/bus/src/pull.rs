//! Durable subscriptions of extensions: the messages of one topic, read when they are asked for.
//!
//! Messages are done when the next ones are asked for. Those that were handed out to an instance that went away come
//! again later; those that nobody saw just wait.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use drupe_agent::Chain;
use drupe_extension_api::{ExtensionId, Fault, wire::BusMessage};
use drupe_handles::{Credit, Given, Source};
use drupe_journal::DueMessage;
use futures_util::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;

use crate::{
    Bus, Delivered, Subscriber, admit,
    given::Items,
    lanes::Rest,
    outcome::{JOURNAL_MS, Outcomes, Stub},
};

/// The most messages that are handed out at once, whatever the reader's credit: all of them come again if it fails.
const MOST: usize = 64;

/// An extension's subscription to a topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    subscriber: String,
    topic: String,
}

/// The handles that are open, and what they hold.
#[derive(Default)]
pub(crate) struct Desk {
    next: AtomicU64,
    places: Mutex<HashMap<Place, State>>,
}

#[derive(Default)]
struct State {
    /// The handle that is meant: the newest, if it is open.
    newest: Option<u64>,
    held: Option<Held>,
}

/// Messages that were handed out and are not done.
struct Held {
    by: u64,
    stubs: Vec<Stub>,
    chain: Chain,
    /// Whether the handle that held them is gone; they are about to be noted.
    left: bool,
}

impl Held {
    /// Whether it was left behind and nobody notes it yet.
    fn waits(&self) -> bool {
        self.left && !self.stubs.is_empty()
    }
}

impl Desk {
    /// Opens a handle; an older one for the same topic ends, since the newer instance is the one that is meant.
    pub fn open(
        self: &Arc<Self>,
        extension: &ExtensionId,
        topic: &str,
        outcomes: &Arc<Outcomes>,
        bus: &Arc<Bus>,
    ) -> Pull {
        let subscriber = Subscriber::Extension(extension.clone()).to_string();
        let place = Place { subscriber, topic: topic.to_owned() };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.places.lock().entry(place.clone()).or_default().newest = Some(number);
        // The older one learns that it ended.
        bus.wake_pulls();
        let (desk, outcomes, bus) = (Arc::clone(self), Arc::clone(outcomes), Arc::clone(bus));
        Pull { desk, outcomes, bus, place, number, reading: Default::default() }
    }

    /// Whether handles left something behind that is not being noted yet.
    pub fn has_left(&self) -> bool {
        self.places.lock().values().any(|state| state.held.as_ref().is_some_and(Held::waits))
    }

    /// Notes what handles left behind when they ended.
    pub async fn note_left(&self, outcomes: &Outcomes, bus: &Bus) {
        for (place, stubs) in self.take_left() {
            for stub in stubs {
                let why = "the extension went away before it was done with it".into();
                outcomes.note(&stub, Ok(Delivered::Later { why })).await;
            }
            let mut places = self.places.lock();
            if let Some(state) = places.get_mut(&place) {
                state.held = None;
                if state.newest.is_none() {
                    places.remove(&place);
                }
            }
            drop(places);
            bus.wake_pulls();
        }
    }

    /// What was left behind and is not being noted yet. Until it is noted nothing else is handed out there.
    fn take_left(&self) -> Vec<(Place, Vec<Stub>)> {
        let mut places = self.places.lock();
        let left = places.iter_mut().filter_map(|(place, state)| {
            let held = state.held.as_mut().filter(|held| held.waits())?;
            Some((place.clone(), std::mem::take(&mut held.stubs)))
        });
        left.collect()
    }
}

/// A handle of an extension on one durable topic. Dropped or closed, it ends; the subscription goes on.
pub struct Pull {
    desk: Arc<Desk>,
    outcomes: Arc<Outcomes>,
    bus: Arc<Bus>,
    place: Place,
    number: u64,
    /// A second call waits for the first.
    reading: tokio::sync::Mutex<()>,
}

/// What a handle may do next.
enum May {
    /// Nothing any more.
    End,
    /// Wait for what another handle still holds.
    Wait,
    Read,
}

impl Pull {
    /// The next messages: waits for the first, then takes those behind it that are there, within the credit and at
    /// least one. Those of the call before count as done. None come once the handle is closed, or a newer one was opened
    /// for the same extension and topic.
    ///
    /// All are of one chain, so that what is published while they are worked on counts as set off by that chain and by no
    /// other. A message that was tried before comes alone, so that it takes no others along if it fails again.
    pub(crate) async fn take(&self, credit: Credit) -> Vec<DueMessage> {
        let _reading = self.reading.lock().await;
        self.finish().await;
        loop {
            // Made before it looks: what happens from here on wakes it.
            let woken = self.bus.woken();
            let again_ms = match self.may() {
                May::End => return Vec::new(),
                May::Wait => None,
                May::Read => match self.read(credit).await {
                    Ok(messages) if messages.is_empty() => self.due_ms().await,
                    Ok(messages) if self.hold(&messages) => return messages,
                    Ok(_) => continue,
                    Err(again_ms) => Some(again_ms),
                },
            };
            tokio::select! {
                () = woken => {}
                () = self.outcomes.sleep_until(again_ms) => {}
            }
        }
    }

    /// What set off the messages that were given last, while the reader works on them: until it asks for the next. What
    /// it publishes meanwhile counts as set off by them; see [`extend`](crate::extend).
    pub fn chain(&self) -> Option<Chain> {
        let places = self.desk.places.lock();
        let held = places.get(&self.place)?.held.as_ref()?;
        (held.by == self.number).then(|| held.chain.clone())
    }

    /// Ends the handle; messages that were handed out and are not done come again later.
    pub fn close(&self) {
        let mut places = self.desk.places.lock();
        let Some(state) = places.get_mut(&self.place) else { return };
        if state.newest == Some(self.number) {
            state.newest = None;
        }
        if let Some(held) = state.held.as_mut().filter(|held| held.by == self.number) {
            held.left = true;
        }
        if state.newest.is_none() && state.held.is_none() {
            places.remove(&self.place);
        }
        drop(places);
        self.bus.wake();
    }

    /// Notes that what it holds is done. Cut off in between, it does so again.
    async fn finish(&self) {
        let held: Vec<Stub> =
            match self.desk.places.lock().get(&self.place).and_then(|state| state.held.as_ref()) {
                Some(held) if held.by == self.number && !held.left => held.stubs.clone(),
                _ => return,
            };
        for stub in &held {
            self.outcomes.note(stub, Ok(Delivered::Done)).await;
        }
        let mut places = self.desk.places.lock();
        let Some(state) = places.get_mut(&self.place) else { return };
        state.held = None;
        if state.newest != Some(self.number) {
            // A newer one waits for this.
            self.bus.wake_pulls();
        }
    }

    fn may(&self) -> May {
        let places = self.desk.places.lock();
        match places.get(&self.place) {
            Some(state) if state.newest == Some(self.number) => match &state.held {
                Some(_) => May::Wait,
                None => May::Read,
            },
            _ => May::End,
        }
    }

    /// What is due now, without those whose chain is too long; an error says when to ask the journal again.
    async fn read(&self, credit: Credit) -> Result<Vec<DueMessage>, i64> {
        let now_ms = self.outcomes.clock.now_ms();
        let most = credit.items.clamp(1, MOST);
        loop {
            let mut left = Some(credit);
            let mut cut_some = false;
            let mut messages: Vec<DueMessage> = Vec::new();
            for message in self.due(now_ms, most).await? {
                if let Err(cut) = admit(&message.chain, None) {
                    cut_some = true;
                    if let Rest::Until(again_ms) = self.outcomes.note(&Stub::of(&message), Err(cut)).await {
                        return Err(again_ms);
                    }
                    continue;
                }
                if messages.first().is_some_and(|first| !together(first, &message)) {
                    break;
                }
                let Some(room) = left else { break };
                left = room.after(message.payload.to_string().len());
                messages.push(message);
            }
            // Behind those that were cut there may be others.
            if !messages.is_empty() || !cut_some {
                return Ok(messages);
            }
        }
    }

    async fn due(&self, now_ms: i64, most: usize) -> Result<Vec<DueMessage>, i64> {
        let Place { subscriber, topic } = &self.place;
        self.outcomes.queue.due_for(subscriber, topic, now_ms, most).await.map_err(|error| {
            tracing::error!(%error, subscriber, "messages wait to be pulled, but the journal does not answer");
            self.outcomes.clock.now_ms() + JOURNAL_MS
        })
    }

    /// When the message that waits first is due, if one waits.
    async fn due_ms(&self) -> Option<i64> {
        let due = self.outcomes.queue.first_due_ms(&self.place.subscriber, &self.place.topic).await;
        due.unwrap_or_else(|_| Some(self.outcomes.clock.now_ms() + JOURNAL_MS))
    }

    /// Takes messages, unless the handle ended meanwhile.
    fn hold(&self, messages: &[DueMessage]) -> bool {
        let mut places = self.desk.places.lock();
        let Some(state) = places.get_mut(&self.place) else { return false };
        if state.newest != Some(self.number) || state.held.is_some() {
            return false;
        }
        let chain = messages.first().map(|first| first.chain.clone()).unwrap_or_default();
        let stubs = messages.iter().map(Stub::of).collect();
        state.held = Some(Held { by: self.number, stubs, chain, left: false });
        true
    }
}

/// Whether two messages may be handed out at once.
fn together(first: &DueMessage, other: &DueMessage) -> bool {
    first.attempts == 0 && other.attempts == 0 && first.chain == other.chain
}

impl Source for Pull {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        async move {
            let messages = self.take(credit).await;
            let mut items = Items::within(credit);
            messages.into_iter().try_for_each(|message| items.add(&bus_message(message)))?;
            Ok(items.given())
        }
        .boxed()
    }

    fn chain(&self) -> Option<Chain> {
        Pull::chain(self)
    }
}

fn bus_message(message: DueMessage) -> BusMessage {
    BusMessage {
        topic: message.topic,
        payload: message.payload,
        correlation_id: message.correlation,
        id: Some(message.id),
        skipped: 0,
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.close();
    }
}
