//! What is done at set times.
//!
//! Every few seconds, and when something changes, each schedule is looked at: slots that have come are settled in the journal,
//! as runs that wait or with the reason why nothing is done, and runs that wait begin, a few at a time. A run is a turn like
//! any other, in a session of its own and with nobody to ask, or a call of the extension's own code.

mod outcome;
mod places;
mod run;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    Fault,
    control::{ScheduleNew, ScheduleRun, ScheduleRunState as State},
};
use drupe_journal::{ScheduleRow, SlotEntry, StoreError};
use drupe_schedule::{Misfire, MisfirePolicy, SlotPlan, Timing, plan};
use drupe_wiring::Scheduled;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use self::{
    outcome::Outcome,
    places::{RunKey, RunPlaces, RunStep, rest_after},
};
use crate::{base::Base, intake::Intake, life::Life, outbox::Outbox};

/// How often the clock is looked at, so that one that was set is noticed.
const LOOK: Duration = Duration::from_secs(20);

/// The least time between the beginnings of two runs: what is due at one instant does not begin at once.
const APART: Duration = Duration::from_millis(200);

/// The most runs of one schedule that wait.
const MOST_WAITING: usize = 100;

/// How far slots may be settled ahead of the clock before that is told: clocks are set by a little all the time.
const AHEAD: SignedDuration = SignedDuration::from_mins(10);

/// How long what was due but once is shown after its time.
const SHOWN: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How late what somebody added may be done, and what is due but once.
const GRACE: Duration = Duration::from_mins(5);
const GRACE_OF_ONCE: Duration = Duration::from_hours(24);

/// Begins and follows what is due.
pub struct Schedules {
    base: Arc<Base>,
    life: Life,
    intake: Arc<Intake>,
    outbox: Arc<Outbox>,
    wake: Notify,
    places: Mutex<RunPlaces>,
    /// Schedules of which it was told that the clock was set back behind what is settled.
    ahead: Mutex<BTreeSet<String>>,
}

/// A schedule that is there now.
#[derive(Clone)]
pub struct KnownSchedule {
    pub what: Scheduled,
    /// What somebody added; none where an extension has it.
    pub added: Option<Added>,
}

/// What somebody added, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Added {
    /// As it was asked for.
    #[serde(flatten)]
    pub new: ScheduleNew,
    pub by: String,
}

impl Added {
    /// The schedule that it is; fails where its time is none.
    pub fn scheduled(&self, timezone: &str) -> Result<Scheduled, Fault> {
        let new = &self.new;
        let timezone = new.timezone.as_deref().unwrap_or(timezone);
        let timing = Timing::new(&new.when, timezone).map_err(|unfit| Fault::invalid(unfit.to_string()))?;
        let usual = if timing.is_once() { GRACE_OF_ONCE } else { GRACE };
        let grace = new.grace_ms.map_or(usual, Duration::from_millis);
        Ok(Scheduled {
            id: new.name.clone(),
            owner: None,
            name: new.name.clone(),
            timing,
            timezone: timezone.to_owned(),
            misfire: Misfire { policy: MisfirePolicy::Once, grace },
            queues: false,
            task: Some(new.task.clone()),
            only_if: None,
            notify: true,
        })
    }
}

impl Schedules {
    /// None of them is looked at before [`Self::run`].
    pub fn new(base: Arc<Base>, life: Life, intake: Arc<Intake>, outbox: Arc<Outbox>) -> Self {
        let (places, ahead) = Default::default();
        Self { base, life, intake, outbox, wake: Notify::new(), places, ahead }
    }

