//! Real programs, confined.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

#[path = "../../../../tests/harness/copied.rs"]
mod copied;
mod home;
mod reach;
mod streams;
mod terminals;
