//! The control API of a running kernel.

mod insight;
pub mod methods;
pub mod server;
