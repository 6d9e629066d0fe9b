//! Halves of characters.
//!
//! What lies beyond the first 65,536 characters is written in JSON as two escapes. A provider that counts in these may cut
//! its text between them, so that one event ends with the first half and the next begins with the other. Neither is text
//! by itself, and no reader of JSON takes it: it is marked before an event is read, and put together where the texts of
//! events are.

use std::borrow::Cow;

use memchr::memchr;
use serde_json::Value;

/// Stand before a half's number. They are no characters: Unicode keeps them for use within a program.
const FIRST: char = '\u{1fffe}';
const SECOND: char = '\u{2fffe}';
/// The digits of the number: no characters, either, 32 of them.
const DIGITS: u32 = 0xfdd0;
/// A mark and two digits.
const LENGTH: usize = 3;

/// JSON with a mark for each half that stands alone in it.
pub(super) fn mark(data: &str) -> Cow<'_, str> {
    let bytes = data.as_bytes();
    let mut out: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += found;
        match unit(&bytes[at..]) {
            Some(0xd800..=0xdbff) if matches!(unit(&bytes[at + 6..]), Some(0xdc00..=0xdfff)) => at += 12,
            Some(half @ 0xd800..=0xdfff) => {
                let out = out.get_or_insert_default();
                out.push_str(&data[copied..at]);
                out.push(if half < 0xdc00 { FIRST } else { SECOND });
                out.extend(
                    [half >> 5 & 31, half & 31].map(|n| char::from_u32(DIGITS + n).unwrap_or_default()),
                );
                at += 6;
                copied = at;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    match out {
        Some(out) => Cow::Owned(out + &data[copied..]),
        None => Cow::Borrowed(data),
    }
}

/// The number of an escape that stands here.
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |n, digit| Some(n << 4 | char::from(*digit).to_digit(16)?))
}

fn half(text: &str, mark: char) -> Option<u32> {
    let mut chars = text.strip_prefix(mark)?.chars();
    let mut digit = || u32::from(chars.next()?).checked_sub(DIGITS).filter(|n| *n < 32);
    Some(digit()? << 5 | digit()?)
}

/// How long a marked half is.
fn width(mark: char) -> usize {
    mark.len_utf8() + (LENGTH - 1) * '\u{fdd0}'.len_utf8()
}

/// Puts together the halves that meet. One that stays alone becomes what stands for a character that is not known.
pub(super) fn join(text: &str) -> Cow<'_, str> {
    let mut out: Option<String> = None;
    let mut rest = text;
    while let Some(at) = rest.find([FIRST, SECOND]) {
        let out = out.get_or_insert_default();
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let first = half(rest, FIRST);
        let second = first.and_then(|_| half(&rest[width(FIRST)..], SECOND));
        let (character, length) = match (first, second) {
            (Some(first), Some(second)) => {
                (char::from_u32(0x1_0000 + (first << 10 | second)), width(FIRST) + width(SECOND))
            }
            (Some(_), None) => (None, width(FIRST)),
            _ if half(rest, SECOND).is_some() => (None, width(SECOND)),
            // It is not one of our marks.
            _ => (rest.chars().next(), FIRST.len_utf8()),
        };
        out.push(character.unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &rest[length..];
    }
    match out {
        Some(out) => Cow::Owned(out + rest),
        None => Cow::Borrowed(text),
    }
}

/// The same for all texts of a value.
pub(super) fn join_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = join(text).into_owned(),
        Value::Array(list) => list.iter_mut().for_each(join_all),
        Value::Object(object) => object.values_mut().for_each(join_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Seam {
    /// The first half at the end of the piece before.
    held: String,
}

impl Seam {
    /// A further piece. A first half at its end is kept back until it is known what follows.
    pub(super) fn through<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        if self.held.is_empty() && !piece.contains([FIRST, SECOND]) || piece.is_empty() {
            return Cow::Borrowed(piece);
        }
        let mut all = std::mem::take(&mut self.held) + piece;
        let end = all
            .rfind(FIRST)
            .filter(|at| half(&all[*at..], FIRST).is_some() && all.len() == at + width(FIRST));
        if let Some(at) = end {
            self.held = all.split_off(at);
        }
        Cow::Owned(join(&all).into_owned())
    }

    /// What is left at the end.
    pub(super) fn rest(&mut self) -> Option<String> {
        (!self.held.is_empty()).then(|| join(&std::mem::take(&mut self.held)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;

    /// What an event's text is once it was marked and read.
    fn read(json: &str) -> String {
        serde_json::from_str(&mark(json)).unwrap()
    }

    #[test]
    fn halves_that_meet_are_a_character_and_one_that_stays_alone_is_not_known() {
        for (pieces, expected) in [
            (&[r#""a\ud83d""#, r#""\ude00b""#][..], "a😀b"),
            (&[r#""a\uD83D""#, r#""""#, r#""\uDE00b""#], "a😀b"),
            (&[r#""a\ud83d\ude00b""#], "a😀b"),
            (&[r#""\ud83d""#, r#""\ud83d\ude00""#], "\u{fffd}😀"),
            (&[r#""a\ud83d""#, r#""b""#], "a\u{fffd}b"),
            (&[r#""a\ude00""#, r#""\ud83d""#], "a\u{fffd}\u{fffd}"),
            (&[r#""\\ud83d\n""#, r#""\u00e9""#], "\\ud83d\né"),
        ] {
            let mut seam = Seam::default();
            let mut text: String =
                pieces.iter().map(|piece| seam.through(&read(piece)).into_owned()).collect();
            text.extend(seam.rest());
            assert_eq!(text, expected, "{pieces:?}");
        }
    }

    #[test]
    fn what_has_no_half_is_not_touched() {
        for json in
            [r#""plain""#, r#""\"\\ \ud83d\ude00 \u0041 é🍒""#, r"\", r"\u", r"\ud8", r"\ud83d\u", "é\\é"]
        {
            let marked = mark(json);
            assert!(matches!(marked, Cow::Borrowed(_)) || json.starts_with(r"\ud83d"), "{json}");
            join(&marked);
        }
        assert_eq!(join("a\u{1fffe}b\u{2fffe}"), "a\u{1fffe}b\u{2fffe}");
        let mut value = json!({"a": [read(r#""\ud83d""#) + &read(r#""\ude00""#)], "b": 1});
        join_all(&mut value);
        assert_eq!(value, json!({"a": ["😀"], "b": 1}));
    }
}
