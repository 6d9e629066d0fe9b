//! The control API of a running kernel.

pub mod methods;
pub mod server;

mod answers;
mod extensions;
mod insight;
pub mod people;
mod replay;
mod schedules;
pub mod spawned;
pub mod status;
pub mod streams;
pub mod tokens;
mod trial;
pub mod turns;
