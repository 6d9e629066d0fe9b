//! A timer that is kept over many waits.
//!
//! An answer comes in hundreds of pieces, and each of them may keep its reader waiting for so long and no longer. To make
//! a timer for each piece, and take it back when the piece is there, costs more than to read the piece. This one stays
//! where it is while deadlines only move away from it, and looks when it rings whether the time has come.

use std::{future::poll_fn, pin::Pin, pin::pin, task::Poll};

use tokio::time::{Instant, Sleep, sleep_until};

/// One timer for waits that follow one another.
#[derive(Default)]
pub(crate) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

/// The deadline came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late;

impl Alarm {
    /// Waits for something until a deadline.
    pub(crate) async fn wait<T>(
        &mut self,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T, Late> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            // It would ring too late.
            if sleep.deadline() > deadline {
                sleep.as_mut().reset(deadline);
            }
            while sleep.as_mut().poll(cx).is_ready() {
                // That of an earlier wait was sooner.
                if sleep.deadline() >= deadline {
                    return Poll::Ready(Err(Late));
                }
                sleep.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, time::Duration};

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_at_its_own_deadline_whichever_came_before() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut alarm = Alarm::default();
        assert_eq!(alarm.wait(at(100), async { 1 }).await, Ok(1));
        assert_eq!(alarm.wait(at(100), sleep(Duration::from_millis(60))).await, Ok(()));
        // Later than the one before, which rings on the way.
        assert_eq!(alarm.wait(at(300), sleep(Duration::from_millis(200))).await, Ok(()));
        assert_eq!(began.elapsed(), Duration::from_millis(260));
        assert_eq!(alarm.wait(at(400), pending::<()>()).await, Err(Late));
        assert_eq!(began.elapsed(), Duration::from_millis(400));
        // Sooner than the one before.
        assert_eq!(alarm.wait(at(900), sleep(Duration::from_millis(10))).await, Ok(()));
        assert_eq!(alarm.wait(at(500), pending::<()>()).await, Err(Late));
        assert_eq!(began.elapsed(), Duration::from_millis(500));
        // One that has passed.
        assert_eq!(alarm.wait(at(450), pending::<()>()).await, Err(Late));
        assert_eq!(alarm.wait(at(450), async { 2 }).await, Ok(2));
    }
}
