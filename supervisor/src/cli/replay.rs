//! `drupe replay`: turns that were recorded, run once more by the loop, from their records alone or with another model.

use std::time::Duration;

use drupe_extension_api::control::{
    ComparedAnswer, ComparedTurn, ReplayArgument, ReplayReport, ReplayVerdict, ReplayedTurn, method,
};

use super::{
    Context, Facts,
    console::{Style, duration, plain, short, table},
    failure::{Failure, status},
    figures::{count, money},
    hangup, models,
    wait::Interrupt,
};

/// How long one page may take: with another model it is a turn, which may have a day.
const PATIENCE: Duration = Duration::from_secs(86_400);

/// Characters of a message, of an answer and of each side of a difference.
const TEXT: usize = 60;
const SIDE: usize = 400;

#[derive(Debug, clap::Args)]
pub struct Replay {
    /// The session whose turns are run again
    session: String,
    /// Only this turn: its number from 1, from the end where negative, or its id
    #[arg(long, value_name = "N|ID", allow_hyphen_values = true)]
    turn: Option<String>,
    /// Ask this model the recorded messages, with the recorded results of tools, and compare
    #[arg(long, value_name = "MODEL")]
    against: Option<String>,
    #[command(flatten)]
    facts: Facts,
}

impl Replay {
    /// Ends with 1 where something is not as recorded, or nothing could be replayed.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let (id, turn) = self.asked()?;
        let against = self.against.as_ref().map(|model| models::absolute(model, &context.here));
        let interrupt = Interrupt::take()?;
        hangup::watch(&interrupt, || {})?;
        let mut all = ReplayReport::default();
        let mut ask = ReplayArgument { id, turn, against, from: 0 };
        loop {
            let daemon = context.daemon().heeding(&interrupt);
            // Not asked again by itself: a model would be paid for twice.
            let page = daemon.waited_for(method::REPLAY_RUN, &ask, PATIENCE)?;
            let page: ReplayReport = page.map_err(Failure::from)?;
            self.is_of_the_session(&page)?;
            all.turns.extend(page.turns);
            all.compared.extend(page.compared);
            let Some(next) = page.next else { break };
            if !self.facts.json {
                let done = all.turns.len() + all.compared.len();
                context.console.remark(&format!("{done} turns are done"));
            }
            ask.from = next;
        }
        let colour = context.console.colour;
        match (self.facts.json, self.against.is_some()) {
            (true, _) => context.console.json(&all)?,
            (false, true) => context.console.draw(&compared(&all.compared, colour))?,
            (false, false) => context.console.draw(&replayed(&all.turns, colour))?,
        }
        Ok(status_of(&all))
    }

    /// What is asked for: a turn by its id is asked for by that.
    fn asked(&self) -> Result<(String, Option<i64>), Failure> {
        let Some(turn) = &self.turn else { return Ok((self.session.clone(), None)) };
        match turn.parse::<i64>() {
            Ok(0) => {
                Err(Failure::new(2, "there is no turn 0: turns are counted from 1, or from -1 backwards"))
            }
            Ok(number) => Ok((self.session.clone(), Some(number))),
            Err(_) => Ok((turn.clone(), None)),
        }
    }

    /// A turn by its id must be one of the session.
    fn is_of_the_session(&self, page: &ReplayReport) -> Result<(), Failure> {
        if self.turn.is_none() {
            return Ok(());
        }
        let replayed = page.turns.iter().map(|one| (&one.session, &one.turn));
        let compared = page.compared.iter().map(|one| (&one.session, &one.turn));
        let named = |id: &str| id == self.session;
        match replayed
            .chain(compared)
            .find(|(session, turn)| !named(session.as_str()) && !named(turn.as_str()))
        {
            None => Ok(()),
            Some((session, turn)) => {
                let message =
                    format!("turn `{turn}` is not of session `{}` but of `{session}`", self.session);
                Err(Failure::new(status::FAILED, message)
                    .help(format!("`drupe replay {session} --turn {turn}` replays it")))
            }
        }
    }
}

/// 1 where a turn differs, or where nothing at all was replayed or compared.
fn status_of(report: &ReplayReport) -> u8 {
    let differs = report.turns.iter().any(|turn| turn.verdict == ReplayVerdict::Differs);
    let none = report.turns.iter().all(|turn| turn.verdict == ReplayVerdict::NotReplayed)
        && report.compared.iter().all(|turn| turn.now.is_none());
    if differs || none { status::FAILED } else { 0 }
}

