//! The door: a turn, and what holds for every turn whatever happens in it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use drupe_extension_api::{
    AgentId, AgentRef, AgentResponse, DefinitionLimits, EffectId, EventBody, Item, ItemOutcome, Message,
    ResponseStatus, SessionId, Spend, ToolStatus, TurnId,
};
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    attempts::each_has_one_record,
    checkpoints::kept,
    fakes::{Plays, Reply},
};
use crate::*;

/// An id.
pub fn agent_id(id: &str) -> AgentId {
    AgentId::new(id).expect("a valid id")
}

/// A definition with roomy limits.
pub fn definition(id: &str) -> Definition {
    let id = agent_id(id);
    Definition {
        name: id.to_string(),
        id,
        description: String::new(),
        instructions: "You work.".into(),
        context: Vec::new(),
        models: Vec::new(),
        parameters: Default::default(),
        output: None,
        limits: DefinitionLimits::default(),
        offline: Vec::new(),
    }
}

/// A registry of those tools.
pub fn registry(tools: impl IntoIterator<Item = Arc<Registered>>) -> Arc<Registry> {
    let mut builder = RegistryBuilder::default();
    for tool in tools {
        builder.add(tool).expect("names are unique");
    }
    Arc::new(builder.build())
}

/// An agent in the loop.
pub fn looping(
    definition: Definition,
    model: &Arc<Plays>,
    tools: impl IntoIterator<Item = Arc<Registered>>,
) -> Arc<dyn Agent> {
    let model = Arc::clone(model) as Arc<dyn Model>;
    Arc::new(LoopAgent::new(definition, registry(tools), model, false))
}

/// An agent as the tool `agent_<id>`.
pub fn as_tool(agent: &Arc<dyn Agent>) -> Arc<Registered> {
    let name = format!("agent_{}", agent.id()).parse().expect("a valid name");
    let tool = AgentTool::new(Arc::clone(agent), name, "An agent.".into(), None);
    Registered::new(Arc::new(tool)).expect("a valid schema")
}

/// A turn to run.
pub struct Case {
    pub agent: Arc<dyn Agent>,
    pub model: Arc<Plays>,
    pub journal: Arc<MemoryJournal>,
    /// Whether an earlier process recorded what is in the journal.
    pub resumed: bool,
    /// Whether it goes on from what a checkpoint has kept of the first half of that.
    pub checkpoint: bool,
    pub max_bytes: usize,
    pub cancel: CancellationToken,
    pub policy: Arc<dyn Policy>,
    /// What else is particular to the turn.
    pub scope: Box<dyn FnOnce(&mut TurnScope)>,
    /// How long the journal takes for a commit.
    pub commit_takes: Duration,
}

/// A journal that takes its time.
struct Slow(Arc<MemoryJournal>, Duration);

impl Journal for Slow {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move {
            if !self.1.is_zero() {
                tokio::time::sleep(self.1).await;
            }
            self.0.commit(batch).await
        })
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        self.0.output(session, effect)
    }

    fn image(&self, hash: String) -> BoxFuture<'_, Result<Option<Vec<u8>>, JournalFault>> {
        self.0.image(hash)
    }

    fn earlier(
        &self,
        session: SessionId,
        words: Vec<String>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<EarlierTurn>, JournalFault>> {
        self.0.earlier(session, words, most)
    }
}

/// What came of it.
pub struct Seen {
    pub response: AgentResponse,
    pub spend: Spend,
    pub events: Vec<(Option<AgentRef>, EventBody)>,
    pub entries: Vec<Entry>,
    pub messages: Vec<TopicMessage>,
    /// Diagnostics as the outcome has them.
    pub outcome: Vec<String>,
    pub model: Arc<Plays>,
    pub elapsed: Duration,
}

impl Case {
    pub fn new(agent: Arc<dyn Agent>, model: &Arc<Plays>) -> Self {
        Self {
            agent,
            model: Arc::clone(model),
            journal: Arc::default(),
            resumed: false,
            checkpoint: false,
            max_bytes: TOOL_RESPONSE_MAX_BYTES,
            cancel: CancellationToken::new(),
            policy: Arc::new(Allowlist),
            scope: Box::new(|_| {}),
            commit_takes: Duration::ZERO,
        }
    }

