//! Where a conversation is drawn: a terminal that is free, a terminal with somebody typing in it, or a pipe.
//!
//! Only the drawing: what is drawn comes from [`Renderer`]. One screen is shared by the thread that hears events and the
//! one that reads the keyboard. On a terminal an answer is shown block by block: those that have ended stand for ever, the
//! last one is drawn below them as it stands, and what goes on below it. Each change is one write.

use std::{
    io::{self, Write},
    sync::mpsc::SyncSender,
    time::Instant,
};

use drupe_extension_api::{Event, control::CallPreview};

use super::render::{Fetch, Piece, Renderer, changes, rest};
use crate::cli::{
    console::{Console, Style, cut, duration, end, plain, signs, width},
    markdown::{self, Look, Row},
};

/// Live lines at a time: a wide fan-out must not fill the screen.
const LIVE: usize = 12;

/// Columns and rows where the terminal does not say.
const SIZE: (usize, usize) = (80, 24);

#[derive(Debug)]
pub enum Mode {
    /// There is none: answers go to the standard output, the rest to the standard error stream.
    Pipe,
    Free,
    /// The line editor, which shows what it is sent above its line.
    Editor(SyncSender<String>),
}

pub struct Paper {
    /// The terminal, or the standard output.
    pub out: Box<dyn Write + Send>,
    /// Its columns and rows now.
    pub size: fn() -> (usize, usize),
    pub now: fn() -> Instant,
}

impl Default for Paper {
    fn default() -> Self {
        let size = || Console::size().unwrap_or(SIZE);
        Self { out: Box::new(io::stdout()), size, now: Instant::now }
    }
}

pub struct Screen {
    pub renderer: Renderer,
    console: Console,
    mode: Mode,
    paper: Paper,
    /// What is to be written with the next write.
    frame: String,
    /// The answer that a terminal is shown.
    answer: markdown::Stream,
    /// Whether the last line in a pipe has not ended.
    unfinished: bool,
    /// Rows below the text that are taken away with the next change.
    drawn: usize,
    /// The line that is being typed below them, while the keyboard is read.
    typed: Option<String>,
    /// Since when the kernel is away.
    lost: Option<Instant>,
}

impl Screen {
    pub fn new(console: Console, mode: Mode, paper: Paper) -> Self {
        Self {
            renderer: Renderer::default(),
            console,
            mode,
            paper,
            frame: String::new(),
            answer: markdown::Stream::default(),
            unfinished: false,
            drawn: 0,
            typed: None,
            lost: None,
        }
    }

    pub fn has_terminal(&self) -> bool {
        !matches!(self.mode, Mode::Pipe)
    }

    /// Forgets the conversation, for another one.
    pub fn reset(&mut self) {
        self.erase();
        self.renderer = Renderer::default();
        self.end();
        self.flush();
    }

    /// Gives the terminal to the line editor, or takes it back.
    pub fn set_mode(&mut self, mode: Mode) {
        self.erase();
        self.mode = mode;
        self.flush();
    }

    /// Leaves the terminal on a new line.
    pub fn close(&mut self) {
        self.erase();
        self.end();
        self.flush();
    }

    /// Shows an event. Gives what remains to be shown after the text that its first piece names was fetched.
    pub fn event(&mut self, event: &Event) -> Vec<Piece> {
        let pieces = self.renderer.take(event, (self.paper.now)());
        self.show(pieces)
    }

