//! What an earlier process recorded of a turn, read once for all of its runs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use drupe_extension_api::InvocationId;
use tokio::sync::OnceCell;

use crate::{
    dispatch::OUTSIDE,
    journal::{JournalFault, RecordedInvocation},
    scope::TurnScope,
};

/// The runs by their ids.
type Runs = HashMap<InvocationId, Arc<RecordedInvocation>>;

/// What an earlier process recorded of a turn's runs. Empty until somebody asks, and for a turn that is new.
#[derive(Default)]
pub struct Records(OnceCell<Mutex<Runs>>);

impl TurnScope {
    /// Reads what is recorded of the turn, unless that was done.
    pub(crate) async fn read_records(&self) -> Result<MutexGuard<'_, Runs>, JournalFault> {
        let read = async || {
            let found =
                if self.resumed { self.journal.load(self.turn.clone()).await? } else { Default::default() };
            Ok::<_, JournalFault>(Mutex::new(
                found.into_runs().map(|(id, run)| (id, Arc::new(run))).collect(),
            ))
        };
        let runs = self.records.0.get_or_try_init(read).await?;
        Ok(runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is recorded of a run.
    pub(crate) async fn recorded(
        &self,
        id: &InvocationId,
    ) -> Result<Option<Arc<RecordedInvocation>>, JournalFault> {
        Ok(self.read_records().await?.get(id).cloned())
    }

    /// The same for whoever goes through its steps and needs them no more: they may be large. What code did outside them
    /// stays, since it may ask for that at any time.
    pub(crate) async fn take_recorded(
        &self,
        id: &InvocationId,
    ) -> Result<Option<RecordedInvocation>, JournalFault> {
        let mut runs = self.read_records().await?;
        let Some(found) = runs.remove(id) else { return Ok(None) };
        let steps = found.steps.iter().filter(|step| step.step == OUTSIDE).cloned().collect();
        runs.insert(id.clone(), Arc::new(RecordedInvocation { steps, ..RecordedInvocation::default() }));
        Ok(Some(Arc::try_unwrap(found).unwrap_or_else(|shared| RecordedInvocation::clone(&shared))))
    }
}
