//! The sessions that have work: each handles its turns one after another, and none waits for another.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drupe_agent::{Steered, Steering, Stopwatch, run::GATE};
use drupe_extension_api::{Fault, FaultCode, SessionId, TurnId, wire::QueueMode};
use drupe_journal::{Origin, QueuedTurn};
use drupe_limits::TurnPlace;
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{kernel::Kernel, turn};

/// Turns that may wait, over all sessions. Above it messages are refused before they are acknowledged.
const MOST_WAITING: usize = 10_000;

/// The same, of those that one extension, or the bearer of one token, set off.
const MOST_OF_ONE: usize = 256;

/// The first pause before a turn that could not be recorded is tried again, and the longest: a full disk is not freed
/// within milliseconds.
const RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

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
    origin: Origin,
    /// Whether it has room, or had it in an earlier kernel.
    begun: bool,
    /// Where its answer goes.
    channel: String,
    address: Option<String>,
    cancel: CancellationToken,
    steering: Arc<Steering>,
    /// How its time goes, once it has begun.
    time: Arc<OnceLock<Stopwatch>>,
    /// Turns whose messages it was given to take in. What it does not take is queued again when it has ended.
    given: Vec<TurnId>,
}

impl Sessions {
    /// Refuses when too many turns wait, of all or of whoever sets this one off. What it gives is kept until the
    /// message is queued, so that those which come at the same time count each other.
    pub fn check_room(&self, origin: &Origin) -> Result<Option<Arc<str>>, Fault> {
        let active = self.lock();
        let waiting: usize = active.values().map(|a| a.waits(None)).sum();
        if waiting >= MOST_WAITING {
            let message = format!("{waiting} messages wait to be answered already; try again later");
            return Err(Fault::new(FaultCode::Busy, message));
        }
        let Some(share) = origin.share() else { return Ok(None) };
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        coming.retain(|one| one.strong_count() > 0);
        let come = coming.iter().filter_map(Weak::upgrade).filter(|one| **one == *share).count();
        if come + active.values().map(|a| a.waits(Some(&share))).sum::<usize>() >= MOST_OF_ONE {
            let whose = if origin.extension().is_some() { "extension" } else { "the bearer of" };
            let message = format!("{MOST_OF_ONE} messages of {whose} `{share}` wait to be answered already");
            return Err(Fault::new(FaultCode::Busy, message).help("hand it in again when some are answered"));
        }
        let one: Arc<str> = share.into();
        coming.push(Arc::downgrade(&one));
        Ok(Some(one))
    }

    /// Has turns end that wait for room, and that an extension set off which does not work any more.
    pub fn give_up(&self, gone: impl Fn(&str) -> bool) {
        for running in self.lock().values().filter_map(|active| active.running.as_ref()) {
            if !running.begun && running.origin.extension().is_some_and(&gone) {
                running.cancel.cancel();
            }
        }
    }

    /// The running turn of a session has room.
    fn begin(&self, session: &SessionId) {
        if let Some(running) = self.lock().get_mut(session).and_then(|known| known.running.as_mut()) {
            running.begun = true;
        }
    }

    /// Queues a turn, once, or has the running one take its message in or end. While the kernel ends it only stays in the
    /// journal, where the next kernel finds it.
    pub fn push(&self, kernel: &Arc<Kernel>, turn: QueuedTurn) {
        if kernel.ending.decided().is_some() {
            return;
        }
        let session = turn.inbound.ask.session.clone();
        let mut active = self.lock();
        match active.get_mut(&session) {
            Some(known) if known.has(&turn.turn) => {}
            Some(known) => known.take(turn),
            None => {
                let gate = Arc::new(Semaphore::new(GATE));
                let waiting = VecDeque::from([turn]);
                active.insert(session.clone(), Active { waiting, running: None, gate });
                if self.open.load(Ordering::SeqCst) {
                    spawn(kernel, session);
                }
            }
        }
    }

