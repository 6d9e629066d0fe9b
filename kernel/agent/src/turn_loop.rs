//! The loop: request, stream, tool calls, and again, until an answer or a limit.

mod answer;
mod ask;
mod attempts;
mod ending;
mod guard;
mod repeats;
mod stop;
mod stream;
mod transcript;
mod usage;

use std::{iter::Peekable, sync::Arc, time::Duration};

use drupe_extension_api::{
    AgentResponse, Definition, EventBody, Message, ModelParameters, OutputSpec, Reasoning, ResponseStatus,
    ToolSpec,
};
use drupe_json_schema::Schema;

use crate::{
    agent::{LoopAgent, Task},
    budget::Spent,
    dispatch, ids,
    journal::{Entry, RecordedStep},
    model::{AgentCard, ModelProfile},
    prompt,
    recipe::{self, KeptRecipe},
    registry::Registry,
    run::{self, Run},
};
use ask::Question;
use ending::{Begun, Ending};
use stop::Stop;
use transcript::{BEFORE, Base, Transcript};

/// What each run of one agent uses, made once.
pub(crate) struct Shared {
    card: Arc<AgentCard>,
    system: Arc<str>,
    parameters: Arc<ModelParameters>,
    /// The same without reasoning, for what is no step.
    plain: Arc<ModelParameters>,
    output: Option<Arc<OutputSpec>>,
    output_schema: Option<Schema>,
    /// What a run begins with.
    offer: Offer,
    /// A tool of which the model reads what strangers wrote, before it calls anything.
    described_by_strangers: Option<String>,
    base: Base,
}

/// The tools that a request tells of.
#[derive(Clone, Default)]
struct Offer {
    tools: Arc<[Arc<ToolSpec>]>,
    deferred: Arc<[Arc<ToolSpec>]>,
}

impl Offer {
    fn described_by_strangers(&self) -> Option<String> {
        let mut all = self.tools.iter().chain(self.deferred.iter());
        all.find(|tool| tool.annotations.described_by_strangers)
            .map(|tool| format!("description of {}", tool.name))
    }
}

impl Shared {
    /// What a run of that definition is made of.
    pub(crate) fn recipe(&self, definition: &Definition, model: &ModelProfile) -> KeptRecipe {
        KeptRecipe::of(definition, self.card.root, &self.offer.tools, &self.offer.deferred, model)
    }

    /// For a model that can call tools, or one that cannot and hears of none.
    pub(crate) fn new(definition: &Definition, registry: &Registry, card: AgentCard, tools: bool) -> Self {
        let offer = if tools {
            Offer { tools: Arc::clone(registry.offered()), deferred: Arc::clone(registry.deferred()) }
        } else {
            Offer::default()
        };
        let system = recipe::system(definition, &offer.tools, &offer.deferred);
        let schema = definition.output.as_ref().and_then(|o| o.schema.as_ref());
        Self {
            card: Arc::new(card),
            base: Base::new(&system, &offer.tools),
            system: system.into(),
            parameters: Arc::new(definition.parameters.clone()),
            plain: Arc::new(ModelParameters {
                // That there be none is not what every model lets itself be told.
                reasoning: definition.parameters.reasoning.filter(|asked| *asked == Reasoning::None),
                ..definition.parameters.clone()
            }),
            output: definition.output.clone().map(Arc::new),
            // A schema that does not compile was refused when the definition was made; were it not, the answer is
            // only checked for being JSON.
            output_schema: schema.and_then(|s| Schema::new(s).ok()),
            described_by_strangers: offer.described_by_strangers(),
            offer,
        }
    }
}

/// A run as far as it has come.
struct Progress<'a> {
    agent: &'a LoopAgent,
    run: &'a Arc<Run>,
    transcript: Transcript,
    offer: Offer,
    /// How many deferred tools the offer holds.
    brought: usize,
    /// The model is asked without tools from now on.
    forced: bool,
    /// An earlier process had begun to make the transcript smaller before the next step.
    compacting: bool,
    /// Steps that have an answer.
    steps: u32,
    /// Steps for which the model was asked: the same, or one more.
    asked: u32,
    /// Tool calls that ran, and those that were refused.
    ran: usize,
    refused: usize,
    last_text: Option<String>,
    repaired: bool,
    /// The last answer, if its bound cut it off and the model is to go on with it.
    begun: Option<Begun>,
    repeats: repeats::Repeats,
}

