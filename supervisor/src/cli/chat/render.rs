//! What a conversation looks like: events and the time come in, pieces of text come out. Pure.

use std::{collections::BTreeSet, time::Instant};

use drupe_extension_api::{
    EffectId, Event, EventBody, Item, ItemKind, ItemOutcome, Preview, ResponseStatus, TurnId,
    control::{ApprovalState, CallPreview},
};

use super::plan::PlanView;
use crate::cli::{
    activity::{self, Activity},
    approvals::{WAITS, visible},
    console::{Style, duration, plain, short},
    figures::{exceeded, spent, warning},
};

/// Characters of a failed call's output that are shown.
const OUTPUT: usize = 160;

/// Characters of a model's reasoning that are shown.
const REASONING: usize = 160;

/// Lines of what a call would change that are shown; `drupe approvals` has more.
const CHANGED: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A part of the answer, as it streams.
    Text(String),
    /// The answer so far ends; what follows begins on a line of its own.
    End,
    /// A line about what happens.
    Line(Style, String),
    /// What the events do not hold and is to be fetched.
    Fetch(Fetch),
}

/// Text that the events do not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetch {
    /// All of an item, of which this much was shown.
    Item(String, String),
    Answer(TurnId),
    /// What a call that is asked about would change, and how deep the agent is that calls. It is for those who may see
    /// questions, and not for all who follow the session: it holds what was in a file that they may not read.
    Change(EffectId, u32),
}

/// The state of a conversation, as far as its look depends on it.
#[derive(Debug, Default)]
pub struct Renderer {
    activity: Activity,
    /// The message that streams: its id, and what of it was shown.
    streaming: Option<(String, String)>,
    /// Whether parts of the message that streams were left out: it is shown whole at its end.
    gap: bool,
    /// The message that the model is asked for.
    asked: Option<String>,
    /// What the model reasoned before its message.
    reasoning: String,
    thought: bool,
    running: Option<TurnId>,
    /// Turns whose messages the running one took in.
    steered: BTreeSet<TurnId>,
    /// A message of this client: its author sees it already.
    own: Option<Preview>,
    /// Whether the last message of the turn was shown whole.
    answered: bool,
    plan: Option<PlanView>,
    /// Whether the plan is worked off.
    planning: bool,
}

impl Renderer {
    /// Tells that this client is about to send a message.
    pub fn expect(&mut self, text: &str) {
        self.own = Some(Preview::of(text));
    }

    /// Tells that a turn runs whose beginning is not among the events to come.
    pub fn runs(&mut self, turn: TurnId) {
        self.running = Some(turn);
    }

    /// Tells that parts of what streams were missed: what of it is still to come makes no sense by itself.
    pub fn missed(&mut self) {
        self.gap = self.running.is_some();
    }

    pub fn running(&self) -> Option<&TurnId> {
        self.running.as_ref()
    }

    /// The last plan that was told.
    pub fn plan(&self) -> Option<&PlanView> {
        self.plan.as_ref()
    }

    /// A line for each thing that goes on, with its figures within so many columns.
    pub fn live(&self, now: Instant, columns: usize) -> Vec<String> {
        let mut lines = match &self.plan {
            Some(plan) if self.planning => plan.live(),
            _ => Vec::new(),
        };
        lines.extend(self.activity.lines(now, columns));
        if self.gap && self.streaming.is_some() {
            lines.push("this was too fast to be shown; the answer comes whole at its end".into());
        }
        lines
    }

