//! What happened, and why: traces and explanations made from rows of the journal.
//!
//! [`trace`] gives a turn as a tree; the functions whose names begin with `why_` give sentences for operators, each
//! of which rests on rows that it names. All are pure: they get rows, and the time where it matters, and give
//! facts. They deliberately read nothing, draw nothing, and say nothing that no row holds.
//!
//! They work for turns that wait, run, were cut off, went on after a restart, or ended before anything ran.

mod limit;
mod nth;
mod told;
mod trace;
mod tree;
mod why;
mod words;

#[cfg(test)]
mod tests;

pub use nth::nth;
pub use trace::trace;
pub use why::{
    LimitUse, taken_in_by, why_call, why_extension, why_limit, why_message, why_run, why_session, why_turn,
    with_taker,
};
