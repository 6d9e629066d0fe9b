//! The control API of a running kernel.

pub mod methods;
pub mod server;
