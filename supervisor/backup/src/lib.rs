//! Backups of a home: one file that `tar` opens, and the way back.
//!
//! A backup holds what cannot be made again: the journal and other databases as they are at one moment, the configuration,
//! extensions and what they keep. It is whole and checked under its own name, or it is not there. A restore leaves the home
//! as it was, or as the backup has it, whatever ends it in the middle.
//!
//! It deliberately does not decide when backups are made and which of them are kept: that is the kernel's, which has a
//! process of its own make each one. It asks no daemon anything, so both work whether one runs or not.

mod apart;
mod check;
mod covered;
mod crypt;
mod databases;
mod error;
mod files;
mod journal;
mod make;
mod manifest;
mod restore;
mod swap;

#[cfg(test)]
mod tests;

pub use check::check;
pub use drupe_journal::PutBack;
pub use error::BackupError;
pub use journal::{JournalAlone, journal_alone};
pub use make::{MadeBackup, Order, make};
pub use manifest::{BackupManifest, Omitted};
pub use restore::{Restored, restore};
pub use swap::{complete, is_cut_off};

/// The folder of a home in which its backups are where no other is named.
pub const FOLDER: &str = "backups";