    /// Lets turns run, those first that were queued so far.
    pub fn open(&self, kernel: &Arc<Kernel>) {
        let active = self.lock();
        self.open.store(true, Ordering::SeqCst);
        for session in active.keys() {
            spawn(kernel, session.clone());
        }
    }

    /// Has turns of a session end that a message interrupts, as the journal has it already.
    pub fn interrupt(&self, session: &SessionId, turns: &[TurnId]) {
        let mut active = self.lock();
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
        let mut active = self.lock();
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
        self.lock().values().any(|active| active.has(turn))
    }

    /// Turns that run now.
    pub fn running(&self) -> usize {
        self.lock().values().filter(|a| a.running.is_some()).count()
    }

    /// Of those, the ones that do not wait for a person alone: these are as well waited for by the next kernel.
    pub fn at_work(&self) -> usize {
        let waits = |running: &Running| running.time.get().is_some_and(Stopwatch::stands_still);
        self.lock().values().filter_map(|active| active.running.as_ref()).filter(|one| !waits(one)).count()
    }

    /// The turns of a session that run or wait, the running one first.
    pub fn of(&self, session: &SessionId) -> Vec<TurnId> {
        let active = self.lock();
        let Some(known) = active.get(session) else { return Vec::new() };
        let running = known.running.iter().flat_map(|r| std::iter::once(&r.turn).chain(&r.given));
        running.chain(known.waiting.iter().map(|t| &t.turn)).cloned().collect()
    }

    /// The next turn of a session; forgets the session when there is none.
    fn next(&self, kernel: &Kernel, session: &SessionId) -> Option<(QueuedTurn, turn::Within)> {
        let mut active = self.lock();
        let known = active.get_mut(session)?;
        known.running = None;
        match known.waiting.pop_front().filter(|_| kernel.ending.decided().is_none()) {
            Some(turn) => {
                let (cancel, steering) = (CancellationToken::new(), Arc::<Steering>::default());
                let time = Arc::default();
                known.running = Some(Running {
                    turn: turn.turn.clone(),
                    origin: turn.inbound.origin.clone(),
                    begun: turn.started,
                    channel: turn.inbound.ask.channel.clone(),
                    address: turn.inbound.ask.address.clone(),
                    cancel: cancel.clone(),
                    steering: Arc::clone(&steering),
                    time: Arc::clone(&time),
                    given: Vec::new(),
                });
                Some((
                    turn,
                    turn::Within {
                        cancel,
                        gate: Arc::clone(&known.gate),
                        steering,
                        time,
                        place: Arc::new(TurnPlace::unbounded()),
                    },
                ))
            }
            None => {
                active.remove(session);
                kernel.quotas.close_session(session);
                None
            }
        }
    }

    /// The running turn of a session has ended: it takes no more in. Gives the turns whose messages it was given.
    fn ended(&self, session: &SessionId) -> Vec<TurnId> {
        let mut active = self.lock();
        let Some(running) = active.get_mut(session).and_then(|known| known.running.as_mut()) else {
            return Vec::new();
        };
        running.steering.close();
        std::mem::take(&mut running.given)
    }