    /// A case of one agent, `main`, with a script and tools.
    pub fn of(script: &[Reply], tools: impl IntoIterator<Item = Arc<Registered>>) -> Self {
        Self::defined(definition("main"), script, tools)
    }

    pub fn defined(
        definition: Definition,
        script: &[Reply],
        tools: impl IntoIterator<Item = Arc<Registered>>,
    ) -> Self {
        let model = Arc::new(Plays::new(&[(definition.id.as_str(), script)]));
        Self::new(looping(definition, &model, tools), &model)
    }

    /// Runs it, and asserts what holds for every turn.
    pub async fn run(self) -> Seen {
        let began = tokio::time::Instant::now();
        let gate = Arc::new(Semaphore::new(run::GATE));
        let (session, turn) = (SessionId::new("s").expect("valid"), TurnId::new("s").expect("valid"));
        let journal = Arc::new(Slow(Arc::clone(&self.journal), self.commit_takes));
        let mut scope = TurnScope {
            base_folder: "/".into(),
            policy: self.policy,
            clock: Arc::new(ManualClock::at(0)),
            gate: Arc::clone(&gate),
            tool_response_max_bytes: self.max_bytes,
            records: match (self.resumed, self.checkpoint) {
                (false, _) => Default::default(),
                (true, false) => self.journal.recorded(&turn).into(),
                (true, true) => kept(&self.journal).into(),
            },
            ..TurnScope::new(session, turn, "do it".into(), journal)
        };
        (self.scope)(&mut scope);
        let scope = Arc::new(scope);
        let steering = Arc::clone(&scope.steering);
        let limits = self.agent.limits().clone();
        let task = Task::new("do it");
        let outcome = run_turn(scope, &self.agent, task, &limits, self.cancel).await;
        self.journal.commit(outcome.last).await.expect("the journal records");
        let batches = self.journal.batches();
        let seen = Seen {
            response: outcome.response,
            spend: outcome.spend,
            events: batches.iter().flat_map(Batch::events).collect(),
            messages: batches.iter().flat_map(|b| b.messages.clone()).collect(),
            entries: batches.into_iter().flat_map(|b| b.entries).collect(),
            outcome: outcome.diagnostics,
            model: self.model,
            elapsed: began.elapsed(),
        };
        assert_eq!(gate.available_permits(), run::GATE, "the gate is free again");
        let late =
            Steered { turn: TurnId::new("late").expect("valid"), text: "late".into(), strangers: None };
        assert_eq!(steering.push(late.clone()), Err(late), "a turn that has ended takes nothing in");
        seen.holds();
        seen
    }
}

impl Seen {
    /// What holds for every turn.
    fn holds(&self) {
        assert!(open_items(&self.events).is_empty(), "open: {:?}", open_items(&self.events));
        let mut runs: HashMap<_, i32> = HashMap::new();
        for (place, event) in &self.events {
            let change = match event {
                EventBody::SubagentStarted { .. } => 1,
                EventBody::SubagentCompleted { .. } | EventBody::SubagentFailed { .. } => -1,
                _ => continue,
            };
            *runs.entry(place.as_ref().map(|p| p.invocation.clone())).or_default() += change;
        }
        assert!(runs.values().all(|n| *n == 0), "every run that starts ends once: {runs:?}");
        for entry in &self.entries {
            let Entry::Intent { effect: of, .. } = entry else { continue };
            let same = |e: &&Entry| matches!(e, Entry::Result { effect, .. } if effect == of);
            assert_eq!(self.entries.iter().filter(same).count(), 1, "one result for {of}");
        }
        for request in self.model.requests() {
            assert_valid(&request.messages);
        }
        each_has_one_record(self);
        let told = self.diagnostics();
        // Those of an earlier process stand in its events only.
        let own: Vec<&str> = self.outcome.iter().filter_map(|d| d.split(':').next()).collect();
        assert!(told.ends_with(&own), "{told:?} does not end with {own:?}");
        assert!(!self.response.content.trim().is_empty());
        let success = self.response.status == ResponseStatus::Success;
        assert_eq!(success, self.response.error.is_none());
        assert_eq!(success, self.response.class.is_none());
    }

