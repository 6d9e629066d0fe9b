//! The loop: request, stream, tool calls, and again, until an answer or a limit.

mod answer;
mod ask;
mod repeats;

use std::sync::Arc;

use drupe_extension_api::{
    AgentResponse, Definition, EventBody, FailureClass, Item, ItemKind, Message, ModelParameters, OutputSpec,
};
use sha2::{Digest, Sha256};

use crate::{
    agent::{LoopAgent, Task},
    budget::Exceeded,
    dispatch, ids,
    journal::{Entry, JournalFault, RecordedStep},
    model::{AgentCard, ModelFault},
    prompt,
    registry::Registry,
    run::{Run, millis},
};

/// Bytes of text that one token stands for at least, for estimates that err on the safe side: English prose has
/// about 4, code and JSON about 3.
const BYTES_PER_TOKEN: usize = 3;

/// What each run of one agent uses, made once.
pub(crate) struct Shared {
    card: Arc<AgentCard>,
    system: Arc<str>,
    parameters: Arc<ModelParameters>,
    output: Option<Arc<OutputSpec>>,
    output_schema: Option<jsonschema::Validator>,
    /// Bytes of system prompt and tools.
    base_bytes: usize,
    /// Hash over system prompt and tools.
    base_hash: Sha256,
}

impl Shared {
    pub(crate) fn new(definition: &Definition, registry: &Registry, card: AgentCard) -> Self {
        let mut system = definition.instructions.clone();
        let mut hash = Sha256::new();
        let mut base_bytes = 0;
        for spec in registry.specs().iter() {
            if let Some(text) = &spec.instructions {
                system.push_str("\n\n");
                system.push_str(text);
            }
            let schema = spec.input_schema.to_string();
            base_bytes += spec.name.as_str().len() + spec.description.len() + schema.len();
            for part in [spec.name.as_str(), &spec.description, &schema] {
                hash.update(part);
            }
        }
        hash.update(&system);
        base_bytes += system.len();
        let schema = definition.output.as_ref().and_then(|o| o.schema.as_ref());
        Self {
            card: Arc::new(card),
            system: system.into(),
            parameters: Arc::new(definition.parameters.clone()),
            output: definition.output.clone().map(Arc::new),
            // A schema that does not compile was refused when the definition was made; were it not, the answer is
            // only checked for being JSON.
            output_schema: schema.and_then(|s| jsonschema::validator_for(s).ok()),
            base_bytes,
            base_hash: hash,
        }
    }
}

/// Why a run ends without the model's answer.
enum Stop {
    Exceeded(Exceeded),
    Window { needed: u64, window: u64 },
    Cancelled,
    Timeout,
    Model(ModelFault),
    Loop(String),
    Journal(JournalFault),
}

impl From<Exceeded> for Stop {
    fn from(error: Exceeded) -> Self {
        Self::Exceeded(error)
    }
}

impl From<JournalFault> for Stop {
    fn from(error: JournalFault) -> Self {
        Self::Journal(error)
    }
}

/// A run as far as it has come.
struct Progress<'a> {
    agent: &'a LoopAgent,
    run: &'a Arc<Run>,
    messages: Vec<Arc<Message>>,
    bytes: usize,
    hash: Sha256,
    /// Steps that have an answer.
    steps: u32,
    tool_calls: usize,
    last_text: Option<String>,
    repaired: bool,
    repeats: repeats::Repeats,
}

/// Runs a task to its end. Never fails: what goes wrong is the response's status.
pub(crate) async fn run(agent: &LoopAgent, task: Task, run: Arc<Run>) -> AgentResponse {
    let mut progress = Progress {
        agent,
        run: &run,
        messages: Vec::new(),
        bytes: agent.shared.base_bytes,
        hash: agent.shared.base_hash.clone(),
        steps: 0,
        tool_calls: 0,
        last_text: None,
        repaired: false,
        repeats: repeats::Repeats::default(),
    };
    let mut response = match progress.drive(task).await {
        Ok(response) => response,
        Err(stop) => progress.stopped(stop),
    };
    response.turns_used = Some(progress.steps);
    response
}

