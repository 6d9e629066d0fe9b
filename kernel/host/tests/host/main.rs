//! Real libraries in real processes, and in this one.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

mod callbacks;
mod calls;
#[path = "../../../../tests/harness/copied.rs"]
mod copied;
mod ends;
mod inproc;
mod kernel;
mod probing;
mod rogue;
mod setup;
#[path = "../../../../tests/harness/without_landlock.rs"]
mod without_landlock;
