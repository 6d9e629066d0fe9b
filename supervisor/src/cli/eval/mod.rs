//! `drupe eval`: messages with what is expected of their answers, asked of agents and models, so that an operator dares to
//! change either.

mod report;

use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use drupe_cases::{Case, CaseAnswer, Cases, FILE, Judgment, verdict_schema};
use drupe_extension_api::{
    AgentId, ExtensionId, Format, OutputSpec, SessionId,
    control::{TurnArgument, TurnResult, method},
    wire::{Submit, Submitted},
};

use self::report::{CaseOutcome, junit, lines};
use super::{
    Context, Facts,
    failure::{Failure, status},
    hangup, models, start,
    wait::Interrupt,
};

/// What `drupe eval` is told.
#[derive(Debug, clap::Args)]
pub struct Eval {
    /// The file of cases, in YAML; or the id of an agent of the home whose folder has some
    #[arg(value_name = "FILE|ID")]
    file: PathBuf,
    /// Ask this agent in place of those that the cases name; may be given again
    #[arg(long = "agent", value_name = "ID")]
    agents: Vec<AgentId>,
    /// Ask this model in place of the agents' own; may be given again, to compare
    #[arg(long = "model")]
    models: Vec<String>,
    /// Cases that go on at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    parallel: u8,
    /// Also write what became of them to this file, in JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Leave a daemon that was started for this call running
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    facts: Facts,
}

/// A case as it is asked.
struct AskedCase<'a> {
    case: &'a Case,
    agent: Option<AgentId>,
    model: Option<String>,
}

impl Eval {
    /// Asks all, and says what became of each. Ends with 1 where one failed.
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let cases = read(&self.found(context))?;
        let asked = self.asked(&cases, context);
        let interrupt = Interrupt::take()?;
        hangup::watch(&interrupt, || {})?;
        let _started = start::ensure(context, &interrupt, self.keep)?;
        let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..usize::from(self.parallel).min(asked.len()) {
                scope.spawn(|| {
                    while let Some(one) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if interrupt.came() {
                            break;
                        }
                        let outcome = one.outcome(&cases, context, &interrupt);
                        let mut all = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                        all.push(outcome);
                        if !self.facts.json {
                            context.console.remark(&format!("{} of {}", all.len(), asked.len()));
                        }
                    }
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by(|one, other| {
            (&one.case, &one.agent, &one.model).cmp(&(&other.case, &other.agent, &other.model))
        });
        if let Some(file) = &self.junit {
            std::fs::write(context.here.join(file), junit(&outcomes))?;
        }
        match self.facts.json {
            true => context.console.json(&outcomes)?,
            false => context.console.draw(&lines(&outcomes, context.console.colour))?,
        }
        if outcomes.len() < asked.len() {
            let message = format!("{} of {} cases were not asked", asked.len() - outcomes.len(), asked.len());
            return Err(Failure::new(status::FAILED, message));
        }
        Ok(if outcomes.iter().all(|one| one.passed) { 0 } else { status::FAILED })
    }

    /// The file itself, or else the cases of the agent of that id.
    fn found(&self, context: &Context) -> PathBuf {
        let file = context.here.join(&self.file);
        let id = self.file.to_str().and_then(|name| ExtensionId::new(name).ok());
        match id.filter(|_| !file.is_file()) {
            Some(id) => context.home().path().join("extensions").join(id.as_str()).join(FILE),
            None => file,
        }
    }

    /// Each case with each agent and each model.
    fn asked<'a>(&self, cases: &'a Cases, context: &Context) -> Vec<AskedCase<'a>> {
        let some = |given: &[AgentId]| match given {
            [] => vec![None],
            given => given.iter().cloned().map(Some).collect(),
        };
        let models = match self.models.as_slice() {
            [] => vec![None],
            given => given.iter().map(|model| Some(models::absolute(model, &context.here))).collect(),
        };
        let mut asked = Vec::new();
        for case in &cases.cases {
            let named = || cases.asked(case).cloned();
            for agent in some(&self.agents) {
                for model in &models {
                    let agent = agent.clone().or_else(named);
                    asked.push(AskedCase { case, agent, model: model.clone() });
                }
            }
        }
        asked
    }
}

