//! Waiting, with somebody watching: what is happening, for how long, and how to stop it.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    console::{Console, duration},
    failure::{Failure, status},
};

/// What ends sooner than this is not worth a line.
const SHOWN_AFTER: Duration = Duration::from_millis(300);

/// Ctrl-C, as something to ask for in place of something that ends the process.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes the signal over.
    pub fn take() -> Result<Self, Failure> {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&flag))
            .map_err(|error| Failure::new(status::SYSTEM, format!("Ctrl-C cannot be handled: {error}")))?;
        Ok(Self(flag))
    }

    /// Whether it came since this was last asked.
    pub fn came(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// One wait: it knows when it began, shows itself where somebody watches, and leaves no trace.
#[derive(Debug)]
pub struct Wait {
    console: Console,
    began: Instant,
    most: Option<Duration>,
    shown: bool,
}

impl Wait {
    /// A wait that lasts at most so long, if anything is said about it.
    pub fn new(console: Console, most: Option<Duration>) -> Self {
        Self { console, began: Instant::now(), most, shown: false }
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
        let _ = write!(err, "\r\x1b[2K{what} … {time}").and_then(|()| err.flush());
    }

    /// Shows `what`, then sleeps for a moment.
    pub fn pause(&mut self, what: &str, moment: Duration) {
        self.show(what);
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
