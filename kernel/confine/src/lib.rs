//! Starts a child process confined, opens a file and makes folders beneath a root.
//!
//! A confined program is not started directly. [`Confined::spawn`] re-executes drupe as `drupe confined`, a fresh
//! process with one thread ([`main`]), which starts the program with fewer rights, waits for it, and kills all its
//! descendants when the program ends, when its deadline passes, or when the [`Child`] on the other side is dropped
//! or dies. Signals on the death of a parent are no way to do this: they follow the *thread* that spawned, and the
//! threads of an async runtime come and go.
//!
//! The rights are taken by the kernel of the system: Landlock for files, TCP and signals, a filter of system calls for
//! what Landlock does not know. [`support`] tells beforehand, [`Enforcement`] afterwards, what of it the running
//! kernel enforces.
//!
//! This crate knows nothing of drupe's tools, plugins or policy; who may start what is decided elsewhere. It makes no control
//! groups, and no namespaces but one of mounts where a profile asks for what only that can do: both need a system that lets
//! users have them.

mod child;
mod clocks;
mod profile;
mod support;
mod system;

mod reaper;
mod spec;
mod terminal;
mod tree;

mod filter;
mod mounts;
mod restrict;
mod syscalls;

mod beneath;
mod inherit;
mod own;

pub use beneath::{make_beneath, open_beneath, open_root};
pub use child::{Child, ConfineError, Confined, Outcome, Stopped};
pub use inherit::inherited;
pub use own::{own_program, take_name};
pub use profile::{Enforcement, Limits, Profile};
pub use reaper::main;
pub use support::{Support, support};
pub use terminal::{EndKey, Terminal, is_hung_up};
pub use tree::cpu_time;

/// The verb under which the binary must call [`main`].
pub const VERB: &str = "confined";
