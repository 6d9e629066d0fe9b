//! Plain text of what was written to a terminal.
//!
//! This is no screen. Lines come one after another, as they would in a file: a line that is written over, as progress bars are,
//! comes once, as it was when it ended. What moves to other lines, as programs do that use all of a screen, comes in the order
//! in which it was written.

use vte::{Params, Parser, Perform};

/// The longest line that is held in characters; of more the beginning is given as it is.
const LONGEST_LINE: usize = 16 * 1024;

/// Bytes after which a sequence is none any more that has not ended.
const LONGEST_SEQUENCE: usize = 64 * 1024;

/// Takes what comes in any pieces, gives text.
#[derive(Default)]
pub struct PlainText {
    parser: Parser,
    line: Line,
    /// Bytes since anything came of them.
    unfinished: usize,
}

/// The line that is being written.
#[derive(Default)]
struct Line {
    characters: Vec<char>,
    /// Where the next one is written.
    at: usize,
    done: String,
    /// Whether anything came of the last bytes.
    moved: bool,
}

impl PlainText {
    /// The lines that end with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in bytes.chunks(4096) {
            self.line.moved = false;
            self.parser.advance(&mut self.line, piece);
            self.unfinished = if self.line.moved { 0 } else { self.unfinished + piece.len() };
            if self.unfinished > LONGEST_SEQUENCE {
                (self.parser, self.unfinished) = (Parser::new(), 0);
            }
        }
        std::mem::take(&mut self.line.done).into_bytes()
    }

    /// The line that has not ended, as it is by now.
    pub fn unfinished(&self) -> String {
        self.line.shown()
    }
}

impl Line {
    fn shown(&self) -> String {
        let text: String = self.characters.iter().collect();
        // Programs clear what was longer before with spaces, and move over what they leave empty.
        text.trim_end_matches(' ').to_owned()
    }

    fn put(&mut self, character: char) {
        if self.at < self.characters.len() {
            self.characters[self.at] = character;
        } else {
            self.characters.resize(self.at, ' ');
            self.characters.push(character);
        }
        self.at += 1;
        if self.characters.len() >= LONGEST_LINE {
            self.done.extend(self.characters.drain(..));
            self.at = 0;
        }
    }

    fn end(&mut self) {
        let line = self.shown();
        self.done.push_str(&line);
        self.done.push('\n');
        self.characters.clear();
        self.at = 0;
    }

    fn blank(&mut self, from: usize, to: usize) {
        let to = to.min(self.characters.len());
        if from < to {
            self.characters[from..to].fill(' ');
        }
    }
}

impl Perform for Line {
    fn print(&mut self, character: char) {
        self.moved = true;
        // What the second table of controls has is no text either.
        if !character.is_control() {
            self.put(character);
        }
    }

