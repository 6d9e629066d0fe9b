//! `drupe schedule`: what is done at set times.

use drupe_extension_api::{
    AgentId, SessionId,
    control::{
        Named, ScheduleDetail, ScheduleNew, SchedulePause, ScheduleRun, ScheduleRunState, ScheduleStatus,
        method,
    },
};
use serde_json::Value;

use super::{
    Context, Facts,
    console::{plain, short, table},
    failure::Failure,
    figures::moment,
};

/// Characters of a task in the list; `show` has all.
const TASK: usize = 60;

/// Characters of a reason that are shown.
const REASON: usize = 120;

/// What the verb `schedule` is given.
#[derive(Debug, clap::Args)]
pub struct ScheduleVerbs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List what is done at set times
    List(Facts),
    /// Show one, and what became of its last times
    Show(One),
    /// Add something that is done at set times
    Add(Add),
    /// Remove one that was added
    Remove(Removed),
    /// Do one now, beside its times
    Run(One),
    /// Have one do nothing until it is resumed
    Pause(One),
    /// Let one go on that is paused
    Resume(One),
}

#[derive(Debug, clap::Args)]
struct One {
    /// Its id, as `drupe schedule list` shows it
    id: String,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct Removed {
    /// Its name, as `drupe schedule list` shows it
    id: String,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Its name: `a-z`, `0-9`, `_` and `-`
    name: String,
    /// When: cron (`0 8 * * 1-5`), `@every 30m`, or a date (`2026-12-24 18:00`)
    when: String,
    /// What is to be done then
    task: String,
    /// The agent that does it, in place of the orchestrator
    #[arg(long)]
    agent: Option<AgentId>,
    /// The session in which its answers are shown, in place of that in which you wrote last
    #[arg(long)]
    session: Option<SessionId>,
    /// The time zone of its times, such as Europe/Berlin
    #[arg(long)]
    timezone: Option<String>,
    #[command(flatten)]
    facts: Facts,
}

impl ScheduleVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => list(self.facts, context),
            Some(Verb::List(facts)) => list(facts, context),
            Some(Verb::Show(One { id, facts })) => {
                let detail: ScheduleDetail = context.daemon().call(method::SCHEDULES_SHOW, &Named { id })?;
                match facts.json {
                    true => context.console.json(&detail)?,
                    false => context.console.draw(&drawn(&detail))?,
                }
                Ok(0)
            }
            Some(Verb::Add(add)) => add.execute(context),
            Some(Verb::Remove(Removed { id })) => {
                let _: Value =
                    context.daemon().decide(method::SCHEDULES_REMOVE, &Named { id: id.clone() })?;
                context.console.remark(&format!("`{}` is removed", plain(&id)));
                Ok(0)
            }
            Some(Verb::Run(One { id, facts })) => {
                let run: ScheduleRun =
                    context.daemon().decide(method::SCHEDULES_RUN, &Named { id: id.clone() })?;
                match facts.json {
                    true => context.console.json(&run)?,
                    false => context.console.remark(&format!(
                        "`{0}` is done now; `drupe schedule show {0}` says what comes of it",
                        plain(&id)
                    )),
                }
                Ok(0)
            }
            Some(Verb::Pause(one)) => one.pause(true, context),
            Some(Verb::Resume(one)) => one.pause(false, context),
        }
    }
}

impl One {
    fn pause(self, pause: bool, context: &Context) -> Result<u8, Failure> {
        let ask = SchedulePause { id: self.id, pause };
        let status: ScheduleStatus = context.daemon().decide(method::SCHEDULES_PAUSE, &ask)?;
        shown(&status, self.facts, context)
    }
}

impl Add {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let Self { name, when, task, agent, session, timezone, facts } = self;
        let new = ScheduleNew { name, when, timezone, task, agent, session, grace_ms: None };
        let status: ScheduleStatus = context.daemon().decide(method::SCHEDULES_ADD, &new)?;
        shown(&status, facts, context)
    }
}

fn shown(status: &ScheduleStatus, facts: Facts, context: &Context) -> Result<u8, Failure> {
    match facts.json {
        true => context.console.json(status)?,
        false => context.console.draw(&table(&[row(status)]))?,
    }
    Ok(0)
}

fn list(facts: Facts, context: &Context) -> Result<u8, Failure> {
    let list: Vec<ScheduleStatus> = context.daemon().get(method::SCHEDULES_LIST)?;
    match facts.json {
        true => context.console.json(&list)?,
        false if list.is_empty() => context.console.remark(
            "nothing is done at set times; `drupe schedule add tea \"0 16 * * *\" \"Remind me of tea\"` adds something",
        ),
        false => context.console.draw(&table(&list.iter().map(row).collect::<Vec<_>>()))?,
    }
    Ok(0)
}

fn row(status: &ScheduleStatus) -> Vec<String> {
    let next = match (&status.paused, status.next) {
        (Some(why), _) => format!("paused: {}", short(why, REASON)),
        (None, Some(next)) => format!("next {}", moment(next)),
        (None, None) => "over".into(),
    };
    let last =
        status.last.as_ref().map_or_else(|| "not done yet".into(), |run| format!("last {}", told(run)));
    let does = match &status.task {
        Some(task) => short(task, TASK),
        None => "its own code".into(),
    };
    vec![plain(&status.id), plain(&format!("{} ({})", status.when, status.timezone)), next, last, does]
}

fn drawn(detail: &ScheduleDetail) -> String {
    let status = &detail.status;
    let mut text = table(&[row(status)]);
    let agent = status
        .agent
        .as_ref()
        .map_or_else(|| "the orchestrator".to_owned(), |agent| format!("agent `{agent}`"));
    match &status.task {
        Some(task) => text.push_str(&format!("\n{agent} does: {}\n", plain(task).replace('\n', "\n  "))),
        None => text.push_str("\nits own code does something\n"),
    }
    if let Some(call) = &status.only_if {
        text.push_str(&format!("it is asked only where this gives something: {}\n", plain(call)));
    }
    let place = status
        .session
        .as_ref()
        .map_or_else(|| "you wrote last".to_owned(), |session| format!("session `{session}` goes on"));
    text.push_str(&format!("made by {}; its answers are shown where {place}\n", plain(&status.made_by)));
    if let Some(until) = status.held_until.filter(|_| status.failures > 0) {
        text.push_str(&format!(
            "{} in a row failed; none begins before {}\n",
            status.failures,
            moment(until)
        ));
    }
    let runs: Vec<_> = detail
        .runs
        .iter()
        .map(|run| {
            vec![
                told(run),
                run.turn.as_ref().map_or_else(String::new, |turn| format!("turn {turn}")),
                run.detail.as_deref().map_or_else(String::new, |why| short(why, REASON)),
            ]
        })
        .collect();
    if !runs.is_empty() {
        text.push('\n');
        text.push_str(&table(&runs));
    }
    text
}

fn told(run: &ScheduleRun) -> String {
    let state = match run.state {
        ScheduleRunState::Waiting => "waits",
        ScheduleRunState::Running => "goes on",
        ScheduleRunState::Done => "done",
        ScheduleRunState::Failed => "failed",
        ScheduleRunState::Missed => "missed",
        ScheduleRunState::Skipped => "left out",
        ScheduleRunState::Unknown => "not known",
    };
    match (run.slots, run.last_slot) {
        (2.., Some(last)) => format!("{} to {} {state}, {} times", moment(run.slot), moment(last), run.slots),
        _ => format!("{} {state}", moment(run.slot)),
    }
}
