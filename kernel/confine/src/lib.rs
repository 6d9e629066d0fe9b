//! Starts a child process confined, and opens a file beneath a root.
//!
//! A confined program is not started directly. [`Confined::spawn`] re-executes drupe as `drupe confined`, a fresh
//! process with one thread ([`main`]), which starts the program with fewer rights, waits for it, and kills all its
//! descendants when the program ends, when its deadline passes, or when the [`Child`] on the other side is dropped
//! or dies. Signals on the death of a parent are no way to do this: they follow the *thread* that spawned, and the
//! threads of an async runtime come and go.
//!
//! This crate knows nothing of drupe's tools, plugins or policy; who may start what is decided elsewhere. It does
//! not filter system calls: what Landlock cannot express (UDP, for one) stays open, and [`Enforcement`] says what
//! the running kernel could do.

mod beneath;
mod child;
mod inherit;
mod profile;
mod reaper;
mod restrict;
mod spec;

pub use beneath::{open_beneath, open_root};
pub use child::{Child, ConfineError, Confined, Outcome};
pub use inherit::inherited;
pub use profile::{Enforcement, Limits, Profile};
pub use reaper::main;

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "confined";
