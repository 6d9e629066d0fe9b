//! The two ends that can stand behind a handle: the seam that everything which lasts goes through.
//!
//! **Who implements it.** Topics (`drupe-bus`: `Subscription`, `Pull`), kept and live events (`drupe-bus`: `Events`), the
//! streams of a confined program (`drupe-programs`). Whatever is to be streamed to an extension in future, an HTTP body
//! or a terminal, is one more implementation, and needs no new operation.
//!
//! **Who calls it.** [`Handles`](crate::Handles) on behalf of an extension, and the control socket, which pulls the same
//! sources and writes what they give as lines.
//!
//! **Why it is pulled.** The reader says with each question how much it takes. So the pace of the reader bounds what the
//! kernel holds for it, whether the reader is slow, stuck or hostile. There is no queue in between that could grow.
//!
//! **What an implementation must never do:**
//! - hold more for a reader that does not ask than a fixed amount. A source that cannot make its writer wait drops, and
//!   tells the reader what it dropped;
//! - lose anything when the future of [`next`](Source::next) is dropped before it is done: the extension may have
//!   cancelled the call, and asks again;
//! - block the thread, in its methods or when it is dropped;
//! - parse and write again what it was given: items stay the text that they were made as, bytes stay bytes.
//!
//! Dropping a source or a sink closes it. There is no other way, so that nothing can be forgotten.

use std::sync::Arc;

use drupe_agent::Chain;
use drupe_extension_api::Fault;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

/// One item of a source, as the text that it was made as. Readers of the same thing share it.
pub type Item = Arc<RawValue>;

/// How much a reader takes now. The reader always gets something: the last item that it is given may go beyond `bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Items; of no account for bytes.
    pub items: usize,
    /// Bytes, of items as well.
    pub bytes: usize,
}

impl Credit {
    /// What is left after an item of that size; none where nothing is.
    #[must_use]
    pub fn after(self, size: usize) -> Option<Self> {
        let left = Self { items: self.items.saturating_sub(1), bytes: self.bytes.saturating_sub(size) };
        (left.items > 0 && left.bytes > 0).then_some(left)
    }
}

/// What a source gives. A source gives one kind only. Nothing at all is its end.
#[derive(Debug, Clone)]
pub enum Given {
    /// Items, in order.
    Items(Vec<Item>),
    /// Bytes, in order; where they are cut says nothing.
    Bytes(Vec<u8>),
}

impl Given {
    /// Whether it is the end.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Items(items) => items.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }
}

/// What an extension pulls from.
pub trait Source: Send {
    /// What comes next: waits until there is something, then gives what is there within the credit. Called again after
    /// each answer, by one reader at a time, until it gives nothing or a fault; not called after that. The future may be
    /// dropped at any time, and nothing may be lost by that.
    fn next(&mut self, credit: Credit) -> BoxFuture<'_, Result<Given, Fault>>;

    /// What set off the items that were given last, while the reader works on them: until it asks for the next. None
    /// where nothing did.
    fn chain(&self) -> Option<Chain> {
        None
    }
}

/// What an extension puts something into.
pub trait Sink: Send {
    /// Takes the content of one `handle.put`, as it came. The answer is the writer's credit for the next one: it comes
    /// when the content is where it belongs, and not before. A future that is dropped may have taken a part.
    fn put(&mut self, content: Vec<u8>) -> BoxFuture<'_, Result<(), Fault>>;
}
