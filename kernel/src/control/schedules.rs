//! What is done at set times, as those who ask for it reach it.

use std::sync::Arc;

use drupe_agent::Run;
use drupe_extension_api::{
    Fault, SessionId,
    control::{
        Power, ScheduleDetail, ScheduleNew, SchedulePause, ScheduleRun, ScheduleRunState, ScheduleStatus,
        method,
    },
};
use drupe_journal::{Origin, ScheduleRow, SlotEntry};
use drupe_schedule::Timing;
use drupe_surface::principal::{Principal, Who};
use drupe_wiring::ORCHESTRATOR;
use jiff::SignedDuration;

use crate::{
    kernel::Kernel,
    schedules::{Added, KnownSchedule, timing_of},
};

/// The most schedules that people add.
const MOST: usize = 256;

/// The longest task, in bytes.
const LONGEST_TASK: usize = 16 * 1024;

const LONGEST_NAME: usize = 48;

/// The runs that are shown of one.
const RUNS: u32 = 50;

/// The least time between two slots of what a model or a program adds; the operator may have them closer.
const APART: SignedDuration = SignedDuration::from_mins(1);

/// The slots that are looked at for that.
const LOOKED_AT: usize = 60;

/// All that this principal sees.
pub async fn list(kernel: &Kernel, by: &Principal) -> Result<Vec<ScheduleStatus>, Fault> {
    let mut all = Vec::new();
    for (known, row) in kernel.schedules.known().await? {
        if sees(kernel, by, &known) {
            all.push(status(kernel, &known, row).await?);
        }
    }
    Ok(all)
}

/// One, with what became of its last times.
pub async fn show(kernel: &Kernel, by: &Principal, id: &str) -> Result<ScheduleDetail, Fault> {
    let (known, row) = find(kernel, by, id).await?;
    let runs = kernel.store.schedule_runs(row.id.clone(), RUNS).await?;
    Ok(ScheduleDetail { status: status(kernel, &known, row).await?, runs })
}

pub async fn add(kernel: &Kernel, by: &Principal, new: ScheduleNew) -> Result<ScheduleStatus, Fault> {
    check(&new)?;
    let now = kernel.schedules.now();
    let new = match Timing::relative(&new.when, now) {
        Some(when) => ScheduleNew { when: when.map_err(|unfit| Fault::invalid(unfit.to_string()))?, ..new },
        None => new,
    };
    let new = within_reach(kernel, by, new).await?;
    let added = Added { new, by: by.name() };
    let what = added.scheduled(kernel.schedules.timezone())?;
    let slots = std::iter::successors(what.timing.after(now), |slot| what.timing.after(*slot));
    let slots: Vec<_> = slots.take(if matches!(by.who, Who::Operator) { 1 } else { LOOKED_AT }).collect();
    if slots.is_empty() {
        return Err(
            Fault::invalid(format!("`{}` is past", added.new.when)).help("name a time that is to come")
        );
    }
    if slots.windows(2).any(|two| two[1].duration_since(two[0]) < APART) {
        return Err(Fault::invalid(format!("`{}` is due more than once a minute", added.new.when))
            .help("leave a minute between two times"));
    }
    if kernel.store.schedules().await?.iter().filter(|row| row.definition.is_some()).count() >= MOST {
        return Err(Fault::invalid(format!("there are {MOST} schedules that somebody added"))
            .help("`drupe schedule remove NAME` makes room"));
    }
    let id = added.new.name.clone();
    let timing = timing_of(&what);
    if !kernel.store.add_schedule(id.clone(), Some(serde_json::to_string(&added)?), timing).await? {
        return Err(Fault::invalid(format!("there is a schedule `{id}` already"))
            .help("give it another name, or remove that one first"));
    }
    kernel.schedules.wake();
    let (known, row) = find(kernel, by, &id).await?;
    status(kernel, &known, row).await
}

