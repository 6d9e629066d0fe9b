//! How many turns, and how many runs of one agent, go on at the same time.
//!
//! Who comes first gets in first; who gives up waiting leaves nothing behind. Turns that extensions set off have a part of
//! the places only, each extension and all of them together, so that whoever else speaks finds room.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use drupe_extension_api::AgentId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The gates of the process; shared behind an `Arc`.
#[derive(Debug)]
pub struct Gates {
    turns: Arc<Semaphore>,
    of_extensions: Arc<Semaphore>,
    extensions: Arc<Each>,
    agents: Arc<Each>,
}

/// Gates of one kind: one for each name that is in or waits.
#[derive(Debug)]
struct Each {
    places: usize,
    open: Mutex<HashMap<String, Gate>>,
}

#[derive(Debug)]
struct Gate {
    semaphore: Arc<Semaphore>,
    /// How many are in or wait. It goes when nobody does.
    users: usize,
}

/// A place within; dropping it lets the next one in.
#[derive(Debug)]
#[must_use = "the place is given up when this is dropped"]
pub struct GatePermit {
    _turn: Option<OwnedSemaphorePermit>,
    _of_extensions: Option<OwnedSemaphorePermit>,
    // Before the visit: the gate may go only after the place was given back.
    _own: Option<OwnedSemaphorePermit>,
    _visit: Option<Visit>,
}

/// The place of a turn, which others may have while the turn waits for a person alone: who is asked may take days.
#[derive(Debug)]
pub struct TurnPlace {
    gates: Arc<Gates>,
    share: Option<String>,
    held: tokio::sync::Mutex<Option<GatePermit>>,
    returning: AtomicUsize,
}

/// While this lives the turn keeps its place, once it has come back to it.
#[derive(Debug)]
#[must_use = "the place may be left again when this is dropped"]
pub struct Returned<'a>(&'a TurnPlace);

impl TurnPlace {
    /// Waits for a place as [`Gates::turn`] does. May be dropped at any time.
    pub async fn take(gates: Arc<Gates>, share: Option<String>) -> Self {
        let held = tokio::sync::Mutex::new(Some(gates.turn(share.as_deref()).await));
        Self { gates, share, held, returning: AtomicUsize::new(0) }
    }

    /// One that is never left, nor waited for.
    pub fn unbounded() -> Self {
        let held = tokio::sync::Mutex::default();
        Self { gates: Arc::new(Gates::open()), share: None, held, returning: AtomicUsize::new(0) }
    }

    /// Lets others in, unless a part of the turn goes on already.
    pub async fn leave(&self) {
        let mut held = self.held.lock().await;
        if self.returning.load(Ordering::Acquire) == 0 {
            *held = None;
        }
    }

    /// Waits for a place where this one was left. May be dropped at any time.
    pub async fn back(&self) -> Returned<'_> {
        self.returning.fetch_add(1, Ordering::AcqRel);
        let returned = Returned(self);
        let mut held = self.held.lock().await;
        if held.is_none() {
            *held = Some(self.gates.turn(self.share.as_deref()).await);
        }
        returned
    }
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        self.0.returning.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Keeps a gate for as long as somebody is in it or waits.
#[derive(Debug)]
struct Visit {
    gates: Arc<Each>,
    name: String,
}

impl Gates {
    /// So many turns at the same time, and so many runs of each agent; at least one of either.
    pub fn new(turns: usize, runs_of_one_agent: usize) -> Self {
        let within = |count: usize| count.clamp(1, Semaphore::MAX_PERMITS);
        let all = |count: usize| Arc::new(Semaphore::new(within(count)));
        let each = |places: usize| Arc::new(Each { places: within(places), open: Mutex::default() });
        Self {
            turns: all(turns),
            of_extensions: all(turns.saturating_sub((turns / 4).max(1))),
            extensions: each(turns / 2),
            agents: each(runs_of_one_agent),
        }
    }

    /// Gates at which nobody waits.
    pub fn open() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }

    /// Waits for a place of a turn: of one that an extension or the bearer of a token set off, first for one of those that
    /// this one may have, at most half, then of those that all of them may have, at most three quarters. May be dropped at any time.
    pub async fn turn(&self, share: Option<&str>) -> GatePermit {
        let mut permit = match share {
            Some(id) => self.extensions.enter(id).await,
            None => GatePermit { _turn: None, _of_extensions: None, _own: None, _visit: None },
        };
        if share.is_some() {
            permit._of_extensions = Some(place(Arc::clone(&self.of_extensions)).await);
        }
        permit._turn = Some(place(Arc::clone(&self.turns)).await);
        permit
    }

    /// Waits for a place of a run of this agent. May be dropped at any time.
    pub async fn agent(&self, id: &AgentId) -> GatePermit {
        self.agents.enter(id.as_str()).await
    }
}

impl Each {
    async fn enter(self: &Arc<Self>, name: &str) -> GatePermit {
        let (visit, semaphore) = self.visit(name);
        let own = Some(place(semaphore).await);
        GatePermit { _turn: None, _of_extensions: None, _own: own, _visit: Some(visit) }
    }

    fn visit(self: &Arc<Self>, name: &str) -> (Visit, Arc<Semaphore>) {
        let mut open = self.lock();
        let gate = open
            .entry(name.to_owned())
            .or_insert_with(|| Gate { semaphore: Arc::new(Semaphore::new(self.places)), users: 0 });
        gate.users += 1;
        (Visit { gates: Arc::clone(self), name: name.to_owned() }, Arc::clone(&gate.semaphore))
    }

    /// Every change of the table is one step, so a poisoned lock is as good as another.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut open = self.gates.lock();
        if let Some(gate) = open.get_mut(&self.name) {
            gate.users -= 1;
            if gate.users == 0 {
                open.remove(&self.name);
            }
        }
    }
}

