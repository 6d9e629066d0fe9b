//! Decisions about extensions as pure functions: what one brings that the operator must agree to, how its life goes on after
//! what happened, and how often it may ask for something. Whoever carries them out is the kernel.

pub mod check;
pub mod pace;
pub mod state;