fn check(new: &ScheduleNew) -> Result<(), Fault> {
    let sound = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    if !(1..=LONGEST_NAME).contains(&new.name.len()) || !new.name.chars().all(sound) {
        return Err(Fault::invalid(format!("`{:.64}` is no name of a schedule", new.name))
            .help(format!("take 1 to {LONGEST_NAME} characters of `a-z`, `0-9`, `_` and `-`")));
    }
    if new.task.trim().is_empty() || new.task.len() > LONGEST_TASK {
        return Err(Fault::invalid(format!(
            "the task has {} bytes; it may have 1 to {LONGEST_TASK}",
            new.task.len()
        )));
    }
    Ok(())
}

/// What is asked for, as far as whoever asks reaches. An extension asks on behalf of a call, in whose session the answers are
/// shown, and of a person: what runs later has nobody's budget but the operator's.
async fn within_reach(kernel: &Kernel, by: &Principal, new: ScheduleNew) -> Result<ScheduleNew, Fault> {
    match &new.agent {
        Some(agent) => {
            by.reaches_agent(agent)?;
            kernel.base.offered(agent)?;
            kernel.roster.agent(&kernel.roster.snapshot(), agent)?;
        }
        None if by.agents.is_some() => {
            return Err(
                Fault::denied(format!("{} does not reach the orchestrator", by.name())).help("name an agent")
            );
        }
        None => {}
    }
    match (&by.who, by.caller().filter(|caller| !caller.call.is_empty())) {
        (Who::Operator, _) => Ok(new),
        // What is done at set times is nobody's expense but the operator's.
        (Who::Token { .. }, _) => by.needs(Power::Operate, method::SCHEDULES_ADD).map(|()| new),
        (Who::Extension(_), Some(_)) => {
            let run = person_of(kernel, by).await?;
            // What does it has no more than who asks for it.
            let agent = Some(run.agent.clone()).filter(|agent| agent.as_str() != ORCHESTRATOR);
            Ok(ScheduleNew { session: Some(run.scope.session.clone()), agent, ..new })
        }
        (Who::Extension(_), None) => {
            let message = format!("{} adds schedules on behalf of a call of its tools alone", by.name());
            Err(Fault::denied(message))
        }
    }
}

/// The run on whose behalf an extension asks, where a person set it off that the daemon belongs to.
async fn person_of(kernel: &Kernel, by: &Principal) -> Result<Arc<Run>, Fault> {
    let caller = by.caller().ok_or_else(|| Fault::denied("nobody asks for it"))?;
    let run = kernel.roster.wired.lasting.tokens.redeem(&caller.id, &caller.call)?;
    let queued = kernel.store.queued(&run.scope.turn).await?;
    match queued.map(|queued| queued.inbound.origin) {
        Some(Origin::Client { token: None } | Origin::Extension(_) | Origin::Person { .. }) => Ok(run),
        _ => Err(Fault::denied("schedules are for people that the daemon belongs to")
            .help("not on behalf of a token, of a message of a topic, or of what a schedule has set off")),
    }
}

/// Removes one that somebody added.
pub async fn remove(kernel: &Kernel, by: &Principal, id: &str) -> Result<(), Fault> {
    let (known, _) = find(kernel, by, id).await?;
    if known.added.is_none() {
        return Err(Fault::invalid(format!("`{id}` belongs to an extension"))
            .help(format!("`drupe schedule pause {id}` has it do nothing; its manifest removes it")));
    }
    decides(kernel, by, &known).await?;
    kernel.store.remove_schedule(id.to_owned()).await?;
    kernel.schedules.wake();
    Ok(())
}

/// Has one do nothing, or go on.
pub async fn pause(kernel: &Kernel, by: &Principal, ask: SchedulePause) -> Result<ScheduleStatus, Fault> {
    let SchedulePause { id, pause } = ask;
    let (known, row) = find(kernel, by, &id).await?;
    decides(kernel, by, &known).await?;
    if !pause {
        kernel.schedules.leave_out(&known, &row).await?;
    }
    let why = pause.then(|| format!("{} paused it", by.name()));
    kernel.store.pause_schedule(id.clone(), why).await?;
    kernel.schedules.wake();
    let (known, row) = find(kernel, by, &id).await?;
    status(kernel, &known, row).await
}

