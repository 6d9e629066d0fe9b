//! Where a conversation is drawn: a terminal that is free, a terminal with somebody typing in it, or a pipe.
//!
//! Only the drawing: what is drawn comes from [`Renderer`]. One screen is shared by the thread that hears events and the
//! one that reads the keyboard. On a free terminal what goes on stands below the text, also below a line that is not
//! finished yet; each change is one write.

use std::{
    io::{self, Write},
    sync::mpsc::SyncSender,
    time::Instant,
};

use drupe_extension_api::Event;

use super::{
    render::{Fetch, Piece, Renderer, rest},
    row::Row,
};
use crate::cli::console::{Console, Style, cut, duration, end, plain, signs, width};

/// Live lines at a time: a wide fan-out must not fill the screen.
const LIVE: usize = 12;

/// Columns where the terminal does not say.
const COLUMNS: usize = 80;

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
    /// How wide it is now.
    pub columns: fn() -> usize,
    pub now: fn() -> Instant,
}

impl Default for Paper {
    fn default() -> Self {
        let columns = || Console::columns().unwrap_or(COLUMNS);
        Self { out: Box::new(io::stdout()), columns, now: Instant::now }
    }
}

pub struct Screen {
    pub renderer: Renderer,
    console: Console,
    mode: Mode,
    paper: Paper,
    /// What is to be written with the next write.
    frame: String,
    /// The unfinished line, as far as it stands in the last row.
    row: Row,
    /// Live lines below the text.
    drawn: usize,
    /// The line that is being typed below them, while the keyboard is read.
    typed: Option<String>,
    /// Text that waits for the end of its line, while the editor has the terminal.
    partial: String,
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
            row: Row::default(),
            drawn: 0,
            typed: None,
            partial: String::new(),
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
        let partial = std::mem::take(&mut self.partial);
        if !partial.is_empty() {
            self.text(&partial);
        }
        if matches!(self.mode, Mode::Editor(_)) && !self.row.is_empty() {
            self.put("\n");
        }
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

    pub fn fetched(&mut self, what: &Fetch, text: &str) {
        let pieces = match what {
            Fetch::Item(_, shown) => rest(shown, text),
            Fetch::Answer(_) => vec![Piece::End, Piece::Text(plain(text)), Piece::End],
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
        if let Mode::Editor(_) = self.mode {
            self.partial.push_str(text);
            if let Some((lines, rest)) = self.partial.rsplit_once('\n') {
                let (lines, rest) = (lines.to_owned(), rest.to_owned());
                self.partial = rest;
                self.send(lines);
            }
            return;
        }
        self.put(text);
    }

    fn end(&mut self) {
        if let Mode::Editor(_) = self.mode {
            let partial = std::mem::take(&mut self.partial);
            if !partial.is_empty() {
                self.send(partial);
            }
        } else if !self.row.is_empty() {
            self.put("\n");
        }
    }

    fn line(&mut self, style: Style, text: &str) {
        self.end();
        match self.mode {
            Mode::Editor(_) => self.send(style.paint(text, self.console.colour)),
            Mode::Free => {
                let line = style.paint(text, self.console.colour) + "\n";
                self.frame.push_str(&signs(&line, self.console.bare));
            }
            Mode::Pipe => {
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

    /// What goes on, then what is being typed.
    fn live(&self, columns: usize) -> Vec<String> {
        let now = (self.paper.now)();
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
        lines
    }

    /// Draws what goes on below the text, and writes it all.
    fn draw(&mut self) {
        if matches!(self.mode, Mode::Free) {
            let lines = self.live((self.paper.columns)());
            if !lines.is_empty() && !self.row.is_empty() {
                self.frame.push('\n');
            }
            self.frame.push_str(&lines.join("\n"));
            self.drawn = lines.len();
        }
        self.flush();
    }

    /// Takes away what was drawn below the text: the cursor stands at its end.
    fn erase(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn == 0 {
            return;
        }
        let up = drawn - usize::from(self.row.is_empty());
        if up > 0 {
            self.frame.push_str(&format!("\x1b[{up}A"));
        }
        self.frame.push_str("\r\x1b[J");
        // The unfinished line shares its row with what is erased.
        self.frame.push_str(self.row.text());
    }

    /// Text for the terminal or pipe.
    fn put(&mut self, text: &str) {
        if matches!(self.mode, Mode::Free) {
            let text = text.replace('\t', "    ");
            let columns = (self.paper.columns)();
            self.row.add(&text, columns);
            self.frame.push_str(&text);
        } else {
            self.row.add(text, COLUMNS);
            self.frame.push_str(text);
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
