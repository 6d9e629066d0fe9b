//! A line that is typed while a turn runs: bytes of a keyboard come in, what they mean comes out. Pure.
//!
//! It does less than the line editor, which has the terminal when no turn runs: no history and no cursor keys. A line that
//! was not sent goes on in the editor.
//!
//! Reedline cannot have the terminal meanwhile: while it reads a line, others may only print whole lines above it
//! (`external_printer.rs` of 0.52.1, read on 2026-11-23). A streamed answer grows within its last line, and the row that
//! shows progress is drawn anew all the time.

use drupe_config::acts;
use drupe_extension_api::control::MAX_REQUEST;

use super::commands::COMMANDS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Nothing,
    /// The line is another one.
    Changed,
    Sent(String),
    /// Ctrl-D on an empty line.
    End,
}

/// The longest escape sequence that is read; a longer one is taken for text.
const LONGEST: usize = 16;

/// The longest line, in bytes: as long as a request. What is as long as that is refused as a message, with what is around
/// it, and never sent in part.
const MOST: usize = MAX_REQUEST;

/// Bytes of the end of a line that a screen is shown: more than it has columns.
const SHOWN: usize = 4096;

#[derive(Debug, Default)]
pub struct Line {
    text: String,
    /// A character that is not whole yet.
    bytes: Vec<u8>,
    escape: Escape,
    /// Whether what comes was pasted: its lines are one message.
    pasting: bool,
}

/// Where in an escape sequence a byte stands.
#[derive(Debug, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    /// After Escape: Alt with a key, or the beginning of a sequence.
    Begun,
    /// Within a sequence such as that of a cursor key.
    Sequence(String),
    /// Before the one letter of a short sequence.
    Short,
}

impl Line {
    /// What was typed and not sent.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its end, which is all that a screen has room for.
    pub fn end(&self) -> &str {
        &self.text[self.text.ceil_char_boundary(self.text.len().saturating_sub(SHOWN))..]
    }

    pub fn push(&mut self, byte: u8) -> Key {
        match std::mem::take(&mut self.escape) {
            Escape::None => self.key(byte),
            Escape::Begun => match byte {
                b'[' => {
                    self.escape = Escape::Sequence(String::new());
                    Key::Nothing
                }
                b'O' => {
                    self.escape = Escape::Short;
                    Key::Nothing
                }
                b'\r' | b'\n' => self.add('\n'),
                _ => Key::Nothing,
            },
            Escape::Sequence(mut sequence) => {
                match byte {
                    0x40..=0x7e => self.finish(&sequence, byte),
                    _ if sequence.len() < LONGEST => {
                        sequence.push(char::from(byte));
                        self.escape = Escape::Sequence(sequence);
                    }
                    _ => {}
                }
                Key::Nothing
            }
            Escape::Short => Key::Nothing,
        }
    }

    /// The brackets around what was pasted; cursor keys move nothing here.
    fn finish(&mut self, sequence: &str, letter: u8) {
        match (sequence, letter) {
            ("200", b'~') => self.pasting = true,
            ("201", b'~') => self.pasting = false,
            _ => {}
        }
    }

    fn key(&mut self, byte: u8) -> Key {
        match byte {
            0x1b => {
                self.escape = Escape::Begun;
                Key::Nothing
            }
            b'\r' | b'\n' if self.pasting => self.add('\n'),
            b'\r' | b'\n' => Key::Sent(std::mem::take(&mut self.text)),
            b'\t' if self.pasting => self.add(' '),
            b'\t' => self.complete(),
            // Ctrl-D
            0x04 if self.text.is_empty() => Key::End,
            // Backspace, Ctrl-H
            0x7f | 0x08 => self.shorten(self.text.char_indices().next_back().map_or(0, |(at, _)| at)),
            // Ctrl-U
            0x15 => self.shorten(0),
            // Ctrl-W
            0x17 => {
                let words = self.text.trim_end();
                self.shorten(words.rfind(char::is_whitespace).map_or(0, |at| at + 1))
            }
            0x00..0x20 => Key::Nothing,
            byte => self.character(byte),
        }
    }

