//! What an editor is shown of a session: events come in, updates of ACP come out. Pure.
//!
//! A message is sent in parts as it streams, and once it is whole what of it was not sent. Parts of it can be missing, to a
//! reader that was slow or came in the middle: then nothing more of it is sent until it is whole.

use std::collections::{HashMap, HashSet};

use drupe_extension_api::{
    Event, EventBody, FailureClass, Item, ItemKind, ItemOutcome, Preview, ResponseStatus, Spend, TurnId,
    control::ApprovalState,
};
use serde_json::{Value, json};

use crate::{calls, updates};

/// Bytes of what a tool shows meanwhile that are passed on: an update holds all of it each time.
const MEANWHILE: usize = 4096;

/// What is to be done about an event.
#[derive(Debug, Clone, PartialEq)]
pub enum ShownPiece {
    /// An update of the session, as it is sent.
    Update(Value),
    /// All of an item is to be read, and then to go on as it says.
    Read {
        handle: String,
        then: ReadWhole,
    },
    /// A turn began whose message is shown where nobody sees it already.
    Begun {
        turn: TurnId,
        input: Preview,
    },
    /// Another turn took the message in.
    TakenIn {
        turn: TurnId,
        by: TurnId,
    },
    /// The answer of a turn is to be read, since no message showed it.
    Answer(TurnId),
    Ended(TurnId, TurnEnding),
    /// A person is asked about a call.
    Asked(CallQuestion),
    Settled(String),
    Notice {
        severity: &'static str,
        title: String,
    },
}

/// What a text that was read in full is for.
#[derive(Debug, Clone, PartialEq)]
pub enum ReadWhole {
    /// The message of this id, of which so much was sent.
    Message {
        id: String,
        sent: String,
        kind: &'static str,
    },
    Input {
        call: String,
        tool: String,
    },
    Output {
        call: String,
        outcome: ItemOutcome,
    },
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnding {
    pub status: ResponseStatus,
    pub error: Option<String>,
    pub class: Option<FailureClass>,
    /// The limit that stopped it.
    pub limit: Option<String>,
    pub spend: Spend,
}

/// A call that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallQuestion {
    pub call: String,
    pub tool: String,
    pub need: String,
}

/// What is known of a session so far.
#[derive(Debug, Default)]
pub struct Translation {
    /// Under which paths are relative.
    workspace: String,
    /// Messages that were seen from their beginning on, and what of each was sent.
    open: HashMap<String, Sent>,
    /// Calls that the editor knows.
    calls: HashSet<String>,
    /// Those that are shown as a change of a file.
    changes: HashSet<String>,
    /// What calls have shown meanwhile.
    meanwhile: HashMap<String, String>,
    /// Questions without an answer.
    questions: Vec<CallQuestion>,
    running: Option<TurnId>,
    /// Turns whose messages the running one took in.
    taken_in: HashSet<TurnId>,
    answered: bool,
    limit: Option<String>,
}

#[derive(Debug, Default)]
struct Sent {
    text: String,
    /// How often what was sent became void; the editor takes each for a message of its own.
    voided: u32,
    gap: bool,
}

impl Sent {
    fn id(&self, item: &str) -> String {
        if self.voided == 0 { item.to_owned() } else { format!("{item}#{}", self.voided) }
    }
}

impl Translation {
    pub fn new(workspace: impl Into<String>) -> Self {
        Self { workspace: workspace.into(), ..Self::default() }
    }

    pub fn running(&self) -> Option<&TurnId> {
        self.running.as_ref()
    }

    /// Calls that wait for a person.
    pub fn questions(&self) -> &[CallQuestion] {
        &self.questions
    }

    /// From now on parts of what is open are missing.
    pub fn missed(&mut self) {
        self.open.values_mut().for_each(|sent| sent.gap = true);
    }

