//! Takes secrets out of what is shown: as they are, encoded, and in part.
//!
//! Providers repeat keys in their errors, gateways do so in forms of their own, and both cut what they say off in the
//! middle of one. So no run of a secret that is long enough to be of use is left, wherever it stands.

use std::collections::HashSet;

/// What is shown in a secret's place.
const MASK: &str = "[key]";
/// A shorter key or header, such as the `none` of a server that wants no key, is no secret, and taking it out of
/// messages would make them unreadable.
const SHORTEST_SECRET: usize = 8;
/// A run of a secret that is shorter than this may stay. Vendors show as much of a key to tell it from others.
const SHORTEST_RUN: usize = 12;
/// An encoding within an encoding is looked through, and no more than so many.
const LAYERS: usize = 3;

/// Secrets, in the forms that they are looked for in.
#[derive(Default)]
pub(super) struct Mask {
    forms: Vec<Form>,
}

/// One form of a secret: all of its runs of one length.
struct Form {
    length: usize,
    runs: HashSet<Box<[u8]>>,
}

impl Form {
    fn of(secret: &[u8]) -> Option<Self> {
        let length = secret.len().min(SHORTEST_RUN);
        let runs = secret.windows(length.max(1)).map(Into::into).collect();
        (length >= SHORTEST_SECRET).then_some(Self { length, runs })
    }
}

impl Mask {
    pub(super) fn of<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let secrets = secrets.filter(|secret| secret.len() >= SHORTEST_SECRET);
        Self {
            forms: secrets
                .flat_map(|secret| forms(secret.as_bytes()))
                .filter_map(|form| Form::of(&form))
                .collect(),
        }
    }

    /// The text without what is secret in it.
    pub(super) fn apply(&self, text: &str) -> String {
        let mut hidden = vec![false; text.len()];
        // Each byte with the part of the text that it stands for.
        let mut bytes: Vec<(u8, usize, usize)> =
            text.bytes().enumerate().map(|(n, b)| (b, n, n + 1)).collect();
        for _ in 0..=LAYERS {
            self.hide(&bytes, &mut hidden);
            let Some(decoded) = decode(&bytes) else { break };
            bytes = decoded;
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
        shown
    }

    fn hide(&self, bytes: &[(u8, usize, usize)], hidden: &mut [bool]) {
        let plain: Vec<u8> = bytes.iter().map(|(byte, ..)| *byte).collect();
        for form in &self.forms {
            for (at, _) in plain.windows(form.length).enumerate().filter(|(_, run)| form.runs.contains(*run))
            {
                let (from, to) = (bytes[at].1, bytes[at + form.length - 1].2);
                hidden[from..to].fill(true);
            }
        }
    }
}

/// A secret as it is, in base64 at each place that it can have in a longer text, and in hexadecimal digits.
fn forms(secret: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = vec![secret.to_vec()];
    for before in 0..3 {
        let padded = [&[0; 3][..before], secret].concat();
        // The digits at both ends depend on what stands there.
        let (skip, whole) = ([0, 2, 3][before], padded.len() / 3 * 4);
        for last in [*b"+/", *b"-_"] {
            forms.push(base64(&padded, last)[skip..whole.max(skip)].to_vec());
        }
    }
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    forms.extend([hex.to_uppercase().into_bytes(), hex.into_bytes()]);
    forms
}

/// In digits of six bits, without padding; `last` are the two digits in which alphabets differ.
fn base64(bytes: &[u8], last: [u8; 2]) -> Vec<u8> {
    const DIGITS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let digit = |bits: u32| {
        let n = (bits & 63) as usize;
        DIGITS.get(n).copied().unwrap_or_else(|| last[n - DIGITS.len()])
    };
    let group = |three: &[u8]| {
        let bits = (0..3).fold(0, |bits, n| bits << 8 | u32::from(three.get(n).copied().unwrap_or(0)));
        let all = [18, 12, 6, 0].map(|shift| digit(bits >> shift));
        all.into_iter().take(three.len() + 1)
    };
    bytes.chunks(3).flat_map(group).collect()
}

/// With what addresses, HTML and JSON write for a character taken back to it; none where there is nothing of it.
fn decode(bytes: &[(u8, usize, usize)]) -> Option<Vec<(u8, usize, usize)>> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest: Vec<u8> = bytes[at..].iter().take(12).map(|(byte, ..)| *byte).collect();
        let (character, length) = one(&rest).unwrap_or((None, 1));
        let (from, to) = (bytes[at].1, bytes[at + length - 1].2);
        match character {
            Some(character) => out.extend(character.to_string().bytes().map(|byte| (byte, from, to))),
            None => out.push(bytes[at]),
        }
        at += length;
    }
    (out.len() != bytes.len()).then_some(out)
}

/// The character that an encoding begins with here, and how long it is.
fn one(rest: &[u8]) -> Option<(Option<char>, usize)> {
    let number = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).ok().filter(|d| !d.is_empty() && !d.starts_with('+'))?;
        char::from_u32(u32::from_str_radix(digits, radix).ok()?)
    };
    let found = |character: char, length| Some((Some(character), length));
    match rest {
        [b'%', a, b, ..] => found(number(&[*a, *b], 16)?, 3),
        [b'\\', b'u', a, b, c, d, ..] => found(number(&[*a, *b, *c, *d], 16)?, 6),
        [b'\\', b'x', a, b, ..] => found(number(&[*a, *b], 16)?, 4),
        [b'\\', c @ (b'"' | b'\\' | b'/' | b'\''), ..] => found(char::from(*c), 2),
        [b'&', ..] => {
            let end = rest.iter().position(|byte| *byte == b';')?;
            let name = &rest[1..end];
            let character = match name {
                [b'#', b'x' | b'X', digits @ ..] => number(digits, 16)?,
                [b'#', digits @ ..] => number(digits, 10)?,
                b"amp" => '&',
                b"lt" => '<',
                b"gt" => '>',
                b"quot" => '"',
                b"apos" => '\'',
                b"sol" => '/',
                b"plus" => '+',
                b"equals" => '=',
                _ => return None,
            };
            found(character, end + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
