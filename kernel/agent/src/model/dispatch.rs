//! Whether the present attempt of a request was sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whether the present attempt of a request was sent, and to which model. The model notes it; the loop reads it when an
/// attempt ends without an answer, since one that was never sent costs nothing.
///
/// A model that notes nothing is taken to have sent every attempt.
#[derive(Debug, Clone, Default)]
pub struct Dispatch(Arc<Mutex<Sent>>);

#[derive(Debug, Default)]
enum Sent {
    /// Nobody said.
    #[default]
    Unknown,
    /// It waits: for a place, for the time of a repetition, for what must be known before.
    NotYet,
    /// To this model, as `provider/model`.
    To(String),
}

impl Dispatch {
    /// An attempt begins, and nothing of it was sent yet. Called before the first attempt and between two of them.
    pub fn begins(&self) {
        *self.sent() = Sent::NotYet;
    }

    /// The attempt is now sent to this model, as `provider/model`.
    pub fn goes_to(&self, model: &str) {
        *self.sent() = Sent::To(model.to_owned());
    }

    /// Whether it is certain that nothing of the attempt was sent.
    pub fn is_unsent(&self) -> bool {
        matches!(*self.sent(), Sent::NotYet)
    }

    /// The model that the attempt was sent to, where the model said so.
    pub fn model(&self) -> Option<String> {
        match &*self.sent() {
            Sent::To(model) => Some(model.clone()),
            Sent::Unknown | Sent::NotYet => None,
        }
    }

    /// A panic elsewhere leaves no state half written.
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
