//! Extensions that broke while they worked: taken out, and tried again after a while.
//!
//! Three things break one: its process ends, it says or shows that it is not well, its service fails for good. All three
//! come to [`broke`]. What depends on it goes out with it, and comes back with it.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    FaultCode,
    wire::{Capability, Health, op},
};
use drupe_host::{Ended, Header, Instance};
use drupe_link::{Crashed, Up};
use futures_util::future::join_all;

use super::{
    Key, change,
    state::{Event, Out, State},
};
use crate::{boot, kernel::Kernel};

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

/// Faults in a row after which it is not tried again by itself.
const MOST: u32 = 8;

/// How long an extension may think about how it is.
const ANSWER: Duration = Duration::from_secs(5);

/// Bad answers in a row that break it: one may be bad luck.
const UNWELL: u32 = 2;

/// CPU time that the process of an extension may use between two looks while nobody calls it.
const IDLE_CPU: Duration = Duration::from_secs(10);

/// How often something failed of late.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    count: u32,
    last: Option<Instant>,
    /// Bad answers about its health, in a row.
    unwell: u32,
    /// CPU time of its process at the last look.
    cpu: Option<Duration>,
}

impl Faults {
    /// Another one: how long to wait before it is tried again; none if it is hopeless.
    pub fn again(&mut self, now: Instant) -> Option<Duration> {
        if self.last.is_some_and(|last| now.duration_since(last) >= RECOVERED) {
            self.count = 0;
        }
        self.last = Some(now);
        self.count += 1;
        (self.unwell, self.cpu) = (0, None);
        let at = usize::try_from(self.count - 1).unwrap_or(usize::MAX);
        (self.count < MOST).then(|| BACKOFF[at.min(BACKOFF.len() - 1)])
    }

    /// How many in a row.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The CPU time since the last look.
    fn used(&mut self, cpu: Option<Duration>) -> Duration {
        let before = std::mem::replace(&mut self.cpu, cpu);
        cpu.zip(before).map_or(Duration::ZERO, |(now, before)| now.saturating_sub(before))
    }
}

/// Something that worked does not any more.
pub async fn broke(kernel: &Arc<Kernel>, key: &Key, why: String) {
    let change = kernel.changing.lock().await;
    let working = kernel.extensions.with(key, |r| r.state == State::Active);
    if working != Some(true) || kernel.ending.decided().is_some() {
        return;
    }
    let wait = kernel.extensions.with(key, |r| r.faults.again(Instant::now())).flatten();
    let event = match wait {
        Some(_) => Event::Broke(why),
        None => Event::Failed(format!("it failed {MOST} times in a row, at last: {why}")),
    };
    boot::withdraw(kernel, &key.0, event).await;
    drop(change);
    if let Some(wait) = wait {
        let (kernel, key) = (Arc::clone(kernel), key.clone());
        kernel.clone().tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => retry(&kernel, &key).await,
                () = kernel.closing.cancelled() => {}
            }
        });
    }
}

async fn retry(kernel: &Arc<Kernel>, key: &Key) {
    if kernel.ending.decided().is_some() {
        return;
    }
    // What is on the disk may not be what worked.
    if let Err(fault) = change::retry(kernel, key).await {
        tracing::warn!(extension = %key.0, %fault, "it is not tried again");
    }
}

/// Tells the supervisor when the process of an instance ends, and takes the extension out.
pub fn watch_process(kernel: &Arc<Kernel>, key: Key, hash: String, instance: &Arc<Instance>) {
    if instance.process().is_none() {
        return;
    }
    let (kernel, ended) = (Arc::downgrade(kernel), instance.ending());
    let Some(tasks) = kernel.upgrade().map(|kernel| kernel.tasks.clone()) else { return };
    tasks.spawn(async move {
        if let Some(ended) = ended.await {
            process_ended(&kernel, key, hash, ended).await;
        }
    });
}

async fn process_ended(kernel: &Weak<Kernel>, key: Key, hash: String, ended: Ended) {
    let Some(kernel) = kernel.upgrade() else { return };
    // Its state tells no more: what waited for the process may have noted the failure already.
    let loading = kernel.extensions.with(&key, |r| !r.worked).unwrap_or_default();
    tell_crash(&kernel, &key.0, &hash, &ended, loading);
    broke(&kernel, &key, format!("its process ended in `{}`: {}", ended.operation, ended.how)).await;
}