/// Does one now, beside its times.
pub async fn run(kernel: &Kernel, by: &Principal, id: &str) -> Result<ScheduleRun, Fault> {
    let (known, row) = find(kernel, by, id).await?;
    decides(kernel, by, &known).await?;
    if let Some(why) = row.paused {
        return Err(Fault::invalid(format!("`{id}` is paused: {why}"))
            .help(format!("`drupe schedule resume {id}` lets it go on")));
    }
    if kernel.store.open_runs().await?.iter().any(|(other, _)| other == id) {
        return Err(Fault::invalid(format!("`{id}` is at work already"))
            .help(format!("`drupe schedule show {id}` says how it stands")));
    }
    let now = kernel.schedules.now();
    let entry = SlotEntry { slot: now, last: None, slots: 1, state: ScheduleRunState::Waiting, detail: None };
    kernel.store.settle_slots(id.to_owned(), None, vec![entry]).await?;
    kernel.schedules.wake();
    let newest = kernel.store.schedule_runs(id.to_owned(), 1).await?.into_iter().next();
    newest.ok_or_else(|| Fault::internal("the run was not recorded"))
}

async fn find(kernel: &Kernel, by: &Principal, id: &str) -> Result<(KnownSchedule, ScheduleRow), Fault> {
    let all = kernel.schedules.known().await?;
    all.into_iter().find(|(known, row)| row.id == id && sees(kernel, by, known)).ok_or_else(|| {
        Fault::not_found(format!("there is no schedule `{id:.64}`")).help("`drupe schedule list` shows them")
    })
}

/// Whether somebody sees a schedule: whoever reaches all, or the conversation in which its answers are shown. A tool that works
/// for a conversation sees those of that one.
fn sees(kernel: &Kernel, by: &Principal, known: &KnownSchedule) -> bool {
    let session = session(known);
    let on_behalf = by.caller().filter(|caller| !caller.call.is_empty());
    match on_behalf.map(|caller| kernel.roster.wired.lasting.tokens.redeem(&caller.id, &caller.call)) {
        Some(Ok(run)) => session == Some(&run.scope.session),
        Some(Err(_)) => false,
        None => by.reaches_all() || session.is_some_and(|session| by.sees(session)),
    }
}

/// Who decides about a schedule that they see: a person, by a tool in the conversation of it, or whoever may operate. What runs has
/// nobody's budget but the operator's.
async fn decides(kernel: &Kernel, by: &Principal, known: &KnownSchedule) -> Result<(), Fault> {
    let on_behalf =
        matches!(by.who, Who::Extension(_)) && by.caller().is_some_and(|caller| !caller.call.is_empty());
    match on_behalf && known.added.is_some() {
        true => person_of(kernel, by).await.map(|_| ()),
        false => by.needs(Power::Operate, "to decide about a schedule"),
    }
}

fn session(known: &KnownSchedule) -> Option<&SessionId> {
    known.added.as_ref()?.new.session.as_ref()
}

async fn status(kernel: &Kernel, known: &KnownSchedule, row: ScheduleRow) -> Result<ScheduleStatus, Fault> {
    let what = &known.what;
    let last = kernel.store.schedule_runs(row.id.clone(), 1).await?.into_iter().next();
    let next = what.timing.after(kernel.schedules.now().max(row.through));
    Ok(ScheduleStatus {
        id: row.id,
        when: what.timing.text().to_owned(),
        timezone: what.timezone.clone(),
        task: what.task.clone(),
        only_if: what.only_if.as_ref().map(|call| format!("{} {}", call.name, call.arguments)),
        agent: match &known.added {
            Some(added) => added.new.agent.clone(),
            None => what.task.as_ref().and(what.owner.clone()).map(Into::into),
        },
        session: session(known).cloned(),
        made_by: known.added.as_ref().map_or_else(
            || what.owner.as_ref().map_or_else(String::new, |owner| format!("extension `{owner}`")),
            |added| added.by.clone(),
        ),
        next: next.filter(|_| row.paused.is_none()),
        last,
        failures: row.failures,
        held_until: row.held_until,
        paused: row.paused,
    })
}
