//! A share of the session's gate: held by what runs, given back by what waits for others.
//!
//! Nobody waits for a share while holding one, so that however deep agents call agents, the gate cannot lock up.
//! It deliberately does not know what runs or waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::run::GATE;

/// Share of the gate that a sub-agent takes, against 1 of a plain tool: it holds a model's stream.
pub(crate) const AGENT: u32 = 4;

/// The same of one that works beside its caller: four of them leave some for the calls of that.
pub(crate) const BESIDE: u32 = 3;

/// What one run or call holds of the gate.
pub(crate) struct Share {
    gate: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What it takes while it runs; 0 holds nothing, ever.
    weight: u32,
    /// How many things it waits for.
    waiting: u32,
    ended: bool,
    permit: Option<OwnedSemaphorePermit>,
}

/// A share that ends with this value, whoever else knows it.
pub(crate) struct Held(Arc<Share>);

/// While this lives, the share is given back.
struct Waiting<'a>(&'a Share);

impl Share {
    /// A share of nothing, for the root of a turn: the gate bounds what it sets off.
    pub(crate) fn none(gate: &Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { gate: Arc::clone(gate), state: Mutex::default() })
    }

    /// A share, if there is room for it now.
    pub(crate) fn try_take(gate: &Arc<Semaphore>, weight: u32) -> Option<Held> {
        let weight = clamped(weight);
        if weight == 0 {
            return Some(Self::held(gate, 0, None));
        }
        let permit = Arc::clone(gate).try_acquire_many_owned(weight).ok()?;
        Some(Self::held(gate, weight, Some(permit)))
    }

    /// Waits in line for a share; gives up with the output of `over`.
    pub(crate) async fn take<O>(
        gate: &Arc<Semaphore>,
        weight: u32,
        over: impl Future<Output = O>,
    ) -> Result<Held, O> {
        let weight = clamped(weight);
        if weight == 0 {
            return Ok(Self::held(gate, 0, None));
        }
        let permit = tokio::select! {
            biased;
            over = over => return Err(over),
            // The gate is never closed; were it, what runs would go on without a share.
            permit = Arc::clone(gate).acquire_many_owned(weight) => permit.ok(),
        };
        Ok(Self::held(gate, weight, permit))
    }

    fn held(gate: &Arc<Semaphore>, weight: u32, permit: Option<OwnedSemaphorePermit>) -> Held {
        let state = State { weight, permit, ..State::default() };
        Held(Arc::new(Self { gate: Arc::clone(gate), state: Mutex::new(state) }))
    }

    /// Does `work` without the share and takes it again afterwards, unless `over` comes first: then what holds it
    /// has only its report left to make.
    pub(crate) async fn wait<T, O>(&self, work: impl Future<Output = T>, over: impl Future<Output = O>) -> T {
        let waiting = Waiting::begin(self);
        let done = work.await;
        drop(waiting);
        let Some(weight) = self.missing() else { return done };
        tokio::select! {
            biased;
            _ = over => {}
            permit = Arc::clone(&self.gate).acquire_many_owned(weight) => {
                let mut state = self.state();
                // It may wait for something else by now, or have ended.
                if state.waiting == 0 && !state.ended && state.permit.is_none() {
                    state.permit = permit.ok();
                }
            }
        }
        done
    }

    /// The weight that it must take again.
    fn missing(&self) -> Option<u32> {
        let state = self.state();
        let lacks = state.weight > 0 && state.waiting == 0 && !state.ended && state.permit.is_none();
        lacks.then_some(state.weight)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a weight takes of the gate.
fn clamped(weight: u32) -> u32 {
    weight.min(u32::try_from(GATE).unwrap_or(u32::MAX))
}

impl Held {
    /// For the one that runs.
    pub(crate) fn share(&self) -> Arc<Share> {
        Arc::clone(&self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.ended = true;
        state.permit = None;
    }
}

impl<'a> Waiting<'a> {
    fn begin(share: &'a Share) -> Self {
        let mut state = share.state();
        state.waiting += 1;
        state.permit = None;
        drop(state);
        Self(share)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}