    pub fn take(&mut self, event: &Event) -> Vec<ShownPiece> {
        let root = event.agent.as_ref().is_none_or(|agent| agent.depth == 0);
        match &event.body {
            EventBody::TurnStarted { input } => self.begin(event, input),
            EventBody::TurnCompleted { status, error, class, spend } => {
                let ending = TurnEnding {
                    status: *status,
                    error: error.clone(),
                    class: *class,
                    limit: self.limit.clone(),
                    spend: *spend,
                };
                self.end(event, ending)
            }
            EventBody::TurnSteered { from, .. } => {
                self.taken_in.insert(from.clone());
                let by = event.turn.clone();
                by.map(|by| ShownPiece::TakenIn { turn: from.clone(), by }).into_iter().collect()
            }
            EventBody::ItemStarted { item } => self.started(event, item, root),
            EventBody::ItemUpdated { id, item, delta } => self.updated(id, *item, delta, root),
            EventBody::ItemCompleted { item, outcome, .. } => self.completed(event, item, *outcome, root),
            EventBody::StreamReset { id, reason } if root => self.void(id, reason),
            EventBody::StreamSkipped => {
                self.missed();
                Vec::new()
            }
            EventBody::ApprovalRequested { id, tool, need, .. } => {
                self.asked(CallQuestion { call: id.to_string(), tool: tool.clone(), need: need.clone() })
            }
            EventBody::ApprovalAnswered { id, state, .. } => self.settled(id.as_str(), *state),
            EventBody::BudgetExceeded(limit) => {
                self.limit = Some(limit.limit.clone());
                notice(
                    "warning",
                    format!("the limit `{}` is reached: {} of {}", limit.limit, limit.used, limit.allowed),
                )
            }
            EventBody::BudgetWarning(limit) => notice(
                "info",
                format!("most of the limit `{}` is used: {} of {}", limit.limit, limit.used, limit.allowed),
            ),
            EventBody::HandoffStarted { to, .. } => {
                notice("info", format!("`{to}` has the conversation; `/back` takes it back"))
            }
            EventBody::HandoffEnded { from, reason, .. } => {
                notice("info", format!("`{from}` has the conversation no more: {reason}"))
            }
            EventBody::Diagnostic { message, .. } => notice("info", message.clone()),
            EventBody::Lifecycle { state, reason } => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                notice("info", format!("the daemon has {state}{reason}"))
            }
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, event: &Event, input: &Preview) -> Vec<ShownPiece> {
        let Some(turn) = &event.turn else { return Vec::new() };
        // A turn that goes on after a restart was shown before, and one that another took in begins only to end.
        if self.running.is_some() || self.taken_in.contains(turn) {
            return Vec::new();
        }
        self.running = Some(turn.clone());
        (self.answered, self.limit) = (false, None);
        vec![ShownPiece::Begun { turn: turn.clone(), input: input.clone() }]
    }

    fn end(&mut self, event: &Event, ending: TurnEnding) -> Vec<ShownPiece> {
        let Some(turn) = event.turn.clone() else { return Vec::new() };
        if self.taken_in.remove(&turn) {
            return vec![ShownPiece::Ended(turn, ending)];
        }
        let unsaid = ending.status == ResponseStatus::Success && !self.answered;
        if self.running.as_ref().is_none_or(|running| *running == turn) {
            let (workspace, taken_in) =
                (std::mem::take(&mut self.workspace), std::mem::take(&mut self.taken_in));
            *self = Self { workspace, taken_in, ..Self::default() };
        }
        let answer = unsaid.then(|| ShownPiece::Answer(turn.clone()));
        answer.into_iter().chain([ShownPiece::Ended(turn, ending)]).collect()
    }

    fn started(&mut self, event: &Event, item: &Item, root: bool) -> Vec<ShownPiece> {
        match item.kind {
            ItemKind::AgentMessage if root => {
                self.open.insert(item.id.clone(), Sent::default());
                Vec::new()
            }
            ItemKind::AgentMessage | ItemKind::Reasoning | ItemKind::Error => Vec::new(),
            ItemKind::TodoList => self.planned(item, root),
            _ => self.call(event, item),
        }
    }

    fn call(&mut self, event: &Event, item: &Item) -> Vec<ShownPiece> {
        if !self.calls.insert(item.id.clone()) {
            return vec![ShownPiece::Update(updates::call_status(&item.id, "in_progress"))];
        }
        let tool = item.name.as_deref().unwrap_or("tool");
        let input = item.input.as_ref();
        let text = input.map(|input| input.text.as_str()).unwrap_or_default();
        let of = event.agent.as_ref().filter(|agent| agent.depth > 0).map(|agent| agent.id.as_str());
        let call = calls::begun(&item.id, tool, item.kind, text, of, &self.workspace);
        if call["content"].as_array().is_some_and(|shown| !shown.is_empty()) {
            self.changes.insert(item.id.clone());
        }
        let whole = input.filter(|input| input.truncated).map(|input| ShownPiece::Read {
            handle: input.handle.clone().unwrap_or_else(|| item.id.clone()),
            then: ReadWhole::Input { call: item.id.clone(), tool: tool.to_owned() },
        });
        [ShownPiece::Update(call)].into_iter().chain(whole).collect()
    }

