//! Schedules: which of their slots are settled, and what became of them.
//!
//! A slot is a row before anything is done at it, and the row begins once: in the transaction that queues its turn, or before
//! the extension's code is asked. So no slot is done twice, whatever ends the kernel and whatever the clock does. What a slot
//! is, and which of them are due, is decided elsewhere.

use drupe_extension_api::{
    TurnId,
    control::{ScheduleRun, ScheduleRunState as State},
};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Accepted, Inbound, Store,
    error::Result,
    intake,
    rows::{maybe_id, maybe_time, readable, time},
    writer::{Survives, Writing},
};

/// The runs of a schedule that are kept, beside those that are not over: more than are ever made up for at once, so that
/// none of these is done again after a clock was set back and the schedule resumed.
const KEPT: i64 = 128;

/// A schedule, as far as it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRow {
    pub id: String,
    /// What somebody added, as JSON; none where an extension has it.
    pub definition: Option<String>,
    /// When it is due, as it was when its slots were settled last.
    pub timing: String,
    /// Slots up to this are settled.
    pub through: Timestamp,
    /// Runs that failed in a row.
    pub failures: u32,
    /// Slots before this are left out.
    pub held_until: Option<Timestamp>,
    pub paused: Option<String>,
}

/// What becomes of a slot, or of several that are missed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotEntry {
    /// The slot, or the first.
    pub slot: Timestamp,
    pub last: Option<Timestamp>,
    pub slots: u32,
    pub state: State,
    /// Why it is not done.
    pub detail: Option<String>,
}

/// How a run ended, and what that means for those behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEnded {
    pub state: State,
    pub detail: Option<String>,
    /// Runs that have failed in a row by now.
    pub failures: u32,
    /// Slots before this are left out.
    pub held_until: Option<Timestamp>,
    /// Why nothing is done from now on.
    pub paused: Option<String>,
}

const SELECT_RUN: &str =
    "SELECT slot_ms, last_slot_ms, slots, state, turn, detail, changed_ms FROM schedule_runs";

