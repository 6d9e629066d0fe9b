//! What becomes of work that panics. A task that ends by a panic tells nobody: whoever waits for its answer would wait for
//! ever, and what it looks after would be left alone.

use std::{panic::AssertUnwindSafe, time::Duration};

use drupe_extension_api::Fault;
use futures_util::FutureExt;

/// Between a panic and the next attempt: one that comes again at once must not use up a processor.
const AGAIN: Duration = Duration::from_secs(1);

/// Work that gives an answer in any case.
pub async fn answered<T>(work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let answer = AssertUnwindSafe(work).catch_unwind().await;
    answer.unwrap_or_else(|_| Err(Fault::internal("it panicked; the daemon's log says where")))
}

/// Work that lasts as long as its kernel: where it panics it begins again.
pub async fn lasting<F: Future<Output = ()>>(what: &'static str, mut begin: impl FnMut() -> F) {
    // What makes the work may panic as well.
    while AssertUnwindSafe(async { begin().await }).catch_unwind().await.is_err() {
        tracing::error!(what, "a task of the kernel panicked; it begins again");
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lasting_work_begins_again_after_each_panic_until_it_ends_by_itself() {
        let mut begun = 0;
        lasting("a test", || {
            begun += 1;
            let nth = begun;
            async move {
                tokio::task::yield_now().await;
                assert!(nth > 2, "it panics twice");
            }
        })
        .await;
        assert_eq!(begun, 3);
    }
}
