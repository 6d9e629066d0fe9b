//! Takes changes of the extensions' folders into a running kernel: what is new begins to work, what is gone ends, what
//! changed takes the place of what was there. A change that is not usable changes nothing, and the extension says why.
//!
//! Native code is never replaced in place: its library stays what it was until a restart.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use drupe_config::NativeReload;
use drupe_extension_api::Fault;
use drupe_folders::watch::{self, Changes, Watch};
use drupe_host::Faults;
use tokio::sync::Notify;

use super::{
    Key, Record, Roster, generations, initialize,
    rollback::{mark_out, note},
    servers,
    state::{Event, Out, State},
    survey::{self, Seen},
};
use crate::beginning;

/// What was told of and is not taken in yet. Each look sees everything, so many changes are as good as one.
#[derive(Default)]
struct Told {
    roots: AtomicBool,
    configuration: AtomicBool,
    any: Notify,
}

/// Watches the folders and the configuration file, as long as it is kept.
pub struct Watched {
    told: Arc<Told>,
    configuration: PathBuf,
    _watch: Watch,
}

/// Begins to watch: before the first look, so that nothing is missed between the two.
pub fn watch(roster: &Roster) -> Option<Watched> {
    if roster.base.start.fallback.is_some() {
        return None;
    }
    let mut folders: Vec<_> = roster.disk.layout.roots().0.into_iter().map(|(_, folder)| folder).collect();
    folders.extend(roster.base.config.skill_folders());
    if !roster.base.config.reload.declarative {
        folders.clear();
    }
    // What the operator writes, whatever this kernel has read.
    let file = beginning::file(&roster.base.sources);
    let told = Arc::new(Told::default());
    let tell = Arc::clone(&told);
    let changed = move |changes: Changes| {
        tell.roots.fetch_or(changes.roots, Ordering::AcqRel);
        tell.configuration.fetch_or(!changes.files.is_empty(), Ordering::AcqRel);
        tell.any.notify_one();
    };
    match watch::watch(folders, vec![file.clone()], changed) {
        Ok(watch) => Some(Watched { told, configuration: file, _watch: watch }),
        Err(error) => {
            tracing::warn!(%error, "changes of extensions are not noticed; `drupe restart` takes them in");
            None
        }
    }
}

/// Takes in what the watch tells of, until the kernel ends.
pub async fn follow(roster: Arc<Roster>, watched: Arc<Watched>) {
    loop {
        tokio::select! {
            () = watched.told.any.notified() => {}
            _ = roster.life.ending.wait() => return,
        }
        let configuration = watched.told.configuration.swap(false, Ordering::AcqRel);
        // An editor that saves what is in force wants no restart, but where a copy of it is.
        let text = drupe_config::read_text_file(&watched.configuration).ok();
        if configuration && (roster.base.start.last_good || text.as_ref() != Some(&roster.base.config_text)) {
            roster.reload().await;
        } else if configuration {
            roster.supervision.set_refused(None);
        }
        if !watched.told.roots.swap(false, Ordering::AcqRel) {
            continue;
        }
        if let Err(fault) = rescan(&roster).await {
            tracing::warn!(%fault, "changes of extensions were not taken in");
        }
        if let Err(fault) = roster.skills_anew().await {
            tracing::warn!(reason = fault.reason, "changes of skills were not taken in");
        }
    }
}

/// Compares what is on the disk with what is there, and carries the difference out.
pub async fn rescan(roster: &Arc<Roster>) -> Result<(), Fault> {
    compare(roster, None).await
}

/// The same, and tries one again that failed while it worked, unless other content took its place meanwhile.
pub async fn retry(roster: &Arc<Roster>, key: &Key) -> Result<(), Fault> {
    compare(roster, Some(key)).await
}

async fn compare(roster: &Arc<Roster>, retried: Option<&Key>) -> Result<(), Fault> {
    let _change = roster.changing.lock().await;
    let seen = survey::survey(roster).await?;
    let now: BTreeSet<Key> = seen.iter().map(|s| s.record.key()).collect();
    let (mut out, mut removed) = (Vec::new(), Vec::new());
    for key in roster.extensions.read(Record::key) {
        if !now.contains(&key) && !roster.extensions.is_late(&key) {
            // Another of its name may be the one that works.
            if roster.extensions.with(&key, |r| r.state.is_out()) == Some(false) {
                let event = Event::Rejected(Out::Disabled("its folder was removed".into()));
                out.extend(mark_out(roster, &key.0, event));
            }
            removed.push(key);
        }
    }
    let (mut left, mut arrivals, mut swaps) = (Vec::new(), Vec::new(), Vec::new());
    for one in seen {
        let key = one.record.key();
        if roster.extensions.is_late(&key) {
            continue;
        }
        match roster.extensions.with(&key, |r| decide(r, &one)).unwrap_or(Step::Arrive) {
            Step::Stay => {}
            Step::Arrive => arrivals.push((key, one)),
            Step::Leave(why) => {
                out.extend(mark_out(roster, &key.0, Event::Rejected(why)));
                left.push((key, one));
            }
            Step::Settled => drop(roster.extensions.with(&key, |r| r.pending = None)),
            Step::Announce => announce(roster, &key).await,
            Step::Swap => swaps.push((key, one)),
            Step::Refuse(why) => pending(roster, &key, format!("its change is not in use: {why}")),
        }
    }
    roster.withdraw(out).await;
    for key in removed {
        roster.extensions.remove(&key);
        tracing::info!(extension = %key.0, "removed");
    }
    for (key, one) in left {
        let record = replaced(roster, &key, one);
        roster.extensions.insert(record);
    }
    // After all that leave, so that what takes the place of one finds it free.
    for (key, one) in arrivals {
        if one.out.is_some() || !roster.extensions.is_taken(&key) {
            arrive(roster, &key, one);
        }
    }
    if let Some(key) = retried {
        note(roster, key, Event::Retry);
    }
    again(roster);
    if let Err(fault) = roster.settle().await {
        tracing::error!(%fault, "the extensions cannot be wired; the old wiring stays");
    }
    // Last, so that they find those that came with them.
    for (key, one) in swaps {
        swap(roster, &key, one).await;
    }
    servers::tell(roster);
    generations::keep(roster).await;
    Ok(())
}

