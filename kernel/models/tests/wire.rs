//! All APIs over real sockets: a server of ours speaks each of them, and misbehaves in every way that we know.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "wire/budgets.rs"]
mod budgets;
#[path = "wire/connection.rs"]
mod connection;
#[path = "wire/door.rs"]
mod door;
#[path = "wire/embedding.rs"]
mod embedding;
#[path = "wire/endings.rs"]
mod endings;
#[path = "wire/faults.rs"]
mod faults;
#[path = "wire/fixtures.rs"]
mod fixtures;
#[path = "wire/halves.rs"]
mod halves;
#[path = "wire/oversized.rs"]
mod oversized;
#[path = "wire/preferred.rs"]
mod preferred;
#[path = "wire/rest.rs"]
mod rest;
#[path = "wire/script.rs"]
mod script;
#[path = "wire/server.rs"]
mod server;
#[path = "wire/whole.rs"]
mod whole;
