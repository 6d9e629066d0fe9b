//! Language models behind the loop's [`Model`](drupe_agent::Model) trait.
//!
//! A [`Models`] is made once from plain settings and turns names (`provider/model`, an alias, a bare name that the
//! catalogue knows, `scripted:file`, `offline`) into models that retry, fall back and rest a failing provider:
//!
//! - `chat`: providers that speak Chat Completions over HTTP;
//! - [`offline`]: rules and word matching, for when there is no provider;
//! - [`scripted`]: answers from a file, for tests;
//! - `retry`: what is done about failures, the same for all of them.
//!
//! This crate deliberately knows neither configuration files nor the process environment: whoever reads those
//! fills in [`ModelsSettings`]. It never runs a tool, and no tool call leaves it before the answer that holds the
//! call is whole.

pub mod settings;

mod error;

mod resolve;
mod source;

mod retry;

mod breaker;

mod chat;
pub mod offline;
pub mod scripted;

pub use error::ModelsError;
pub use resolve::{Models, Resolved};
pub use settings::{CatalogueEntry, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings};
