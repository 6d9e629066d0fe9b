//! The kernel's calls to a process that have not ended there.
//!
//! A call that the caller gave up stays here until the process says that it is gone: one that keeps running holds a
//! thread of the process, and nothing but the end of the process ends it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_extension_api::wire::op;
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::Answer;
use crate::{
    Ended,
    frame::{self, Frame},
    outbox::Outbox,
};

/// How long a cancelled call may go on: dropping a future takes microseconds.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct Calls {
    state: Mutex<State>,
    cancelled: Notify,
}

#[derive(Default)]
struct State {
    open: BTreeMap<u64, Open>,
    /// Cancelled calls, oldest first; some of them are gone meanwhile.
    cancelled: VecDeque<(Instant, u64)>,
    ended: Option<Ended>,
}

struct Open {
    operation: &'static str,
    /// None once the caller gave up.
    answer: Option<oneshot::Sender<Result<Answer, Ended>>>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that is about to be sent. After the end: how that was.
    pub fn begin<'a>(
        &'a self,
        id: u64,
        operation: &'static str,
        outbox: &'a Outbox,
    ) -> Result<Calling<'a>, Ended> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        state.open.insert(id, Open { operation, answer: Some(sender) });
        Ok(Calling { calls: self, outbox, id, sent: false, receiver })
    }

    /// Ends a call with its result. Whether there was such a call.
    pub fn answered(&self, id: u64, answer: Answer) -> bool {
        let open = self.lock().open.remove(&id);
        // A caller that gave up needs it no more.
        open.map(|open| open.answer.map(|sender| sender.send(Ok(answer)))).is_some()
    }

    /// A cancelled call is gone. Whether there was such a call.
    pub fn gone(&self, id: u64) -> bool {
        let mut state = self.lock();
        let cancelled = state.open.get(&id).is_some_and(|open| open.answer.is_none());
        cancelled && state.open.remove(&id).is_some()
    }

    pub fn count(&self) -> usize {
        self.lock().open.len()
    }

    pub fn ended(&self) -> Option<Ended> {
        self.lock().ended.clone()
    }

    /// The operation of the call that has been in flight for longest. A service is in flight for ever, and so is no
    /// answer to the question what went on, unless nothing else did.
    pub fn oldest(&self) -> Option<&'static str> {
        let state = self.lock();
        let mut operations = state.open.values().map(|open| open.operation).peekable();
        let first = operations.peek().copied();
        operations.find(|operation| *operation != op::SERVICE_RUN).or(first)
    }

    /// How many calls are in flight beside a service.
    pub fn beside_service(&self) -> usize {
        self.lock().open.values().filter(|open| open.operation != op::SERVICE_RUN).count()
    }

    /// Ends all calls, and those to come.
    pub fn end_all(&self, ended: &Ended) {
        let mut state = self.lock();
        state.ended = Some(ended.clone());
        for open in std::mem::take(&mut state.open).into_values() {
            let _ = open.answer.map(|sender| sender.send(Err(ended.clone())));
        }
        state.cancelled.clear();
    }

    /// Waits until a cancelled call has gone on for too long.
    pub async fn overdue(&self) {
        loop {
            match self.first_cancelled() {
                None => self.cancelled.notified().await,
                Some(since) if since.elapsed() >= GRACE => return,
                Some(since) => tokio::time::sleep_until(since + GRACE).await,
            }
        }
    }

    fn first_cancelled(&self) -> Option<Instant> {
        let mut state = self.lock();
        while let Some((since, id)) = state.cancelled.front().copied() {
            if state.open.contains_key(&id) {
                return Some(since);
            }
            state.cancelled.pop_front();
        }
        None
    }

    fn give_up(&self, id: u64, sent: bool) -> bool {
        let mut state = self.lock();
        let Some(open) = state.open.get_mut(&id) else { return false };
        if !sent {
            state.open.remove(&id);
            return false;
        }
        open.answer = None;
        state.cancelled.push_back((Instant::now(), id));
        self.cancelled.notify_one();
        true
    }
}

/// A call as its caller holds it; dropping it gives the call up.
pub struct Calling<'a> {
    calls: &'a Calls,
    outbox: &'a Outbox,
    id: u64,
    sent: bool,
    receiver: oneshot::Receiver<Result<Answer, Ended>>,
}

impl Calling<'_> {
    /// The process may have begun it.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// Its result, or how the process ended.
    pub async fn answer(mut self) -> Result<Answer, Ended> {
        match (&mut self.receiver).await {
            Ok(answer) => answer,
            // The table is gone without an end: the runtime is being shut down.
            Err(_) => Err(self.calls.ended().unwrap_or_else(|| Ended {
                how: "the kernel is ending".into(),
                operation: "idle".into(),
                stderr_tail: Vec::new(),
            })),
        }
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        if self.calls.give_up(self.id, self.sent)
            && let Ok(cancel) = frame::encode(&Frame::Cancel { id: self.id })
        {
            // Where the other side is gone, so is the call.
            let _ = self.outbox.push(cancel);
        }
    }
}
