//! Politeness: one request at a time to a host, with a pause between two, and none where it asked to be left alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use drupe_extension_api::{Fault, FaultCode};
use tokio::{
    sync::{Mutex as Turns, OwnedMutexGuard},
    time::{Instant, sleep_until},
};

/// How many hosts are remembered: far more than a conversation visits.
const REMEMBERED: usize = 512;
/// The longest that a host is left alone because it said so. What it asks for beyond that is asked again.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// All hosts that were asked lately.
pub struct Hosts {
    gap: Duration,
    known: Mutex<HashMap<String, Arc<Known>>>,
}

struct Known {
    /// Held by whoever asks the host; when the next one may.
    turn: Arc<Turns<Instant>>,
    left_alone_until: Mutex<Option<Instant>>,
}

/// The right to ask a host now.
pub struct HostTurn {
    next: OwnedMutexGuard<Instant>,
    known: Arc<Known>,
    gap: Duration,
}

impl Hosts {
    pub fn new(gap: Duration) -> Self {
        Self { gap, known: Mutex::default() }
    }

    /// Waits until the host may be asked; refuses where it asked to be left alone.
    pub async fn turn(&self, host: &str) -> Result<HostTurn, Fault> {
        let known = self.known(host);
        known.check(host)?;
        let next = Arc::clone(&known.turn).lock_owned().await;
        sleep_until(*next).await;
        // It may have asked while this one waited.
        known.check(host)?;
        Ok(HostTurn { next, known, gap: self.gap })
    }

    fn known(&self, host: &str) -> Arc<Known> {
        let mut all = lock(&self.known);
        if let Some(known) = all.get(host) {
            return Arc::clone(known);
        }
        if all.len() >= REMEMBERED {
            all.retain(|_, known| Arc::strong_count(known) > 1);
        }
        let turn = Arc::new(Turns::new(Instant::now()));
        let known = Arc::new(Known { turn, left_alone_until: Mutex::default() });
        all.insert(host.to_owned(), Arc::clone(&known));
        known
    }
}

impl Known {
    fn check(&self, host: &str) -> Result<(), Fault> {
        let left = lock(&self.left_alone_until).map(|until| until.saturating_duration_since(Instant::now()));
        match left.filter(|left| !left.is_zero()) {
            None => Ok(()),
            Some(left) => {
                let seconds = left.as_secs_f64().ceil();
                let message =
                    format!("`{host}` asked to be left alone for another {seconds} s; it was not asked");
                Err(Fault::new(FaultCode::Busy, message))
            }
        }
    }
}

impl HostTurn {
    /// The host asks not to be asked for so long.
    pub fn leave_alone(&self, time: Duration) {
        *lock(&self.known.left_alone_until) = Some(Instant::now() + time.min(LONGEST_PAUSE));
    }
}

impl Drop for HostTurn {
    fn drop(&mut self) {
        *self.next = Instant::now() + self.gap;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
