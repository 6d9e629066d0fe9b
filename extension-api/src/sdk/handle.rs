//! An open handle, as this side holds it.

use std::{fmt, sync::Arc};

use super::{
    guard::BoxFuture,
    shared::{Origin, Shared},
};
use crate::{
    Fault,
    wire::{HandleNext, host, put_payload},
};

/// A handle; dropping it closes it, and what stands behind it in the kernel ends.
pub(super) struct Handle {
    shared: Arc<Shared>,
    number: u64,
    /// Kept over a question that was dropped before its answer, so that nothing which it asked for is lost.
    asking: Option<BoxFuture<'static, Result<Vec<u8>, Fault>>>,
}

impl Handle {
    pub fn new(shared: Arc<Shared>, number: u64) -> Self {
        Self { shared, number, asking: None }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// What comes next, as the kernel answers it. Dropping the future loses nothing.
    pub async fn next(&mut self, next: &HandleNext) -> Result<Vec<u8>, Fault> {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            none => none.insert(ask(self.shared.clone(), serde_json::to_vec(next)?)),
        };
        let answer = asking.await;
        self.asking = None;
        answer
    }

    /// Puts a part in; waits until the kernel has taken it.
    pub async fn put(&mut self, content: &[u8]) -> Result<(), Fault> {
        let payload = put_payload(self.number, content);
        self.shared.exchange(&Origin::default(), host::HANDLE_PUT, payload).await.map(drop)
    }
}

fn ask(shared: Arc<Shared>, payload: Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Fault>> {
    Box::pin(async move { shared.exchange(&Origin::default(), host::HANDLE_NEXT, payload).await })
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.asking = None;
        self.shared.tell_now(host::HANDLE_CLOSE, &self.number);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.number).finish()
    }
}
