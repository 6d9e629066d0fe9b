//! Decisions about extensions without effects: what one is and what keeps it out, what it brings that the operator must agree
//! to, which comes before which, how its life goes on after what happened, and how often it may ask for something. Whoever
//! carries them out is the kernel; a check without a daemon asks the same functions what it would come to.

pub mod beginning;
pub mod check;
pub mod forecast;
pub mod order;
pub mod pace;
pub mod printable;
pub mod state;
pub mod survey;
