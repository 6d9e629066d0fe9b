//! What comes of a run: what is told of it, and what its failures mean for those behind it.

use std::time::Duration;

use drupe_agent::one_line;
use drupe_extension_api::{
    Fault, FaultCode, SessionId,
    control::{ScheduleRun, ScheduleRunState as State},
};
use drupe_host::cut;
use drupe_journal::{RunEnded, ScheduleRow, StoreError};
use jiff::Timestamp;

use super::{KnownSchedule, Schedules};

/// Failures in a row after which a schedule is paused.
const MOST_FAILURES: u32 = 5;

/// How long failures hold those behind them back, at first, doubled with each, and at most.
const HELD: Duration = Duration::from_mins(1);
const LONGEST_HELD: Duration = Duration::from_hours(1);

/// The most bytes of an answer that are shown beside its session.
const LONGEST: usize = 16 * 1024;

/// The same of what the code of an extension says.
const LONGEST_OF_CODE: usize = 3 * 1024;

/// The most bytes of a reason.
const REASON: usize = 500;

pub(super) struct Outcome {
    pub(super) state: State,
    pub(super) why: Option<String>,
    /// What it has to say to people.
    pub(super) text: Option<String>,
    /// The session that has said so already.
    pub(super) said_in: Option<SessionId>,
    pub(super) stopped: bool,
}

impl Outcome {
    pub(super) fn done(text: Option<String>) -> Self {
        let text = text.filter(|text| !text.trim().is_empty());
        Self { state: State::Done, why: None, text, said_in: None, stopped: false }
    }

    pub(super) fn failed(why: String) -> Self {
        Self { why: Some(one_line(&why, REASON)), state: State::Failed, ..Self::done(None) }
    }

    pub(super) fn lost(why: &str) -> Self {
        Self { why: Some(why.to_owned()), state: State::Unknown, ..Self::done(None) }
    }
}

impl Schedules {
    /// Records how a run ended and tells people.
    pub(super) async fn settle(
        &self,
        known: &KnownSchedule,
        run: &ScheduleRun,
        outcome: Outcome,
    ) -> Result<(), Fault> {
        let Outcome { state, why, text, said_in, stopped } = outcome;
        let id = &known.what.id;
        let row = self.row(id).await?;
        let (mut failures, mut held_until, mut paused) = (row.failures, row.held_until, None);
        let mut told = text.filter(|_| known.what.notify).map(|text| cut(text, LONGEST));
        match state {
            State::Failed if !stopped => {
                failures += 1;
                held_until = Some(held_back(failures, self.now()));
                let why = why.as_deref().unwrap_or_default();
                if failures == MOST_FAILURES {
                    paused = Some(format!("{failures} runs in a row failed, the last: {why}"));
                    told = Some(format!(
                        "it is paused, since {failures} runs in a row failed, the last: {why}. `drupe schedule resume {id}` lets it go on"
                    ));
                } else if failures == 1 {
                    told = Some(format!(
                        "it failed: {why}. It is tried again at its next time; `drupe schedule show {id}` has more"
                    ));
                }
            }
            State::Done => (failures, held_until) = (0, None),
            _ => {}
        }
        let ended = RunEnded { state, detail: why, failures, held_until, paused };
        let is_new = self.intake.turns.store.end_run(id.clone(), run.slot, ended).await?;
        if let Some(text) = told.filter(|_| is_new) {
            self.tell(known, said_in.as_ref(), &text).await?;
        }
        Ok(())
    }

    /// A run that nobody does any more, or of which nobody knows what came.
    pub(super) async fn lose(
        &self,
        id: &str,
        run: &ScheduleRun,
        state: State,
        why: &str,
    ) -> Result<(), StoreError> {
        let row = self.row(id).await?;
        let ended = RunEnded {
            state,
            detail: Some(why.to_owned()),
            failures: row.failures,
            held_until: row.held_until,
            paused: None,
        };
        self.intake.turns.store.end_run(id.to_owned(), run.slot, ended).await.map(|_| ())
    }

    async fn row(&self, id: &str) -> Result<ScheduleRow, StoreError> {
        let rows = self.intake.turns.store.schedules().await?;
        rows.into_iter().find(|row| row.id == id).ok_or_else(|| StoreError::NoSchedule(id.to_owned()))
    }

    /// Shows people something of a schedule, where they asked for it or wrote last; a session may have said it before.
    pub(super) async fn tell(
        &self,
        known: &KnownSchedule,
        said_in: Option<&SessionId>,
        text: &str,
    ) -> Result<(), Fault> {
        // What code has to say goes the way of its notices, at their pace.
        if let (Some(owner), None) = (&known.what.owner, &known.what.task) {
            return match self.outbox.notify(owner, None, cut(text.to_owned(), LONGEST_OF_CODE)).await {
                Err(fault) if fault.code != FaultCode::Unavailable => {
                    tracing::debug!(schedule = known.what.id, %fault, "a schedule's text is not shown");
                    Ok(())
                }
                told => told,
            };
        }
        let session = known.added.as_ref().and_then(|added| added.new.session.clone());
        match self.outbox.tell_again(session, said_in, format!("`{}`: {text}", known.what.id)).await {
            // Nobody has written yet: its session has it.
            Err(fault) if fault.code == FaultCode::NotFound => Ok(()),
            told => told,
        }
    }
}

fn held_back(failures: u32, now: Timestamp) -> Timestamp {
    let held = HELD.saturating_mul(1 << failures.clamp(1, 16).saturating_sub(1)).min(LONGEST_HELD);
    now.checked_add(held).unwrap_or(now)
}