    fn updated(&mut self, id: &str, kind: ItemKind, delta: &str, root: bool) -> Vec<ShownPiece> {
        match kind {
            ItemKind::AgentMessage if root => self.part(id, delta, "agent_message_chunk"),
            ItemKind::Reasoning if root => {
                // Its beginning is told together with its end; it begins with its message.
                let message = id.strip_suffix(".r").unwrap_or(id);
                if !self.open.contains_key(id) && self.open.get(message).is_some_and(|sent| !sent.gap) {
                    self.open.insert(id.to_owned(), Sent::default());
                }
                self.part(id, delta, "agent_thought_chunk")
            }
            ItemKind::TodoList if root => plan(delta),
            ItemKind::AgentMessage | ItemKind::Reasoning | ItemKind::TodoList | ItemKind::Error => Vec::new(),
            _ if self.calls.contains(id) => {
                let shown = self.meanwhile.entry(id.to_owned()).or_default();
                shown.push_str(delta);
                if shown.len() > MEANWHILE {
                    let from = shown.ceil_char_boundary(shown.len() - MEANWHILE);
                    shown.drain(..from);
                }
                vec![ShownPiece::Update(updates::call_content(id, shown))]
            }
            _ => Vec::new(),
        }
    }

    fn part(&mut self, id: &str, delta: &str, kind: &'static str) -> Vec<ShownPiece> {
        match self.open.get_mut(id) {
            Some(sent) if !sent.gap && !delta.is_empty() => {
                sent.text.push_str(delta);
                vec![ShownPiece::Update(updates::chunk(kind, delta, &sent.id(id)))]
            }
            _ => Vec::new(),
        }
    }

    fn completed(&mut self, event: &Event, item: &Item, outcome: ItemOutcome, root: bool) -> Vec<ShownPiece> {
        match item.kind {
            ItemKind::AgentMessage if root => {
                let bytes = item.output.as_ref().map_or(0, |output| output.bytes);
                self.answered |= bytes > 0;
                self.whole(item, "agent_message_chunk")
            }
            ItemKind::Reasoning if root => self.whole(item, "agent_thought_chunk"),
            // What a sub-agent says is no answer to the user. Several talk at once: each is shown when it has spoken.
            ItemKind::AgentMessage => {
                let text = item.output.as_ref().map(|output| output.text.as_str()).unwrap_or_default();
                let Some(agent) = event.agent.as_ref().filter(|_| !text.is_empty()) else {
                    return Vec::new();
                };
                let text = format!("{}: {text}", agent.id);
                vec![ShownPiece::Update(updates::chunk("agent_thought_chunk", &text, &item.id))]
            }
            ItemKind::Reasoning | ItemKind::Error => Vec::new(),
            ItemKind::TodoList => self.planned(item, root),
            _ => self.called(event, item, outcome),
        }
    }

    /// What of a message was not sent yet.
    fn whole(&mut self, item: &Item, kind: &'static str) -> Vec<ShownPiece> {
        let sent = self.open.remove(&item.id).unwrap_or_default();
        let Some(output) = item.output.as_ref().filter(|output| output.bytes > 0) else { return Vec::new() };
        let id = sent.id(&item.id);
        if !output.truncated {
            return updates::rest(kind, &output.text, &sent.text, &id)
                .map(ShownPiece::Update)
                .into_iter()
                .collect();
        }
        // The same length is the same text: parts come in order.
        if sent.text.len() == output.bytes {
            return Vec::new();
        }
        let handle = output.handle.clone().unwrap_or_else(|| item.id.clone());
        vec![ShownPiece::Read { handle, then: ReadWhole::Message { id, sent: sent.text, kind } }]
    }