async fn place(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("no gate is ever closed")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    #[test]
    fn a_turn_leaves_its_place_to_others_and_waits_for_one_before_it_goes_on() {
        let gates = Arc::new(Gates::new(1, 1));
        let place = poll(pin!(TurnPlace::take(Arc::clone(&gates), None))).unwrap();
        assert!(poll(pin!(gates.turn(None))).is_none(), "there is one place");
        poll(pin!(place.leave())).unwrap();
        let other = poll(pin!(gates.turn(None))).unwrap();
        let mut back = pin!(place.back());
        assert!(poll(back.as_mut()).is_none(), "another has the place");
        drop(other);
        let returned = poll(back.as_mut()).unwrap();
        poll(pin!(place.leave())).unwrap();
        assert!(poll(pin!(gates.turn(None))).is_none(), "a part of it goes on");
        drop(returned);
        poll(pin!(place.leave())).unwrap();
        assert!(poll(pin!(gates.turn(None))).is_some());
    }

    fn agent(name: &str) -> AgentId {
        AgentId::new(name).unwrap()
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn kept(gates: &Gates) -> usize {
        gates.agents.lock().len()
    }

    #[test]
    fn one_extension_has_half_of_the_places_and_all_of_them_three_quarters() {
        let gates = Gates::new(8, 1);
        let enter = |by: Option<&'static str>| poll(pin!(gates.turn(by)));
        let loud: Vec<_> = (0..4).map(|_| enter(Some("loud")).expect("its share")).collect();
        let mut waits = pin!(gates.turn(Some("loud")));
        assert!(poll(waits.as_mut()).is_none(), "half of the places are its own");
        let quiet: Vec<_> = (0..2).map(|_| enter(Some("quiet")).expect("its share")).collect();
        assert!(enter(Some("quiet")).is_none(), "three quarters are theirs together");
        let people: Vec<_> = (0..2).map(|_| enter(None).expect("room for people")).collect();
        assert!(enter(None).is_none(), "eight of them are in");
        drop(people);
        assert!(poll(waits.as_mut()).is_none(), "the places of people are not for it");
        drop(loud);
        assert!(poll(waits.as_mut()).is_some());
        drop(quiet);
        assert!(gates.extensions.lock().is_empty(), "the gates of those who left go");
    }

    #[test]
    fn an_extension_is_let_in_where_there_is_one_place() {
        let gates = Gates::new(1, 1);
        assert!(poll(pin!(gates.turn(Some("loud")))).is_some());
    }

    #[test]
    fn a_turn_that_gives_up_waiting_behind_its_share_leaves_nothing() {
        let gates = Gates::new(4, 1);
        let people: Vec<_> = (0..4).map(|_| poll(pin!(gates.turn(None)))).collect();
        {
            let mut waiting = pin!(gates.turn(Some("loud")));
            assert!(poll(waiting.as_mut()).is_none());
        }
        drop(people);
        let all: Vec<_> = (0..2).filter_map(|_| poll(pin!(gates.turn(Some("loud"))))).collect();
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn who_comes_first_gets_in_first() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.turn(None))).expect("a free place");
        let (mut second, mut third) = (pin!(gates.turn(None)), pin!(gates.turn(None)));
        assert!(poll(second.as_mut()).is_none());
        assert!(poll(third.as_mut()).is_none());
        drop(inside);
        assert!(poll(third.as_mut()).is_none(), "the second one came before");
        let inside = poll(second.as_mut()).expect("its turn");
        drop(inside);
        assert!(poll(third.as_mut()).is_some());
    }

    #[test]
    fn who_gives_up_waiting_leaves_nothing() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.agent(&agent("a")))).expect("a free place");
        {
            let id = agent("a");
            let mut waiting = pin!(gates.agent(&id));
            assert!(poll(waiting.as_mut()).is_none());
            assert_eq!(gates.agents.lock()["a"].users, 2);
        }
        assert_eq!(gates.agents.lock()["a"].users, 1);
        drop(inside);
        assert!(poll(pin!(gates.agent(&agent("a")))).is_some(), "no place went to who gave up");
    }

    #[test]
    fn agents_do_not_wait_for_each_other() {
        let gates = Gates::new(1, 2);
        let (a, b) = (agent("a"), agent("b"));
        let one = poll(pin!(gates.agent(&a)));
        let two = poll(pin!(gates.agent(&a)));
        assert!(one.is_some() && two.is_some());
        assert!(poll(pin!(gates.agent(&a))).is_none(), "two of them are in");
        assert!(poll(pin!(gates.agent(&b))).is_some());
    }

    #[test]
    fn the_gate_of_an_agent_that_nobody_uses_goes() {
        let gates = Gates::new(1, 1);
        let inside = poll(pin!(gates.agent(&agent("a")))).expect("a free place");
        let id = agent("a");
        let mut waiting = Box::pin(gates.agent(&id));
        assert!(poll(waiting.as_mut()).is_none());
        drop(inside);
        assert_eq!(kept(&gates), 1, "somebody waits");
        let inside = poll(waiting.as_mut()).expect("its turn");
        assert_eq!(kept(&gates), 1);
        drop(inside);
        drop(waiting);
        assert_eq!(kept(&gates), 0);
    }

    #[test]
    fn nobody_waits_at_open_gates_and_every_gate_lets_somebody_in() {
        let (open, narrow) = (Gates::open(), Gates::new(0, 0));
        let all: Vec<_> = (0..1000).map(|_| poll(pin!(open.turn(None))).expect("a free place")).collect();
        assert_eq!(all.len(), 1000);
        assert!(poll(pin!(narrow.turn(None))).is_some());
        assert!(poll(pin!(narrow.agent(&agent("a")))).is_some());
    }
}
