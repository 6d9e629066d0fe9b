//! When jobs are due, and what becomes of times at which nobody was there to do them.
//!
//! Pure: nothing here reads a clock or keeps anything. A *slot* is one instant at which a job is due. Slots of a job are
//! settled in their order: each is done or missed, and none is looked at again, whatever the clock does.

mod slots;
mod timing;

pub use slots::{Misfire, MisfirePolicy, MissedSlots, ON_TIME, SlotPlan, plan};
pub use timing::{Timing, UnfitTiming};
