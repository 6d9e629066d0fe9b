//! Work that blocks, on a thread of its own.
//!
//! A thread per piece of work, not a pool: starting one takes some ten microseconds where a synced write takes
//! milliseconds, an idle extension keeps none, and what the kernel lets run at once bounds their number.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    thread,
};

use super::{guard, shared::Shared};
use crate::{Fault, FaultCode};

/// Where the thread leaves its result.
struct Place<T> {
    result: Option<Result<T, Fault>>,
    waiting: Option<Waker>,
}

fn lock<T>(place: &Mutex<Place<T>>) -> MutexGuard<'_, Place<T>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` to its end, also where the future that waits for it is dropped.
pub(crate) async fn run<T: Send + 'static>(
    shared: Arc<Shared>,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let place = Arc::new(Mutex::new(Place { result: None, waiting: None }));
    let theirs = place.clone();
    let started = thread::Builder::new().name("blocking".to_owned()).spawn(move || {
        let outcome = {
            let _inside = shared.enter();
            guard::catch(work)
        };
        let result = outcome.unwrap_or_else(|panic| {
            let fault = panic.fault("blocking work");
            shared.report(&fault.message);
            Err(fault)
        });
        let mut place = lock(&theirs);
        place.result = Some(result);
        let waiting = place.waiting.take();
        drop(place);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
        // Where nobody waits any more, the result ends here, and its drop is the author's code.
        shared.discard("the result of blocking work", theirs);
    });
    if let Err(error) = started {
        return Err(Fault::new(FaultCode::Unavailable, format!("the system gives no thread: {error}")));
    }
    poll_fn(|cx| {
        let mut place = lock(&place);
        if let Some(result) = place.result.take() {
            return Poll::Ready(result);
        }
        place.waiting = Some(cx.waker().clone());
        Poll::Pending
    })
    .await
}
