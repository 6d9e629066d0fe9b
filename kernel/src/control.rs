//! The control API of a running kernel.

mod insight;
mod lines;
pub mod methods;
mod places;
pub mod server;