    /// Takes an event in; what to show of it.
    pub fn take(&mut self, event: &Event, now: Instant) -> Vec<Piece> {
        if let Some(pieces) = self.steering(event) {
            return pieces;
        }
        let ended = self.activity.take(event, now);
        let depth = event.agent.as_ref().map_or(0, |agent| agent.depth);
        let line = |style, text: String| vec![Piece::Line(style, plain(&format!("{}{text}", indent(depth))))];
        match &event.body {
            EventBody::TurnStarted { input } => self.begin(event, input),
            EventBody::TurnCompleted { .. } => self.complete(event),
            EventBody::ItemStarted { item } | EventBody::ItemCompleted { item, .. }
                if item.kind == ItemKind::TodoList =>
            {
                self.planned(event)
            }
            EventBody::ItemUpdated { item: ItemKind::TodoList, .. } => self.planned(event),
            EventBody::ItemStarted { item } if item.kind == ItemKind::AgentMessage && depth == 0 => {
                self.asked = Some(item.id.clone());
                (self.gap, self.thought) = (false, false);
                self.reasoning.clear();
                Vec::new()
            }
            // Whole, where nobody heard its parts.
            EventBody::ItemCompleted { item, .. } if item.kind == ItemKind::Reasoning && depth == 0 => {
                let text = item.output.as_ref().map(|output| output.text.as_str()).unwrap_or_default();
                if self.reasoning.is_empty() {
                    self.reasons(text);
                }
                Vec::new()
            }
            EventBody::ItemUpdated { item: ItemKind::Reasoning, delta, .. } if depth == 0 => {
                self.reasons(delta);
                Vec::new()
            }
            EventBody::ItemUpdated { id, item: ItemKind::AgentMessage, delta } if depth == 0 => {
                self.delta(id, delta)
            }
            EventBody::ItemCompleted { item, .. } if item.kind == ItemKind::AgentMessage && depth == 0 => {
                let mut pieces = self.thought();
                pieces.extend(self.message(item));
                pieces
            }
            EventBody::ItemCompleted { item, outcome, elapsed_ms } if activity::is_call(item) => {
                if activity::is_plan(item) && *outcome == ItemOutcome::Ok {
                    return Vec::new();
                }
                let label = ended.unwrap_or_else(|| activity::label(item));
                line(outcome_style(*outcome), call(item, &label, *outcome, *elapsed_ms))
            }
            EventBody::SubagentCompleted { spend, .. } => ended
                .map(|label| line(Style::Dim, format!("✓ {label} ({})", spent(spend))))
                .unwrap_or_default(),
            EventBody::SubagentFailed { error, .. } => ended
                .map(|label| line(Style::Bad, format!("✗ {label}: {}", short(error, OUTPUT))))
                .unwrap_or_default(),
            EventBody::StreamReset { id, reason } if depth == 0 => self.void(id, reason),
            EventBody::StreamSkipped => {
                self.missed();
                Vec::new()
            }
            EventBody::ApprovalRequested { id, tool, .. } => {
                let mut pieces = line(Style::Warning, format!("{tool} {WAITS}"));
                pieces.push(Piece::Fetch(Fetch::Change(id.clone(), depth)));
                pieces
            }
            EventBody::ApprovalAnswered { tool, state, by, .. } => {
                let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let (style, how) = match state {
                    ApprovalState::Allowed => (Style::Dim, "allowed"),
                    ApprovalState::Denied => (Style::Warning, "denied"),
                    ApprovalState::Expired => (Style::Warning, "not approved in time"),
                    ApprovalState::Withdrawn | ApprovalState::Pending => {
                        (Style::Dim, "not asked about any more")
                    }
                };
                line(style, format!("{tool} is {how}{by}"))
            }
            EventBody::HandoffStarted { to, .. } => {
                line(Style::Bold, format!("@{to} has the conversation; `/back` takes it back"))
            }
            EventBody::HandoffEnded { from, reason, .. } => {
                line(Style::Bold, format!("@{from} has the conversation no more: {}", short(reason, OUTPUT)))
            }
            EventBody::BudgetWarning(budget) => line(Style::Warning, warning(budget)),
            EventBody::BudgetExceeded(budget) => line(Style::Warning, exceeded(budget)),
            EventBody::Diagnostic { message, .. } => line(Style::Warning, message.clone()),
            EventBody::Lifecycle { state, reason } => {
                let reason = reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
                line(Style::Dim, format!("{state}{reason}"))
            }
            _ => Vec::new(),
        }
    }

