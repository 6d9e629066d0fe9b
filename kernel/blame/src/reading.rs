//! What a page tells, decoded from its bytes without trust in any of them.

use std::{
    mem::{offset_of, size_of},
    time::Duration,
};

use crate::{
    layout::{DEAD, Death, ENTRIES, EXIT, Entry, HASH, ID, Layout, MAGIC, SLOTS, Slot, Word, owner_parts},
    operation::Operation,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The note of the thread that died first; none if the process was killed from outside or ended in order.
    pub last: Option<Last>,
    /// Whose code all other threads were in.
    pub running: Vec<Running>,
}

/// What the dying thread noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub cause: Cause,
    /// Whose code it was in; `None` for the kernel's own.
    pub running: Option<Running>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Signal(i32),
    /// Somebody called `exit`, or `main` returned.
    Exit,
}

/// An extension's code on a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    pub extension: String,
    /// The content hash under which it was registered.
    pub hash: String,
    /// What it was asked to do.
    pub operation: Operation,
    /// For how long it had been doing so when the process died, or, if nobody noted that, when the page was read; to
    /// about 10 ms.
    pub since: Duration,
    /// Whether the thread is one that this extension started.
    pub own_thread: bool,
}

/// Reads the bytes of a page at the time `now` of the page's clock.
pub(crate) fn decode(page: &[u8], now: u64) -> Reading {
    let page = Bytes(page);
    if page.long(offset_of!(Layout, magic)) != Some(MAGIC) {
        return Reading::default();
    }
    let note = page.note();
    let now = note.as_ref().map_or(now, |note| note.at.min(now));
    let dead = note.as_ref().map(|note| note.thread);
    let running = (0..SLOTS)
        .filter_map(|at| page.slot(at))
        .filter(|(owner, _)| *owner != 0 && Some(owner_parts(*owner).0) != dead)
        .filter_map(|(owner, word)| page.running(owner, word, now))
        .collect();
    let last = note.map(|note| Last { cause: note.cause, running: page.running(note.owner, note.word, now) });
    Reading { last, running }
}

/// A complete [`Death`].
struct Note {
    cause: Cause,
    thread: u32,
    at: u64,
    word: u64,
    owner: u64,
}

