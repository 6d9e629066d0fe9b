//! Carries out what the state machine of each extension asks for, up to where it works: load, initialize, start.
//!
//! Every stage has a deadline of its own and fails that extension alone; what depends on it is skipped with the reason.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use drupe_config::Manifest;
use drupe_extension_api::{
    Fault,
    wire::{Capability, op},
};
use drupe_gate::order::{self, Key};
use drupe_host::Header;
use drupe_surface::panics;
use drupe_wiring::{self as wiring, Part};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use super::{
    Record, Roster, change,
    initialize::{INITIALIZE, exchanged, initialize},
    load::{LOAD, load},
    recovery::LOOK,
    rollback::{note, roll_back, take_out},
    service,
    state::{Action, Event, Out, State},
};

const START: Duration = Duration::from_secs(30);

/// How long all others wait for one that loads, initializes or starts. After that it is taken in when it is done.
const PATIENCE: Duration = Duration::from_secs(5);

/// Loads and initializes all, each after what it depends on; independent ones at the same time.
pub async fn bring_up(roster: &Arc<Roster>) {
    let mut waiting: BTreeMap<Key, Arc<Manifest>> = roster
        .extensions
        .read(|r| {
            (r.state == State::Discovered && !r.late)
                .then(|| Some((r.key(), Arc::clone(r.manifest.as_ref()?))))
                .flatten()
        })
        .into_iter()
        .flatten()
        .collect();
    while !waiting.is_empty() {
        let mut wave = order::wave(&roster.extensions.states(), &mut waiting);
        if wave.ready.is_empty() && wave.lost.is_empty() {
            if roster.extensions.any_late(false) || roster.extensions.any_late(true) {
                // They may wait for that one, and are looked at again when it is done.
                return;
            }
            // Nothing can go on: those that wait for each other fail, each with the members of its circle.
            wave.lost = order::circle(&mut waiting);
        }
        for (key, event) in wave.lost {
            note(roster, &key, event);
        }
        let begin = |(key, manifest): (Key, Arc<Manifest>)| {
            let (roster, at) = (Arc::clone(roster), key.clone());
            (key, async move {
                one(&roster, at, manifest).await;
                true
            })
        };
        apart(roster, wave.ready.into_iter().map(begin)).await;
    }
}

/// Does something with each in a task of its own, so that one that blocks its thread does not stop the clocks of the
/// others. Gives whether all went well; one that is late is left to itself, and counts as well.
async fn apart<F: Future<Output = bool> + Send + 'static>(
    roster: &Arc<Roster>,
    work: impl Iterator<Item = (Key, F)>,
) -> bool {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let steps = work.map(|(key, step)| {
        let (whole, at) = (Arc::clone(roster), key.0.clone());
        let mut task = roster.life.tasks.spawn(async move {
            let done = panics::answered(async { Ok(step.await) });
            match whole.life.closing.run_until_cancelled(done).await {
                Some(Err(panic)) => {
                    take_out(&whole, &at, Event::Failed(format!("drupe failed to take it in: {panic}")))
                        .await;
                    false
                }
                Some(Ok(done)) => done,
                None => true,
            }
        });
        async move {
            match tokio::time::timeout_at(deadline, &mut task).await {
                Ok(done) => matches!(done, Ok(true)),
                Err(_) => {
                    leave(roster, key, task);
                    true
                }
            }
        }
    });
    join_all(steps).await.into_iter().all(|done| done)
}

/// Nobody waits for this one any longer. When it is done everything is looked at again.
fn leave(roster: &Arc<Roster>, key: Key, task: JoinHandle<bool>) {
    tracing::warn!(extension = %key.0, "takes long to begin; all others go on without it");
    roster.extensions.with(&key, |r| r.late = true);
    let roster = Arc::clone(roster);
    roster.clone().life.tasks.spawn(async move {
        // A panic ends it as well.
        let _ = task.await;
        let change = roster.changing.lock().await;
        roster.extensions.with(&key, |r| r.late = false);
        if roster.extensions.with(&key, |r| r.state.is_out()) == Some(true) {
            // It was taken out while it began, and may have come to an instance after that.
            roll_back(&roster, &key).await;
        }
        drop(change);
        if roster.life.closing.is_cancelled() {
            return;
        }
        if let Err(fault) = change::rescan(&roster).await {
            tracing::warn!(extension = %key.0, %fault, "it was not taken in");
        }
    });
}

/// Waits for an extension that takes long to begin, until it works or is out, and takes in what was decided of it
/// meanwhile. Whoever decides about one learns how that went.
pub async fn until_settled(roster: &Arc<Roster>, id: &str) -> Result<(), Fault> {
    while until_begun(roster, id).await {
        change::rescan(roster).await?;
    }
    Ok(())
}