    /// What is about a message that the running turn takes in: its own turn begins and ends without anything to show.
    fn steering(&mut self, event: &Event) -> Option<Vec<Piece>> {
        let turn = event.turn.as_ref();
        match &event.body {
            EventBody::TurnSteered { input, from } => {
                self.steered.insert(from.clone());
                let text = format!("› {} (taken in by the running turn)", plain(&input.text));
                Some(vec![Piece::End, Piece::Line(Style::Bold, text)])
            }
            // Turns of a session come one after the other.
            EventBody::TurnStarted { .. } if self.running.is_some() && self.running.as_ref() != turn => {
                self.steered.extend(turn.cloned());
                Some(Vec::new())
            }
            EventBody::TurnStarted { .. } | EventBody::TurnCompleted { .. } => {
                turn.is_some_and(|turn| self.steered.contains(turn)).then(Vec::new)
            }
            _ => None,
        }
    }

    fn begin(&mut self, event: &Event, input: &Preview) -> Vec<Piece> {
        let again = self.running.is_some();
        self.running.clone_from(&event.turn);
        self.answered = false;
        self.streaming = None;
        self.gap = false;
        self.planning = false;
        // A turn that goes on after a restart was shown before.
        if self.own.take_if(|own| own.text == input.text && own.bytes == input.bytes).is_some() || again {
            return Vec::new();
        }
        vec![Piece::End, Piece::Line(Style::Bold, format!("› {}", plain(&input.text)))]
    }

    fn complete(&mut self, event: &Event) -> Vec<Piece> {
        let EventBody::TurnCompleted { status, error, class, spend } = &event.body else { return Vec::new() };
        let mut pieces = vec![Piece::End];
        self.running = None;
        self.streaming = None;
        self.gap = false;
        self.planning = false;
        self.steered.clear();
        let done = *status == ResponseStatus::Success;
        if let (true, false, Some(turn)) = (done, self.answered, &event.turn) {
            pieces.push(Piece::Fetch(Fetch::Answer(turn.clone())));
        }
        if let Some(error) = error.as_ref().filter(|_| !done) {
            pieces.push(Piece::Line(Style::Bad, plain(error)));
            pieces.extend(class.map(|class| Piece::Line(Style::Dim, format!("help: {}", class.remedy()))));
        }
        pieces.push(Piece::Line(Style::Dim, format!("({})", spent(spend))));
        pieces
    }

    /// The root's plan is live while it is worked off, and shown once at its end; those of sub-agents are theirs.
    fn planned(&mut self, event: &Event) -> Vec<Piece> {
        if event.agent.as_ref().is_some_and(|agent| agent.depth > 0) {
            return Vec::new();
        }
        if let Some(plan) = PlanView::of(event) {
            self.plan = Some(plan);
        }
        self.planning = !matches!(event.body, EventBody::ItemCompleted { .. });
        match &self.plan {
            Some(plan) if !self.planning => {
                let lines = plan.lines().into_iter().map(|line| Piece::Line(Style::Dim, line));
                [Piece::End].into_iter().chain(lines).collect()
            }
            _ => Vec::new(),
        }
    }

    fn reasons(&mut self, delta: &str) {
        // Its beginning is shown.
        if self.reasoning.chars().count() < REASONING * 2 {
            self.reasoning.push_str(delta);
        }
    }

    /// What the model reasoned, in short, once and before what it says.
    fn thought(&mut self) -> Vec<Piece> {
        let shown = std::mem::replace(&mut self.thought, !self.reasoning.is_empty());
        match self.reasoning.trim() {
            text if shown || text.is_empty() => Vec::new(),
            text => vec![Piece::End, Piece::Line(Style::Dim, format!("thought: {}", short(text, REASONING)))],
        }
    }

    fn delta(&mut self, id: &str, delta: &str) -> Vec<Piece> {
        if self.gap {
            return Vec::new();
        }
        let mut pieces = self.thought();
        self.shown(id).push_str(delta);
        pieces.push(Piece::Text(plain(delta)));
        pieces
    }