impl AskedCase<'_> {
    fn outcome(&self, cases: &Cases, context: &Context, interrupt: &Interrupt) -> CaseOutcome {
        let mut outcome = CaseOutcome {
            case: self.case.name.clone(),
            agent: self.agent.as_ref().map_or_else(|| "orchestrator".to_owned(), ToString::to_string),
            model: self.model.clone(),
            passed: false,
            faults: Vec::new(),
            tokens: 0,
            cost_usd: None,
            elapsed_ms: 0,
            turn: None,
        };
        match self.answer(context, interrupt) {
            Ok(result) => {
                outcome.faults = self.case.expect.faults(&CaseAnswer::from(&result));
                if let (true, Some(question)) = (outcome.faults.is_empty(), &self.case.expect.judge) {
                    let judge = cases.judge.clone();
                    outcome.faults.extend(self.judged(question, judge, &result, context, interrupt));
                }
                outcome.tokens = result.spend.usage.total();
                outcome.cost_usd = result.spend.cost_usd;
                outcome.elapsed_ms = result.spend.elapsed_ms;
                outcome.turn = Some(result.turn.to_string());
            }
            Err(failure) => outcome.faults.push(format!("it could not be asked: {failure}")),
        }
        outcome.passed = outcome.faults.is_empty();
        outcome
    }

    fn answer(&self, context: &Context, interrupt: &Interrupt) -> Result<TurnResult, Failure> {
        let ask = submit(self.case.message.clone(), self.agent.clone(), self.case.timeout_ms())?;
        wait(Submit { model: self.model.clone(), ..ask }, context, interrupt)
    }

    /// Why another agent finds the answer wrong, if it does.
    fn judged(
        &self,
        question: &str,
        judge: Option<AgentId>,
        result: &TurnResult,
        context: &Context,
        interrupt: &Interrupt,
    ) -> Option<String> {
        let said = || -> Result<Judgment, Failure> {
            let text = Judgment::asked_for(question, &self.case.message, &result.content);
            let ask = submit(text, judge, self.case.timeout_ms())?;
            let output = Some(OutputSpec { format: Format::Json, schema: Some(verdict_schema()) });
            let judged = wait(Submit { output, ..ask }, context, interrupt)?;
            serde_json::from_str(&judged.content).map_err(|_| {
                let why = judged.error.unwrap_or(judged.content);
                Failure::new(status::FAILED, format!("the judge gave no verdict: {why}"))
            })
        };
        said().map_or_else(|failure| Some(failure.to_string()), Judgment::fault)
    }
}

fn read(file: &Path) -> Result<Cases, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(66, format!("`{name}` cannot be read: {error}")))?;
    Cases::read(&text).map_err(|fault| Failure::new(65, format!("`{name}` is no file of cases: {fault}")))
}

/// A message in a conversation of its own.
fn submit(text: String, agent: Option<AgentId>, timeout_ms: u64) -> Result<Submit, Failure> {
    let id = uuid::Uuid::new_v4();
    let session = SessionId::new(format!("eval-{}", id.simple()));
    let session = session.map_err(|error| Failure::new(status::SOFTWARE, error.to_string()))?;
    Ok(Submit {
        channel: String::new(),
        agent,
        time_budget_ms: Some(timeout_ms),
        ..Submit::new(session, id.to_string(), text)
    })
}

fn wait(ask: Submit, context: &Context, interrupt: &Interrupt) -> Result<TurnResult, Failure> {
    let daemon = context.daemon().heeding(interrupt);
    let accepted: Submitted = daemon.call(method::TURN_SUBMIT, &ask)?;
    daemon.call(method::TURN_WAIT, &TurnArgument { turn: accepted.turn, now: false, brief: false })
}