/// What a difference between the disk and the kernel leads to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Nothing that matters is different.
    Stay,
    /// It begins its life, or goes on being out for another reason.
    Arrive,
    /// It stops working.
    Leave(Out),
    /// It works, and is again what is on the disk.
    Settled,
    /// Its code waits for a restart.
    Announce,
    /// It takes the place of the one that works.
    Swap,
    /// It cannot be used, and the one that works goes on.
    Refuse(String),
}

fn decide(record: &Record, seen: &Seen) -> Step {
    let same = record.identity() == seen.record.identity();
    let native = record.is_native() || seen.record.is_native();
    match (&record.state, &seen.out) {
        (State::Stopped, _) => Step::Stay,
        (State::Out(known), Some(out)) if known == out => Step::Stay,
        // What failed as it is fails again. Those that wait for others are looked at by themselves.
        (State::Out(Out::Failed(_) | Out::Unwired(_) | Out::Skipped(_)) | State::Degraded(_), None)
            if same =>
        {
            Step::Stay
        }
        // One that was discovered and waits for another is as good as new.
        (State::Out(_) | State::Degraded(_) | State::Discovered, _) => Step::Arrive,
        (_, Some(out @ (Out::Disabled(_) | Out::Quarantined(_)))) => Step::Leave(out.clone()),
        (_, Some(out @ Out::Denied(_))) if same => Step::Leave(out.clone()),
        (_, Some(out)) => Step::Refuse(State::Out(out.clone()).shown().1.unwrap_or_default().to_owned()),
        (_, None) if same => Step::Settled,
        (_, None) if native => Step::Announce,
        (_, None) => Step::Swap,
    }
}

/// A record that keeps what happened before.
fn replaced(roster: &Roster, key: &Key, seen: Seen) -> Record {
    let mut record = seen.record;
    roster.extensions.with(key, |old| {
        record.state = old.state.clone();
        record.history.clone_from(&old.history);
        record.faults = old.faults;
        record.again = old.again;
    });
    record
}

/// One that does not work yet begins its life, or goes on being out for the present reason.
fn arrive(roster: &Roster, key: &Key, seen: Seen) {
    let out = seen.out.clone();
    let record = replaced(roster, key, seen);
    roster.extensions.insert(record);
    note(roster, key, Event::Again);
    if let Some(out) = out {
        note(roster, key, Event::Rejected(out));
    }
}

/// Puts a changed agent in the place of the one that works. Runs that have begun keep the old one.
async fn swap(roster: &Arc<Roster>, key: &Key, seen: Seen) {
    let Some(manifest) = seen.record.manifest.clone() else { return };
    let part = match initialize::declared(roster, &manifest).await {
        Ok(part) => part,
        Err(why) => return pending(roster, key, format!("its change is not in use: {why}")),
    };
    let looked = &seen.record;
    if let Some(why) = initialize::exchanged(roster, &looked.found, &manifest, looked.content.as_deref()) {
        return pending(roster, key, format!("its change is not in use: {why}"));
    }
    let mut record = replaced(roster, key, seen);
    record.part = Some(part);
    let Some(old) = roster.extensions.insert(record) else { return };
    if let Err(fault) = roster.try_wiring().await {
        roster.extensions.insert(old);
        return pending(roster, key, format!("its change is not in use: {}", fault.reason));
    }
    tracing::info!(extension = %key.0, "its change is in use");
}

/// A changed native library, or its manifest, waits for a restart.
async fn announce(roster: &Arc<Roster>, key: &Key) {
    if roster.base.config.reload.native == NativeReload::Restart {
        let reason = format!("extension `{}` has changed", key.0);
        match roster.request_restart(reason, None, true).await {
            Ok(()) => return,
            Err(fault) => tracing::warn!(extension = %key.0, %fault, "its change waits for a restart"),
        }
    }
    pending(roster, key, "its files have changed; `drupe restart` takes them in".into());
}

fn pending(roster: &Roster, key: &Key, why: String) {
    let news = roster.extensions.with(key, |r| r.pending.replace(why.clone()) != Some(why.clone()));
    if news == Some(true) {
        tracing::warn!(extension = %key.0, "{why}");
    }
}

/// Gives those another chance that others kept from working: the others may have changed.
fn again(roster: &Roster) {
    let waiting = roster
        .extensions
        .read(|r| matches!(r.state, State::Out(Out::Skipped(_) | Out::Unwired(_))).then(|| r.key()));
    for key in waiting.into_iter().flatten() {
        note(roster, &key, Event::Again);
    }
}

/// Tries an extension again, whatever became of it.
pub async fn release(roster: &Arc<Roster>, name: &str) -> Result<(), Fault> {
    roster.supervision.forgive(name);
    for key in roster.extensions.named(name) {
        roster.extensions.with(&key, |r| r.faults = Faults::default());
        let out = Out::Unwired("it is about to be tried again".into());
        if roster.extensions.with(&key, |r| matches!(r.state, State::Out(_) | State::Degraded(_)))
            == Some(true)
        {
            note(roster, &key, Event::Rejected(out));
        }
    }
    rescan(roster).await
}
