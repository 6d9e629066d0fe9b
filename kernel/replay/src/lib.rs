//! Recorded turns, run once more by the loop that made them.
//!
//! [`replay`] builds the agents of a turn again from what its records keep of them, lets the loop of `drupe-agent` run on the
//! answers of models, the results of tools and the decisions about calls that were recorded, and compares the records that
//! it makes with those that there are. [`compare_with`] lets it run on another model, with what the recording knows of tools.
//!
//! All of it is pure: records come in, a report comes out. It deliberately reads no journal, looks at no clock, and runs no
//! tool that does anything: the only tools of its own are those that change nothing outside a run.

mod against;
mod agents;
mod compare;
mod endings;
mod feed;
mod invocations;
mod models;
mod played;
mod spawned;
mod summaries;
mod tools;

pub use against::{AnsweredFromRecords, Compared, Incomparable, Resolve, compare_with};
pub use compare::Difference;
pub use invocations::{Recording, RootContext};
pub use played::{Replayed, replay};
pub use summaries::BehindTheAnswer;

#[cfg(test)]
mod tests;
