//! Takes secrets out of what is shown: as they are, encoded, and in part.
//!
//! Providers repeat keys in their errors, gateways do so in forms of their own, and both cut what they say off in the
//! middle of one. So a text is read in every way in which somebody may have written it, one within another, and no run of
//! a secret that is long enough to be of use is left, wherever it stands.

mod decode;

mod digits;

use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
};

/// What is shown in a secret's place.
const MASK: &str = "[key]";
/// A shorter key or header, such as the `none` of a server that wants no key, is no secret, and taking it out of
/// messages would make them unreadable.
const SHORTEST_SECRET: usize = 8;
/// A run of a secret that is shorter than this may stay. Vendors show as much of a key to tell it from others.
const SHORTEST_RUN: usize = 12;
/// An encoding within an encoding is looked through, and no more than so many.
const LAYERS: usize = 4;
/// Bytes that are looked at for each byte of a text, in all layers together. What nobody has time for is not shown.
const WORK: usize = 128;
/// The same for a short text.
const LEAST_WORK: usize = 256 << 10;

/// Secrets, in the forms that they are looked for in.
#[derive(Default)]
pub(super) struct Mask {
    forms: Vec<Form>,
    /// Those of secrets that are looked for in letters and digits alone.
    bare: Vec<Form>,
}

/// All runs of one length of secrets, in small letters.
struct Form {
    length: usize,
    runs: HashSet<Box<[u8]>>,
    /// Which two bytes a run may begin with: most places of a text are passed over by them.
    starts: Box<[u64; 1024]>,
}

/// A byte of a text or of what was read from it, with the part of the text that it stands for.
type Read = (u8, u32, u32);

fn start(run: &[u8]) -> (usize, u64) {
    let two = usize::from(run[0]) << 8 | usize::from(run[1]);
    (two >> 6, 1 << (two & 63))
}

fn add(forms: &mut Vec<Form>, secret: &[u8]) {
    let length = secret.len().min(SHORTEST_RUN);
    if length < SHORTEST_SECRET {
        return;
    }
    let at = forms.iter().position(|form| form.length == length).unwrap_or_else(|| {
        forms.push(Form { length, runs: HashSet::new(), starts: Box::new([0; 1024]) });
        forms.len() - 1
    });
    for run in secret.windows(length) {
        let (word, bit) = start(run);
        forms[at].starts[word] |= bit;
        forms[at].runs.insert(run.into());
    }
}

fn bare(bytes: &[Read]) -> Vec<Read> {
    bytes.iter().filter(|(byte, ..)| byte.is_ascii_alphanumeric()).copied().collect()
}

impl Mask {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let mut mask = Self::default();
        for secret in secrets.filter(|secret| secret.len() >= SHORTEST_SECRET) {
            let small = secret.to_ascii_lowercase().into_bytes();
            // Words of a language stand in many texts, with other signs between them.
            if small.iter().any(u8::is_ascii_digit) {
                let bare: Vec<u8> =
                    small.iter().filter(|byte| byte.is_ascii_alphanumeric()).copied().collect();
                add(&mut mask.bare, &bare);
            }
            add(&mut mask.forms, &small);
        }
        mask
    }

    /// The text without what is secret in it.
    pub(super) fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.forms.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut hidden = vec![false; text.len()];
        if !self.look(text, &mut hidden) {
            return Cow::Borrowed("(what it said is not shown: it could not be looked through for keys)");
        }
        if !hidden.contains(&true) {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        let mut masked = false;
        for (at, c) in text.char_indices() {
            let hide = hidden[at..at + c.len_utf8()].contains(&true);
            match (hide, masked) {
                (true, false) => shown.push_str(MASK),
                (true, true) => {}
                (false, _) => shown.push(c),
            }
            masked = hide;
        }
        Cow::Owned(shown)
    }

    /// Marks what is secret; false where there was too much to look at. The nearest layers come first.
    fn look(&self, text: &str, hidden: &mut [bool]) -> bool {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let whole = text.bytes().enumerate().map(|(at, byte)| (byte, place(at), place(at + 1))).collect();
        let mut left = text.len().saturating_mul(WORK).max(LEAST_WORK);
        let mut waiting: VecDeque<(Vec<Read>, usize)> = VecDeque::from([(whole, 0)]);
        while let Some((bytes, layer)) = waiting.pop_front() {
            let Some(rest) = left.checked_sub(bytes.len()) else { return false };
            left = rest;
            hide(&self.forms, &bytes, hidden);
            if !self.bare.is_empty() {
                hide(&self.bare, &bare(&bytes), hidden);
            }
            if layer == LAYERS {
                continue;
            }
            let mut found = Vec::new();
            let parts = if layer == 0 { vec![&bytes[..]] } else { decode::texts(&bytes) };
            for part in parts {
                found.extend(decode::escapes(part));
                digits::read(part, &mut found);
            }
            waiting.extend(found.into_iter().map(|found| (found, layer + 1)));
        }
        true
    }
}

fn hide(forms: &[Form], bytes: &[Read], hidden: &mut [bool]) {
    let plain: Vec<u8> = bytes.iter().map(|(byte, ..)| byte.to_ascii_lowercase()).collect();
    for form in forms {
        let runs = plain.windows(form.length).enumerate().filter(|(_, run)| {
            let (word, bit) = start(run);
            form.starts[word] & bit != 0 && form.runs.contains(*run)
        });
        for (at, _) in runs {
            // With what stands between its parts.
            let (from, to) = (bytes[at].1, bytes[at + form.length - 1].2);
            hidden[from as usize..to as usize].fill(true);
        }
    }
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
