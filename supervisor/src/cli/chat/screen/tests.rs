//! What a terminal shows, by a terminal that knows as much as a screen asks of one.

use std::sync::{Arc, LazyLock, Mutex, mpsc::sync_channel};

use serde_json::{Value, json};

use super::*;

const WIDE: usize = 20;
const ROWS: usize = 8;

static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Rows of a terminal of [`WIDE`] columns, and where its cursor stands.
#[derive(Default)]
struct Terminal {
    rows: Vec<Vec<char>>,
    at: (usize, usize),
}

impl Terminal {
    fn feed(&mut self, text: &str) {
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\n' => self.at = (self.at.0 + 1, 0),
                '\r' => self.at.1 = 0,
                '\x1b' => {
                    assert_eq!(chars.next(), Some('['));
                    let digits: String = chars.clone().take_while(char::is_ascii_digit).collect();
                    let letter = chars.nth(digits.len());
                    match letter {
                        Some('A') => self.at.0 -= digits.parse::<usize>().expect("a number of rows"),
                        Some('J') => {
                            self.rows.truncate(self.at.0 + 1);
                            if let Some(row) = self.rows.get_mut(self.at.0) {
                                row.truncate(self.at.1);
                            }
                        }
                        Some('m') => {}
                        other => panic!("an order that is not known: {other:?}"),
                    }
                }
                c => {
                    if self.at.1 == WIDE {
                        self.at = (self.at.0 + 1, 0);
                    }
                    self.rows.resize(self.rows.len().max(self.at.0 + 1), Vec::new());
                    let row = &mut self.rows[self.at.0];
                    row.resize(row.len().max(self.at.1 + 1), ' ');
                    row[self.at.1] = c;
                    self.at.1 += 1;
                }
            }
        }
    }

    fn shown(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.iter().collect()).collect()
    }
}

#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn screen(mode: Mode, bare: bool) -> (Screen, Tape) {
    let tape = Tape::default();
    let terminal = !matches!(mode, Mode::Pipe);
    let console =
        Console { colour: false, colour_err: false, watched: false, terminal, bare, bare_err: bare };
    let paper = Paper { out: Box::new(tape.clone()), size: || (WIDE, ROWS), now: || *NOW };
    (Screen::new(console, mode, paper), tape)
}

fn shown(tape: &Tape) -> Vec<String> {
    let mut terminal = Terminal::default();
    terminal.feed(std::str::from_utf8(&tape.0.lock().expect("no panic")).expect("UTF-8"));
    terminal.shown()
}

/// What a terminal shows after that.
fn check(act: impl Fn(&mut Screen), expected: &[&str]) {
    let (mut screen, tape) = screen(Mode::Free, false);
    act(&mut screen);
    assert_eq!(shown(&tape), expected);
}

fn event(kind: &str, data: Value) -> Event {
    let agent = json!({"id": "a", "invocation": "i-0", "depth": 0});
    let event = json!({
        "seq": 1, "time": "2026-01-01T00:00:00Z", "session": "s", "turn": "t", "agent": agent, "kind": kind,
        "data": data,
    });
    serde_json::from_value(event).expect("an event")
}

fn delta(text: &str) -> Event {
    event("interaction.item.updated", json!({"id": "m", "item": "agent_message", "delta": text}))
}

fn tool(id: &str) -> Event {
    event("interaction.item.started", json!({"item": {"id": id, "type": "tool_call", "name": id}}))
}

