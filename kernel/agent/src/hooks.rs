//! Code that is asked before and after what runs do.
//!
//! A hook can stop what it is asked about before it happens. It deliberately cannot change anything.

use drupe_extension_api::wire::HookPoint;
use futures_util::future::BoxFuture;
use serde_json::Value;

/// Asks whoever wants to be asked.
pub trait Hooks: Send + Sync {
    /// Whether anybody wants to be asked at that point. Facts are made only then; must not block.
    fn wants(&self, point: HookPoint) -> bool;

    /// Asks them. Bounds its own time, and never fails: who is late or fails is passed over with a remark.
    fn call<'a>(&'a self, point: HookPoint, facts: Value) -> BoxFuture<'a, HookAnswer>;
}

/// What came of asking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookAnswer {
    /// Why it must not happen; only `before` points and the start of a turn heed it.
    pub blocked: Option<String>,
    /// Who was late or failed; each becomes a diagnostic `hook_late`.
    pub remarks: Vec<String>,
}

/// Nobody wants to be asked.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn wants(&self, _: HookPoint) -> bool {
        false
    }

    fn call<'a>(&'a self, _: HookPoint, _: Value) -> BoxFuture<'a, HookAnswer> {
        Box::pin(std::future::ready(HookAnswer::default()))
    }
}