    /// Shows pieces, up to one whose text must be fetched.
    pub fn show(&mut self, pieces: Vec<Piece>) -> Vec<Piece> {
        self.erase();
        let mut pieces = pieces.into_iter();
        let mut left = Vec::new();
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Text(text) => self.text(&text),
                Piece::End => self.end(),
                Piece::Line(style, text) => self.line(style, &text),
                Piece::Fetch(_) => {
                    left = std::iter::once(piece).chain(pieces).collect();
                    break;
                }
            }
        }
        self.draw();
        left
    }

    /// Shows what a call would change.
    pub fn would_change(&mut self, change: &CallPreview, depth: u32) {
        self.show(changes(change, depth));
    }

    pub fn fetched(&mut self, what: &Fetch, text: &str) {
        let pieces = match what {
            Fetch::Item(_, shown) => rest(shown, text),
            Fetch::Answer(_) | Fetch::Change(..) => vec![Piece::End, Piece::Text(plain(text)), Piece::End],
        };
        self.show(pieces);
    }

    /// Shows a line that is no event.
    pub fn say(&mut self, style: Style, text: &str) {
        self.erase();
        self.line(style, text);
        self.draw();
    }

    /// Shows what was said before, to somebody who comes back; a program has no use for it.
    pub fn recall(&mut self, text: &str) {
        if self.has_terminal() {
            self.say(Style::Dim, text);
        }
    }

    /// Shows what is being typed; none while the keyboard is not read.
    pub fn set_typed(&mut self, typed: Option<String>) {
        self.erase();
        self.typed = typed;
        self.draw();
    }

    /// The time has gone on.
    pub fn tick(&mut self) {
        self.erase();
        self.draw();
    }

    pub fn lost(&mut self) {
        if self.lost.is_none() {
            self.lost = Some((self.paper.now)());
            self.say(Style::Dim, "restarting…");
        }
    }

    pub fn back(&mut self) {
        if let Some(since) = self.lost.take() {
            // What is kept is heard again from where it was left; what streamed meanwhile is not.
            self.renderer.missed();
            let ms = ((self.paper.now)() - since).as_millis();
            self.say(Style::Dim, &format!("back after {ms} ms"));
        }
    }

    fn text(&mut self, text: &str) {
        if self.has_terminal() {
            let rows = self.answer.push(text, self.look());
            self.rows(&rows);
        } else {
            self.frame.push_str(text);
            self.unfinished = !text.ends_with('\n') && (self.unfinished || !text.is_empty());
        }
    }

    fn end(&mut self) {
        if self.has_terminal() {
            let rows = self.answer.finish(self.look());
            self.rows(&rows);
        } else if std::mem::take(&mut self.unfinished) {
            self.frame.push('\n');
        }
    }

    /// Rows that stand for ever.
    fn rows(&mut self, rows: &[Row]) {
        let look = self.look();
        let lines: Vec<String> = rows.iter().map(|row| row.paint(look)).collect();
        match self.mode {
            _ if lines.is_empty() => {}
            Mode::Editor(_) => self.send(lines.join("\n")),
            Mode::Free | Mode::Pipe => lines.iter().for_each(|line| {
                self.frame.push_str(line);
                self.frame.push('\n');
            }),
        }
    }

    /// What the terminal shows; a row that is just full would be two to some.
    fn look(&self) -> Look {
        let columns = (self.paper.size)().0.saturating_sub(1);
        Look { colour: self.console.colour, bare: self.console.bare, columns }
    }

    /// A line about what happens. A block that has not ended goes on below it.
    fn line(&mut self, style: Style, text: &str) {
        match self.mode {
            Mode::Editor(_) => self.send(style.paint(text, self.console.colour)),
            Mode::Free => {
                let line = style.paint(text, self.console.colour) + "\n";
                self.frame.push_str(&signs(&line, self.console.bare));
            }
            Mode::Pipe => {
                self.end();
                // The two streams may be one file.
                self.flush();
                self.console.remark_in(style, text);
            }
        }
    }

    fn send(&mut self, text: String) {
        if let Mode::Editor(editor) = &self.mode {
            // The editor takes empty messages for none.
            let text = if text.is_empty() { " ".into() } else { text };
            // A full queue: the editor has not come round for many lines, and waiting for it could be for ever.
            let _ = editor.try_send(signs(&text, self.console.bare).into_owned());
        }
    }

    /// The block that has not ended, what goes on, then what is being typed: rows that fit, no more than the terminal has.
    fn live(&self) -> Vec<String> {
        let (now, (columns, rows)) = ((self.paper.now)(), (self.paper.size)());
        // A line that wrapped would be two to erase.
        let room = columns.saturating_sub(1);
        let bare = self.console.bare;
        // The sign for what is cut off is three in ASCII, and may stand twice.
        let least = if bare { room.saturating_sub(2) } else { room };
        let mut lines = self.renderer.live(now, if bare { room.saturating_sub(4) } else { room });
        let more = lines.len().saturating_sub(LIVE);
        lines.truncate(LIVE);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        if let Some(since) = self.lost {
            let time = duration(u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX));
            lines.push(format!("waiting for the kernel … {time}"));
        }
        let look = |line: &String| {
            let line = signs(line, bare);
            let line = if width(&line) > room { cut(&line, least) } else { line.into_owned() };
            Style::Dim.paint(&signs(&line, bare), self.console.colour)
        };
        let mut lines: Vec<String> = lines.iter().map(look).collect();
        if let Some(typed) = &self.typed {
            // Its end is where one types.
            let shown = end(typed, room.saturating_sub(2));
            lines.push(signs(&format!("› {shown}"), bare).into_owned());
        }
        // What has left the screen cannot be taken away again.
        let block = self.answer.live(self.look());
        let shown = rows.saturating_sub(lines.len() + 1).min(block.len());
        let block = block[block.len() - shown..].iter().map(|row| row.paint(self.look()));
        block.chain(lines).collect()
    }

    /// Draws what goes on below the text, and writes it all.
    fn draw(&mut self) {
        if matches!(self.mode, Mode::Free) {
            let lines = self.live();
            self.frame.push_str(&lines.join("\n"));
            self.drawn = lines.len();
        }
        self.flush();
    }

    /// Takes away what was drawn below the text: the cursor stands at its end.
    fn erase(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn > 1 {
            self.frame.push_str(&format!("\x1b[{}A", drawn - 1));
        }
        if drawn > 0 {
            self.frame.push_str("\r\x1b[J");
        }
    }

    fn flush(&mut self) {
        let frame = std::mem::take(&mut self.frame);
        if !frame.is_empty() {
            // A terminal that is gone ends the chat by its own signal.
            let _ = self.paper.out.write_all(frame.as_bytes()).and_then(|()| self.paper.out.flush());
        }
    }
}

#[cfg(test)]
mod tests;
