//! Splits a byte stream into the data of its server-sent events.
//!
//! Works on bytes, so that a character which two network packets share needs no care. Only `data` matters: every API
//! repeats the event's name in it, so names, ids and comments are skipped. No line and no event grows beyond a bound,
//! whatever the other side sends.

use memchr::memchr2;

/// The longest event. The largest real ones hold a whole tool call; this is a hundred times that.
pub(crate) const LONGEST_EVENT: usize = 8 << 20;

#[derive(Default)]
pub(crate) struct Frames {
    /// Received and not yet read.
    buffer: Vec<u8>,
    /// Where the unread part begins.
    start: usize,
    /// Up to where the unread part is known to hold no line end.
    scanned: usize,
    data: Vec<u8>,
    /// Whether `data` was given out and belongs to the past.
    given: bool,
    /// Whether the last line ended with a carriage return, whose line feed may still come.
    after_return: bool,
    begun: bool,
}

/// An event is larger than any honest one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Frames {
    /// Takes what the network gave.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
        } else {
            self.buffer.drain(..self.start);
        }
        self.scanned -= self.start;
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next whole event, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, TooLong> {
        if std::mem::take(&mut self.given) {
            self.data.clear();
        }
        while let Some((from, to)) = self.line()? {
            if from == to {
                if !self.data.is_empty() {
                    self.given = true;
                    return Ok(Some(&self.data));
                }
            } else {
                self.field(from, to);
            }
            if self.data.len() > LONGEST_EVENT {
                return Err(TooLong);
            }
        }
        Ok(None)
    }

    /// At the end of the stream: the event that its blank line is missing from, if there is one.
    pub(crate) fn rest(&mut self) -> Option<&[u8]> {
        if std::mem::take(&mut self.given) {
            self.data.clear();
        }
        let (from, to) = (self.start, self.buffer.len());
        self.field(from, to);
        (!self.data.is_empty()).then_some(&self.data)
    }

    /// Bytes of what came and was not given out.
    pub(crate) fn waiting(&self) -> usize {
        self.data.len() + self.buffer.len() - self.start
    }

    fn line(&mut self) -> Result<Option<(usize, usize)>, TooLong> {
        if self.after_return && self.start < self.buffer.len() {
            self.after_return = false;
            if self.buffer[self.start] == b'\n' {
                self.start += 1;
                self.scanned = self.scanned.max(self.start);
            }
        }
        let Some(found) = memchr2(b'\n', b'\r', &self.buffer[self.scanned..]) else {
            self.scanned = self.buffer.len();
            return if self.scanned - self.start > LONGEST_EVENT { Err(TooLong) } else { Ok(None) };
        };
        let (from, to) = (self.start, self.scanned + found);
        self.after_return = self.buffer[to] == b'\r';
        self.start = to + 1;
        self.scanned = self.start;
        Ok(Some((from, to)))
    }

    fn field(&mut self, from: usize, to: usize) {
        let mut line = &self.buffer[from..to];
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `input` in pieces of `size` and gives all events, and what is left.
    fn check(input: &[u8], size: usize) -> (Vec<String>, Option<String>) {
        let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
        let mut frames = Frames::default();
        let mut events = Vec::new();
        for piece in input.chunks(size) {
            frames.push(piece);
            while let Ok(Some(data)) = frames.next() {
                events.push(text(data));
            }
        }
        (events, frames.rest().map(text))
    }

    #[test]
    fn events_are_the_same_however_the_network_cuts_them() {
        let cases: [(&str, &[&str], Option<&str>); 7] = [
            ("data: a\n\ndata: b\n\n", &["a", "b"], None),
            ("data: a\r\n\r\ndata:b\r\n\r\n", &["a", "b"], None),
            ("data: a\r\rdata: b\r\r", &["a", "b"], None),
            (": ping\n\nevent: x\nid: 1\ndata: a\n\n", &["a"], None),
            ("data: a\ndata: b\n\n", &["a\nb"], None),
            ("\u{feff}data: süß 🍒\n\n", &["süß 🍒"], None),
            ("data: a\n\ndata: [DONE]", &["a"], Some("[DONE]")),
        ];
        for (input, events, rest) in cases {
            for size in 1..=input.len() {
                let found = check(input.as_bytes(), size);
                assert_eq!(
                    found,
                    (events.iter().map(|s| s.to_string()).collect(), rest.map(str::to_owned)),
                    "{input:?} by {size}"
                );
            }
        }
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let mut frames = Frames::default();
        let piece = vec![b'x'; 64 << 10];
        let refused = (0..2_000).find(|_| {
            frames.push(&piece);
            frames.next().is_err()
        });
        assert_eq!(refused, Some(LONGEST_EVENT / piece.len()));
        assert!(frames.buffer.len() <= LONGEST_EVENT + piece.len());
    }

    #[test]
    fn an_event_of_endless_lines_is_refused() {
        let mut frames = Frames::default();
        let line = [b"data: ".as_slice(), &[b'x'; 60_000], b"\n"].concat();
        let refused = (0..2_000).any(|_| {
            frames.push(&line);
            frames.next().is_err()
        });
        assert!(refused);
    }
}
