//! Extensions that broke while they worked: taken out, and tried again after a while.
//!
//! Three things break one: its process ends, it says or shows that it is not well, its service fails for good. All three
//! come to [`broke`]. What depends on it goes out with it, and comes back with it.

use std::{
    sync::Arc,
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
    Key, Record, Roster, change,
    rollback::{mark_out, note},
    state::{Event, Out, State},
};

/// How often it is looked whether one that takes long to begin again has done so.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// How long an extension may think about how it is.
const ANSWER: Duration = Duration::from_secs(5);

/// Bad answers in a row that break it: one may be bad luck.
const UNWELL: u32 = 2;

/// The process of an extension may use the time between two looks divided by this as CPU time while nobody calls it.
const IDLE_SHARE: f64 = 3.0;

/// Something that worked does not any more; `instance` tells which, so that an earlier one takes nothing with it.
pub async fn broke(roster: &Arc<Roster>, key: &Key, instance: impl Fn(&Arc<Instance>) -> bool, why: String) {
    let change = roster.changing.lock().await;
    let working =
        roster.extensions.with(key, |r| r.state == State::Active && r.instance().is_some_and(&instance));
    if working != Some(true) || roster.life.ending.decided().is_some() {
        return;
    }
    let wait = roster.extensions.with(key, after).flatten();
    let event = match wait {
        Some(_) => Event::Broke(why),
        None => Event::Failed(format!("it failed {} times in a row, at last: {why}", Faults::MOST)),
    };
    roster.withdraw(mark_out(roster, &key.0, event)).await;
    drop(change);
    if let Some(wait) = wait {
        retry_after(roster, key, wait);
    }
}

/// How long one that broke waits for the next attempt; none where there is none.
fn after(record: &mut Record) -> Option<Duration> {
    let wait = record.faults.again(Instant::now());
    record.again = wait.and_then(|wait| Timestamp::now().checked_add(wait).ok());
    wait
}

fn retry_after(roster: &Arc<Roster>, key: &Key, wait: Duration) {
    let (roster, key) = (Arc::clone(roster), key.clone());
    roster.clone().life.tasks.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(wait) => retry(&roster, &key).await,
            () = roster.life.closing.cancelled() => {}
        }
    });
}

/// Tries one again that worked before. One that fails on the way waits longer for the next attempt.
async fn retry(roster: &Arc<Roster>, key: &Key) {
    if roster.life.ending.decided().is_some() {
        return;
    }
    // What is on the disk may not be what worked.
    if let Err(fault) = change::retry(roster, key).await {
        tracing::warn!(extension = %key.0, %fault, "it could not be tried again");
    }
    while roster.extensions.is_late(key) && !roster.life.closing.is_cancelled() {
        tokio::time::sleep(LOOK).await;
    }
    let _change = roster.changing.lock().await;
    let wait = roster.extensions.with(key, |r| match r.state.clone() {
        State::Out(Out::Failed(why)) | State::Degraded(why) => Some((after(r)?, why)),
        _ => None,
    });
    if let Some((wait, why)) = wait.flatten() {
        note(roster, key, Event::Broke(why));
        retry_after(roster, key, wait);
    }
}

/// Tells the supervisor when the process of an instance ends, and takes the extension out.
pub fn watch_process(roster: &Arc<Roster>, key: Key, hash: String, instance: &Arc<Instance>) {
    let Some(process) = instance.process() else { return };
    let (weak, ended) = (Arc::downgrade(roster), instance.ending());
    roster.life.tasks.spawn(async move {
        let Some(ended) = ended.await else { return };
        let Some(roster) = weak.upgrade() else { return };
        // Its state tells no more: what waited for the process may have noted the failure already.
        let loading = roster.extensions.with(&key, |r| {
            !r.worked && r.instance().is_none_or(|present| present.process() == Some(process))
        });
        // A kernel that ends gives all calls up by itself: one that does not return in time then is no crash.
        if !(ended.was_overdue() && roster.life.ending.decided().is_some()) {
            tell_crash(&roster, &key.0, &hash, &ended, loading.unwrap_or_default());
        }
        let why = format!("its process ended in `{}`: {}", ended.operation, ended.how);
        broke(&roster, &key, |present| present.process() == Some(process), why).await;
    });
}

/// Tells the supervisor, which counts.
pub fn tell_crash(roster: &Roster, extension: &str, hash: &str, ended: &Ended, loading: bool) {
    roster.supervision.tell(&Up::Crashed(Crashed {
        extension: extension.to_owned(),
        hash: hash.to_owned(),
        operation: ended.operation.clone(),
        how: ended.how.clone(),
        loading,
    }));
}

/// What the supervisor now knows of extensions that crash.
pub async fn judged(roster: &Arc<Roster>) {
    let _change = roster.changing.lock().await;
    let mut out = Vec::new();
    for verdict in roster.supervision.verdicts().quarantined {
        for key in roster.extensions.named(&verdict.extension) {
            let lies = roster.extensions.with(&key, |r| {
                let kept_out = matches!(
                    r.state,
                    State::Out(
                        Out::Quarantined(_) | Out::Disabled(_) | Out::Denied(_) | Out::AwaitingApproval(_)
                    )
                );
                (r.hash() == verdict.hash).then_some(kept_out)
            });
            let Some(kept_out) = lies.flatten() else { continue };
            super::survey::hold(roster, &key, &verdict.hash);
            if !kept_out {
                let event = Event::Rejected(Out::Quarantined(drupe_gate::survey::quarantine(&verdict)));
                out.extend(mark_out(roster, &key.0, event));
            }
        }
    }
    roster.withdraw(out).await;
}

/// Asks all extensions how they are, again and again, until the kernel closes.
pub async fn watch_health(roster: Arc<Roster>) {
    let every = roster.base.config.health_interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = roster.life.closing.cancelled() => return,
        }
        let active = roster.extensions.read(|r| {
            let instance = r.part.as_ref()?.instance.clone()?;
            (r.state == State::Active).then(|| (r.key(), instance))
        });
        let looks = active.into_iter().flatten().map(|(key, instance)| look(&roster, key, instance));
        join_all(looks).await;
    }
}

async fn look(roster: &Arc<Roster>, key: Key, instance: Arc<Instance>) {
    let share = roster.base.config.health_interval.div_f64(IDLE_SHARE);
    let restless = roster.extensions.with(&key, |r| {
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
    let unwell = roster.extensions.with(&key, |r| r.faults.answered(why.is_none()));
    if let (Some(why), Some(UNWELL..)) = (why, unwell) {
        if hangs && instance.process().is_some() {
            // Its end is heard, and counts as a crash.
            instance.kill("it did not say how it is, twice in a row");
        } else {
            let why = format!("not well, twice in a row: {}", cut(why, REASON));
            broke(roster, &key, |present| Arc::ptr_eq(present, &instance), why).await;
        }
    }
}
