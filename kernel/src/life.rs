//! How long a kernel goes on: what it works on, and what tells that to end.

use std::sync::Arc;

use drupe_agent::BehindAnswers;
use drupe_extension_api::Fault;
use drupe_surface::{ending::Ending, panics};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The tasks of a kernel, and their end. Clones are the same.
#[derive(Clone, Default)]
pub struct Life {
    /// Every task of the kernel.
    pub tasks: TaskTracker,
    /// Whether and why it is to end.
    pub ending: Arc<Ending>,
    /// What goes on behind answers, for which no drain waits.
    pub behind: Arc<BehindAnswers>,
    /// Cancelled when turns that still run are to be left to the next kernel.
    pub cancel: CancellationToken,
    /// Cancelled when nothing more is served: after turns and extensions have ended.
    pub closing: CancellationToken,
}

impl Life {
    /// Begins what goes on as long as the kernel; after a panic, again.
    pub fn keep_up<T: Send + Sync + 'static, F: Future<Output = ()> + Send + 'static>(
        &self,
        what: &'static str,
        with: &Arc<T>,
        begin: impl Fn(Arc<T>) -> F + Send + 'static,
    ) {
        let with = Arc::clone(with);
        self.tasks.spawn(panics::lasting(what, move || begin(Arc::clone(&with))));
    }

    /// Does something that must not be left half done when whoever asked goes away.
    pub async fn whole<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.tasks.spawn(work).await.unwrap_or_else(|error| Err(Fault::internal(error)))
    }
}
