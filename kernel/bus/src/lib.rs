//! The bus: what happens, to those who follow it.
//!
//! [`Bus`] tells those who are there now: watchers of a session get its events, live subscribers of a topic its
//! messages. Nothing of that is kept, and what nobody follows costs nothing. [`Deliveries`] brings the messages of
//! durable topics, which wait as rows in the journal, to their subscribers at least once and in order: to agents through
//! a [`Receiver`], to extensions through a [`Pull`]. What is pulled is a [`Source`](drupe_handles::Source). [`admit`] and [`extend`] see to it that what sets each other off
//! ends.
//!
//! The crate spawns nothing and keeps no rows of its own. It deliberately does not know what a message means, which
//! turns it sets off, or who may publish what.

mod backoff;
mod chain;
pub mod days;
mod deliveries;
mod events;
mod given;
mod lanes;
mod live;
mod outcome;
mod pull;
mod queue;
mod remark;
mod ring;
mod subscriber;
mod subscription;

#[cfg(test)]
mod tests;

pub use chain::{Cut, admit, count_link, extend};
pub use deliveries::{Delivered, Deliveries, Receiver};
pub use events::{Events, Kept};
pub use live::{Bus, Watch, Watched};
pub use pull::Pull;
pub use queue::Queue;
pub use remark::{GaveUp, Remark};
pub use subscriber::Subscriber;
pub use subscription::Subscription;
