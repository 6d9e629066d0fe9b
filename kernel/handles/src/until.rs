//! A source that ends for a reason of its own.

use drupe_agent::Chain;
use drupe_extension_api::Fault;
use futures_util::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use crate::{Credit, Given, Source};

/// A source that gives nothing more, and says why, once something has been taken back.
pub struct Until {
    source: Box<dyn Source>,
    over: CancellationToken,
    why: &'static str,
}

impl Until {
    /// Ends `source` when `over` is cancelled, with a fault that says why.
    pub fn new(source: Box<dyn Source>, over: CancellationToken, why: &'static str) -> Self {
        Self { source, over, why }
    }
}

impl Source for Until {
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>> {
        async move {
            tokio::select! {
                biased;
                () = self.over.cancelled() => Err(Fault::denied(self.why)),
                given = self.source.next(credit) => given,
            }
        }
        .boxed()
    }

    fn chain(&self) -> Option<Chain> {
        self.source.chain()
    }
}