    /// What the model was told of its calls, in order, in the last request.
    pub fn results(&self) -> Vec<(ToolStatus, String)> {
        let requests = self.model.requests();
        let Some(last) = requests.iter().rfind(|r| r.agent.id == *self.root()) else { return Vec::new() };
        let result = |m: &Arc<Message>| match &**m {
            Message::Tool { status, content, .. } => Some((*status, content.clone())),
            _ => None,
        };
        last.messages.iter().filter_map(result).collect()
    }

    /// The texts alone.
    pub fn told(&self) -> Vec<String> {
        self.results().into_iter().map(|(_, text)| text).collect()
    }

    /// The statuses alone.
    pub fn statuses(&self) -> Vec<ToolStatus> {
        self.results().into_iter().map(|(status, _)| status).collect()
    }

    pub fn exceeded(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                EventBody::BudgetExceeded(used) => Some(used.limit.as_str()),
                _ => None,
            })
            .collect()
    }

    pub fn warned(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                EventBody::BudgetWarning(used) => Some(used.limit.as_str()),
                _ => None,
            })
            .collect()
    }

    pub fn diagnostics(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|(_, event)| match event {
                EventBody::Diagnostic { code, .. } => Some(code.as_str()),
                _ => None,
            })
            .collect()
    }

    fn root(&self) -> &AgentId {
        let root = self.entries.iter().find_map(|e| match e {
            Entry::Begin { agent, parent: None, .. } => Some(agent),
            _ => None,
        });
        root.expect("the root begins")
    }
}

/// The items that have begun and not completed; each begins before it completes, and completes before it begins
/// again.
pub fn open_items(events: &[(Option<AgentRef>, EventBody)]) -> Vec<Item> {
    let mut open: Vec<Item> = Vec::new();
    for (_, event) in events {
        match event {
            EventBody::ItemStarted { item } => {
                assert!(open.iter().all(|o| o.id != item.id), "{} begins twice", item.id);
                open.push(item.clone());
            }
            EventBody::ItemCompleted { item, .. } => {
                let at = open.iter().position(|o| o.id == item.id);
                open.remove(at.unwrap_or_else(|| panic!("{} completes without a beginning", item.id)));
            }
            _ => {}
        }
    }
    open
}

/// The journal as a crash after `commits` leaves it and the next process makes it ready: what is open is closed as
/// interrupted.
pub async fn crashed(journal: &MemoryJournal, commits: usize) -> Arc<MemoryJournal> {
    let cut = journal.cut(commits);
    let batches = cut.batches();
    let Some(first) = batches.first().cloned() else { return cut };
    let events: Vec<_> = batches.iter().flat_map(Batch::events).collect();
    let Some(root) = first.runs.first() else { return cut };
    let close = |item| {
        let event = EventBody::ItemCompleted { item, outcome: ItemOutcome::Interrupted, elapsed_ms: 0 };
        Entry::Told { invocation: root.invocation.clone(), event }
    };
    let entries = open_items(&events).into_iter().map(close).collect();
    cut.commit(Batch { entries, messages: Vec::new(), ..first }).await.expect("a journal in memory records");
    cut
}

/// Each tool call is followed by its result, in order, before anything else.
fn assert_valid(messages: &[Arc<Message>]) {
    let mut wanted: std::collections::VecDeque<String> = std::collections::VecDeque::new();
    for message in messages {
        match &**message {
            Message::Tool { call_id, .. } => assert_eq!(wanted.pop_front().as_ref(), Some(call_id)),
            Message::User { .. } => assert!(wanted.is_empty()),
            Message::Assistant { tool_calls, .. } => {
                assert!(wanted.is_empty());
                wanted.extend(tool_calls.iter().map(|c| c.call_id.clone()));
            }
        }
    }
    assert!(wanted.is_empty(), "calls without a result: {wanted:?}");
}