/// Tells the supervisor, which counts.
pub fn tell_crash(kernel: &Kernel, extension: &str, hash: &str, ended: &Ended, loading: bool) {
    kernel.tell_supervisor(&Up::Crashed(Crashed {
        extension: extension.to_owned(),
        hash: hash.to_owned(),
        operation: ended.operation.clone(),
        how: ended.how.clone(),
        loading,
    }));
}

/// What the supervisor now knows of extensions that crash.
pub async fn judged(kernel: &Arc<Kernel>) {
    let _change = kernel.changing.lock().await;
    for verdict in kernel.verdicts().quarantined {
        for key in kernel.extensions.named(&verdict.extension) {
            let same = kernel.extensions.with(&key, |r| {
                let kept_out = matches!(
                    r.state,
                    State::Out(Out::Quarantined(_) | Out::Disabled(_) | Out::AwaitingApproval(_))
                );
                r.hash() == verdict.hash && !kept_out
            });
            if same == Some(true) {
                let event = Event::Rejected(Out::Quarantined(super::survey::quarantine(&verdict)));
                boot::withdraw(kernel, &key.0, event).await;
            }
        }
    }
}

/// Asks all extensions how they are, again and again, until the kernel closes.
pub async fn watch_health(kernel: Arc<Kernel>) {
    let every = kernel.config.health_interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = kernel.closing.cancelled() => return,
        }
        let active = kernel.extensions.read(|r| {
            let instance = r.part.as_ref()?.instance.clone()?;
            (r.state == State::Active).then(|| (r.key(), instance))
        });
        let looks = active.into_iter().flatten().map(|(key, instance)| look(&kernel, key, instance));
        join_all(looks).await;
    }
}

async fn look(kernel: &Arc<Kernel>, key: Key, instance: Arc<Instance>) {
    let used = kernel.extensions.with(&key, |r| r.faults.used(instance.cpu_time())).unwrap_or_default();
    let serves =
        kernel.extensions.with(&key, |r| r.part.as_ref().is_some_and(|p| p.can(Capability::Service)));
    if used > IDLE_CPU && instance.calls() == usize::from(serves == Some(true)) {
        instance.kill(&format!("it used {} s of CPU time while nobody called it", used.as_secs()));
        return;
    }
    let header = Header { timeout: Some(ANSWER), ..Header::default() };
    let answer = instance.call::<Health>(op::HEALTH, &(), header).await;
    let hangs = answer.as_ref().is_err_and(|fault| fault.code == FaultCode::Timeout);
    let why = match answer {
        Ok(Health { ok: true, .. }) => None,
        Ok(Health { detail, .. }) => Some(detail.unwrap_or_else(|| "it says that it is not well".into())),
        Err(fault) if fault.code == FaultCode::Unsupported => None,
        Err(fault) => Some(fault.to_string()),
    };
    let unwell = kernel.extensions.with(&key, |r| {
        r.faults.unwell = if why.is_some() { r.faults.unwell + 1 } else { 0 };
        r.faults.unwell
    });
    if let (Some(why), Some(UNWELL..)) = (why, unwell) {
        if hangs && instance.process().is_some() {
            // Its end is heard, and counts as a crash.
            instance.kill("it did not say how it is, twice in a row");
        } else {
            broke(kernel, &key, format!("not well, twice in a row: {why}")).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_in_a_row_wait_longer_and_end_hopeless() {
        let (mut faults, start) = (Faults::default(), Instant::now());
        let waits: Vec<_> = (0..MOST).map(|n| faults.again(start + Duration::from_secs(n.into()))).collect();
        assert_eq!(waits[0], Some(BACKOFF[0]));
        assert!(waits.windows(2).all(|pair| pair[1].is_none() || pair[0] <= pair[1]), "{waits:?}");
        assert_eq!(waits.iter().filter(|wait| wait.is_none()).count(), 1);
        let late = faults.again(start + RECOVERED * 2);
        assert_eq!(late, Some(BACKOFF[0]), "it had recovered");
    }
}
