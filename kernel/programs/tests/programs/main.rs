//! Real programs, confined.

#![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

mod home;
mod reach;
mod streams;
mod terminals;
