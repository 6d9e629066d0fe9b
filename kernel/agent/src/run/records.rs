//! What an earlier process recorded of a turn, for all of its runs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::InvocationId;

use crate::{
    dispatch::OUTSIDE,
    journal::{RecordedInvocation, RecordedTurn},
};

/// The runs by their ids.
type Runs = HashMap<InvocationId, Arc<RecordedInvocation>>;

/// What an earlier process recorded of a turn's runs; nothing where the turn begins now.
#[derive(Default)]
pub struct Records(Mutex<Runs>);

impl From<RecordedTurn> for Records {
    fn from(turn: RecordedTurn) -> Self {
        Self(Mutex::new(turn.into_runs().map(|(id, run)| (id, Arc::new(run))).collect()))
    }
}

impl Records {
    /// What is recorded of a run.
    pub(crate) fn of(&self, id: &InvocationId) -> Option<Arc<RecordedInvocation>> {
        self.runs().get(id).cloned()
    }

    /// The same for whoever goes through its steps and needs them no more: they may be large. What code did outside them
    /// stays, since it may ask for that at any time.
    pub(crate) fn take(&self, id: &InvocationId) -> Option<RecordedInvocation> {
        let mut runs = self.runs();
        let found = runs.remove(id)?;
        let steps = found.steps.iter().filter(|step| step.step == OUTSIDE).cloned().collect();
        runs.insert(id.clone(), Arc::new(RecordedInvocation { steps, ..RecordedInvocation::default() }));
        Some(Arc::try_unwrap(found).unwrap_or_else(|shared| RecordedInvocation::clone(&shared)))
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
