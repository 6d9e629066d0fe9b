//! The sessions that have work: each handles its turns one after another, and none waits for another.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use drupe_agent::{SpawnedAgents, Steered, Steering, Stopwatch, run::GATE};
use drupe_extension_api::{Fault, FaultCode, SessionId, TurnId, wire::QueueMode};
use drupe_journal::{Inbound, Origin, QueuedTurn};
use drupe_limits::TurnPlace;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::turn::{Within, wants_its_own};

/// Turns that may wait, over all sessions. Above it messages are refused before they are acknowledged.
const MOST_WAITING: usize = 10_000;

/// The same, of those that one extension, or the bearer of one token, set off.
const MOST_OF_ONE: usize = 256;

/// Turns that wait and run.
#[derive(Default)]
pub struct Sessions {
    active: Mutex<HashMap<SessionId, Active>>,
    /// Messages that are being taken in, by whose share they take of.
    coming: Mutex<Vec<Weak<str>>>,
    /// Whether turns may run: not before the extensions work.
    open: AtomicBool,
}

/// What became of a turn that was to be stopped.
#[derive(Debug)]
pub enum Stopped {
    /// It ran, and is cancelled.
    Running,
    /// It waited, and is taken from the queue.
    Waiting(Box<QueuedTurn>),
    /// Its message waited for the running turn to take it in, and is taken back.
    Withdrawn,
    /// Its message is a part of this turn by now.
    TakenIn(TurnId),
    /// It neither runs nor waits.
    Neither,
}

struct Active {
    waiting: VecDeque<QueuedTurn>,
    running: Option<Running>,
    gate: Arc<Semaphore>,
}

struct Running {
    turn: TurnId,
    /// What it answers, and where that goes.
    inbound: Inbound,
    /// Whether it has room, or had it in an earlier kernel.
    begun: bool,
    cancel: CancellationToken,
    steering: Arc<Steering>,
    /// The agents that its runs have working beside them.
    spawned: Arc<SpawnedAgents>,
    /// How its time goes, once it has begun.
    time: Arc<OnceLock<Stopwatch>>,
    /// Turns whose messages it was given to take in. What it does not take is queued again when it has ended.
    given: Vec<TurnId>,
}

impl Sessions {
    /// Refuses when too many turns wait, of all or of whoever sets this one off. What it gives is kept until the
    /// message is queued, so that those which come at the same time count each other.
    pub fn check_room(&self, origin: &Origin) -> Result<Option<Arc<str>>, Fault> {
        let active = self.active.lock();
        let waiting: usize = active.values().map(|a| a.waits(None)).sum();
        if waiting >= MOST_WAITING {
            let message = format!("{waiting} messages wait to be answered already; try again later");
            return Err(Fault::new(FaultCode::Busy, message));
        }
        let Some(share) = origin.share() else { return Ok(None) };
        let mut coming = self.coming.lock();
        coming.retain(|one| one.strong_count() > 0);
        let come = coming.iter().filter_map(Weak::upgrade).filter(|one| **one == *share).count();
        if come + active.values().map(|a| a.waits(Some(&share))).sum::<usize>() >= MOST_OF_ONE {
            let whose = match origin {
                Origin::Spawned { .. } => "agents that outlive their turns".to_owned(),
                _ if origin.extension().is_some() => format!("extension `{share}`"),
                _ => format!("the bearer of `{share}`"),
            };
            let message = format!("{MOST_OF_ONE} messages of {whose} wait to be answered already");
            return Err(Fault::new(FaultCode::Busy, message).help("hand it in again when some are answered"));
        }
        let one: Arc<str> = share.into();
        coming.push(Arc::downgrade(&one));
        Ok(Some(one))
    }

    /// Has turns end that wait for room, and that an extension set off which does not work any more.
    pub fn give_up(&self, gone: impl Fn(&str) -> bool) {
        for running in self.active.lock().values().filter_map(|active| active.running.as_ref()) {
            if !running.begun && running.inbound.origin.extension().is_some_and(&gone) {
                running.cancel.cancel();
            }
        }
    }

