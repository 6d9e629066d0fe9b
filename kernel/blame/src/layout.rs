//! How the page is laid out: what the kernel writes and, byte for byte, what the supervisor reads.
//!
//! Nothing but integers that are read and written atomically, so that a page that somebody wrote over is wrong, never
//! undefined. A change to any of this needs another [`MAGIC`]: the supervisor may be older than the kernel it starts.

use std::{
    mem::size_of,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64},
};

use crate::operation::Operation;

/// First word of a page of this version.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"drupe\0\0\x01");
/// Extensions that a kernel can name in its life; a reload with new content takes another one.
pub(crate) const ENTRIES: usize = 4096;
/// Longest id of an extension, in bytes.
pub(crate) const ID: usize = 48;
/// Longest content hash, in bytes.
pub(crate) const HASH: usize = 64;
/// Threads that have a slot at the same time: an async runtime's blocking pool alone may have 512.
pub(crate) const SLOTS: usize = 1024;
/// Slots that extensions' own threads may take, so that one with very many leaves some to the kernel's threads.
pub(crate) const OWN_SLOTS: usize = 768;

#[repr(C)]
pub(crate) struct Layout {
    pub magic: AtomicU64,
    pub death: Death,
    pub entries: [Entry; ENTRIES],
    pub slots: [Slot; SLOTS],
}

/// What the first dying thread noted.
#[repr(C)]
pub(crate) struct Death {
    /// [`ALIVE`], [`DYING`] while the rest is written, [`DEAD`].
    pub state: AtomicU32,
    /// The signal's number, or [`EXIT`].
    pub cause: AtomicU32,
    /// The thread's id in the system.
    pub thread: AtomicU32,
    pub _reserved: AtomicU32,
    /// When, by the page's clock.
    pub at: AtomicU64,
    /// The thread's [`Word`] and owner at that time.
    pub word: AtomicU64,
    pub owner: AtomicU64,
}

pub(crate) const ALIVE: u32 = 0;
/// A thread is writing its note.
pub(crate) const DYING: u32 = 1;
pub(crate) const DEAD: u32 = 2;
/// The cause that is no signal.
pub(crate) const EXIT: u32 = 0;

#[repr(C)]
pub(crate) struct Entry {
    /// Length of the id, and of the hash above the lowest byte; written last, 0 until then.
    pub lengths: AtomicU32,
    pub id: [AtomicU8; ID],
    pub hash: [AtomicU8; HASH],
}

/// What a thread runs. A cache line each: threads write theirs all the time.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// [`owner`] of the thread; 0 while the slot is free.
    pub owner: AtomicU64,
    /// A [`Word`].
    pub word: AtomicU64,
}

// A page of another shape must not pass for one of this version.
const _: () = assert!(size_of::<Layout>() == 540_736 && size_of::<Entry>() == 116 && size_of::<Slot>() == 64);

/// Who runs, what, and since when, in one word, so that no reader ever sees half of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Number of the entry, from 1; 0 is nobody.
    pub who: u16,
    pub operation: Operation,
    /// Milliseconds by the page's clock; 40 bits of them last for 34 years of uptime.
    pub since: u64,
}

impl Word {
    pub fn pack(self) -> u64 {
        self.since << 24 | u64::from(self.who) << 8 | u64::from(self.operation as u8)
    }

    pub fn unpack(word: u64) -> Self {
        let [operation, who_low, who_high, ..] = word.to_le_bytes();
        Self {
            who: u16::from_le_bytes([who_low, who_high]),
            operation: Operation::from_code(operation),
            since: word >> 24,
        }
    }
}

/// The owner of a thread: its id in the system and, above that, the extension that it belongs to, if any.
pub(crate) fn owner(thread: u32, who: u16) -> u64 {
    u64::from(who) << 32 | u64::from(thread)
}

/// The two parts of [`owner`].
pub(crate) fn owner_parts(owner: u64) -> (u32, u16) {
    let [a, b, c, d, low, high, ..] = owner.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([low, high]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_word_keeps_what_it_was_given(who: u16, at in 0..Operation::ALL.len(), since in 0..1u64 << 40) {
            let word = Word { who, operation: Operation::ALL[at], since };
            prop_assert_eq!(Word::unpack(word.pack()), word);
        }

        #[test]
        fn an_owner_keeps_what_it_was_given(thread: u32, who: u16) {
            prop_assert_eq!(owner_parts(owner(thread, who)), (thread, who));
        }
    }
}