    /// Those of `given` that were not taken in are answered next, in their order.
    async fn give_back(&self, kernel: &Kernel, session: &SessionId, given: Vec<TurnId>) {
        for turn in given.into_iter().rev() {
            match kernel.store.queued(&turn).await {
                Ok(Some(queued)) => {
                    if let Some(known) = self.lock().get_mut(session) {
                        known.waiting.push_front(queued);
                    }
                }
                Ok(None) => {}
                // It is in the journal, where the next kernel finds it.
                Err(error) => {
                    tracing::error!(%turn, %error, "a message that was not taken in cannot be read")
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
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
        let running = self.running.as_ref().filter(|running| counts(&running.origin));
        let queued = self.waiting.iter().filter(|turn| counts(&turn.inbound.origin)).count();
        queued + running.map_or(0, |running| running.given.len() + usize::from(!running.begun))
    }

    /// Takes a further turn: queued, or as its message asks.
    fn take(&mut self, queued: QueuedTurn) {
        let Some(running) = &mut self.running else { return self.waiting.push_back(queued) };
        match queued.inbound.ask.queue.unwrap_or_default() {
            // Whom it interrupts was told so when it was accepted.
            QueueMode::Followup | QueueMode::Interrupt => {}
            _ if queued.cancelled.is_some() => {}
            // A message that wants something of its own cannot be a part of another's answer, nor one whose answer goes
            // elsewhere.
            QueueMode::Steer
                if turn::wants_its_own(&queued.inbound.ask)
                    || (&queued.inbound.ask.channel, &queued.inbound.ask.address)
                        != (&running.channel, &running.address) => {}
            QueueMode::Steer => {
                let steered = Steered { turn: queued.turn.clone(), text: queued.inbound.ask.text.clone() };
                if running.steering.push(steered).is_ok() {
                    running.given.push(queued.turn);
                    return;
                }
            }
        }
        self.waiting.push_back(queued);
    }
}

fn spawn(kernel: &Arc<Kernel>, session: SessionId) {
    let kernel = Arc::clone(kernel);
    kernel.clone().tasks.spawn(async move { work(&kernel, &session).await });
}

/// Works off the queue of one session.
async fn work(kernel: &Arc<Kernel>, session: &SessionId) {
    while let Some((queued, within)) = kernel.sessions.next(kernel, session) {
        let turn = queued.turn.clone();
        // What is not finished when the kernel ends is gone on with by the next one. In a box, because a task is moved
        // whole when it is spawned.
        let answering = Box::pin(until_recorded(kernel, queued, within));
        kernel.cancel.run_until_cancelled(answering).await;
        let given = kernel.sessions.ended(session);
        kernel.sessions.give_back(kernel, session, given).await;
        kernel.ending.turn_ended(&turn);
        crate::events::turn_ended(kernel, session);
    }
}

/// Answers a turn. While the journal cannot record it the session waits: its messages are answered in order or not yet.
async fn until_recorded(kernel: &Arc<Kernel>, mut queued: QueuedTurn, mut within: turn::Within) {
    let origin = queued.inbound.origin.clone();
    let gone = || origin.extension().filter(|_| !queued.started).and_then(|id| kernel.gone(id));
    // Beyond the configured number turns wait in the order in which they came. One that is only to end needs no room.
    let mut cancelled = queued.cancelled.clone().or_else(gone);
    if cancelled.is_none() {
        let place = TurnPlace::take(Arc::clone(&kernel.gates), origin.share().map(Cow::into_owned));
        if let Some(place) = within.cancel.run_until_cancelled(place).await {
            within.place = Arc::new(place);
        }
    }
    if !queued.started && kernel.ending.decided().is_some() {
        // Room came of the drain. The next kernel begins with it.
        return;
    }
    kernel.sessions.begin(&queued.inbound.ask.session);
    // It may have gone meanwhile.
    cancelled = cancelled.or_else(gone);
    queued.cancelled = cancelled;
    let mut next = Some(queued);
    let mut wait = RETRY;
    while let Some(queued) = next {
        let turn = queued.turn.clone();
        let answered = Box::pin(turn::answer(kernel, queued, within.clone()));
        let error = match AssertUnwindSafe(answered).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => match turn::give_up(kernel, &turn, "the kernel panicked while it answered").await {
                Ok(()) => return,
                Err(error) => error,
            },
        };
        tracing::error!(%turn, %error, ?wait, "the turn could not be recorded; it is tried again");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_RETRY);
        next = match kernel.store.queued(&turn).await {
            Ok(queued) => queued,
            Err(error) => {
                tracing::error!(%turn, %error, "the journal cannot be read");
                return;
            }
        };
    }
}
