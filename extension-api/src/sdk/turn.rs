//! A turn that is about to begin, and what may be done on its behalf.

use std::{fmt, ops::Deref, sync::Arc};

use super::shared::{Origin, Shared};
use crate::{
    Fault,
    wire::{EmbedTexts, EmbeddedTexts, TurnContext, host},
};

/// A turn that is about to begin: its [`TurnContext`] (`turn.session`, `turn.message`), and what may be done for it while
/// [`context`](super::ContextProvider::context) is asked. It is charged to the turn.
#[derive(Clone)]
pub struct Turn {
    context: TurnContext,
    shared: Arc<Shared>,
    origin: Origin,
}

impl Turn {
    pub(crate) fn new(shared: Arc<Shared>, origin: Origin, context: TurnContext) -> Self {
        Self { context, shared, origin }
    }

    /// As [`Call::embed`](super::Call::embed). The user waits for it, so let `timeout_ms` be short.
    pub async fn embed(&self, texts: Vec<String>, timeout_ms: u64) -> Result<Vec<Vec<f32>>, Fault> {
        embed(&self.shared, &self.origin, texts, timeout_ms).await
    }
}

pub(super) async fn embed(
    shared: &Shared,
    origin: &Origin,
    texts: Vec<String>,
    timeout_ms: u64,
) -> Result<Vec<Vec<f32>>, Fault> {
    let EmbeddedTexts { vectors } =
        shared.request(origin, host::EMBED, &EmbedTexts { texts, timeout_ms }).await?;
    Ok(vectors)
}

impl Deref for Turn {
    type Target = TurnContext;

    fn deref(&self) -> &TurnContext {
        &self.context
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token that the kernel gave stays out of logs.
        f.debug_tuple("Turn").field(&self.context).finish()
    }
}