    /// Something has changed: all are looked at.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// The time of the clock.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.base.clock.now_ms()).unwrap_or_default()
    }

    /// The time zone of schedules that name none.
    pub fn timezone(&self) -> &str {
        &self.base.config.schedules.timezone
    }

    /// All that are there now, with how they stand. One of an extension that was not known before begins here.
    pub async fn known(&self) -> Result<Vec<(KnownSchedule, ScheduleRow)>, StoreError> {
        let store = &self.intake.turns.store;
        let snapshot = self.intake.roster.snapshot();
        let mut rows: BTreeMap<_, _> =
            store.schedules().await?.into_iter().map(|row| (row.id.clone(), row)).collect();
        let mut all = Vec::new();
        for what in &snapshot.schedules {
            if !rows.contains_key(&what.id) {
                store.add_schedule(what.id.clone(), None, timing_of(what)).await?;
                let found = store.schedules().await?.into_iter().find(|row| row.id == what.id);
                rows.extend(found.map(|row| (row.id.clone(), row)));
            }
            if let Some(mut row) = rows.remove(&what.id) {
                if row.timing != timing_of(what) {
                    store.retime_schedule(what.id.clone(), timing_of(what)).await?;
                    row.through = self.now();
                }
                all.push((KnownSchedule { what: what.clone(), added: None }, row));
            }
        }
        for row in rows.into_values() {
            let Some(definition) = &row.definition else { continue };
            let added = serde_json::from_str::<Added>(definition).map_err(|error| error.to_string());
            let read = added.and_then(|added| {
                let what = added.scheduled(self.timezone()).map_err(|fault| fault.to_string())?;
                Ok(KnownSchedule { what, added: Some(added) })
            });
            match read {
                Ok(known) => all.push((known, row)),
                Err(error) => tracing::error!(schedule = row.id, error, "a schedule cannot be read"),
            }
        }
        Ok(all)
    }

    /// Records that the slots which came while a schedule was paused are left out.
    pub async fn leave_out(&self, known: &KnownSchedule, row: &ScheduleRow) -> Result<(), StoreError> {
        let (what, now) = (&known.what, self.now());
        let Some(SlotPlan { fire, missed }) = plan(&what.timing, what.misfire, row.through, now) else {
            return Ok(());
        };
        let first = missed.map(|missed| missed.first).or(fire.first().copied()).unwrap_or(now);
        let last = fire.last().copied().or(missed.map(|missed| missed.last));
        let slots = missed.map_or(0, |missed| missed.count) + u32::try_from(fire.len()).unwrap_or(u32::MAX);
        let (state, detail) = (State::Skipped, Some("it was paused".to_owned()));
        let entry = SlotEntry { slot: first, last: last.filter(|last| *last > first), slots, state, detail };
        self.intake.turns.store.settle_slots(row.id.clone(), Some(now), vec![entry]).await.map(|_| ())
    }

    /// Looks at all until the kernel drains.
    pub async fn run(self: Arc<Self>) {
        let mut changes = self.intake.roster.wired.changes();
        let cancel = self.life.cancel.clone();
        let looking = async {
            loop {
                let wait = match self.look().await {
                    Ok(wait) => wait,
                    Err(error) => {
                        tracing::error!(%error, "the schedules could not be looked at");
                        Some(LOOK)
                    }
                };
                tokio::select! {
                    () = sleep(wait) => {}
                    () = self.wake.notified() => {}
                    changed = changes.changed() => if changed.is_err() { break },
                }
            }
        };
        cancel.run_until_cancelled(looking).await;
    }

    /// Settles what has come, begins what waits, and gives how long there is nothing to do; none where there is nothing at all.
    async fn look(self: &Arc<Self>) -> Result<Option<Duration>, StoreError> {
        if self.life.ending.decided().is_some() {
            return Ok(None);
        }
        let known = self.known().await?;
        let now = self.now();
        let mut next = None;
        let store = &self.intake.turns.store;
        let open = store.open_runs().await?;
        for (known, row) in known.iter().filter(|(_, row)| row.paused.is_none()) {
            let of_it = || open.iter().filter(|(id, _)| *id == row.id);
            let goes_on = GoesOn {
                running: of_it().any(|(_, run)| run.state == State::Running),
                waiting: of_it().filter(|(_, run)| run.state == State::Waiting).count(),
            };
            next = [next, known.what.timing.after(now.max(row.through))].into_iter().flatten().min();
            if let Some(entries) = due(&known.what, row, &goes_on, now) {
                let missed = entries.iter().any(|entry| entry.state == State::Missed);
                store.settle_slots(row.id.clone(), Some(now), entries).await?;
                if missed && known.what.timing.is_once() {
                    self.told(known, "it was missed: nobody was there to do it in time").await;
                }
            } else if known.added.is_some() && is_over(&known.what, now) && of_it().next().is_none() {
                store.remove_schedule(row.id.clone()).await?;
            } else {
                let text = set_back(&mut self.ahead(), &known.what, row, now);
                if let Some(text) = text {
                    self.told(known, &text).await;
                }
            }
        }
        self.begin_waiting(known).await?;
        let until = next
            .map(|next: Timestamp| Duration::try_from(next.duration_since(self.now())).unwrap_or_default());
        // To the millisecond after it: a slot that comes is not behind the clock. What cannot begin yet is tried again, whether or
        // not anything else is due.
        let until = until.map(|until| (until + Duration::from_millis(1)).min(LOOK));
        Ok(until.or_else(|| self.places().has_put_off().then_some(LOOK)))
    }

    /// Begins runs that wait, as many as there is room for, and follows those that an earlier kernel had begun.
    async fn begin_waiting(
        self: &Arc<Self>,
        known: Vec<(KnownSchedule, ScheduleRow)>,
    ) -> Result<(), StoreError> {
        let known: BTreeMap<_, _> =
            known.into_iter().map(|(one, row)| (row.id.clone(), (one, row))).collect();
        let (times, at_once) = ((self.now(), Instant::now()), self.base.config.schedules.at_once);
        for (id, run) in self.intake.turns.store.open_runs().await? {
            // What was removed has no runs; that of an extension which is away waits for it.
            let Some((one, row)) = known.get(&id) else { continue };
            let step = self.places().step(&id, &run, row.paused.is_some(), at_once, times);
            match step {
                RunStep::Leave => {}
                RunStep::GoOn => self.follow(one.clone(), run),
                RunStep::Miss => {
                    self.lose(&id, &run, State::Missed, "others went first for too long").await?;
                }
                RunStep::Begin => {
                    self.follow(one.clone(), run);
                    tokio::time::sleep(APART).await;
                }
            }
        }
        Ok(())
    }

    /// Follows a run to its end, and then looks at all again. One that cannot begin yet leaves its place to others.
    fn follow(self: &Arc<Self>, known: KnownSchedule, run: ScheduleRun) {
        let key = (known.what.id.clone(), run.slot);
        if !self.places().follow(key.clone()) {
            return;
        }
        let followed = Followed { schedules: Arc::clone(self), key };
        self.life.tasks.spawn(async move {
            let schedules = Arc::clone(&followed.schedules);
            let following = schedules.carry_out(&known, run.clone());
            let Some(Err(fault)) = schedules.life.cancel.run_until_cancelled(following).await else { return };
            tracing::warn!(schedule = known.what.id, %fault, "a run of a schedule could not go on");
            let mut rest = rest_after(&fault, LOOK);
            if rest.is_none()
                && let Err(fault) = schedules.settle(&known, &run, Outcome::failed(fault.to_string())).await
            {
                tracing::error!(schedule = known.what.id, %fault, "the end of a run was not recorded");
                rest = Some(LOOK);
            }
            if let Some(rest) = rest {
                schedules.places().put_off(&known.what.id, Instant::now() + rest);
            }
        });
    }

    /// Tells people something of a schedule; where that cannot be recorded, the log has it.
    async fn told(&self, known: &KnownSchedule, text: &str) {
        if let Err(fault) = self.tell(known, None, text).await {
            tracing::warn!(schedule = known.what.id, %fault, text, "nobody was told");
        }
    }

    fn places(&self) -> MutexGuard<'_, RunPlaces> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ahead(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// What of a schedule is not over.
