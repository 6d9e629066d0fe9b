//! Language models behind the loop's [`Model`](drupe_agent::Model) trait.
//!
//! A [`Models`] is made once from plain settings and turns names (`provider/model`, an alias, a bare name that the
//! catalogue knows, `scripted:file`, `offline`) into models that retry, fall back and rest what keeps failing:
//!
//! - `wire`: one request over HTTP, and what all APIs have in common;
//! - `chat`, `responses`, `messages`, `gemini`: Chat Completions, OpenAI's Responses, Anthropic's Messages and
//!   Google's Gemini API, each with no more than its own request and events;
//! - [`offline`]: rules and word matching, for when there is no provider;
//! - [`scripted`]: answers from a file, for tests;
//! - `retry`: what is done about failures, the same for all of them.
//!
//! This crate deliberately knows neither configuration files nor the process environment: whoever reads those
//! fills in [`ModelsSettings`]. It never runs a tool, and no tool call leaves it before the answer that holds the
//! call is whole.

pub mod settings;

mod error;

mod ageing;

mod listed;
mod preferred;
mod redacted;
mod resolve;
mod source;

mod retry;

mod alarm;
mod breaker;

mod gate;

mod wire;

mod chat;
mod gemini;
mod messages;
mod responses;

pub mod offline;
pub mod scripted;

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "samples_tests.rs"]
mod samples;

pub use error::{ModelsError, Unsupported, Unusable};
pub use resolve::{Figure, FigureOrigin, Lists, Models, NamedBy, Resolved, Target, is_offline, names_script};
pub use settings::{
    CatalogueEntry, Efforts, Endpoint, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings,
    Thinking,
};
pub use wire::ListedModel;
