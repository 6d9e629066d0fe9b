//! What happened, as rows: SQLite behind the loop's [`Journal`](drupe_agent::Journal), and all that a kernel
//! must still know after it was killed.
//!
//! A [`Store`] takes messages in, records the steps of their turns, hands answers over to delivery, and answers
//! every question about the past: sessions, results, transcripts, events. What it says is done is done: an
//! answer comes after the commit, and events are published after it, too.
//!
//! It deliberately does not decide what to do with what it finds. Which turn runs next, whether an old message
//! is still answered, when a delivery is tried again: that is the kernel's business. It opens one file and
//! starts two threads; it knows no configuration.
//!
//! # Durability
//!
//! Everything survives the death of the process. What was promised to the outside survives a power loss as well:
//! accepted messages, the intent to run a tool that must not run twice, finished turns, deliveries, and what the
//! operator set or agreed to. One connection writes, and one transaction at a time has it. What waits for the disk goes to
//! a thread, which commits whatever has come in meanwhile as one transaction, so that many sessions share one wait. What
//! need not wait is put beside the connection, and committed together by the first of those who put something there:
//! waking a thread costs more than such a commit.

mod activations;
mod ahead;
mod archive;
mod backup;
mod beginning;
mod broken;
mod bus;
mod cache;
mod checkpoints;
mod conversation;
mod deletion;
mod deliveries;
pub mod disk;
mod error;
mod events;
pub mod examine;
mod extensions;
mod find;
mod grants;
mod growth;
mod images;
mod intake;
mod log;
mod open;
mod opening;
mod origin;
mod outbox;
mod parts;
mod people;
mod proof;
mod questions;
mod ratios;
mod reader;
mod recent;
mod recipes;
mod records;
mod restarts;
mod results;
mod retention;
mod rows;
mod schedules;
pub mod schema;
mod sessions;
mod shared;
mod state;
mod store;
mod tokens;
mod transcript;
mod turns;
mod types;
mod upgrade;
mod usage;
mod whole;
mod writer;

#[cfg(test)]
mod tests;

pub use archive::{archive_file, remove_archive};
pub use backup::{PutBack, check, copy, put_back, version_in};
pub use beginning::Beginning;
pub use bus::{MOST_WAITING, is_due};
pub use checkpoints::Resumed;
pub use conversation::{Summary, SummedUp, ToldTurn, ToldTurns};
pub use error::StoreError;
pub use extensions::{Decisions, decisions};
pub use grants::SessionStanding;
pub use open::{Storage, set_aside};
pub use opening::{Opening, Stage};
pub use origin::{Inbound, Origin, UnknownOrigin};
pub use outbox::{Delivery, DeliveryId, FILE_KEY, FileMessage, FileOnTheWay, Outbound, Sent, told_of};
pub use people::Asked;
pub use questions::{Says, Settled};
pub use retention::{Gone, LetGo, Retention};
pub use schedules::{RunEnded, ScheduleRow, SlotEntry};
pub use state::SessionState;
pub use store::{Publish, Store};
pub use types::{
    Accepted, Counted, Counts, DeliveryRow, DueMessage, Found, MessageRow, Published, QueuedTurn, RestartRow,
    RestartVerdict, TurnDone, TurnRows, TurnStart,
};
pub use upgrade::{KeptJournal, Upgraded, kept_beside, shell_word, way_back};
