//! The sessions that have work: each handles its turns one after another, and none waits for another.

use std::{
    collections::{HashMap, VecDeque},
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use drupe_agent::run::GATE;
use drupe_extension_api::{Fault, FaultCode, SessionId, TurnId};
use drupe_journal::QueuedTurn;
use futures_util::FutureExt;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{kernel::Kernel, kernel::store_fault, turn};

/// Turns that may wait, over all sessions. Above it messages are refused before they are acknowledged.
const MOST_WAITING: usize = 10_000;

/// The first pause before a turn that could not be recorded is tried again, and the longest: a full disk is not freed
/// within milliseconds.
const RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// Turns that wait and run.
#[derive(Default)]
pub struct Sessions {
    active: Mutex<HashMap<SessionId, Active>>,
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
    /// It neither runs nor waits.
    Neither,
}

struct Active {
    waiting: VecDeque<QueuedTurn>,
    running: Option<(TurnId, CancellationToken)>,
    gate: Arc<Semaphore>,
}

impl Sessions {
    /// Refuses when too many turns wait.
    pub fn check_room(&self) -> Result<(), Fault> {
        let waiting: usize = self.lock().values().map(|a| a.waiting.len()).sum();
        if waiting < MOST_WAITING {
            return Ok(());
        }
        Err(Fault::new(
            FaultCode::Busy,
            format!("{waiting} messages wait to be answered already; try again later"),
        ))
    }

    /// Queues a turn that was accepted and is not answered.
    pub async fn enqueue(&self, kernel: &Arc<Kernel>, turn: &TurnId) -> Result<(), Fault> {
        if let Some(turn) = kernel.store.queued(turn).await.map_err(store_fault)? {
            self.push(kernel, turn);
        }
        Ok(())
    }

    /// Queues a turn, once. While the kernel ends it only stays in the journal, where the next kernel finds it.
    pub fn push(&self, kernel: &Arc<Kernel>, turn: QueuedTurn) {
        if kernel.ending.decided().is_some() {
            return;
        }
        let session = turn.inbound.session.clone();
        let mut active = self.lock();
        match active.get_mut(&session) {
            Some(known) if known.has(&turn.turn) => {}
            Some(known) => known.waiting.push_back(turn),
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

    /// Cancels a turn that runs, or takes it from the queue.
    pub fn stop(&self, turn: &TurnId) -> Stopped {
        let mut active = self.lock();
        for session in active.values_mut() {
            if let Some((_, cancel)) = session.running.as_ref().filter(|(running, _)| running == turn) {
                cancel.cancel();
                return Stopped::Running;
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

    /// The next turn of a session; forgets the session when there is none.
    fn next(
        &self,
        kernel: &Kernel,
        session: &SessionId,
    ) -> Option<(QueuedTurn, CancellationToken, Arc<Semaphore>)> {
        let mut active = self.lock();
        let known = active.get_mut(session)?;
        known.running = None;
        match known.waiting.pop_front().filter(|_| kernel.ending.decided().is_none()) {
            Some(turn) => {
                let cancel = CancellationToken::new();
                known.running = Some((turn.turn.clone(), cancel.clone()));
                Some((turn, cancel, Arc::clone(&known.gate)))
            }
            None => {
                active.remove(session);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn has(&self, turn: &TurnId) -> bool {
        self.running.as_ref().is_some_and(|(running, _)| running == turn)
            || self.waiting.iter().any(|t| t.turn == *turn)
    }
}

fn spawn(kernel: &Arc<Kernel>, session: SessionId) {
    let kernel = Arc::clone(kernel);
    kernel.clone().tasks.spawn(async move { work(&kernel, &session).await });
}

/// Works off the queue of one session.
async fn work(kernel: &Arc<Kernel>, session: &SessionId) {
    while let Some((queued, cancel, gate)) = kernel.sessions.next(kernel, session) {
        let turn = queued.turn.clone();
        // What is not finished when the kernel ends is gone on with by the next one.
        kernel.cancel.run_until_cancelled(until_recorded(kernel, queued, cancel, gate)).await;
        kernel.ending.turn_ended(&turn);
    }
}

/// Answers a turn. While the journal cannot record it the session waits: its messages are answered in order or not yet.
async fn until_recorded(
    kernel: &Arc<Kernel>,
    queued: QueuedTurn,
    cancel: CancellationToken,
    gate: Arc<Semaphore>,
) {
    let mut next = Some(queued);
    let mut wait = RETRY;
    while let Some(queued) = next {
        let turn = queued.turn.clone();
        let answered = turn::answer(kernel, queued, cancel.clone(), Arc::clone(&gate));
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
