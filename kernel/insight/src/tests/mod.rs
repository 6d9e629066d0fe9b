//! Turns that really ran, with faults in them, and what is told of them.

mod door;
mod fakes;
mod faults;
mod others;
mod trees;
