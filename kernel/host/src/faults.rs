//! How often something failed of late, and so how long to wait before it is tried again.

use std::time::{Duration, Instant};

use crate::Instance;

/// Waits before an extension, or its service, is started again; the last repeats.
const BACKOFF: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
];

/// What worked for this long has recovered: its next fault counts as the first.
const RECOVERED: Duration = Duration::from_secs(300);

/// Looks in a row that must find a service at work.
const SERVICE_LOOKS: u32 = 10;

/// How often something failed of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    count: u32,
    last: Option<Instant>,
    /// Bad answers about its health, in a row.
    unwell: u32,
    /// CPU time of its process at the last look, and the calls that it had begun.
    seen: Option<(Duration, u64)>,
    /// Looks in a row that found it at work though nobody had called it.
    busy: u32,
}

impl Faults {
    /// Faults in a row after which it is not tried again by itself.
    pub const MOST: u32 = 8;

    /// It said how it is, or did not: bad answers in a row.
    pub fn answered(&mut self, well: bool) -> u32 {
        self.unwell = if well { 0 } else { self.unwell + 1 };
        self.unwell
    }

    /// Another one: how long to wait before it is tried again; none if it is hopeless.
    pub fn again(&mut self, now: Instant) -> Option<Duration> {
        if self.last.is_some_and(|last| now.duration_since(last) >= RECOVERED) {
            self.count = 0;
        }
        self.last = Some(now);
        self.count += 1;
        (self.unwell, self.seen, self.busy) = (0, None, 0);
        let at = usize::try_from(self.count - 1).unwrap_or(usize::MAX);
        (self.count < Self::MOST).then(|| BACKOFF[at.min(BACKOFF.len() - 1)])
    }

    /// How many in a row.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A look at a process: why it must be killed, where it worked for longer than `share` since the last one though
    /// nobody had called it. A service has work of its own at times, so that it takes several looks in a row.
    pub fn restless(&mut self, instance: &Instance, share: Duration, serves: bool) -> Option<String> {
        let (used, calls) = self.since(instance.cpu_time(), instance.begun());
        // The last look was a call, too.
        let looks = self.found(calls <= 1 && instance.calls_beside_service() == 0 && used > share);
        let most = if serves { SERVICE_LOOKS } else { 1 };
        (looks >= most).then(|| {
            let each = share.as_millis();
            format!("it used more than {each} ms of CPU time in each of {looks} looks while nobody called it")
        })
    }

    /// A look found it at work though nobody had called it, or did not: such looks in a row.
    fn found(&mut self, busy: bool) -> u32 {
        self.busy = if busy { self.busy + 1 } else { 0 };
        self.busy
    }

    /// CPU time and calls since the last look.
    fn since(&mut self, cpu: Option<Duration>, begun: u64) -> (Duration, u64) {
        let before = std::mem::replace(&mut self.seen, cpu.map(|cpu| (cpu, begun)));
        let (cpu_before, begun_before) = before.unwrap_or((Duration::MAX, begun));
        (cpu.unwrap_or_default().saturating_sub(cpu_before), begun.saturating_sub(begun_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_a_row_wait_longer_and_end_hopeless() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let waits: Vec<_> =
            (0..Faults::MOST).map(|n| faults.again(start + Duration::from_secs(n.into()))).collect();
        assert_eq!(waits[0], Some(BACKOFF[0]));
        assert!(waits.windows(2).all(|pair| pair[1].is_none() || pair[0] <= pair[1]), "{waits:?}");
        assert_eq!(waits.iter().filter(|wait| wait.is_none()).count(), 1);
        let busy: Vec<_> = [true, true, false, true].map(|busy| faults.found(busy)).into();
        assert_eq!(busy, [1, 2, 0, 1]);
        let late = faults.again(start + RECOVERED * 2);
        assert_eq!(faults.found(true), 1, "what was seen of the one before it is forgotten");
        assert_eq!(late, Some(BACKOFF[0]), "it had recovered");
    }
}