/// A page's bytes; whatever lies outside of them is not there.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    fn int(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_ne_bytes)
    }

    fn long(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_ne_bytes)
    }

    fn note(&self) -> Option<Note> {
        let at = offset_of!(Layout, death);
        if self.int(at + offset_of!(Death, state))? != DEAD {
            return None;
        }
        let cause = match self.int(at + offset_of!(Death, cause))? {
            EXIT => Cause::Exit,
            signal => Cause::Signal(i32::try_from(signal).ok()?),
        };
        Some(Note {
            cause,
            thread: self.int(at + offset_of!(Death, thread))?,
            at: self.long(at + offset_of!(Death, at))?,
            word: self.long(at + offset_of!(Death, word))?,
            owner: self.long(at + offset_of!(Death, owner))?,
        })
    }

    /// Owner and word of a slot.
    fn slot(&self, number: usize) -> Option<(u64, u64)> {
        let at = offset_of!(Layout, slots) + number * size_of::<Slot>();
        Some((self.long(at + offset_of!(Slot, owner))?, self.long(at + offset_of!(Slot, word))?))
    }

    fn running(&self, owner: u64, word: u64, now: u64) -> Option<Running> {
        let word = Word::unpack(word);
        let (extension, hash) = self.entry(word.who)?;
        Some(Running {
            extension,
            hash,
            operation: word.operation,
            since: Duration::from_millis(now.saturating_sub(word.since)),
            own_thread: owner_parts(owner).1 == word.who,
        })
    }

    fn entry(&self, who: u16) -> Option<(String, String)> {
        let number = usize::from(who).checked_sub(1).filter(|number| *number < ENTRIES)?;
        let at = offset_of!(Layout, entries) + number * size_of::<Entry>();
        let [id, hash, ..] = self.int(at + offset_of!(Entry, lengths))?.to_le_bytes();
        let id = self.text(at + offset_of!(Entry, id), id, ID)?;
        let hash = self.text(at + offset_of!(Entry, hash), hash, HASH)?;
        (!id.is_empty()).then_some((id, hash))
    }

    /// Text that may be shown: a page that was written over must not put control characters into a terminal.
    fn text(&self, at: usize, length: u8, most: usize) -> Option<String> {
        let length = Some(usize::from(length)).filter(|length| *length <= most)?;
        let text = std::str::from_utf8(self.0.get(at..at + length)?).ok()?;
        (!text.chars().any(char::is_control)).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        layout::{ALIVE, DYING, owner},
        page::SIZE,
    };

    const NOW: u64 = 100_000;
    const DEATH: usize = offset_of!(Layout, death);

    fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn entry(number: usize) -> usize {
        offset_of!(Layout, entries) + number * size_of::<Entry>()
    }

    fn slot(number: usize) -> usize {
        offset_of!(Layout, slots) + number * size_of::<Slot>()
    }

    fn word(who: u16, since: u64) -> [u8; 8] {
        Word { who, operation: Operation::ToolCall, since }.pack().to_ne_bytes()
    }

    /// A page on which the extension `kv` ran on thread 7, since 2 s before [`NOW`], and thread 9 was its own.
    fn page() -> Vec<u8> {
        let mut page = vec![0; SIZE];
        put(&mut page, 0, &MAGIC.to_ne_bytes());
        put(&mut page, entry(0), &u32::from_le_bytes([2, 3, 0, 0]).to_ne_bytes());
        put(&mut page, entry(0) + offset_of!(Entry, id), b"kv");
        put(&mut page, entry(0) + offset_of!(Entry, hash), b"abc");
        for (number, owner) in [(5, owner(7, 0)), (6, owner(9, 1))] {
            put(&mut page, slot(number) + offset_of!(Slot, owner), &owner.to_ne_bytes());
            put(&mut page, slot(number) + offset_of!(Slot, word), &word(1, NOW - 2000));
        }
        page
    }

    /// The same page after thread 7 died, 1.5 s before [`NOW`].
    fn after_death() -> Vec<u8> {
        let mut page = page();
        for (at, value) in
            [(offset_of!(Death, state), DEAD), (offset_of!(Death, cause), 11), (offset_of!(Death, thread), 7)]
        {
            put(&mut page, DEATH + at, &value.to_ne_bytes());
        }
        put(&mut page, DEATH + offset_of!(Death, at), &(NOW - 1500).to_ne_bytes());
        put(&mut page, DEATH + offset_of!(Death, word), &word(1, NOW - 2000));
        put(&mut page, DEATH + offset_of!(Death, owner), &owner(7, 0).to_ne_bytes());
        page
    }

    fn kv(since: u64, own_thread: bool) -> Running {
        Running {
            extension: "kv".into(),
            hash: "abc".into(),
            operation: Operation::ToolCall,
            since: Duration::from_millis(since),
            own_thread,
        }
    }

    #[test]
    fn without_a_death_time_runs_until_the_page_is_read() {
        let expected = Reading { last: None, running: vec![kv(2000, false), kv(2000, true)] };
        assert_eq!(decode(&page(), NOW), expected);
    }

    #[test]
    fn time_ends_at_a_death_and_the_dead_thread_is_told_once() {
        let last = Last { cause: Cause::Signal(11), running: Some(kv(500, false)) };
        let expected = Reading { last: Some(last), running: vec![kv(500, true)] };
        assert_eq!(decode(&after_death(), NOW), expected);
    }

    #[test]
    fn a_note_that_is_not_complete_is_none() {
        for state in [ALIVE, DYING, DEAD + 1] {
            let mut page = after_death();
            put(&mut page, DEATH + offset_of!(Death, state), &state.to_ne_bytes());
            assert_eq!(decode(&page, NOW).last, None, "{state}");
        }
    }

    #[test]
    fn a_page_of_another_version_is_empty() {
        let mut page = after_death();
        put(&mut page, 0, &(MAGIC ^ 1 << 56).to_ne_bytes());
        assert_eq!(decode(&page, NOW), Reading::default());
    }

    #[test]
    fn an_extension_that_makes_no_sense_is_skipped() {
        let lengths = |id, hash| u32::from_le_bytes([id, hash, 0, 0]).to_ne_bytes().to_vec();
        for (at, bytes) in [
            (0, lengths(0, 3)),
            (0, lengths(49, 3)),
            (0, lengths(2, 65)),
            (offset_of!(Entry, id), vec![0xff, 0xfe]),
            (offset_of!(Entry, id), b"\x1b[".to_vec()),
            (offset_of!(Entry, hash), b"a\nb".to_vec()),
        ] {
            let mut page = page();
            // Letters behind what is in use, so that a length that is too great finds text.
            put(&mut page, entry(0) + offset_of!(Entry, id) + 2, &[b'x'; 46]);
            put(&mut page, entry(0) + offset_of!(Entry, hash) + 3, &[b'x'; 120]);
            put(&mut page, entry(0) + at, &bytes);
            assert_eq!(decode(&page, NOW).running, [], "{at} {bytes:?}");
        }
    }

    #[test]
    fn a_slot_that_names_no_entry_is_skipped() {
        let mut page = page();
        // What would be an entry if there were one more.
        page.copy_within(entry(0)..entry(0) + 64, entry(ENTRIES));
        for who in [0, 2, 4097, u16::MAX] {
            put(&mut page, slot(5) + offset_of!(Slot, owner), &owner(7, 0).to_ne_bytes());
            put(&mut page, slot(5) + offset_of!(Slot, word), &word(who, 0));
            assert_eq!(decode(&page, NOW).running, [kv(2000, true)], "{who}");
        }
    }

    #[test]
    fn a_time_that_has_not_come_yet_is_now() {
        let mut page = after_death();
        put(&mut page, DEATH + offset_of!(Death, at), &u64::MAX.to_ne_bytes());
        put(&mut page, slot(6) + offset_of!(Slot, word), &word(1, NOW + 5));
        let reading = decode(&page, NOW);
        assert_eq!(reading.last.and_then(|last| last.running), Some(kv(2000, false)));
        assert_eq!(reading.running, [kv(0, true)]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics_and_names_only_what_is_there(
            scribbles in vec((0..SIZE, vec(any::<u8>(), 1..200)), 0..20),
            near in vec((0..400_usize, any::<u64>()), 0..20),
            slots in vec((0..SLOTS, any::<u64>(), any::<u64>()), 0..20),
            length in prop_oneof![Just(SIZE), 0..SIZE],
            now: u64,
        ) {
            let mut page = after_death();
            for (at, bytes) in scribbles {
                let end = SIZE.min(at + bytes.len());
                page[at..end].copy_from_slice(&bytes[..end - at]);
            }
            for (at, value) in near {
                put(&mut page, at + size_of::<u64>(), &value.to_ne_bytes());
            }
            for (number, owner, word) in slots {
                put(&mut page, slot(number), &owner.to_ne_bytes());
                put(&mut page, slot(number) + offset_of!(Slot, word), &word.to_ne_bytes());
            }
            put(&mut page, 0, &MAGIC.to_ne_bytes());
            let reading = decode(&page[..length], now);
            let all = reading.running.iter().chain(reading.last.iter().filter_map(|l| l.running.as_ref()));
            for running in all {
                prop_assert!((1..=ID).contains(&running.extension.len()) && running.hash.len() <= HASH);
                prop_assert!(!running.extension.chars().chain(running.hash.chars()).any(char::is_control));
            }
        }

        #[test]
        fn nothing_but_garbage_never_panics(bytes in vec(any::<u8>(), 0..4096), now: u64) {
            decode(&bytes, now);
        }
    }
}
