//! Runs an extension's code: in this process, or in one of its own.
//!
//! [`open`] gives an [`Instance`], which behaves the same either way: typed operations over the frozen table, faults
//! as values, a dropped future is a cancelled call. What differs is what a fault can break.
//!
//! | | in process | in a process of its own |
//! |---|---|---|
//! | a panic | a fault of the call | a fault of the call |
//! | a crash, an exit | ends the kernel, and is blamed on the extension | [`Instance::ended`], calls end as crashed |
//! | a poll that does not return | holds a thread of the kernel, and is blamed | the process is killed |
//! | memory | the kernel's | bounded, that of the process |
//!
//! It starts nothing again, holds no policy and knows no manifest: what runs where, how often it is tried and what an
//! extension may do is the kernel's business. It never unloads a library.

mod bounds;
pub mod child;
mod ended;
mod faults;
pub mod frame;
pub mod home;
mod inbox;
mod inproc;
mod instance;
mod library;
mod listeners;
mod open;
mod outbox;
pub mod probe;
mod process;
mod shown;
mod table;
mod words;

pub use bounds::Bounds;
pub use drupe_confine::{make_beneath, own_program};
pub use ended::Ended;
pub use faults::Faults;
pub use instance::{Header, Instance};
pub use library::{LibraryError, PluginLibrary};
pub use listeners::Listeners;
pub use open::{Code, HostProcess, OpenError, Place, open};
pub use table::table;
pub use words::{LOG_LINE, PROGRESS, REASON, cut};
