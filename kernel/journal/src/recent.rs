//! Turns that wait, run, or ended last, as their commits left them: whoever waits for an answer is told without a
//! question to the database.
//!
//! It knows committed turns only, and by far not all: what it does not know is read.

use drupe_extension_api::{AgentResponse, CorrelationId, InvocationId, Spend, TurnId, control::TurnResult};

use crate::{
    QueuedTurn,
    cache::{Latest, RECORDED, Recorded, Turn},
};

/// Results that are kept for whoever asks, each about as large as a turn's records may be to be remembered.
const RESULTS: usize = 64;

/// Turns without an answer that are kept.
const OPEN: usize = 1024;

/// The longest message that is kept, in bytes.
const TEXT: usize = 16 * 1024;

/// What a commit makes of a turn.
pub(crate) enum Change {
    Accepted(Box<QueuedTurn>),
    Begun(TurnId, InvocationId, CorrelationId),
    /// It is to end, and why.
    Cancelled(TurnId, String),
    Ended(Box<Ended>),
    /// It has changed otherwise, or its end is not known in full.
    Changed(TurnId),
    /// Other agents answer from now on.
    Selected,
}

/// A turn that has its answer.
pub(crate) struct Ended {
    brief: TurnResult,
    recorded: Recorded,
}

impl Ended {
    pub fn new(
        turn: &Turn,
        mut recorded: Recorded,
        response: AgentResponse,
        spend: Spend,
        diagnostics: Vec<String>,
    ) -> Self {
        let trace = turn.correlation.as_ref().map_or_else(|| turn.id.to_string(), ToString::to_string);
        let brief = TurnResult {
            session: turn.session.clone(),
            turn: turn.id.clone(),
            input: std::mem::take(&mut recorded.input),
            status: Some(response.status),
            content: response.content,
            error: response.error,
            class: response.class,
            client_calls: response.client_calls,
            spend,
            invocations: Vec::new(),
            transcript: Vec::new(),
            diagnostics,
            trace,
        };
        Self { brief, recorded }
    }

    /// Whether it is short enough to be kept for whoever asks.
    fn is_short(&self) -> bool {
        let TurnResult { content, error, diagnostics, client_calls, .. } = &self.brief;
        let told = diagnostics.iter().map(String::len).sum::<usize>()
            + client_calls.iter().map(|call| call.arguments.len()).sum::<usize>();
        content.len() + error.as_ref().map_or(0, String::len) + told <= RECORDED
    }

    /// The result with its runs and what they saw.
    pub fn whole(self) -> TurnResult {
        self.recorded.runs.complete(self.brief)
    }
}

/// All that is known.
pub(crate) struct Recent {
    open: Latest<TurnId, QueuedTurn>,
    ended: Latest<TurnId, Ended>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { open: Latest::of(OPEN), ended: Latest::of(RESULTS) }
    }
}

impl Recent {
    /// Follows a commit.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Accepted(turn) if turn.inbound.ask.text.len() <= TEXT => {
                self.open.insert(turn.turn.clone(), *turn);
            }
            Change::Accepted(_) => {}
            Change::Begun(turn, root, correlation) => {
                if let Some(open) = self.open.get(&turn) {
                    open.started = true;
                    // One column holds both: it is read as the message's, too.
                    open.inbound.correlation = Some(correlation.clone());
                    (open.root, open.correlation) = (Some(root), Some(correlation));
                }
            }
            Change::Cancelled(turn, why) => {
                if let Some(open) = self.open.get(&turn) {
                    open.cancelled.get_or_insert(why);
                }
            }
            Change::Ended(ended) => {
                self.open.take(&ended.brief.turn);
                if ended.is_short() {
                    self.ended.insert(ended.brief.turn.clone(), *ended);
                }
            }
            Change::Changed(turn) => {
                self.open.take(&turn);
                self.ended.take(&turn);
            }
            Change::Selected => self.open.clear(),
        }
    }

    /// A turn without an answer. The outer one is none where nothing is known of it.
    pub fn queued(&mut self, turn: &TurnId) -> Option<Option<QueuedTurn>> {
        if self.ended.get(turn).is_some() {
            return Some(None);
        }
        self.open.get(turn).map(|open| Some(open.clone()))
    }

    pub fn brief(&mut self, turn: &TurnId) -> Option<TurnResult> {
        self.ended.get(turn).map(|ended| ended.brief.clone())
    }

    /// A result in full, once: it is asked for by who waits for it, and seldom again.
    pub fn take(&mut self, turn: &TurnId) -> Option<Ended> {
        self.ended.take(turn)
    }
}
