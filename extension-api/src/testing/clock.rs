//! The time of a [`FakeHost`](super::FakeHost): it passes when something sleeps, or when the test says so.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Virtual milliseconds since the start.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: u64,
    held: bool,
    waiting: Vec<Waker>,
}

impl Clock {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> u64 {
        self.lock().now
    }

    /// From now on time passes only by [`advance`](Self::advance).
    pub(super) fn hold(&self) {
        self.lock().held = true;
    }

    pub(super) fn advance(&self, milliseconds: u64) {
        let woken = {
            let mut state = self.lock();
            state.now = state.now.saturating_add(milliseconds);
            std::mem::take(&mut state.waiting)
        };
        woken.into_iter().for_each(Waker::wake);
    }

    pub(super) fn sleep(&self, milliseconds: u64) -> Sleep {
        let due = self.now().saturating_add(milliseconds);
        Sleep { clock: self.clone(), due, polled: false }
    }
}

/// Ends when its time has come. Where nothing holds the clock, it lets others run once and then turns the
/// clock itself.
pub(super) struct Sleep {
    clock: Clock,
    due: u64,
    polled: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (due, polled) = (self.due, self.polled);
        self.polled = true;
        let mut state = self.clock.lock();
        if due <= state.now {
            return Poll::Ready(());
        }
        if !state.held && polled {
            state.now = due;
            let woken = std::mem::take(&mut state.waiting);
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            return Poll::Ready(());
        }
        if state.held {
            state.waiting.push(cx.waker().clone());
        } else {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