    fn called(&mut self, event: &Event, item: &Item, outcome: ItemOutcome) -> Vec<ShownPiece> {
        self.meanwhile.remove(&item.id);
        let mut pieces = Vec::new();
        // One that was refused before it began.
        if !self.calls.contains(&item.id) {
            pieces = self.call(event, item);
        }
        // The change says more than the tool does of it, and contents are replaced.
        if self.changes.remove(&item.id) && outcome == ItemOutcome::Ok {
            pieces.push(ShownPiece::Update(updates::call_status(&item.id, "completed")));
            return pieces;
        }
        let output = item.output.as_ref();
        let text = output.map(|output| output.text.as_str()).unwrap_or_default();
        pieces.push(match output.filter(|output| output.truncated) {
            None => ShownPiece::Update(calls::ended(&item.id, outcome, text)),
            Some(output) => ShownPiece::Read {
                handle: output.handle.clone().unwrap_or_else(|| item.id.clone()),
                then: ReadWhole::Output { call: item.id.clone(), outcome },
            },
        });
        pieces
    }

    fn planned(&self, item: &Item, root: bool) -> Vec<ShownPiece> {
        let texts = [&item.output, &item.input].into_iter().flatten();
        let mut plans = texts.filter(|_| root).map(|preview| plan(&preview.text));
        plans.find(|plan| !plan.is_empty()).unwrap_or_default()
    }

    /// The model is asked again: what it said so far does not count, and cannot be taken back.
    fn void(&mut self, id: &str, reason: &str) -> Vec<ShownPiece> {
        let said = self.open.get(id).is_some_and(|sent| !sent.text.is_empty());
        for id in [id, &format!("{id}.r")] {
            if let Some(sent) = self.open.get_mut(id) {
                let voided = sent.voided + u32::from(!sent.text.is_empty());
                *sent = Sent { voided, ..Sent::default() };
            }
        }
        let what = if said { "the answer above is void, it begins anew" } else { "the model is asked again" };
        notice("warning", format!("{what}: {reason}"))
    }

    fn asked(&mut self, question: CallQuestion) -> Vec<ShownPiece> {
        let pending = ShownPiece::Update(updates::call_status(&question.call, "pending"));
        if self.questions.iter().all(|known| known.call != question.call) {
            self.questions.push(question.clone());
        }
        vec![pending, ShownPiece::Asked(question)]
    }

    fn settled(&mut self, call: &str, state: ApprovalState) -> Vec<ShownPiece> {
        self.questions.retain(|question| question.call != call);
        let goes_on = state == ApprovalState::Allowed;
        let status = goes_on.then(|| ShownPiece::Update(updates::call_status(call, "in_progress")));
        [ShownPiece::Settled(call.to_owned())].into_iter().chain(status).collect()
    }
}

fn notice(severity: &'static str, title: String) -> Vec<ShownPiece> {
    vec![ShownPiece::Notice { severity, title }]
}

fn plan(text: &str) -> Vec<ShownPiece> {
    updates::plan(text).map(ShownPiece::Update).into_iter().collect()
}

impl ReadWhole {
    /// What to send now that all of the text is there.
    pub fn with(self, text: &str, workspace: &str) -> Option<Value> {
        match self {
            Self::Message { id, sent, kind } => updates::rest(kind, text, &sent, &id),
            Self::Input { call, tool } => Some(calls::input(&call, &tool, text, workspace)),
            Self::Output { call, outcome } => Some(calls::ended(&call, outcome, text)),
        }
    }
}

impl TurnEnding {
    /// Why the editor's turn stopped, in the words of ACP; none for what is an error there.
    pub fn stop_reason(&self) -> Option<&'static str> {
        match (self.status, self.class) {
            (ResponseStatus::Success, _) => Some("end_turn"),
            (ResponseStatus::Refused, _) => Some("refusal"),
            (ResponseStatus::Error, Some(FailureClass::Cancelled)) => Some("cancelled"),
            (ResponseStatus::Error, Some(FailureClass::Refused)) => Some("refusal"),
            (ResponseStatus::Error, Some(FailureClass::Budget)) => match self.limit.as_deref() {
                Some("max_turns") => Some("max_turn_requests"),
                Some(limit) if limit.ends_with("tokens") => Some("max_tokens"),
                _ => None,
            },
            (ResponseStatus::Error, _) => None,
        }
    }

    /// Tokens as ACP counts them, a kind each.
    pub fn usage(&self) -> Value {
        let usage = self.spend.usage;
        json!({
            "totalTokens": usage.total(),
            "inputTokens": usage.input_tokens,
            "outputTokens": usage.output_tokens,
            "thoughtTokens": usage.reasoning_tokens,
            "cachedReadTokens": usage.cached_tokens,
        })
    }
}

#[cfg(test)]
mod tests;
