//! What the kernel's doors to people and programs are made of: the control socket, with its requests and replies as lines of
//! JSON and the places at it, what becomes of work that panics, who waits for the end of a turn, how long turns and what they are made of take, to which channels something
//! is being sent, and whether and why the kernel is to end. It deliberately does not know what a request asks for, or that
//! there is a kernel.

pub mod door;
pub mod ending;
pub mod ends;
pub mod grants;
pub mod lanes;
pub mod latencies;
pub mod lines;
pub mod panics;
pub mod places;
pub mod principal;
