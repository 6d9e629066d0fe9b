//! What the kernel's doors to people and programs are made of: requests and replies as lines of JSON, who has a place at the
//! control socket, who waits for the end of a turn, to which channels something is being sent, and whether and why the
//! kernel is to end. It deliberately does not know what a request asks for, or that there is a kernel.

pub mod ending;
pub mod ends;
pub mod lanes;
pub mod lines;
pub mod places;
