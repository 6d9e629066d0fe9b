//! What the whole daemon may spend, and how much it does at the same time.
//!
//! [`Quotas`] counts tokens, cost and runs of a day, of a session, and of an agent or a named token for a day; [`Gates`] bound how
//! many turns and runs go on at once. Time is an argument, and days are days of UTC.
//!
//! The crate keeps nothing: whoever starts hands it what the journal counted. It knows neither prices nor models,
//! and bounds of a single run belong to the loop.

mod counter;
mod exceeded;
mod gates;
mod limits;
mod purses;
mod quotas;
mod tally;

pub use exceeded::{QuotaExceeded, grouped};
pub use gates::{GatePermit, Gates, Returned, TurnPlace};
pub use limits::{Counted, QuotaLimits, ScopeLimits, TokenLimits};
pub use purses::Purse;
pub use quotas::{Hold, Quotas, Spender, Standing};
