//! Turns that really ran, with faults in them, and what is told of them.

mod approvals;
mod attempts;
mod door;
mod fakes;
mod faults;
mod others;
mod trees;