struct GoesOn {
    running: bool,
    waiting: usize,
}

/// What becomes of the slots that have come; none where none has. Those that are made up for wait for each other.
fn due(what: &Scheduled, row: &ScheduleRow, goes_on: &GoesOn, now: Timestamp) -> Option<Vec<SlotEntry>> {
    let found = plan(&what.timing, what.misfire, row.through, now)?;
    let mut entries = Vec::new();
    if let Some(missed) = found.missed {
        let more = if missed.more { ", nor at more times that are not counted" } else { "" };
        entries.push(SlotEntry {
            slot: missed.first,
            last: (missed.count > 1).then_some(missed.last),
            slots: missed.count,
            state: State::Missed,
            detail: Some(format!("nobody was there to do it in time{more}")),
        });
    }
    let mut waiting = goes_on.waiting;
    for slot in found.fire {
        let held = row.held_until.filter(|until| slot < *until);
        let why = match held {
            Some(until) => Some(format!(
                "{} in a row failed; none begins before {}",
                row.failures,
                what.timing.shown(until)
            )),
            None if goes_on.running && !what.queues => Some("the run before still went on".to_owned()),
            None if goes_on.waiting > 0 && !what.queues => Some("the run before still waited".to_owned()),
            None if waiting >= MOST_WAITING => Some(format!("{MOST_WAITING} runs of it waited already")),
            None => None,
        };
        let state = if why.is_none() { State::Waiting } else { State::Skipped };
        waiting += usize::from(why.is_none());
        entries.push(SlotEntry { slot, last: None, slots: 1, state, detail: why });
    }
    Some(entries)
}

/// What people are told of a clock that was set back behind what is settled: once, each time that it was.
fn set_back(
    ahead: &mut BTreeSet<String>,
    what: &Scheduled,
    row: &ScheduleRow,
    now: Timestamp,
) -> Option<String> {
    if row.through.duration_since(now) <= AHEAD {
        ahead.remove(&row.id);
        return None;
    }
    let until = what.timing.shown(row.through);
    let resume = format!("`drupe schedule resume {}` lets it go on now", row.id);
    ahead
        .insert(row.id.clone())
        .then(|| format!("the clock was set back: nothing is done before {until}. {resume}"))
}

/// When a schedule is due, as it is compared with what was settled.
pub fn timing_of(what: &Scheduled) -> String {
    format!("{} {}", what.timing.text(), what.timezone)
}

/// A run that is followed; that it is not any more is seen however its task ends.
struct Followed {
    schedules: Arc<Schedules>,
    key: RunKey,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.schedules.places().leave(&self.key);
        self.schedules.wake();
    }
}

/// Whether it was due but once, long ago.
fn is_over(what: &Scheduled, now: Timestamp) -> bool {
    what.timing.is_once() && what.timing.latest(now).is_some_and(|slot| now.duration_since(slot) > SHOWN)
}

#[cfg(test)]
mod tests;