impl Store {
    pub async fn schedules(&self) -> Result<Vec<ScheduleRow>> {
        self.read(|db| {
            let mut all = db.prepare_cached(
                "SELECT id, definition, through_ms, failures, held_until_ms, paused, timing FROM schedules ORDER BY id",
            )?;
            let row = |row: &Row<'_>| {
                Ok(ScheduleRow {
                    id: row.get(0)?,
                    definition: row.get(1)?,
                    through: time(row, 2)?,
                    failures: row.get(3)?,
                    held_until: maybe_time(row, 4)?,
                    paused: row.get(5)?,
                    timing: row.get(6)?,
                })
            };
            Ok(readable(all.query([])?, ("a schedule", 0), row)?)
        })
        .await
    }

    /// Begins to keep a schedule whose slots from now on count; false where there is one of that id.
    pub async fn add_schedule(&self, id: String, definition: Option<String>, timing: String) -> Result<bool> {
        self.write(Survives::Power, move |on| {
            let now = on.now_ms();
            let added = on
                .statement(
                    "INSERT INTO schedules (id, definition, through_ms, timing) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (id) DO NOTHING",
                )?
                .execute((&id, &definition, now, &timing))?;
            Ok(added == 1)
        })
        .await
    }

    /// A schedule is due at other times from now on: slots of these that are past are none of its own.
    pub async fn retime_schedule(&self, id: String, timing: String) -> Result<()> {
        self.write(Survives::Power, move |on| {
            let now = on.now_ms();
            on.statement("UPDATE schedules SET timing = ?2, through_ms = ?3 WHERE id = ?1")?
                .execute((&id, &timing, now))?;
            Ok(())
        })
        .await
    }

    /// Lets go of a schedule that somebody added, with all that is known of its slots; false where there is none.
    pub async fn remove_schedule(&self, id: String) -> Result<bool> {
        self.write(Survives::Power, move |on| {
            on.statement(
                "DELETE FROM schedule_runs WHERE schedule =
                 (SELECT number FROM schedules WHERE id = ?1 AND definition IS NOT NULL)",
            )?
            .execute([&id])?;
            let removed = on
                .statement("DELETE FROM schedules WHERE id = ?1 AND definition IS NOT NULL")?
                .execute([&id])?;
            Ok(removed == 1)
        })
        .await
    }

    /// Has a schedule do nothing, for that reason, or go on from now; what waits is left out, and what has failed so far is
    /// forgotten then. False where there is none.
    pub async fn pause_schedule(&self, id: String, paused: Option<String>) -> Result<bool> {
        self.write(Survives::Power, move |on| {
            let Some((number, _)) = find(on, &id)? else { return Ok(false) };
            let now = on.now_ms();
            on.statement(
                "UPDATE schedule_runs SET state = 'skipped', detail = 'it was paused', changed_ms = ?2
                 WHERE schedule = ?1 AND state = 'waiting'",
            )?
            .execute((number, now))?;
            match &paused {
                Some(why) => {
                    on.statement("UPDATE schedules SET paused = ?2 WHERE number = ?1")?
                        .execute((number, why))?;
                }
                None => {
                    on.statement(
                        "UPDATE schedules SET paused = NULL, failures = 0, held_until_ms = NULL, through_ms = ?2
                         WHERE number = ?1",
                    )?
                    .execute((number, now))?;
                }
            }
            Ok(true)
        })
        .await
    }

    /// Settles the slots of a schedule up to `through`: what is done at them, and what is not, is a row from here on. Nothing
    /// happens where they are settled already. With `through` left out a run is added beside the slots.
    pub async fn settle_slots(
        &self,
        id: String,
        through: Option<Timestamp>,
        entries: Vec<SlotEntry>,
    ) -> Result<bool> {
        self.write(Survives::Power, move |on| {
            let Some((number, settled)) = find(on, &id)? else { return Ok(false) };
            if through.is_some_and(|through| through.as_millisecond() <= settled) {
                return Ok(false);
            }
            let now = on.now_ms();
            for entry in &entries {
                on.statement(
                    "INSERT INTO schedule_runs (schedule, slot_ms, last_slot_ms, slots, state, detail, changed_ms)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (schedule, slot_ms) DO NOTHING",
                )?
                .execute((
                    number,
                    entry.slot.as_millisecond(),
                    entry.last.map(Timestamp::as_millisecond),
                    entry.slots,
                    name(entry.state),
                    &entry.detail,
                    now,
                ))?;
            }
            if let Some(through) = through {
                on.statement("UPDATE schedules SET through_ms = ?2 WHERE number = ?1")?
                    .execute((number, through.as_millisecond()))?;
            }
            on.statement(
                "DELETE FROM schedule_runs WHERE schedule = ?1 AND state NOT IN ('waiting', 'running') AND slot_ms <=
                 (SELECT slot_ms FROM schedule_runs WHERE schedule = ?1 AND state NOT IN ('waiting', 'running')
                  ORDER BY slot_ms DESC LIMIT 1 OFFSET ?2)",
            )?
            .execute((number, KEPT))?;
            Ok(true)
        })
        .await
    }

    /// Begins a run that waits, with the turn that does it where one does; none where it does not wait any more.
    pub async fn begin_run(
        &self,
        id: String,
        slot: Timestamp,
        inbound: Option<Inbound>,
    ) -> Result<Option<Option<Accepted>>> {
        self.write(Survives::Power, move |on| {
            let Some((number, _)) = find(on, &id)? else { return Ok(None) };
            let now = on.now_ms();
            let begun = on
                .statement(
                    "UPDATE schedule_runs SET state = 'running', changed_ms = ?3
                     WHERE schedule = ?1 AND slot_ms = ?2 AND state = 'waiting'
                     AND (SELECT paused FROM schedules WHERE number = ?1) IS NULL",
                )?
                .execute((number, slot.as_millisecond(), now))?;
            if begun == 0 {
                return Ok(None);
            }
            let Some(inbound) = &inbound else { return Ok(Some(None)) };
            let accepted = intake::accept(on, inbound)?;
            on.statement("UPDATE schedule_runs SET turn = ?3 WHERE schedule = ?1 AND slot_ms = ?2")?
                .execute((number, slot.as_millisecond(), accepted.turn.as_str()))?;
            Ok(Some(Some(accepted)))
        })
        .await
    }

    /// Ends a run that waits or goes on; false where it has ended.
    pub async fn end_run(&self, id: String, slot: Timestamp, ended: RunEnded) -> Result<bool> {
        self.write(Survives::Power, move |on| {
            let Some((number, _)) = find(on, &id)? else { return Ok(false) };
            let now = on.now_ms();
            let changed = on
                .statement(
                    "UPDATE schedule_runs SET state = ?3, detail = ?4, changed_ms = ?5
                     WHERE schedule = ?1 AND slot_ms = ?2 AND state IN ('waiting', 'running')",
                )?
                .execute((number, slot.as_millisecond(), name(ended.state), &ended.detail, now))?;
            if changed == 0 {
                return Ok(false);
            }
            let held_until = ended.held_until.map(Timestamp::as_millisecond);
            on.statement(
                "UPDATE schedules SET failures = ?2, held_until_ms = ?3, paused = coalesce(?4, paused) WHERE number = ?1",
            )?
            .execute((number, ended.failures, held_until, &ended.paused))?;
            Ok(true)
        })
        .await
    }

    /// What is known of the slots of a schedule, the newest first.
    pub async fn schedule_runs(&self, id: String, most: u32) -> Result<Vec<ScheduleRun>> {
        self.read(move |db| {
            let mut all = db.prepare_cached(&format!(
                "{SELECT_RUN} WHERE schedule = (SELECT number FROM schedules WHERE id = ?1) ORDER BY slot_ms DESC LIMIT ?2"
            ))?;
            Ok(readable(all.query((&id, most))?, ("a run of a schedule", 3), run)?)
        })
        .await
    }

    /// Runs that are not over, with their schedules, in the order in which they were due.
    pub async fn open_runs(&self) -> Result<Vec<(String, ScheduleRun)>> {
        self.read(open_runs).await
    }
}

