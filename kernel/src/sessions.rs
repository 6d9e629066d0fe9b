//! The sessions that have work: each handles its turns one after another, and none waits for another.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_agent::run::GATE;
use drupe_extension_api::{Fault, FaultCode, SessionId, TurnId};
use drupe_journal::QueuedTurn;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{kernel::Kernel, kernel::store_fault, turn};

/// Turns that may wait, over all sessions. Above it messages are refused before they are acknowledged.
const MOST_WAITING: usize = 10_000;

/// Turns that wait and run.
#[derive(Default)]
pub struct Sessions {
    active: Mutex<HashMap<SessionId, Active>>,
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

    /// Queues a turn that was accepted.
    pub async fn enqueue(&self, kernel: &Arc<Kernel>, turn: &TurnId) -> Result<(), Fault> {
        if let Some(turn) = kernel.store.queued(turn).await.map_err(store_fault)? {
            self.push(kernel, turn);
        }
        Ok(())
    }

    /// Queues a turn. While the kernel ends it only stays in the journal, where the next kernel finds it.
    pub fn push(&self, kernel: &Arc<Kernel>, turn: QueuedTurn) {
        if kernel.ending.decided().is_some() {
            return;
        }
        let session = turn.inbound.session.clone();
        let mut active = self.lock();
        match active.get_mut(&session) {
            Some(known) => known.waiting.push_back(turn),
            None => {
                let gate = Arc::new(Semaphore::new(GATE));
                active
                    .insert(session.clone(), Active { waiting: VecDeque::from([turn]), running: None, gate });
                let kernel = Arc::clone(kernel);
                kernel.clone().tasks.spawn(async move { work(&kernel, &session).await });
            }
        }
    }

    /// Cancels a turn that runs, or takes it from the queue; whether there was one.
    pub fn stop(&self, turn: &TurnId) -> Option<QueuedTurn> {
        let mut active = self.lock();
        for session in active.values_mut() {
            if let Some((_, cancel)) = session.running.as_ref().filter(|(running, _)| running == turn) {
                cancel.cancel();
                return None;
            }
            if let Some(at) = session.waiting.iter().position(|t| t.turn == *turn) {
                return session.waiting.remove(at);
            }
        }
        None
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

/// Works off the queue of one session.
async fn work(kernel: &Arc<Kernel>, session: &SessionId) {
    while let Some((queued, cancel, gate)) = kernel.sessions.next(kernel, session) {
        let turn = queued.turn.clone();
        let answered = turn::answer(kernel, queued, cancel, gate);
        // What is not finished when the kernel ends is gone on with by the next one.
        let finished = kernel.cancel.run_until_cancelled(answered).await;
        if let Some(Err(error)) = &finished {
            tracing::error!(%turn, %error, "the turn could not be recorded; it is tried again after a restart");
        }
        kernel.ending.turn_ended(&turn);
    }
}
