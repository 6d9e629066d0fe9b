//! What an author of an extension writes against, compiled *into* each extension.
//!
//! An extension is a type that implements [`Extension`], one trait for each thing it can do, and one
//! [`export!`](macro@crate::export) that names them:
//!
//! ```standalone_crate
//! //! Counts words. Provides tool `words_count`; needs nothing.
//! use drupe_extension_api::prelude::*;
//!
//! struct Words;
//!
//! impl Extension for Words {
//!     async fn initialize(_host: Host) -> Result<Self, Fault> {
//!         Ok(Words)
//!     }
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Count {
//!     /// The text to count.
//!     text: String,
//! }
//!
//! impl ToolProvider for Words {
//!     fn tools(&self) -> Vec<Tool<Self>> {
//!         vec![Tool::new("words_count", "Counts the words of a text.", Words::count).read_only()]
//!     }
//! }
//!
//! impl Words {
//!     async fn count(&self, input: Count, _call: Call) -> Result<usize, Fault> {
//!         Ok(input.text.split_whitespace().count())
//!     }
//! }
//!
//! export!(Words: Tool);
//! # fn main() {}
//! ```
//!
//! The author sees plain async traits. What is between them and the kernel (two tables, bytes, tokens) is
//! private here, and every way in is guarded: a panic in an extension's code, before or after an await, in a
//! spawned task or while a cancelled call is dropped, becomes a [`Fault`](crate::Fault) and a line in the log.
//! Two things cannot be guarded: a panic while another one unwinds, and code that never returns.
//!
//! Nothing here talks to the network, reads the process environment, or keeps state outside an instance.

#[cfg(all(panic = "abort", not(doc)))]
compile_error!("an extension must be built with panic = \"unwind\": its panics would end the kernel");

mod ability;
mod adapter;
mod blocking;
mod call;
#[doc(hidden)]
pub mod export;
mod extension;
pub(crate) mod guard;
mod handle;
mod host;
mod initialize;
mod items;
mod listener;
mod operations;
mod process;
#[cfg(feature = "runtime")]
mod runtime;
mod shared;
mod signal;
mod tool;
mod turn;

#[cfg(all(test, feature = "runtime", feature = "testing"))]
mod tests;

pub use ability::{Abilities, Exported};
pub use call::{Call, InvokeAgentCall, RunAgentCall};
pub use extension::{
    AgentProvider, Channel, ContextProvider, Extension, Hook, Scheduler, Service, ToolProvider,
};
pub use host::{Host, Level};
pub use items::{Items, Subscription};
pub use process::{ByteReader, ByteWriter, Process};
pub use signal::Shutdown;
pub use tool::{LookupFn, NoInput, Tool, ToolFn};
pub use turn::Turn;