fn ended(id: &str) -> Event {
    let item = json!({"id": id, "type": "tool_call", "name": id});
    event("interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 7}))
}

#[test]
fn an_answer_goes_on_where_it_was_after_what_stood_below_it() {
    let typing = |screen: &mut Screen| {
        screen.event(&delta("the answer is longe"));
        screen.set_typed(Some("wait".into()));
        screen.event(&delta("r than a row"));
        screen.set_typed(Some("wait!".into()));
    };
    check(typing, &["the answer is", "longer than a row", "› wait!"]);
    let done = |screen: &mut Screen| {
        typing(screen);
        screen.set_typed(None);
        screen.event(&delta(", and over"));
    };
    check(done, &["the answer is", "longer than a row,", "and over"]);
}

#[test]
fn a_row_that_is_just_full_is_not_wrapped_twice() {
    check(
        |screen| {
            screen.event(&delta("12345678901234567890"));
            screen.set_typed(Some("x".into()));
            screen.tick();
            screen.set_typed(None);
            screen.event(&delta("1\ntwo"));
        },
        &["1234567890123456789", "01", "two"],
    );
}

#[test]
fn live_lines_are_taken_away_when_what_they_tell_has_ended() {
    let running = |screen: &mut Screen| {
        screen.event(&tool("one"));
        screen.event(&tool("a_tool_with_a_long_name"));
        screen.event(&delta("text"));
        screen.tick();
    };
    check(running, &["text", "one … 0 ms", "a_tool_with… … 0 ms"]);
    let over = |screen: &mut Screen| {
        running(screen);
        screen.event(&ended("one"));
        screen.event(&ended("a_tool_with_a_long_name"));
        screen.say(Style::Plain, "over");
    };
    // The text goes on: it is the one that has not ended.
    check(over, &["✓ one 7 ms", "✓ a_tool_with_a_long", "_name 7 ms", "over", "text"]);
}

#[test]
fn what_streamed_while_nobody_heard_it_is_not_left_out() {
    let output = json!({"text": "one two three", "bytes": 13});
    let item = json!({"id": "m", "type": "agent_message", "output": output});
    let whole = event("interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 1}));
    let began = event("interaction.turn.started", json!({"input": {"text": "x", "bytes": 1}}));
    let (mut screen, sent) = screen(Mode::Pipe, false);
    screen.event(&began);
    screen.event(&delta("one "));
    screen.lost();
    screen.back();
    screen.event(&delta("ee"));
    screen.event(&whole);
    // The remarks in between are on the other stream, and end the line.
    assert_eq!(String::from_utf8_lossy(&sent.0.lock().expect("no panic")), "one \ntwo three\n");
}

#[test]
fn the_end_of_what_is_typed_is_shown() {
    check(
        |screen| screen.set_typed(Some("a line that is longer than\nthe row".into())),
        &["› nger than↵the row"],
    );
}

#[test]
fn a_terminal_without_utf_8_shows_live_lines_that_fit() {
    let (mut screen, tape) = screen(Mode::Free, true);
    screen.event(&tool("a_tool_with_a_long_name"));
    screen.set_typed(Some("x".into()));
    let rows = shown(&tape);
    assert!(rows.iter().all(|row| row.is_ascii() && row.len() <= WIDE), "{rows:?}");
    assert_eq!(rows[1], "> x");
}

#[test]
fn the_editor_is_sent_whole_blocks() {
    let (sender, sent) = sync_channel(9);
    let (mut screen, tape) = screen(Mode::Editor(sender), false);
    screen.event(&delta("one\ntw"));
    screen.event(&delta("o\n\nthr\n"));
    screen.event(&tool("x"));
    screen.event(&ended("x"));
    assert_eq!(sent.try_iter().collect::<Vec<_>>(), ["one\ntwo", "✓ x 7 ms"]);
    let output = json!({"text": "one\ntwo\n\nthr\nee", "bytes": 15});
    let item = json!({"id": "m", "type": "agent_message", "output": output});
    screen
        .event(&event("interaction.item.completed", json!({"item": item, "outcome": "ok", "elapsed_ms": 1})));
    assert_eq!(sent.try_iter().collect::<Vec<_>>(), ["\nthr\nee"]);
    assert_eq!(shown(&tape), [""; 0]);
}

#[test]
fn a_pipe_gets_the_answer_alone() {
    let (mut screen, tape) = screen(Mode::Pipe, false);
    for event in [tool("x"), delta("one\ttwo"), ended("x"), delta("three")] {
        screen.event(&event);
    }
    screen.set_typed(Some("x".into()));
    screen.tick();
    screen.recall("before");
    assert_eq!(String::from_utf8_lossy(&tape.0.lock().expect("no panic")), "one\ttwo\nthree");
}

#[test]
fn a_paste_is_drawn_by_its_end_and_gives_no_orders() {
    let paste = "x".repeat(4 << 20) + "\u{1b}[2J\u{9b}\u{7}end";
    check(|screen| screen.set_typed(Some(paste.clone())), &["› xxxxxxxxxxx[2Jend"]);
}