    /// The running turn of a session has room.
    pub fn begin(&self, session: &SessionId) {
        if let Some(running) = self.active.lock().get_mut(session).and_then(|known| known.running.as_mut()) {
            running.begun = true;
        }
    }

    /// Queues a turn, once, or has the running one take its message in or end. Gives the session where nobody works off its
    /// queue yet.
    #[must_use = "its queue is to be worked off"]
    pub fn push(&self, turn: QueuedTurn) -> Option<SessionId> {
        let session = turn.inbound.ask.session.clone();
        let mut active = self.active.lock();
        match active.get_mut(&session) {
            Some(known) if known.has(&turn.turn) => None,
            Some(known) => {
                known.take(turn);
                None
            }
            None => {
                let gate = Arc::new(Semaphore::new(GATE));
                let waiting = VecDeque::from([turn]);
                active.insert(session.clone(), Active { waiting, running: None, gate });
                self.is_open().then_some(session)
            }
        }
    }

    /// Lets turns run; gives the sessions whose queues are to be worked off.
    pub fn open(&self) -> Vec<SessionId> {
        let active = self.active.lock();
        self.open.store(true, Ordering::SeqCst);
        active.keys().cloned().collect()
    }

    /// Whether turns may run.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    /// Has turns of a session end that a message interrupts, as the journal has it already.
    pub fn interrupt(&self, session: &SessionId, turns: &[TurnId]) {
        let mut active = self.active.lock();
        let Some(known) = active.get_mut(session) else { return };
        if let Some(running) = known.running.as_ref().filter(|running| turns.contains(&running.turn)) {
            running.cancel.cancel();
        }
        for queued in known.waiting.iter_mut().filter(|queued| turns.contains(&queued.turn)) {
            queued.cancelled.get_or_insert_with(|| "interrupted".into());
        }
    }

    /// Cancels a turn that runs, or takes it from the queue.
    pub fn stop(&self, turn: &TurnId) -> Stopped {
        let mut active = self.active.lock();
        for session in active.values_mut() {
            if let Some(running) = session.running.as_ref().filter(|running| running.turn == *turn) {
                running.cancel.cancel();
                return Stopped::Running;
            }
            if let Some(running) = &mut session.running
                && let Some(at) = running.given.iter().position(|given| given == turn)
            {
                if !running.steering.remove(turn) {
                    return Stopped::TakenIn(running.turn.clone());
                }
                running.given.remove(at);
                return Stopped::Withdrawn;
            }
            let at = session.waiting.iter().position(|t| t.turn == *turn);
            if let Some(queued) = at.and_then(|at| session.waiting.remove(at)) {
                return Stopped::Waiting(Box::new(queued));
            }
        }
        Stopped::Neither
    }

    /// Whether a turn runs or waits.
    pub fn has(&self, turn: &TurnId) -> bool {
        self.active.lock().values().any(|active| active.has(turn))
    }

    /// The agents that work beside each turn that runs, with its session.
    pub fn spawned(&self) -> Vec<(SessionId, TurnId, Arc<SpawnedAgents>)> {
        let active = self.active.lock();
        let running = active.iter().filter_map(|(session, active)| Some((session, active.running.as_ref()?)));
        running.map(|(session, one)| (session.clone(), one.turn.clone(), Arc::clone(&one.spawned))).collect()
    }

    /// Turns that run now.
    pub fn running(&self) -> usize {
        self.active.lock().values().filter(|a| a.running.is_some()).count()
    }

    /// Of those, the ones that do not wait for a person alone: these are as well waited for by the next kernel.
    pub fn at_work(&self) -> usize {
        let waits = |running: &Running| running.time.get().is_some_and(Stopwatch::stands_still);
        self.active
            .lock()
            .values()
            .filter_map(|active| active.running.as_ref())
            .filter(|one| !waits(one))
            .count()
    }

    /// The turns of a session that run or wait, the running one first.
    pub fn of(&self, session: &SessionId) -> Vec<TurnId> {
        let active = self.active.lock();
        let Some(known) = active.get(session) else { return Vec::new() };
        let running = known.running.iter().flat_map(|r| std::iter::once(&r.turn).chain(&r.given));
        running.chain(known.waiting.iter().map(|t| &t.turn)).cloned().collect()
    }

