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
pub const MASK: &str = "[secret]";
/// A shorter key or header, such as the `none` of a server that wants no key, is no secret, and taking it out of
/// messages would make them unreadable.
pub const SHORTEST_SECRET: usize = 8;
/// A run of a secret that is shorter than this may stay. Vendors show as much of a key to tell it from others.
pub const SHORTEST_RUN: usize = 12;
/// An encoding within an encoding is looked through, and no more than so many.
const LAYERS: usize = 4;
/// Bytes that are looked at for each byte of a text, in all layers together. What nobody has time for is not shown.
const WORK: usize = 128;
/// The same for a short text.
const LEAST_WORK: usize = 256 << 10;

/// A long text is looked through in parts, for what is read out of one takes a hundred times its room. Each begins with the end of
/// the one before, which is longer than a run of a secret in any encoding.
const WINDOW: usize = 64 << 10;
const OVERLAP: usize = 4 << 10;

/// Secrets, in the forms that they are looked for in. Of each runs are known and not the whole.
#[derive(Default)]
pub struct Mask {
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

fn plain(text: &str) -> Vec<Read> {
    let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    text.bytes().enumerate().map(|(at, byte)| (byte, place(at), place(at + 1))).collect()
}

fn bare(bytes: &[Read]) -> Vec<Read> {
    bytes.iter().filter(|(byte, ..)| byte.is_ascii_alphanumeric()).copied().collect()
}

impl Mask {
    pub fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
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

    /// Whether it knows no secret.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The text without what is secret in it.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        // Each encoding is at least as long as what it encodes.
        if self.forms.is_empty() || text.len() < SHORTEST_SECRET {
            return Cow::Borrowed(text);
        }
        let mut hidden = vec![false; text.len()];
        let mut from = 0;
        loop {
            let to = text.floor_char_boundary(from + WINDOW);
            if !self.look(&text[from..to], &mut hidden[from..to]) {
                return Cow::Borrowed("(this text is not shown: it could not be looked through for secrets)");
            }
            if to == text.len() {
                break;
            }
            from = text.floor_char_boundary(to - OVERLAP);
        }
        if !hidden.contains(&true) {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        show(text, &hidden, &mut false, &mut shown);
        Cow::Owned(shown)
    }

    /// Which bytes of a text are secret as they stand there, without a look into any encoding.
    pub fn plainly(&self, text: &str) -> Vec<bool> {
        let mut hidden = vec![false; text.len()];
        let bytes = plain(text);
        hide(&self.forms, &bytes, &mut hidden);
        if !self.bare.is_empty() {
            hide(&self.bare, &bare(&bytes), &mut hidden);
        }
        hidden
    }

    /// How much of a text can be shown before it is known how it goes on: no run of a secret begins in that and ends beyond.
    pub fn settled(&self, text: &str) -> usize {
        let bytes = plain(text);
        let open = open(&self.forms, &bytes).min(open(&self.bare, &bare(&bytes)));
        text.floor_char_boundary(open.min(text.len()))
    }

    /// Marks what is secret; false where there was too much to look at. The nearest layers come first.
    fn look(&self, text: &str, hidden: &mut [bool]) -> bool {
        let mut left = text.len().saturating_mul(WORK).max(LEAST_WORK);
        let mut waiting: VecDeque<(Vec<Read>, usize)> = VecDeque::from([(plain(text), 0)]);
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

/// Writes a text with the mask in place of what is hidden. `masked` is whether the mask was written last.
pub fn show(text: &str, hidden: &[bool], masked: &mut bool, shown: &mut String) {
    for (at, c) in text.char_indices() {
        let hide = hidden[at..at + c.len_utf8()].contains(&true);
        match (hide, *masked) {
            (true, false) => shown.push_str(MASK),
            (true, true) => {}
            (false, _) => shown.push(c),
        }
        *masked = hide;
    }
}

/// Where the end of a text begins that a run may begin with; beyond all of it where it has none.
fn open(forms: &[Form], bytes: &[Read]) -> usize {
    let first = |form: &Form| {
        let from = bytes.len().saturating_sub(form.length - 1);
        let end: Vec<u8> = bytes[from..].iter().map(|(byte, ..)| byte.to_ascii_lowercase()).collect();
        let begins = |at: &usize| form.runs.iter().any(|run| run.starts_with(&end[*at..]));
        (0..end.len()).find(begins).map(|at| bytes[from + at].1 as usize)
    };
    forms.iter().filter_map(first).min().unwrap_or(usize::MAX)
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