fn open_runs(db: &Connection) -> Result<Vec<(String, ScheduleRun)>> {
    let mut all = db.prepare_cached(
        "SELECT slot_ms, last_slot_ms, slots, state, turn, detail, changed_ms, schedules.id FROM schedule_runs
         JOIN schedules ON schedules.number = schedule WHERE state IN ('waiting', 'running') ORDER BY slot_ms, schedules.id",
    )?;
    Ok(readable(all.query([])?, ("a run of a schedule", 7), |row| Ok((row.get(7)?, run(row)?)))?)
}

/// Its number, and up to where its slots are settled.
fn find(on: &Writing<'_>, id: &str) -> Result<Option<(i64, i64)>> {
    let mut find = on.statement("SELECT number, through_ms FROM schedules WHERE id = ?1")?;
    Ok(find.query_row([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

fn run(row: &Row<'_>) -> rusqlite::Result<ScheduleRun> {
    let state: String = row.get(3)?;
    Ok(ScheduleRun {
        slot: time(row, 0)?,
        last_slot: maybe_time(row, 1)?,
        slots: row.get(2)?,
        state: STATES.iter().find(|(_, name)| *name == state).map_or(State::Unknown, |(state, _)| *state),
        turn: maybe_id::<TurnId>(row, 4)?,
        detail: row.get(5)?,
        changed: time(row, 6)?,
    })
}

/// As they stand in the journal.
const STATES: [(State, &str); 7] = [
    (State::Waiting, "waiting"),
    (State::Running, "running"),
    (State::Done, "done"),
    (State::Failed, "failed"),
    (State::Missed, "missed"),
    (State::Skipped, "skipped"),
    (State::Unknown, "unknown"),
];

fn name(state: State) -> &'static str {
    STATES.iter().find(|(one, _)| *one == state).map_or("unknown", |(_, name)| name)
}
