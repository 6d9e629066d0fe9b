//! What a command wrote, within bounds: its beginning and its end, or the latest of it.

use std::collections::VecDeque;

/// The beginning and the end of a stream.
pub struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes of each of the two.
    most: usize,
    total: u64,
}

impl Excerpt {
    /// One that keeps `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), most: most / 2, total: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.most - self.head.len()));
        self.head.extend_from_slice(first);
        keep_last(&mut self.tail, rest, self.most);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// What is kept, and how much is left out between the two parts.
    pub fn text(self) -> String {
        let tail = Vec::from(self.tail);
        let mut left_out = self.total - (self.head.len() + tail.len()) as u64;
        if left_out == 0 {
            return lossy(&[self.head, tail].concat());
        }
        // A character that the cut goes through is left out as a whole.
        let (head, tail) = (&self.head[..whole(&self.head)], &tail[begun(&tail)..]);
        left_out = self.total - (head.len() + tail.len()) as u64;
        format!("{}\n[… {left_out} bytes are left out here …]\n{}", lossy(head), lossy(tail))
    }
}

/// The latest of a stream. Places in it are counted from the beginning of the stream.
pub struct Ring {
    bytes: VecDeque<u8>,
    most: usize,
    total: u64,
}

/// A part of a [`Ring`].
#[derive(Debug, PartialEq, Eq)]
pub struct RingPart {
    pub text: String,
    pub from: u64,
    pub to: u64,
}

impl Ring {
    pub fn new(most: usize) -> Self {
        Self { bytes: VecDeque::new(), most, total: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        keep_last(&mut self.bytes, bytes, self.most);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    /// The first byte that is still there.
    pub fn first(&self) -> u64 {
        self.total - self.bytes.len() as u64
    }

    /// At most `most` bytes from a place on, or from the first that is there; without a place, the last.
    pub fn part(&self, from: Option<u64>, most: usize) -> RingPart {
        let last = self.total.saturating_sub(most as u64);
        let from = from.unwrap_or(last).clamp(self.first(), self.total);
        let skipped = usize::try_from(from - self.first()).unwrap_or(usize::MAX);
        let bytes: Vec<u8> = self.bytes.iter().skip(skipped).take(most).copied().collect();
        // The rest of a character comes with the next part, unless this is all that there will ever be of it.
        let whole = if bytes.len() == most { whole(&bytes) } else { bytes.len() };
        let (start, end) = (begun(&bytes[..whole]), whole);
        RingPart { text: lossy(&bytes[start..end]), from: from + start as u64, to: from + end as u64 }
    }
}

/// Adds to the end, and drops what is beyond `most` from the beginning.
fn keep_last(kept: &mut VecDeque<u8>, bytes: &[u8], most: usize) {
    let bytes = &bytes[bytes.len().saturating_sub(most)..];
    let beyond = (kept.len() + bytes.len()).saturating_sub(most);
    kept.drain(..beyond);
    kept.extend(bytes);
}

/// The end of a line, which tells how far something is.
pub fn shortened(line: &str) -> &str {
    &line[line.ceil_char_boundary(line.len().saturating_sub(1024))..]
}

/// How many bytes there are up to the last character that is whole.
pub fn whole(bytes: &[u8]) -> usize {
    // A character has at most four bytes, so that only the last three can be the beginning of one.
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let length = match bytes[at] {
            0xC2..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xF4 => 4,
            0x80..=0xBF => continue,
            _ => return bytes.len(),
        };
        return if length > back { at } else { bytes.len() };
    }
    bytes.len()
}

/// How many bytes at the beginning belong to a character that began before.
fn begun(bytes: &[u8]) -> usize {
    let rest = bytes.iter().take(3).take_while(|byte| matches!(byte, 0x80..=0xBF)).count();
    // Where nothing else follows it is no text at all.
    if rest == bytes.len() { 0 } else { rest }
}

/// As text; says so where it was none.
fn lossy(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            format!("{}\n[some of this is not UTF-8 and is shown as �]", String::from_utf8_lossy(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_shown_whole_and_of_more_the_beginning_and_the_end() {
        let of = |parts: &[&str]| {
            let mut excerpt = Excerpt::new(8);
            parts.iter().for_each(|part| excerpt.push(part.as_bytes()));
            excerpt.text()
        };
        assert_eq!(of(&["abcdefgh"]), "abcdefgh");
        assert_eq!(of(&["ab", "cd", "ef", "gh"]), "abcdefgh");
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["abcdefghi"]), "abcd\n[… 1 bytes are left out here …]\nfghi");
        assert_eq!(of(&["abcdefghijklm", "nopqrstuvwxyz"]), "abcd\n[… 18 bytes are left out here …]\nwxyz");
        // Cuts go through no character.
        assert_eq!(of(&["abcä", "öwxy"]), "abc\n[… 4 bytes are left out here …]\nwxy");
        let mut much = Excerpt::new(1000);
        for _ in 0..1000 {
            much.push(&[b'x'; 70_000]);
        }
        assert!(much.head.len() + much.tail.len() == 1000 && much.tail.capacity() < 4096);
        assert_eq!(much.total(), 70_000_000);
    }

    #[test]
    fn what_is_no_text_is_said_to_be_none() {
        let mut excerpt = Excerpt::new(100);
        excerpt.push(b"a\xffb");
        assert_eq!(excerpt.text(), "a\u{fffd}b\n[some of this is not UTF-8 and is shown as \u{fffd}]");
    }

    #[test]
    fn a_ring_has_the_latest_under_places_of_the_whole() {
        let mut ring = Ring::new(10);
        ring.push(b"0123456789");
        ring.push(b"abcde");
        assert_eq!((ring.first(), ring.total()), (5, 15));
        let part = |from, most| ring.part(from, most);
        let is = |text: &str, from, to| RingPart { text: text.into(), from, to };
        assert_eq!(part(None, 4), is("bcde", 11, 15));
        assert_eq!(part(Some(0), 4), is("5678", 5, 9), "what is gone is passed over");
        assert_eq!(part(Some(9), 4), is("9abc", 9, 13));
        assert_eq!(part(Some(13), 4), is("de", 13, 15));
        assert_eq!(part(Some(99), 4), is("", 15, 15));
        let mut text = Ring::new(100);
        text.push("aäb".as_bytes());
        assert_eq!(text.part(Some(0), 2), is("a", 0, 1), "no character is cut");
        assert_eq!(text.part(Some(1), 3), is("äb", 1, 4));
    }

    #[test]
    fn a_text_ends_with_its_last_whole_character() {
        for (bytes, length) in [
            (&b"ab"[..], 2),
            ("aä".as_bytes(), 3),
            (&"aä".as_bytes()[..2], 1),
            (&"a€".as_bytes()[..3], 1),
            (&"🦀".as_bytes()[..3], 0),
            ("🦀".as_bytes(), 4),
            (b"", 0),
            (b"\x80\x80\x80\x80", 4),
            (b"a\xff", 2),
        ] {
            assert_eq!(whole(bytes), length, "{bytes:?}");
        }
    }
}
