//! A signal that fires once and that any number of tasks can wait for.
//!
//! It carries no value and never goes back.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// The side that fires.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    fired: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Signal {
    /// Wakes all that wait, now and later; a second call does nothing.
    pub(crate) fn fire(&self) {
        self.state.fired.store(true, Ordering::Release);
        let woken = std::mem::take(&mut self.state.lock().wakers);
        for waker in woken.into_values() {
            waker.wake();
        }
    }

    /// A future that ends when the signal has fired.
    pub(crate) fn shutdown(&self) -> Shutdown {
        Shutdown { state: self.state.clone(), place: None }
    }
}

impl State {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // A waker that panics while it is replaced leaves the map whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends when the extension shall stop: wait for it with `.await`, beside the work, or ask it.
///
/// ```
/// # use drupe_extension_api::prelude::*;
/// # struct Feed;
/// # impl Extension for Feed { async fn initialize(_: Host) -> Result<Self, Fault> { Ok(Feed) } }
/// impl Service for Feed {
///     async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
///         // Listen, or do what needs doing, until:
///         shutdown.await;
///         Ok(())
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing unless it is awaited or asked"]
pub struct Shutdown {
    state: Arc<State>,
    place: Option<u64>,
}

impl Shutdown {
    /// Whether the extension shall stop.
    pub fn is_set(&self) -> bool {
        self.state.fired.load(Ordering::Acquire)
    }
}

impl Clone for Shutdown {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), place: None }
    }
}

impl Future for Shutdown {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut waiting = this.state.lock();
        // Asked under the lock: `fire` sets the flag before it takes the wakers.
        if this.state.fired.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let place = *this.place.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        waiting.wakers.insert(place, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.state.lock().wakers.remove(&place);
            drop(waker);
        }
    }
}
