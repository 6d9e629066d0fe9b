//! What a day, a session and an agent may spend.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod properties;
mod purses;
mod quotas;
mod standing;
