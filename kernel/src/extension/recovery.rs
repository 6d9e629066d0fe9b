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
use drupe_host::{Ended, Faults, Header, Instance, REASON, cut};
use drupe_link::{Crashed, Up};
use futures_util::future::join_all;
use jiff::Timestamp;

use super::{
    Key, Record, change, lifecycle,
    state::{Event, Out, State},
};
use crate::{boot, kernel::Kernel};

/// How often it is looked whether one that takes long to begin again has done so.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// How long an extension may think about how it is.
const ANSWER: Duration = Duration::from_secs(5);

/// Bad answers in a row that break it: one may be bad luck.
const UNWELL: u32 = 2;

/// The process of an extension may use the time between two looks divided by this as CPU time while nobody calls it.
const IDLE_SHARE: f64 = 3.0;

/// Something that worked does not any more; `instance` tells which, so that an earlier one takes nothing with it.
pub async fn broke(kernel: &Arc<Kernel>, key: &Key, instance: impl Fn(&Arc<Instance>) -> bool, why: String) {
    let change = kernel.changing.lock().await;
    let working = kernel.extensions.with(key, |r| {
        let present = r.part.as_ref().and_then(|p| p.instance.as_ref());
        r.state == State::Active && present.is_some_and(&instance)
    });
    if working != Some(true) || kernel.ending.decided().is_some() {
        return;
    }
    let wait = kernel.extensions.with(key, after).flatten();
    let event = match wait {
        Some(_) => Event::Broke(why),
        None => Event::Failed(format!("it failed {} times in a row, at last: {why}", Faults::MOST)),
    };
    boot::withdraw(kernel, &key.0, event).await;
    drop(change);
    if let Some(wait) = wait {
        retry_after(kernel, key, wait);
    }
}

/// How long one that broke waits for the next attempt; none where there is none.
fn after(record: &mut Record) -> Option<Duration> {
    let wait = record.faults.again(Instant::now());
    record.again = wait.and_then(|wait| Timestamp::now().checked_add(wait).ok());
    wait
}

fn retry_after(kernel: &Arc<Kernel>, key: &Key, wait: Duration) {
    let (kernel, key) = (Arc::clone(kernel), key.clone());
    kernel.clone().tasks.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(wait) => retry(&kernel, &key).await,
            () = kernel.closing.cancelled() => {}
        }
    });
}

/// Tries one again that worked before. One that fails on the way waits longer for the next attempt.
async fn retry(kernel: &Arc<Kernel>, key: &Key) {
    if kernel.ending.decided().is_some() {
        return;
    }
    // What is on the disk may not be what worked.
    if let Err(fault) = change::retry(kernel, key).await {
        tracing::warn!(extension = %key.0, %fault, "it could not be tried again");
    }
    while kernel.extensions.is_late(key) && !kernel.closing.is_cancelled() {
        tokio::time::sleep(LOOK).await;
    }
    let _change = kernel.changing.lock().await;
    let wait = kernel.extensions.with(key, |r| match r.state.clone() {
        State::Out(Out::Failed(why)) | State::Degraded(why) => Some((after(r)?, why)),
        _ => None,
    });
    if let Some((wait, why)) = wait.flatten() {
        lifecycle::note(kernel, key, Event::Broke(why));
        retry_after(kernel, key, wait);
    }
}

/// Tells the supervisor when the process of an instance ends, and takes the extension out.
pub fn watch_process(kernel: &Arc<Kernel>, key: Key, hash: String, instance: &Arc<Instance>) {
    let Some(process) = instance.process() else { return };
    let (weak, ended) = (Arc::downgrade(kernel), instance.ending());
    kernel.tasks.spawn(async move {
        if let Some(ended) = ended.await {
            process_ended(&weak, key, process, hash, ended).await;
        }
    });
}

async fn process_ended(kernel: &Weak<Kernel>, key: Key, process: u32, hash: String, ended: Ended) {
    let Some(kernel) = kernel.upgrade() else { return };
    // Its state tells no more: what waited for the process may have noted the failure already.
    let loading = kernel.extensions.with(&key, |r| {
        let present = r.part.as_ref().and_then(|p| p.instance.as_ref());
        !r.worked && present.is_none_or(|present| present.process() == Some(process))
    });
    // A kernel that ends gives all calls up by itself: one that does not return in time then is no crash.
    if !(ended.was_overdue() && kernel.ending.decided().is_some()) {
        tell_crash(&kernel, &key.0, &hash, &ended, loading.unwrap_or_default());
    }
    let why = format!("its process ended in `{}`: {}", ended.operation, ended.how);
    broke(&kernel, &key, |present| present.process() == Some(process), why).await;
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
            let lies = kernel.extensions.with(&key, |r| {
                let kept_out = matches!(
                    r.state,
                    State::Out(
                        Out::Quarantined(_) | Out::Disabled(_) | Out::Denied(_) | Out::AwaitingApproval(_)
                    )
                );
                (r.hash() == verdict.hash).then_some(kept_out)
            });
            let Some(kept_out) = lies.flatten() else { continue };
            super::survey::hold(kernel, &key, &verdict.hash);
            if !kept_out {
                let event = Event::Rejected(Out::Quarantined(drupe_gate::survey::quarantine(&verdict)));
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
    let share = kernel.config.health_interval.div_f64(IDLE_SHARE);
    let restless = kernel.extensions.with(&key, |r| {
        let serves = r.part.as_ref().is_some_and(|p| p.can(Capability::Service));
        r.faults.restless(&instance, share, serves)
    });
    if let Some(why) = restless.flatten() {
        return instance.kill(&why);
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
    let unwell = kernel.extensions.with(&key, |r| r.faults.answered(why.is_none()));
    if let (Some(why), Some(UNWELL..)) = (why, unwell) {
        if hangs && instance.process().is_some() {
            // Its end is heard, and counts as a crash.
            instance.kill("it did not say how it is, twice in a row");
        } else {
            let why = format!("not well, twice in a row: {}", cut(why, REASON));
            broke(kernel, &key, |present| Arc::ptr_eq(present, &instance), why).await;
        }
    }
}