    /// The next turn of a session, which runs from now on; forgets the session where there is none, or no `more` are to
    /// run. `forgotten` is called before the session can come back.
    pub fn next(
        &self,
        session: &SessionId,
        more: bool,
        forgotten: impl FnOnce(),
    ) -> Option<(QueuedTurn, Within)> {
        let mut active = self.active.lock();
        let known = active.get_mut(session)?;
        known.running = None;
        match known.waiting.pop_front().filter(|_| more) {
            Some(turn) => {
                let (cancel, steering) = (CancellationToken::new(), Arc::<Steering>::default());
                let (time, spawned) = (Arc::default(), Arc::<SpawnedAgents>::default());
                known.running = Some(Running {
                    turn: turn.turn.clone(),
                    inbound: turn.inbound.clone(),
                    begun: turn.started,
                    cancel: cancel.clone(),
                    steering: Arc::clone(&steering),
                    spawned: Arc::clone(&spawned),
                    time: Arc::clone(&time),
                    given: Vec::new(),
                });
                let (gate, place) = (Arc::clone(&known.gate), Arc::new(TurnPlace::unbounded()));
                let within = Within { cancel, gate, steering, time, place, spawned, detaches: None };
                Some((turn, within))
            }
            None => {
                active.remove(session);
                forgotten();
                None
            }
        }
    }

    /// The running turn of a session has ended: it takes no more in. Gives the turns whose messages it was given.
    pub fn ended(&self, session: &SessionId) -> Vec<TurnId> {
        let mut active = self.active.lock();
        let Some(running) = active.get_mut(session).and_then(|known| known.running.as_mut()) else {
            return Vec::new();
        };
        running.steering.close();
        std::mem::take(&mut running.given)
    }

    /// One that was not taken in is answered before those that wait.
    pub fn give_back(&self, session: &SessionId, turn: QueuedTurn) {
        if let Some(known) = self.active.lock().get_mut(session) {
            known.waiting.push_front(turn);
        }
    }
}

impl Active {
    fn has(&self, turn: &TurnId) -> bool {
        self.running.as_ref().is_some_and(|r| r.turn == *turn || r.given.contains(turn))
            || self.waiting.iter().any(|t| t.turn == *turn)
    }

    /// How many turns wait, of all or of those that take of one share.
    fn waits(&self, share: Option<&str>) -> usize {
        let counts = |origin: &Origin| share.is_none() || origin.share().as_deref() == share;
        let running = self.running.as_ref().filter(|running| counts(&running.inbound.origin));
        let queued = self.waiting.iter().filter(|turn| counts(&turn.inbound.origin)).count();
        queued + running.map_or(0, |running| running.given.len() + usize::from(!running.begun))
    }

    /// Takes a further turn: queued, or as its message asks.
    fn take(&mut self, queued: QueuedTurn) {
        let Some(running) = &mut self.running else { return self.waiting.push_back(queued) };
        let address = |of: &Inbound| (of.ask.channel.clone(), of.ask.address.clone());
        match queued.inbound.ask.queue.unwrap_or_default() {
            // Whom it interrupts was told so when it was accepted.
            QueueMode::Followup | QueueMode::Interrupt => {}
            _ if queued.cancelled.is_some() => {}
            // A message that wants something of its own cannot be a part of another's answer, nor one whose answer goes
            // elsewhere.
            QueueMode::Steer
                if wants_its_own(&queued.inbound.ask)
                    || address(&queued.inbound) != address(&running.inbound) => {}
            QueueMode::Steer => {
                let (turn, text) = (queued.turn.clone(), queued.inbound.ask.text.clone());
                let steered = Steered { turn, text, strangers: queued.inbound.of_strangers() };
                if running.steering.push(steered).is_ok() {
                    running.given.push(queued.turn);
                    return;
                }
            }
        }
        self.waiting.push_back(queued);
    }
}

#[cfg(test)]
mod tests;
