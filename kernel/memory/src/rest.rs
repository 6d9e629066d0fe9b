//! When a process is at rest.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The most processor time between two looks of a process that rests.
const REST: Duration = Duration::from_millis(10);

/// The least since it last gave back for which it is worth it: some turns.
const WORK: Duration = Duration::from_millis(20);

/// The least for which it is worth it after [`LONG`]: what runs now and then touches code that lies far apart.
const LITTLE_WORK: Duration = Duration::from_millis(1);

/// Looks after which little work is worth it. A process at rest looks seldom, so that it seldom brings back what it needs for that.
const LONG: u32 = 60;

/// Gives memory back after the start of this process, after each spell of work, and now and then where it did anything.
#[derive(Debug)]
pub struct Rest {
    /// What it had used when it gave back; none before the first time, when all of its start is to be given back.
    given_back: Option<Duration>,
    /// How many looks there were since then.
    looks: u32,
    last: Duration,
}

impl Rest {
    /// Time from work to a look.
    pub const LOOK: Duration = Duration::from_secs(1);

    /// A process that has begun to work and gave nothing back so far. From now on what it needs of large blocks goes as
    /// soon as it is free.
    pub fn begin() -> Self {
        crate::keep_no_large_blocks();
        Self { given_back: None, looks: 0, last: used() }
    }

    /// Gives back where the process has rested since the last look, and worked before that. Whether it has rested: then the next
    /// look is worth it once it has done something.
    pub fn look(&mut self) -> bool {
        let rests = used().saturating_sub(self.last) <= REST;
        if self.is_worth_it() && rests {
            crate::give_back();
            (self.given_back, self.looks) = (Some(used()), 0);
        }
        self.last = used();
        rests
    }

    /// Whether there was work, since it last gave back, for which it is worth to do so.
    pub fn is_worth_it(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let least = if self.looks >= LONG { LITTLE_WORK } else { WORK };
        self.given_back.is_none_or(|before| used().saturating_sub(before) >= least)
    }
}

/// Processor time of this process so far, of all threads.
fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
