//! A kernel at rest holds little: after its start, and after each spell of work, it gives back what only that needed.

use std::{sync::Arc, time::Duration};

use rustix::time::{ClockId, clock_gettime};

use crate::life::Life;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The most processor time between two looks of a kernel that rests.
const REST: Duration = Duration::from_millis(10);

/// The least since it last gave back for which it is worth it: some turns.
const WORK: Duration = Duration::from_millis(20);

/// Looks until the kernel closes.
pub async fn watch(life: Arc<Life>) {
    let (mut given_back, mut last) = (Duration::ZERO, used());
    while life.closing.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_some() {
        let now = used();
        if now - last <= REST && now - given_back >= WORK {
            drupe_memory::give_back();
            given_back = used();
        }
        last = used();
    }
}

/// Processor time of this process so far, of all threads.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
