//! The loop as a whole, through one door: [`Case::run`] runs a turn and asserts what holds for every turn.

mod abandoned;
mod ancestry;
mod approvals;
mod attempts;
mod budget;
mod calls;
mod checkpoints;
mod client_tools;
mod condition;
mod context;
mod door;
mod embedding;
mod endings;
mod events;
mod fakes;
mod hooks;
mod left;
mod limits;
mod outputs;
mod pictures;
mod previews;
mod prices;
mod projection;
mod recipes;
mod resume;
mod search;
mod steering;
mod stress;
mod tree;
mod unsent;
mod usage;

use checkpoints::kept;
use door::*;
use fakes::*;
use resume::same_after_any_cut;
