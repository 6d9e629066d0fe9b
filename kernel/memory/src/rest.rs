//! When a process is at rest.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The most processor time between two looks of a process that rests.
const REST: Duration = Duration::from_millis(10);

/// The least since it last gave back for which it is worth it: some turns.
const WORK: Duration = Duration::from_millis(20);

/// Gives memory back after the start of this process, and after each spell of work.
#[derive(Debug)]
pub struct Rest {
    given_back: Duration,
    last: Duration,
}

impl Rest {
    /// Time between two looks.
    pub const LOOK: Duration = Duration::from_secs(1);

    /// A process that has begun to work and gave nothing back so far. From now on what it needs of large blocks goes as
    /// soon as it is free.
    pub fn begin() -> Self {
        crate::keep_no_large_blocks();
        Self { given_back: Duration::ZERO, last: used() }
    }

    /// Gives back where the process has rested since the last look, and worked before that.
    pub fn look(&mut self) {
        let now = used();
        if now - self.last <= REST && now - self.given_back >= WORK {
            crate::give_back();
            self.given_back = used();
        }
        self.last = used();
    }
}

/// Processor time of this process so far, of all threads.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