    fn execute(&mut self, byte: u8) {
        self.moved = true;
        match byte {
            b'\n' | 0x0B | 0x0C => self.end(),
            b'\r' => self.at = 0,
            0x08 => self.at = self.at.saturating_sub(1),
            b'\t' => self.put('\t'),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignored: bool, action: char) {
        self.moved = true;
        if !intermediates.is_empty() {
            return;
        }
        let first = params.iter().next().and_then(|param| param.first()).copied().unwrap_or_default();
        let steps = usize::from(first.max(1));
        match (action, first) {
            ('K' | 'J', 0) => self.characters.truncate(self.at),
            ('K', 1) => self.blank(0, self.at + 1),
            ('K', 2) => self.characters.clear(),
            ('C', _) => self.at = (self.at + steps).min(LONGEST_LINE - 1),
            ('D', _) => self.at = self.at.saturating_sub(steps),
            ('G' | '`', _) => self.at = (steps - 1).min(LONGEST_LINE - 1),
            ('P', _) => {
                let to = (self.at + steps).min(self.characters.len());
                if self.at < to {
                    self.characters.drain(self.at..to);
                }
            }
            ('X', _) => self.blank(self.at, self.at + steps),
            // To another line: what is written there does not belong to this one.
            ('A' | 'B' | 'E' | 'F' | 'H' | 'f' | 'd' | 'J', _) if !self.characters.is_empty() => self.end(),
            _ => {}
        }
    }

    fn osc_dispatch(&mut self, _params: &[&[u8]], _bell: bool) {
        self.moved = true;
    }

    fn esc_dispatch(&mut self, _intermediates: &[u8], _ignored: bool, _byte: u8) {
        self.moved = true;
    }

    fn unhook(&mut self) {
        self.moved = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of it, whole and in pieces of each length.
    fn plain(written: &[u8]) -> String {
        let of = |length: usize| {
            let mut plain = PlainText::default();
            let mut text: Vec<u8> = written.chunks(length).flat_map(|piece| plain.push(piece)).collect();
            text.extend(plain.unfinished().into_bytes());
            String::from_utf8(text).expect("it is text")
        };
        let whole = of(written.len().max(1));
        for length in 1..written.len().min(16) {
            assert_eq!(of(length), whole, "in pieces of {length}");
        }
        whole
    }

    #[test]
    fn sequences_are_left_out_however_they_are_cut_and_lines_end_as_in_files() {
        for (written, text) in [
            ("a\r\nb\r\n", "a\nb\n"),
            ("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mgrüße €🦀\x1b[m\r\n", "red grüße €🦀\n"),
            ("\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
            ("\x1bP1$r0m\x1b\\after\x1b(B\x1b=\x07\x0e", "after"),
            ("\x1b[?25l\x1b[?1049hx\x1b[?2004l", "x"),
            ("tab\there\x00\r\n", "tab\there\n"),
            ("no end", "no end"),
            ("", ""),
        ] {
            assert_eq!(plain(written.as_bytes()), text, "{written:?}");
        }
        assert_eq!(plain(b"a\xffb\xc3"), "a\u{fffd}b");
    }

    #[test]
    fn a_line_that_is_written_over_comes_as_it_was_at_last() {
        for (written, text) in [
            (" 10%\r 50%\r100%\r\ndone\r\n", "100%\ndone\n"),
            ("loading...\r\x1b[Kok\r\n", "ok\n"),
            ("loading...\rok\x1b[K\r\n", "ok\n"),
            ("loading...\r\x1b[Jok\r\n", "ok\n"),
            ("longer\rab\r\n", "abnger\n"),
            ("longer\r      \rab\r\n", "ab\n"),
            ("abc\x08\x08X\r\n", "aXc\n"),
            ("abc\x1b[2DX\x1b[1GY\x1b[2CZ\r\n", "YXcZ\n"),
            ("abcdef\x1b[3G\x1b[2P\r\n", "abef\n"),
            ("abcdef\x1b[3G\x1b[2X\x1b[1K\r\n", "    ef\n"),
            ("a\x1b[5Gb\r\n", "a   b\n"),
            ("\x1b[2K\rone\x1b[1A\x1b[2Ktwo\r\n", "one\ntwo\n"),
            ("|\x08/\x08-\x08", "-"),
        ] {
            assert_eq!(plain(written.as_bytes()), text, "{written:?}");
        }
        let mut bar = PlainText::default();
        assert!(bar.push(b"1%\r2").is_empty());
        assert_eq!(bar.unfinished(), "2%");
        assert_eq!((bar.push(b"3\r\n"), bar.unfinished()), (b"23\n".to_vec(), String::new()));
    }

    #[test]
    fn what_does_not_end_holds_no_more_than_it_may() {
        let mut plain = PlainText::default();
        let lines: usize = (0..100).map(|_| plain.push(&[b'x'; 50_000]).len()).sum();
        assert_eq!(lines + plain.unfinished().len(), 5_000_000);
        assert!(plain.line.characters.capacity() <= 2 * LONGEST_LINE);
        let _ = plain.push(b"\x1b[60000C\x1b[60000Cy\r\n");
        // A title without an end hides nothing for long.
        let mut hidden = PlainText::default();
        assert!(hidden.push(b"\x1b]0;").is_empty());
        let text: Vec<u8> = (0..3).flat_map(|_| hidden.push(&[b't'; LONGEST_SEQUENCE])).collect();
        let text = [text, hidden.push(b"end\n")].concat();
        assert!(text.len() > LONGEST_SEQUENCE && text.ends_with(b"end\n"), "{}", text.len());
    }
}