/// Runs a task to its end. Never fails: what goes wrong is the response's status.
pub(crate) async fn run(agent: &LoopAgent, task: Task, run: Arc<Run>) -> AgentResponse {
    run.made_of(agent.parts());
    let mut progress = Progress {
        agent,
        run: &run,
        transcript: Transcript::new(agent.shared.base.clone()),
        offer: agent.shared.offer.clone(),
        brought: 0,
        forced: false,
        compacting: false,
        steps: 0,
        asked: 0,
        ran: 0,
        refused: 0,
        last_text: None,
        repaired: false,
        begun: None,
        repeats: repeats::Repeats::default(),
    };
    let mut response = match progress.drive(task).await {
        Ok(response) => response,
        Err(stop) => progress.stopped(stop),
    };
    response.turns_used = Some(progress.asked);
    response
}

impl Progress<'_> {
    async fn drive(&mut self, mut task: Task) -> Result<AgentResponse, Stop> {
        if let Some(tool) = &self.agent.shared.described_by_strangers {
            self.run.tainted_by(tool);
        }
        for message in std::mem::take(&mut task.history) {
            self.transcript.add(BEFORE, message);
        }
        let recorded = self.run.scope.records.take(&self.run.id);
        if let Some(recorded) = &recorded {
            // What was gathered then, and what is told beside it by whoever had this run begun: that comes anew each time.
            let told = std::mem::replace(&mut task.notes, recorded.notes_at_the_beginning());
            let new: Vec<String> = told.into_iter().filter(|note| !task.notes.contains(note)).collect();
            task.notes.extend(new);
        }
        let content = prompt::user_message(&task, &self.agent.definition.context);
        self.transcript.add_task(Arc::new(Message::User { content }));
        let recorded = recorded.map(|r| r.steps).unwrap_or_default();
        let mut recorded = recorded.into_iter().filter(|s| s.step != dispatch::OUTSIDE).peekable();
        let response = self.until_answered(&mut recorded).await?;
        let is_an_answer = response.status == ResponseStatus::Success
            && response.transfer.is_none()
            && response.client_calls.is_empty();
        let begun = recorded.next();
        if is_an_answer && !task.to_sum_up.is_empty() {
            self.condense(&task.to_sum_up, begun).await?;
        } else if let Some(begun) = begun {
            // An earlier process summed up what is not to be summed up any more: it is paid for.
            self.spent_before(&begun);
            let _ = self.lose(&begun);
        }
        Ok(response)
    }

    /// Goes through what is recorded, and on from there to the last answer.
    async fn until_answered(
        &mut self,
        recorded: &mut Peekable<impl Iterator<Item = RecordedStep>>,
    ) -> Result<AgentResponse, Stop> {
        let mut attempt = 1;
        while let Some(step) = recorded.next() {
            self.compacted(&step.compactions);
            if step.answer.is_none() {
                self.compacting = !step.compactions.is_empty();
                attempt = self.cut_off(&step)?;
                break;
            }
            if let Some(response) = self.replay(step, recorded.peek().is_none()).await? {
                return Ok(response);
            }
        }
        loop {
            let (answer, ending) = self.step(attempt).await?;
            attempt = 1;
            if let Some(response) = self.answered(answer, ending, None, true).await? {
                return Ok(response);
            }
        }
    }

    /// An earlier process asked the model and did not live to see the answer: what it had set aside counts as spent.
    fn cut_off(&mut self, step: &RecordedStep) -> Result<u32, Stop> {
        self.spent_before(step);
        if step.attempt > 0 {
            self.asked = step.step;
        }
        if step.reserved_tokens > 0 {
            let id = ids::model_call(&self.run.id, step.step, step.attempt);
            self.run.tell(EventBody::StreamReset { id, reason: run::INTERRUPTED.into() });
        }
        self.lose(step)?;
        // It was told with what is recorded.
        self.run.budget.told_before(step.step);
        Ok(step.attempt + 1)
    }

    /// What was set aside for a call that an earlier process did not see the end of counts as spent.
    fn lose(&self, step: &RecordedStep) -> Result<(), Stop> {
        if step.reserved_tokens > 0 {
            self.run.budget.replay(Spent::lost(step.reserved_tokens, step.reserved_usd));
            self.run.lost_call(step);
            self.has_room()?;
        }
        Ok(())
    }

    /// Comes back to what an earlier process used for a step.
    fn spent_before(&self, step: &RecordedStep) {
        self.run.budget.replay(step.used);
        self.run.budget.replay(Spent::lost(step.lost_tokens, step.lost_usd));
    }

    /// Takes over a step that an earlier process recorded; `last` if it recorded no further one.
    async fn replay(&mut self, mut step: RecordedStep, last: bool) -> Result<Option<AgentResponse>, Stop> {
        self.run.budget.replay(Spent::step());
        self.spent_before(&step);
        // Of these limits it was told with what is recorded.
        self.run.budget.told_before(step.step);
        let Some(answer) = step.answer.take() else { return Ok(None) };
        let said = std::mem::take(&mut step.said);
        let ending = Ending { stop: step.stop, said, ..Ending::default() };
        self.answered(answer, ending, Some(&step), last).await
    }

    /// Asks the model once; records before and after.
    async fn step(&mut self, mut attempt: u32) -> Result<(Message, Ending), Stop> {
        self.check_end()?;
        // All that is recorded of the run has been gone through.
        self.run.begin_workers();
        let step = self.steps + 1;
        self.run.budget.may_step(self.steps)?;
        self.offer();
        self.guard(step, &mut attempt).await?;
        let room = self.agent.model.profile().context_window.saturating_sub(self.input_tokens());
        let most = self.agent.shared.parameters.max_output_tokens.unwrap_or(u32::MAX);
        let question = Question {
            until: None,
            step,
            item: Some(ids::model_call(&self.run.id, step, attempt)),
            system: Arc::clone(&self.agent.shared.system),
            messages: self.transcript.messages(),
            offer: self.offer.clone(),
            weight: self.weight(),
            hash: self.transcript.hash(),
            max_output_tokens: most.min(u32::try_from(room).unwrap_or(u32::MAX)),
            patience: self.patience(),
        };
        // What works beside the run may wait for a person meanwhile: its own time goes on.
        let works = self.run.budget.time().below(Duration::MAX);
        let given = self.put(question, &mut attempt).await?;
        drop(works);
        let message = Message::Assistant {
            content: given.text,
            reasoning: given.reasoning,
            tool_calls: given.calls,
            provider_items: given.provider_items,
        };
        self.run.record(Entry::Answer {
            invocation: self.run.id.clone(),
            step,
            message: message.clone(),
            model: given.model,
            usage: given.usage,
            cost_usd: given.cost_usd,
            estimated: given.estimated,
            stop: given.ending.stop,
            said: given.ending.said.clone(),
            told: Some(given.told),
        });
        self.warn(step);
        Ok((message, given.ending))
    }

    /// Brings what is on offer up to what was looked up, and to what may still be asked for.
    fn offer(&mut self) {
        let names = self.run.brought();
        let silent = self.forced && !self.offer.tools.is_empty();
        if names.len() == self.brought && !silent {
            return;
        }
        self.brought = names.len();
        let all = &self.agent.shared.offer;
        self.offer = if self.forced {
            Offer::default()
        } else {
            let (found, deferred): (Vec<_>, Vec<_>) =
                all.deferred.iter().cloned().partition(|spec| names.contains(&spec.name));
            let mut tools: Vec<_> = all.tools.iter().cloned().chain(found).collect();
            tools.sort_by(|a, b| a.name.cmp(&b.name));
            Offer { tools: tools.into(), deferred: deferred.into() }
        };
        self.transcript.rebase(Base::new(&self.agent.shared.system, &self.offer.tools));
    }

    fn check_end(&self) -> Result<(), Stop> {
        if self.run.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if self.run.budget.time().left().is_zero() {
            return Err(Stop::Timeout);
        }
        Ok(())
    }
}
