//! A session that an editor has open: which turns its prompts became, and who waits for their ends.

use std::collections::VecDeque;

use drupe_extension_api::{Fault, Preview, SessionId, TurnId};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::translation::TurnEnding;

/// Ends and moves that are remembered for a prompt whose turn is not known yet. A session has far fewer prompts on their way.
const REMEMBERED: usize = 64;

/// How a prompt ended, or why that cannot be known any more.
pub type PromptEnd = Result<TurnEnding, Fault>;

pub struct OpenSession {
    pub id: SessionId,
    state: Mutex<State>,
    /// Ends whoever follows the session.
    pub closed: Notify,
}

#[derive(Default)]
struct State {
    /// Why nobody follows the session any more.
    broken: Option<Fault>,
    prompts: Vec<Prompt>,
    next: u64,
    running: Option<TurnId>,
    ended: VecDeque<(TurnId, TurnEnding)>,
    moved: VecDeque<(TurnId, TurnId)>,
}

struct Prompt {
    number: u64,
    /// As the event of its turn's beginning will show it, until that is seen: its author sees it already.
    text: Option<Preview>,
    turn: Option<TurnId>,
    end: Option<oneshot::Sender<PromptEnd>>,
}

/// A prompt that is on its way; it is forgotten when this goes.
pub struct Prompted<'a> {
    session: &'a OpenSession,
    number: u64,
    end: oneshot::Receiver<PromptEnd>,
}

impl OpenSession {
    pub fn new(id: SessionId) -> Self {
        Self { id, state: Mutex::default(), closed: Notify::new() }
    }

    /// Tells that a prompt is about to be handed in.
    pub fn prompt(&self, text: &str) -> Result<Prompted<'_>, Fault> {
        let mut state = self.state.lock();
        if let Some(fault) = &state.broken {
            return Err(fault.clone());
        }
        let (tell, end) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        let text = Some(Preview::of(text));
        state.prompts.push(Prompt { number, text, turn: None, end: Some(tell) });
        Ok(Prompted { session: self, number, end })
    }

    /// Whether a turn that began is a prompt of this editor, which shows it already.
    pub fn is_own(&self, turn: &TurnId, input: &Preview) -> bool {
        let mut state = self.state.lock();
        state.running = Some(turn.clone());
        let same = |prompt: &&mut Prompt| prompt.turn.as_ref().is_none_or(|own| own == turn);
        let expected = |prompt: &&mut Prompt| {
            prompt.text.as_ref().is_some_and(|text| text.text == input.text && text.bytes == input.bytes)
        };
        let found = state.prompts.iter_mut().filter(same).find(expected);
        found.and_then(|prompt| prompt.text.take()).is_some()
    }

    /// Whether a prompt of this editor waits for that turn.
    pub fn awaits(&self, turn: &TurnId) -> bool {
        self.state.lock().prompts.iter().any(|prompt| prompt.turn.as_ref().is_none_or(|own| own == turn))
    }

    pub fn runs(&self, turn: Option<TurnId>) {
        self.state.lock().running = turn;
    }

    pub fn moved(&self, turn: TurnId, by: TurnId) {
        let mut state = self.state.lock();
        for prompt in state.prompts.iter_mut().filter(|prompt| prompt.turn.as_ref() == Some(&turn)) {
            prompt.turn = Some(by.clone());
        }
        remember(&mut state.moved, (turn, by));
    }

    pub fn ended(&self, turn: TurnId, ending: TurnEnding) {
        let mut state = self.state.lock();
        if state.running.as_ref() == Some(&turn) {
            state.running = None;
        }
        for prompt in state.prompts.iter_mut().filter(|prompt| prompt.turn.as_ref() == Some(&turn)) {
            if let Some(end) = prompt.end.take() {
                // Whoever has gone need not know.
                let _ = end.send(Ok(ending.clone()));
            }
        }
        remember(&mut state.ended, (turn, ending));
    }

    /// Nobody follows the session any more.
    pub fn broke(&self, fault: Fault) {
        let mut state = self.state.lock();
        for end in state.prompts.iter_mut().filter_map(|prompt| prompt.end.take()) {
            let _ = end.send(Err(fault.clone()));
        }
        state.broken = Some(fault);
    }

    /// The turns that are to be stopped: those of the prompts, or where there is none, what runs.
    pub fn turns(&self) -> Vec<TurnId> {
        let state = self.state.lock();
        let known: Vec<TurnId> = state.prompts.iter().filter_map(|prompt| prompt.turn.clone()).collect();
        if state.prompts.is_empty() { state.running.clone().into_iter().collect() } else { known }
    }
}

impl Prompted<'_> {
    /// Tells which turn the prompt became.
    pub fn became(&self, turn: TurnId) {
        let mut state = self.session.state.lock();
        let turn = state.moved.iter().find(|(from, _)| *from == turn).map_or(turn, |(_, by)| by.clone());
        let ended = state.ended.iter().find(|(of, _)| *of == turn).map(|(_, ending)| ending.clone());
        let Some(prompt) = state.prompts.iter_mut().find(|prompt| prompt.number == self.number) else {
            return;
        };
        prompt.turn = Some(turn);
        if let Some((ending, end)) = ended.and_then(|ending| Some((ending, prompt.end.take()?))) {
            let _ = end.send(Ok(ending));
        }
    }

    pub async fn end(&mut self) -> PromptEnd {
        // The session tells before it goes.
        let gone = Fault::internal("the session was closed before the turn ended");
        (&mut self.end).await.unwrap_or(Err(gone))
    }
}

impl Drop for Prompted<'_> {
    fn drop(&mut self) {
        self.session.state.lock().prompts.retain(|prompt| prompt.number != self.number);
    }
}

fn remember<T>(queue: &mut VecDeque<T>, one: T) {
    if queue.len() == REMEMBERED {
        queue.pop_front();
    }
    queue.push_back(one);
}
