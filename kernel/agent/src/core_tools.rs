//! The tools that the loop itself brings. They are tools like all others; whoever builds a registry adds them.

pub mod read_output;
pub mod refuse;
