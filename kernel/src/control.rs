//! The control API of a running kernel.

pub mod methods;
pub mod server;

mod extensions;
mod insight;
pub mod status;
pub mod streams;
pub mod tokens;
pub mod turns;