impl Progress<'_> {
    async fn drive(&mut self, mut task: Task) -> Result<AgentResponse, Stop> {
        for message in std::mem::take(&mut task.history) {
            self.add(message);
        }
        let content = prompt::user_message(&task, &self.agent.definition.context);
        self.add(Arc::new(Message::User { content }));
        let mut attempt = 1;
        let recorded = self.run.recorded().await?.map(|r| r.steps).unwrap_or_default();
        for step in recorded.into_iter().filter(|s| s.step != dispatch::OUTSIDE) {
            if step.answer.is_none() {
                attempt = self.cut_off(&step);
                break;
            }
            if let Some(response) = self.replay(step).await? {
                return Ok(response);
            }
        }
        loop {
            let answer = self.step(attempt).await?;
            attempt = 1;
            if let Some(response) = self.answered(answer, &[], &[]).await? {
                return Ok(response);
            }
        }
    }

    /// An earlier process asked the model and did not live to see the answer: what it had set aside counts as spent.
    fn cut_off(&mut self, step: &RecordedStep) -> u32 {
        self.run.budget.recharge_lost(step.lost(), self.agent.model.profile().price);
        let id = self.item_id(step.step, step.attempt);
        self.run
            .event(EventBody::StreamReset { id, reason: "a restart interrupted the model's answer".into() });
        step.attempt + 1
    }

    /// Takes over a step that an earlier process recorded.
    async fn replay(&mut self, step: RecordedStep) -> Result<Option<AgentResponse>, Stop> {
        self.run.budget.step();
        self.run.budget.recharge(step.usage, step.cost_usd);
        self.run.budget.recharge_lost(step.lost(), self.agent.model.profile().price);
        let Some(answer) = step.answer else { return Ok(None) };
        self.answered(answer, &step.effects, &step.notes).await
    }

    /// Asks the model once; records before and after.
    async fn step(&mut self, attempt: u32) -> Result<Message, Stop> {
        self.check_end()?;
        let step = self.steps + 1;
        let profile = self.agent.model.profile();
        self.run.budget.may_step(self.steps)?;
        let input = (self.bytes / BYTES_PER_TOKEN) as u64;
        if input >= profile.context_window {
            return Err(Stop::Window { needed: input, window: profile.context_window });
        }
        let room = u32::try_from(profile.context_window - input).unwrap_or(u32::MAX);
        let most = self.agent.shared.parameters.max_output_tokens.unwrap_or(u32::MAX).min(room);
        let reservation = self.run.budget.reserve(input, Some(most), profile)?;
        self.run.budget.step();
        self.run.record(Entry::Step {
            invocation: self.run.id.clone(),
            step,
            attempt,
            model: profile.name.clone(),
            request_hash: ids::hex(&self.hash.clone().finalize()),
            reserved_tokens: reservation.tokens,
        });
        let id = self.item_id(step, attempt);
        let item =
            Item { id: id.clone(), kind: ItemKind::AgentMessage, name: None, input: None, output: None };
        self.run.event(EventBody::ItemStarted { item });
        if let Err(fault) = self.run.commit().await {
            self.run.budget.lose(reservation);
            return Err(fault.into());
        }
        self.ask(step, attempt, &id, reservation).await
    }

    fn check_end(&self) -> Result<(), Stop> {
        if self.run.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        if tokio::time::Instant::now() >= self.run.budget.deadline() {
            return Err(Stop::Timeout);
        }
        Ok(())
    }

    fn item_id(&self, step: u32, attempt: u32) -> String {
        format!("{}.{step}.{attempt}", self.run.id)
    }

    fn add(&mut self, message: Arc<Message>) {
        // What an entry costs beyond its texts: roles, ids and punctuation.
        const FRAME: usize = 12;
        let mut part = |text: &str| {
            self.bytes += text.len();
            self.hash.update(text);
            self.hash.update([0]);
        };
        match &*message {
            Message::User { content } => part(content),
            Message::Assistant { content, tool_calls, .. } => {
                part(content);
                for call in tool_calls {
                    part(&call.name);
                    part(&call.arguments);
                }
            }
            Message::Tool { content, .. } => part(content),
        }
        self.bytes += FRAME;
        self.messages.push(message);
    }

    /// The report of a run that stops early.
    fn stopped(&mut self, stop: Stop) -> AgentResponse {
        let (class, reason) = match stop {
            Stop::Exceeded(error) => {
                self.run.event(EventBody::BudgetExceeded {
                    limit: error.limit.key().into(),
                    used: error.used,
                    allowed: error.allowed,
                });
                (FailureClass::Budget, error.to_string())
            }
            Stop::Window { needed, window } => (
                FailureClass::Budget,
                format!(
                    "the conversation needs about {needed} tokens, but the model's window holds {window}"
                ),
            ),
            Stop::Cancelled => (FailureClass::Cancelled, "it was cancelled".into()),
            Stop::Timeout => {
                let (limit, used) = ("time_budget_ms".to_owned(), millis(self.run.elapsed()));
                let allowed = self.run.allowed_ms();
                self.run.event(EventBody::BudgetExceeded { limit, used, allowed });
                (FailureClass::Timeout, format!("its time was over (`time_budget_ms`: {allowed} ms)"))
            }
            Stop::Model(fault) => (fault.class, fault.message),
            Stop::Loop(reason) => (FailureClass::Loop, reason),
            Stop::Journal(fault) => (FailureClass::Internal, fault.to_string()),
        };
        let report = prompt::report(&reason, self.steps, self.tool_calls, self.last_text.as_deref());
        AgentResponse { content: report, ..AgentResponse::error(class, reason) }
    }
}