/// A line a turn; below it what was not replayed, and the first thing that differs.
fn replayed(turns: &[ReplayedTurn], colour: bool) -> String {
    let mut text = String::new();
    for turn in turns {
        let (style, word) = match turn.verdict {
            ReplayVerdict::Same => (Style::Good, "the same"),
            ReplayVerdict::Differs => (Style::Bad, "differs"),
            ReplayVerdict::NotReplayed => (Style::Warning, "not replayed"),
        };
        let counts = format!(
            "{}, {}, {}",
            many(turn.runs, "run"),
            many(turn.steps, "step"),
            many(turn.tool_calls, "tool call")
        );
        let head = format!("turn {}: {}", turn.turn, style.paint(word, colour));
        text.push_str(&format!(
            "{head}, {counts}  {}\n",
            Style::Dim.paint(&short(&turn.input, TEXT), colour)
        ));
        for remark in &turn.remarks {
            text.push_str(&format!("  {}\n", Style::Dim.paint(&plain(remark), colour)));
        }
        let Some(found) = &turn.difference else { continue };
        let step = found.step.map(|step| format!(", step {step}")).unwrap_or_default();
        text.push_str(&format!(
            "  first difference: run {} of `{}`{step}: {}\n",
            found.run,
            found.agent,
            plain(&found.what)
        ));
        text.push_str(&format!("    recorded: {}\n", short(&found.recorded, SIDE)));
        text.push_str(&format!("    now:      {}\n", short(&found.now, SIDE)));
    }
    let of = |verdict| turns.iter().filter(|turn| turn.verdict == verdict).count();
    let (same, differs, not) =
        (of(ReplayVerdict::Same), of(ReplayVerdict::Differs), of(ReplayVerdict::NotReplayed));
    text.push_str(&format!("{same} the same, {differs} with a difference, {not} not replayed"));
    text
}

fn many(count: u32, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Two lines a turn, as it was and as it is with the other model, and two with the sums.
fn compared(turns: &[ComparedTurn], colour: bool) -> String {
    let head = ["turn", "", "model", "outcome", "steps", "tools", "tokens", "cost", "time"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (turn, number) in turns.iter().zip(1..) {
        rows.push(row(&number.to_string(), "recorded", &turn.recorded));
        match &turn.now {
            Some(now) => rows.push(row("", "now", now)),
            None => rows.push(["", "now", "", "not asked"].map(str::to_owned).to_vec()),
        }
    }
    // Sums are of the turns that both have.
    let both = || turns.iter().filter_map(|turn| Some((&turn.recorded, turn.now.as_ref()?)));
    rows.push(sum("recorded", both().map(|(recorded, _)| recorded)));
    rows.push(sum("now", both().map(|(_, now)| now)));
    let mut text = table(&rows);
    for (turn, number) in turns.iter().zip(1..) {
        let title = format!("{number}  {}  {}", turn.turn, short(&turn.input, TEXT));
        text.push_str(&format!("\n{}\n", Style::Bold.paint(&title, colour)));
        for (which, answer) in [("recorded", Some(&turn.recorded)), ("now", turn.now.as_ref())] {
            let Some(answer) = answer else { continue };
            text.push_str(&format!("  {which} ({}): {}\n", answer.turn, short(&answer.content, SIDE)));
            if !answer.tools.is_empty() {
                text.push_str(&format!("    tools: {}\n", plain(&answer.tools.join(", "))));
            }
            if answer.unknown_calls > 0 {
                let calls = many(answer.unknown_calls, "call");
                text.push_str(&format!("    {calls} had no result in the recording\n"));
            }
        }
        for remark in &turn.remarks {
            text.push_str(&format!("  {}\n", Style::Warning.paint(&plain(remark), colour)));
        }
    }
    text.trim_end().to_owned()
}

fn row(number: &str, which: &str, answer: &ComparedAnswer) -> Vec<String> {
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let class =
        answer.class.map(|class| format!(" ({})", word(serde_json::json!(class)))).unwrap_or_default();
    vec![
        number.to_owned(),
        which.to_owned(),
        plain(&answer.models.join(", ")),
        format!("{}{class}", word(serde_json::json!(answer.status))),
        answer.steps.to_string(),
        answer.tool_calls.to_string(),
        count(answer.tokens),
        cost(answer.cost_usd),
        duration(answer.elapsed_ms),
    ]
}

fn sum<'a>(which: &str, answers: impl Iterator<Item = &'a ComparedAnswer>) -> Vec<String> {
    let answers: Vec<&ComparedAnswer> = answers.collect();
    let of = |part: fn(&ComparedAnswer) -> u64| answers.iter().map(|one| part(one)).sum::<u64>();
    // One price that is unknown leaves no sum.
    let usd: Option<f64> = answers.iter().map(|one| one.cost_usd).sum();
    vec![
        "sum".to_owned(),
        which.to_owned(),
        String::new(),
        String::new(),
        of(|one| one.steps.into()).to_string(),
        of(|one| one.tool_calls.into()).to_string(),
        count(of(|one| one.tokens)),
        cost(usd),
        duration(of(|one| one.elapsed_ms)),
    ]
}

fn cost(usd: Option<f64>) -> String {
    usd.map_or_else(|| "?".to_owned(), money)
}
