//! Further messages of the user for a turn that runs.
//!
//! A message is either taken in by the root's loop, which records it, or it is not, and has no such record when the
//! turn takes none any more. Whoever handed it over keeps it until then: it is not given back from here.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::TurnId;

/// Messages that wait for one turn. A person does not write more of them; the rest waits for turns of their own.
const MOST: usize = 32;

/// A message that waits to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steered {
    /// The turn that it would have set off.
    pub turn: TurnId,
    /// What the user says.
    pub text: String,
    /// What brought it, where strangers wrote it.
    pub strangers: Option<String>,
}

/// The messages that wait for one running turn.
#[derive(Debug, Default)]
pub struct Steering(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Steered>,
    closed: bool,
}

impl Steering {
    /// Hands a message to the turn.
    ///
    /// # Errors
    /// The message, once the turn takes none any more, or while too many wait.
    pub fn push(&self, message: Steered) -> Result<(), Steered> {
        let mut state = self.state();
        if state.closed || state.waiting.len() >= MOST {
            return Err(message);
        }
        state.waiting.push_back(message);
        Ok(())
    }

    /// Takes one back that was not taken in; whether it was there.
    pub fn remove(&self, turn: &TurnId) -> bool {
        let mut state = self.state();
        let waited = state.waiting.len();
        state.waiting.retain(|message| message.turn != *turn);
        state.waiting.len() < waited
    }

    /// Takes no more messages from now on, and lets go of those that nobody took in.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.waiting.clear();
    }

    /// Takes the messages that wait.
    pub(crate) fn take(&self) -> Vec<Steered> {
        self.state().waiting.drain(..).collect()
    }

    /// Takes no more messages from now on; those that wait stay until [`close`](Self::close).
    pub(crate) fn refuse(&self) {
        self.state().closed = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A queue stays one when a holder panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Steered {
        Steered { turn: TurnId::new(text).expect("a valid id"), text: text.into(), strangers: None }
    }

    #[test]
    fn a_message_is_taken_in_or_refused() {
        let steering = Steering::default();
        assert_eq!(steering.push(message("a")), Ok(()));
        assert_eq!(steering.take(), [message("a")]);
        assert_eq!(steering.push(message("b")), Ok(()), "what took something in takes more");
        steering.refuse();
        assert_eq!(steering.push(message("c")), Err(message("c")));
        assert!(steering.remove(&message("b").turn), "it waits still");
    }

    #[test]
    fn what_waits_at_the_end_is_let_go_of() {
        let steering = Steering::default();
        for text in ["a", "b"] {
            assert_eq!(steering.push(message(text)), Ok(()));
        }
        steering.close();
        assert_eq!(steering.take(), []);
        assert_eq!(steering.push(message("c")), Err(message("c")));
    }
}