    /// The model is asked again: what it said so far does not count.
    fn void(&mut self, id: &str, reason: &str) -> Vec<Piece> {
        self.reasoning.clear();
        // Its reasoning is an item of its own, of which nothing more is to be said.
        if self.asked.as_ref().is_some_and(|asked| asked != id) {
            return Vec::new();
        }
        let shown = self.streaming.take().is_some_and(|(_, shown)| !shown.is_empty());
        (self.gap, self.thought) = (false, false);
        let what =
            if shown { "✗ the answer above is void, it begins anew" } else { "the model is asked again" };
        vec![Piece::End, Piece::Line(Style::Warning, format!("{what}: {}", short(reason, OUTPUT)))]
    }

    /// What of a message was shown; it begins here if another one streamed before.
    fn shown(&mut self, id: &str) -> &mut String {
        if self.streaming.as_ref().is_none_or(|(streaming, _)| streaming != id) {
            self.streaming = Some((id.to_owned(), String::new()));
        }
        &mut self.streaming.get_or_insert_default().1
    }

    /// A message that is complete: what of it did not stream is shown now.
    fn message(&mut self, item: &Item) -> Vec<Piece> {
        let shown = std::mem::take(self.shown(&item.id));
        (self.streaming, self.asked, self.gap) = (None, None, false);
        let Some(output) = item.output.as_ref().filter(|output| output.bytes > 0) else {
            return vec![Piece::End];
        };
        self.answered = true;
        if output.truncated {
            if shown.len() == output.bytes {
                return vec![Piece::End];
            }
            let handle = output.handle.clone().unwrap_or_else(|| item.id.clone());
            return vec![Piece::Fetch(Fetch::Item(handle, shown)), Piece::End];
        }
        let mut pieces = rest(&shown, &output.text);
        pieces.push(Piece::End);
        pieces
    }
}

/// What is to be shown of a text of which a part was.
pub fn rest(shown: &str, text: &str) -> Vec<Piece> {
    match text.strip_prefix(shown) {
        Some("") => Vec::new(),
        Some(rest) => vec![Piece::Text(plain(rest))],
        None => vec![Piece::End, Piece::Text(plain(text))],
    }
}

fn indent(depth: u32) -> String {
    "  ".repeat(depth as usize)
}

/// What a call would change, as far as a screen has room for it.
pub fn changes(change: &CallPreview, depth: u32) -> Vec<Piece> {
    let shown = visible(change.text.trim_end_matches('\n'));
    let line = |style, text: &str| Piece::Line(style, format!("{}  {text}", indent(depth)));
    if change.failed {
        return vec![line(Style::Dim, &format!("what it would change cannot be shown: {shown}"))];
    }
    let styled = shown.lines().take(CHANGED).map(|text| {
        let style = match text.as_bytes().first() {
            Some(b'+') => Style::Good,
            Some(b'-') => Style::Bad,
            _ => Style::Dim,
        };
        line(style, text)
    });
    let more = shown.lines().nth(CHANGED).map(|_| line(Style::Dim, "… and more"));
    styled.chain(more).collect()
}

fn outcome_style(outcome: ItemOutcome) -> Style {
    match outcome {
        ItemOutcome::Ok => Style::Dim,
        ItemOutcome::Error => Style::Bad,
        _ => Style::Warning,
    }
}

fn call(item: &Item, label: &str, outcome: ItemOutcome, elapsed_ms: u64) -> String {
    let (mark, word) = match outcome {
        ItemOutcome::Ok => ("✓", ""),
        ItemOutcome::Error => ("✗", "failed"),
        ItemOutcome::Refused => ("✗", "refused"),
        ItemOutcome::Cancelled => ("✗", "stopped"),
        ItemOutcome::Interrupted => ("✗", "interrupted"),
        ItemOutcome::OutcomeUnknown => ("?", "nobody knows whether it happened"),
    };
    let mut text = format!("{mark} {label} {}", duration(elapsed_ms));
    if !word.is_empty() {
        text.push_str(&format!(": {word}"));
        if let Some(output) = &item.output {
            text.push_str(&format!(": {}", short(&output.text, OUTPUT)));
        }
    }
    text
}

#[cfg(test)]
mod tests;
