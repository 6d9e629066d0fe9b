//! Shows a person who waits what is happening, for how long, and how to stop it.

use std::{
    fs,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{
    console::{Console, cut, duration, signs, width},
    failure::{Failure, status},
};

/// What ends sooner than this is not worth a line.
const SHOWN_AFTER: Duration = Duration::from_millis(300);

/// What ends sooner is not worth a line of a log.
const SAID_AFTER: Duration = Duration::from_secs(3);

/// Columns of `…` where it is not one.
const SIGN: usize = 3;

/// Signals, as something to ask for in place of something that ends the process: a daemon that was started for a client
/// is to be stopped by it.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// Ctrl-C.
    interrupt: Arc<AtomicBool>,
    /// The terminal is closed, or somebody ends the process.
    leave: Arc<AtomicBool>,
}

impl Interrupt {
    pub fn take() -> Result<Self, Failure> {
        let taken = Self { interrupt: Arc::default(), leave: Arc::default() };
        register(SIGINT, &taken.interrupt)?;
        taken.also_leave(&taken.leave)?;
        Ok(taken)
    }

    /// Has another flag set, too, when it is time to leave.
    pub fn also_leave(&self, flag: &Arc<AtomicBool>) -> Result<(), Failure> {
        if !ignored(SIGHUP) {
            register(SIGHUP, flag)?;
        }
        register(SIGTERM, flag)
    }

    /// It is time to leave: the terminal is closed.
    pub fn leave(&self) {
        self.leave.store(true, Ordering::Relaxed);
    }

    /// Whether one of the two waits to be heeded.
    pub fn waits(&self) -> bool {
        self.leaving() || self.interrupt.load(Ordering::Relaxed)
    }

    /// Whether Ctrl-C came since this was last asked.
    pub fn came(&self) -> bool {
        self.interrupt.swap(false, Ordering::Relaxed)
    }

    pub fn leaving(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }
}

/// Whether this process was started to ignore a signal, as `nohup` does.
fn ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn register(signal: i32, flag: &Arc<AtomicBool>) -> Result<(), Failure> {
    let registered = signal_hook::flag::register(signal, Arc::clone(flag));
    registered
        .map(|_| ())
        .map_err(|error| Failure::new(status::SYSTEM, format!("signals cannot be handled: {error}")))
}

/// One wait: it knows when it began, shows itself where somebody watches, and leaves no trace.
#[derive(Debug)]
pub struct Wait {
    console: Console,
    began: Instant,
    most: Option<Duration>,
    shown: bool,
    /// What was last said to a log.
    said: Option<String>,
}

impl Wait {
    /// A wait that lasts at most so long, if anything is said about it.
    pub fn new(console: Console, most: Option<Duration>) -> Self {
        Self { console, began: Instant::now(), most, shown: false, said: None }
    }

    /// How long it has lasted.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether it has lasted long enough.
    pub fn over(&self) -> bool {
        self.most.is_some_and(|most| self.elapsed() >= most)
    }

    /// Shows `what` with the time so far.
    pub fn show(&mut self, what: &str) {
        if !self.console.watched || self.elapsed() < SHOWN_AFTER {
            return;
        }
        self.shown = true;
        let time = duration(u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX));
        let mut err = io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        // A line that wrapped would leave its first row behind; the sign for what is cut off may take three columns.
        let room = Console::columns_err()
            .map_or(usize::MAX, |columns| columns.saturating_sub(width(&time) + 2 * SIGN + 2));
        let line = format!("{} … {time}", cut(what, room));
        let _ = write!(err, "\r\x1b[2K{}", signs(&line, self.console.bare_err)).and_then(|()| err.flush());
    }

    /// Shows `what`, then sleeps for a moment. It is said once where nobody watches, so that a log does not stand still
    /// without a word.
    pub fn pause(&mut self, what: &str, moment: Duration) {
        self.show(what);
        let unsaid = !self.console.watched && self.said.as_deref() != Some(what);
        if unsaid && self.elapsed() >= SAID_AFTER {
            self.said = Some(what.to_owned());
            self.console.remark(what);
        }
        thread::sleep(moment);
    }

    /// Takes the line away, so that something else can be written.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let mut err = io::stderr().lock();
            let _ = write!(err, "\r\x1b[2K").and_then(|()| err.flush());
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_watches_each_long_wait_is_said_once() {
        let fake = crate::cli::fake::Fake::absent();
        let mut wait = Wait::new(fake.context.console, None);
        wait.pause("a moment", Duration::ZERO);
        assert_eq!(wait.said, None);
        wait.began = wait.began.checked_sub(SAID_AFTER).expect("the machine runs for longer");
        for what in ["the disk is full", "the disk is full", "the kernel is restarting"] {
            wait.pause(what, Duration::ZERO);
            assert_eq!(wait.said.as_deref(), Some(what));
        }
    }
}
