//! Handles: what lasts longer than one call between an extension and the kernel.
//!
//! An extension opens something (a topic, a method of the control API that streams, a program) and gets the number of a
//! handle. Behind each handle stands a [`Source`], from which it pulls, or a [`Sink`], into which it puts. [`Handles`]
//! keeps them by the instance that opened them and ends them with it. The crate spawns nothing, and knows neither what
//! flows nor who may open what: both are decided where a handle is opened.

mod stream;
mod table;
mod until;

pub use stream::{Credit, Given, Item, Sink, Source};
pub use table::{Handles, Holder, MOST};
pub use until::Until;

#[cfg(test)]
mod tests;
