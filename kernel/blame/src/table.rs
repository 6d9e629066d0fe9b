//! The extensions that slots refer to by number.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU8, Ordering},
};

use crate::{
    install::page,
    layout::{ENTRIES, HASH, ID},
};

/// An extension in the page's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who(u16);

impl Who {
    /// The kernel's own code.
    pub const NOBODY: Who = Who(0);

    /// As slots hold it: 0 for nobody.
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

/// The pairs of id and hash in the order of the page's table.
static NAMES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Puts an extension with this content hash into the table; the same pair is the same [`Who`].
///
/// [`Who::NOBODY`] if nothing is installed, if the table's 4096 entries are used up, or if a name does not fit: an id of
/// 1 to 48 bytes, a hash of up to 64.
pub fn register(extension: &str, hash: &str) -> Who {
    let Some(page) = page() else { return Who::NOBODY };
    let (Some(id_length), Some(hash_length)) = (length(extension, ID), length(hash, HASH)) else {
        return Who::NOBODY;
    };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = names.iter().position(|(id, content)| id == extension && content == hash);
    let at = known.unwrap_or(names.len());
    let Some(number) = u16::try_from(at + 1).ok().filter(|_| !extension.is_empty() && at < ENTRIES) else {
        return Who::NOBODY;
    };
    if known.is_none() {
        let entry = &page.entries[at];
        copy(extension, &entry.id);
        copy(hash, &entry.hash);
        let lengths = u32::from_le_bytes([id_length, hash_length, 0, 0]);
        entry.lengths.store(lengths, Ordering::Release);
        names.push((extension.to_owned(), hash.to_owned()));
    }
    Who(number)
}

/// Id and hash of the extension with this number.
pub(crate) fn names(number: u16) -> Option<(String, String)> {
    let at = usize::from(number).checked_sub(1)?;
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(at).cloned()
}

fn length(text: &str, most: usize) -> Option<u8> {
    u8::try_from(text.len()).ok().filter(|_| text.len() <= most)
}

fn copy(text: &str, place: &[AtomicU8]) {
    for (byte, place) in text.bytes().zip(place) {
        place.store(byte, Ordering::Relaxed);
    }
}