    fn character(&mut self, byte: u8) -> Key {
        self.bytes.push(byte);
        let read = std::str::from_utf8(&self.bytes).map(str::to_owned);
        match read {
            Ok(text) => {
                self.bytes.clear();
                // Those of two bytes upon which a terminal acts.
                text.chars().next().filter(|c| !acts(*c)).map_or(Key::Nothing, |c| self.add(c))
            }
            // More of it comes.
            Err(error) if error.error_len().is_none() => Key::Nothing,
            Err(_) => {
                self.bytes.clear();
                Key::Nothing
            }
        }
    }

    fn add(&mut self, c: char) -> Key {
        if self.text.len() + c.len_utf8() > MOST {
            return Key::Nothing;
        }
        self.text.push(c);
        Key::Changed
    }

    fn shorten(&mut self, length: usize) -> Key {
        let changed = length < self.text.len();
        self.text.truncate(length);
        if changed { Key::Changed } else { Key::Nothing }
    }

    /// A command, where only one begins so.
    fn complete(&mut self) -> Key {
        let mut fitting = COMMANDS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| self.text.starts_with('/') && name.starts_with(&self.text));
        match (fitting.next(), fitting.next()) {
            (Some(name), None) => {
                self.text = format!("{name} ");
                Key::Changed
            }
            _ => Key::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that were sent, and what is left.
    fn check(bytes: &[u8], sent: &[&str], left: &str) {
        let mut line = Line::default();
        let keys = bytes.iter().map(|byte| line.push(*byte)).collect::<Vec<_>>();
        let lines: Vec<_> = keys
            .iter()
            .filter_map(|key| if let Key::Sent(text) = key { Some(text.as_str()) } else { None })
            .collect();
        assert_eq!((lines.as_slice(), line.text()), (sent, left));
    }

    #[test]
    fn lines_are_sent_and_the_rest_is_kept() {
        check(b"hello\nmore", &["hello"], "more");
        check("grüße 漢\r".as_bytes(), &["grüße 漢"], "");
        check(b"\n", &[""], "");
    }

    #[test]
    fn what_was_typed_can_be_taken_back() {
        check("aü\x7f\x7f\x7fb".as_bytes(), &[], "b");
        check(b"one two  \x17x", &[], "one x");
        check(b"one\x15x", &[], "x");
    }

    #[test]
    fn keys_that_are_no_text_are_none() {
        check(b"a\x1b[A\x1b[1;5Cb\x1bOPc\x1bxd\x01", &[], "abcd");
        check(b"\xffa\xc3(b", &[], "ab");
        // A sequence without an end does not take everything that follows.
        check(format!("\x1b[{}ok", "1".repeat(17)).as_bytes(), &[], "ok");
    }

    #[test]
    fn alt_enter_and_pasted_lines_do_not_send() {
        check(b"one\x1b\rtwo\n", &["one\ntwo"], "");
        check(b"\x1b[200~one\ntwo\tx\x1b[201~\n", &["one\ntwo x"], "");
    }

    #[test]
    fn orders_to_a_terminal_are_no_text() {
        check("a\u{9b}2Jb\u{85}\u{7f}c".as_bytes(), &[], "a2Jc");
        check("a\u{202e}b".as_bytes(), &[], "ab");
        check("\x1b[200~a\u{9d}0;x\x07\x01\x1b[201~b".as_bytes(), &[], "a0;xb");
    }

    #[test]
    fn a_line_grows_to_the_size_of_a_request_and_a_screen_is_shown_its_end() {
        let mut line = Line { text: "漢".repeat(MOST / 3), ..Line::default() };
        let full = [line.push(b'a'), line.push(b'b')];
        assert_eq!((full, line.text().len()), ([Key::Changed, Key::Nothing], MOST));
        assert_eq!(line.push(0x7f), Key::Changed, "it can be shortened");
        assert!(line.end().len() <= SHOWN && line.end().chars().all(|c| c == '漢'));
        assert_eq!(line.push(b'\n'), Key::Sent("漢".repeat(MOST / 3)));
        assert_eq!(line.end(), "");
    }

    #[test]
    fn a_command_is_completed_where_only_one_begins_so() {
        check(b"/sto\t", &[], "/stop ");
        check(b"/s\t", &[], "/s");
        check(b"\t", &[], "");
        check(b"x\t", &[], "x");
    }

    #[test]
    fn ctrl_d_ends_an_empty_line_alone() {
        assert_eq!(Line::default().push(4), Key::End);
        let mut line = Line::default();
        line.push(b'a');
        assert_eq!(line.push(4), Key::Nothing);
    }
}
