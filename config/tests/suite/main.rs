//! The crate through its public door: golden cases, layers, hostile input, and the generated schemas.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod agent_files;
mod files;
mod golden;
mod home;
mod hostile;
mod manifests;
mod models;
mod reference;
mod schemas;
mod settings;
mod trust;
