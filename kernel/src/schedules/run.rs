//! One run: a turn, or a call of the extension's code.

use std::{sync::Arc, time::Duration};

use drupe_agent::Conditional;
use drupe_extension_api::{
    FailureClass, Fault, FaultCode, ResponseStatus, SessionId, TurnId,
    control::{ScheduleRun, ScheduleRunState as State, TurnResult},
    wire::{QueueMode, ScheduleFire, Submit, op},
};
use drupe_host::Header;
use drupe_journal::{Inbound, Origin};

use super::{KnownSchedule, Schedules, outcome::Outcome};

/// What the sessions of runs begin with.
const SESSION: &str = "schedule:";

/// How long an extension's code may take with what is due.
const EXECUTES: Duration = Duration::from_mins(5);

impl Schedules {
    /// Begins a run, or goes on with one, and waits for its end. It waits on where it could not begin.
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        known: &KnownSchedule,
        run: ScheduleRun,
    ) -> Result<(), Fault> {
        match (&known.what.task, run.state, &run.turn) {
            (Some(task), State::Waiting, _) => {
                let inbound = self.inbound(known, task, &run)?;
                let (id, slot) = (known.what.id.clone(), run.slot);
                match self.intake.take_in_run(id, slot, inbound).await? {
                    Some(begun) => self.until_answered(known, run, begun.turn).await,
                    None => Ok(()),
                }
            }
            (Some(_), _, Some(turn)) => {
                let turn = turn.clone();
                self.until_answered(known, run, turn).await
            }
            (None, State::Waiting, _) => self.execute(known, run).await,
            _ => Ok(self
                .lose(
                    &known.what.id,
                    &run,
                    State::Unknown,
                    "the daemon ended while it ran; it is not done again",
                )
                .await?),
        }
    }

    async fn until_answered(
        &self,
        known: &KnownSchedule,
        run: ScheduleRun,
        turn: TurnId,
    ) -> Result<(), Fault> {
        let store = &self.intake.turns.store;
        let waiting = self.intake.ends.of(&turn);
        if store.queued(&turn).await?.is_some() {
            waiting.ended().await;
        }
        let outcome = match store.turn_result(&turn, true).await? {
            Some(result) => answered(result),
            None => Outcome::lost("its turn was let go before it was looked at"),
        };
        self.settle(known, &run, outcome).await
    }

    async fn execute(&self, known: &KnownSchedule, run: ScheduleRun) -> Result<(), Fault> {
        let (id, slot) = (known.what.id.clone(), run.slot);
        let working =
            known.what.owner.as_ref().and_then(|owner| self.intake.roster.working(owner.as_str()).flatten());
        let Some(instance) = working else {
            return Err(Fault::new(
                FaultCode::Unavailable,
                format!("the extension of `{id}` does not work now"),
            ));
        };
        // Recorded first: what was begun is not begun again, whatever becomes of this process.
        if self.intake.turns.store.begin_run(id, slot, None).await?.is_none() {
            return Ok(());
        }
        let header = Header { timeout: Some(EXECUTES), ..Header::default() };
        let fire = ScheduleFire { name: known.what.name.clone() };
        let outcome = match instance.call::<Option<String>>(op::SCHEDULER_EXECUTE, &fire, header).await {
            Ok(text) => Outcome::done(text),
            Err(fault) => Outcome::failed(fault.to_string()),
        };
        self.settle(known, &run, outcome).await
    }

    /// The message that a run answers: its task, and which schedule sets it off.
    fn inbound(&self, known: &KnownSchedule, task: &str, run: &ScheduleRun) -> Result<Inbound, Fault> {
        let what = &known.what;
        let agent = match &known.added {
            Some(added) => added.new.agent.clone(),
            None => what.owner.clone().map(Into::into),
        };
        let snapshot = self.intake.roster.snapshot();
        let takes_json = agent.as_ref().and_then(|id| snapshot.agents.get(id)).is_some_and(|it| it.own_input);
        let text = match takes_json {
            true => task.to_owned(),
            false => format!(
                "{task}\n\n(The schedule `{}` asks for this; it was due {}.)",
                what.id,
                what.timing.shown(run.slot)
            ),
        };
        let session = format!("{SESSION}{}:{}", what.id.replace('/', ":"), run.slot.strftime("%Y-%m-%d"));
        let ask = Submit {
            agent,
            queue: Some(QueueMode::Followup),
            ..Submit::new(SessionId::new(session)?, run.slot.as_millisecond().to_string(), text)
        };
        Ok(Inbound::new(ask, Origin::Schedule(what.id.clone())))
    }
}

fn answered(result: TurnResult) -> Outcome {
    let why = |result: TurnResult| result.error.unwrap_or(result.content);
    match result.status {
        // No model that was asked can say so.
        Some(ResponseStatus::Success)
            if result.spend.turns == 0 && result.content == Conditional::NOTHING =>
        {
            Outcome { why: Some(result.content), ..Outcome::done(None) }
        }
        Some(ResponseStatus::Success) => {
            Outcome { said_in: Some(result.session), ..Outcome::done(Some(result.content)) }
        }
        Some(ResponseStatus::Refused) => Outcome::failed(format!("it was refused: {}", why(result))),
        Some(ResponseStatus::Error) => {
            // That somebody stopped it says nothing of the schedule.
            let stopped = result.class == Some(FailureClass::Cancelled);
            Outcome { stopped, ..Outcome::failed(why(result)) }
        }
        None => Outcome::lost("its turn has no end"),
    }
}
