//! The control API of a running kernel.

mod insight;
mod lines;
pub mod methods;
pub mod server;
