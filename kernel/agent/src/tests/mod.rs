//! The loop as a whole, through one door: [`Case::run`] runs a turn and asserts what holds for every turn.

mod calls;
mod door;
mod fakes;
mod limits;
mod outputs;
mod resume;
mod tree;

use door::*;
use fakes::*;