/// Whether there was something to wait for, and it has come to an end.
async fn until_begun(roster: &Roster, id: &str) -> bool {
    let begins = |key: &Key| {
        let state = |r: &mut Record| {
            r.late || matches!(r.state, State::Discovered | State::Loaded | State::Initialized)
        };
        roster.extensions.with(key, state).unwrap_or_default()
    };
    let begun = async {
        let mut waited = false;
        while roster.extensions.named(id).iter().any(begins) {
            waited = true;
            tokio::time::sleep(LOOK).await;
        }
        waited
    };
    // One that waits for another one may wait longer, and is told as what it is by then.
    let most = tokio::time::timeout(LOAD + INITIALIZE + START, begun);
    matches!(roster.life.closing.run_until_cancelled(most).await, Some(Ok(true)))
}

async fn one(roster: &Arc<Roster>, key: Key, manifest: Arc<Manifest>) {
    let loaded = tokio::time::timeout(LOAD, load(roster, &key, &manifest)).await;
    let late = |_| Err(Out::Failed(format!("did not load within {LOAD:?}")));
    let part = match loaded.unwrap_or_else(late) {
        Ok(part) => part,
        Err(out) => {
            note(roster, &key, Event::Rejected(out));
            return;
        }
    };
    roster.extensions.with(&key, |r| r.part = Some(part.clone()));
    if note(roster, &key, Event::Done) != Action::Initialize {
        return;
    }
    let event = match initialize(roster, &manifest, part).await {
        Ok(part) => {
            let unfit = wiring::unfit(&part, &roster.wired.lasting.schemas).or_else(|| {
                let seen = roster.extensions.with(&key, |r| (r.found.clone(), r.content.clone()));
                seen.and_then(|(found, content)| exchanged(roster, &found, &manifest, content.as_deref()))
            });
            roster.extensions.with(&key, |r| {
                r.notes.extend(part.description.capabilities.iter().filter_map(|c| unknown(c)));
                r.part = Some(part);
            });
            unfit.map_or(Event::Done, Event::Failed)
        }
        Err(out) => Event::Rejected(out),
    };
    if note(roster, &key, event) == Action::Rollback {
        roll_back(roster, &key).await;
    }
}

/// What this release does not know is said, so that nobody waits for it.
fn unknown(capability: &str) -> Option<String> {
    let is_known = Capability::from_name(capability).is_some();
    (!is_known).then(|| format!("its capability `{capability:.128}` is not known to this release"))
}

/// Lets all that are initialized work, in order; those that fail are rolled back. Gives whether any did.
pub async fn start_all(roster: &Arc<Roster>) -> bool {
    let mut any_failed = false;
    for wave in roster.extensions.waves(&State::Initialized) {
        let ready = wave.into_iter().filter(|key| !roster.extensions.is_late(key));
        let starting = ready.map(|key| {
            let (roster, at) = (Arc::clone(roster), key.clone());
            (key, async move { start_one(&roster, &at).await })
        });
        any_failed |= !apart(roster, starting).await;
        if roster.extensions.any_late(true) {
            // What is left may depend on that one, and is looked at again when it is done.
            break;
        }
    }
    any_failed
}

/// Lets one work; false if it does not.
async fn start_one(roster: &Arc<Roster>, key: &Key) -> bool {
    // One whose dependency failed to start was taken out in between.
    let initialized =
        roster.extensions.with(key, |r| r.part.clone().filter(|_| r.state == State::Initialized));
    let Some(part) = initialized.flatten() else { return false };
    if let Err(why) = start(&part).await {
        take_out(roster, &key.0, Event::Failed(why)).await;
        return false;
    }
    roster.extensions.with(key, |r| r.worked = true);
    roster.extensions.establish([key.0.clone()]);
    note(roster, key, Event::Done);
    if let Some(instance) = &part.instance {
        roster.wired.lasting.live.works(part.id(), Arc::clone(instance));
    }
    if part.can(Capability::Service) {
        service::supervise(roster, key, &part);
    }
    true
}

async fn start(part: &Part) -> Result<(), String> {
    let Some(instance) = &part.instance else { return Ok(()) };
    let header = Header { timeout: Some(START), ..Header::default() };
    let failed = |what: &str, fault: &dyn std::fmt::Display| format!("`{what}` failed: {fault}");
    instance.call::<serde_json::Value>(op::START, &(), header).await.map_err(|f| failed("start", &f))?;
    if part.can(Capability::Channel) {
        instance
            .call::<serde_json::Value>(op::CHANNEL_START, &(), header)
            .await
            .map_err(|f| failed("channel.start", &f))?;
    }
    Ok(())
}
