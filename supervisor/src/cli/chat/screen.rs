//! Where a conversation is drawn: a terminal that is free, a terminal with somebody typing in it, or a pipe.
//!
//! Only the drawing: what is drawn comes from [`Renderer`]. One screen is shared by the thread that hears events and the
//! one that reads the keyboard.

use std::{
    io::{self, Write},
    sync::mpsc::SyncSender,
    time::Instant,
};

use drupe_extension_api::{Event, TurnId};

use super::render::{Piece, Renderer};
use crate::cli::console::{Console, Style, duration, plain};

/// Live lines at a time: a wide fan-out must not fill the screen.
const LIVE: usize = 8;

/// Columns where the terminal does not say.
const COLUMNS: usize = 80;

/// Who has the terminal.
#[derive(Debug)]
pub enum Mode {
    /// There is none: answers go to the standard output, the rest to the standard error stream.
    Pipe,
    /// This screen.
    Free,
    /// The line editor, which shows what it is sent above its line.
    Editor(SyncSender<String>),
}

/// A screen.
#[derive(Debug)]
pub struct Screen {
    /// What is shown.
    pub renderer: Renderer,
    console: Console,
    mode: Mode,
    /// Whether the cursor is at the beginning of a line.
    fresh: bool,
    /// Live lines below the text.
    drawn: usize,
    /// Text that waits for the end of its line, while the editor has the terminal.
    partial: String,
    /// Since when the kernel is away.
    lost: Option<Instant>,
}

impl Screen {
    /// An empty one.
    pub fn new(console: Console, mode: Mode) -> Self {
        let renderer = Renderer::default();
        Self { renderer, console, mode, fresh: true, drawn: 0, partial: String::new(), lost: None }
    }

    /// Forgets the conversation, for another one.
    pub fn reset(&mut self) {
        self.erase();
        self.renderer = Renderer::default();
        self.end();
    }

    /// Gives the terminal to somebody else, or takes it back.
    pub fn set_mode(&mut self, mode: Mode) {
        self.erase();
        self.mode = mode;
        let partial = std::mem::take(&mut self.partial);
        if !partial.is_empty() {
            self.text(&partial);
        }
        if matches!(self.mode, Mode::Editor(_)) && !self.fresh {
            self.write("\n");
            self.fresh = true;
        }
    }

    /// Shows an event. Gives the turn whose answer must be fetched to be shown.
    pub fn event(&mut self, event: &Event) -> Option<TurnId> {
        let pieces = self.renderer.take(event, Instant::now());
        self.erase();
        let mut whole = None;
        for piece in pieces {
            match piece {
                Piece::Text(text) => self.text(&text),
                Piece::End => self.end(),
                Piece::Line(style, text) => self.line(style, &text),
                Piece::Whole(turn) => whole = Some(turn),
            }
        }
        self.draw();
        whole
    }

    /// Shows a whole answer.
    pub fn answer(&mut self, text: &str) {
        self.erase();
        self.end();
        self.text(&plain(text));
        self.end();
        self.draw();
    }

    /// Shows a line that is no event.
    pub fn say(&mut self, style: Style, text: &str) {
        self.erase();
        self.line(style, text);
        self.draw();
    }

    /// Shows what was said before, to somebody who comes back; a program has no use for it.
    pub fn recall(&mut self, text: &str) {
        if !matches!(self.mode, Mode::Pipe) {
            self.say(Style::Dim, text);
        }
    }

    /// The time has gone on.
    pub fn tick(&mut self) {
        self.erase();
        self.draw();
    }

    /// The kernel is away.
    pub fn lost(&mut self) {
        if self.lost.is_none() {
            self.lost = Some(Instant::now());
            self.say(Style::Dim, "restarting…");
        }
    }

    /// A kernel is there.
    pub fn back(&mut self) {
        if let Some(since) = self.lost.take() {
            let ms = since.elapsed().as_millis();
            self.say(Style::Dim, &format!("back after {ms} ms"));
        }
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Mode::Editor(_) = self.mode {
            self.partial.push_str(text);
            if let Some((lines, rest)) = self.partial.rsplit_once('\n') {
                let (lines, rest) = (lines.to_owned(), rest.to_owned());
                self.partial = rest;
                self.send(lines);
            }
            return;
        }
        self.write(text);
        self.fresh = text.ends_with('\n');
    }

    fn end(&mut self) {
        if let Mode::Editor(_) = self.mode {
            let partial = std::mem::take(&mut self.partial);
            if !partial.is_empty() {
                self.send(partial);
            }
        } else if !self.fresh {
            self.write("\n");
            self.fresh = true;
        }
    }

    fn line(&mut self, style: Style, text: &str) {
        self.end();
        match self.mode {
            Mode::Editor(_) => self.send(style.paint(text, self.console.colour)),
            Mode::Free => self.write(&(style.paint(text, self.console.colour) + "\n")),
            Mode::Pipe => self.console.remark(&style.paint(text, self.console.colour_err)),
        }
    }

    fn send(&mut self, text: String) {
        if let Mode::Editor(editor) = &self.mode {
            // The editor takes empty messages for none.
            let text = if text.is_empty() { " ".into() } else { text };
            // A full queue: the editor has not come round for many lines, and waiting for it could be for ever.
            let _ = editor.try_send(text);
        }
    }

    /// Draws what goes on, below the text; not within a line that is still being written.
    fn draw(&mut self) {
        if !matches!(self.mode, Mode::Free) || !self.fresh {
            return;
        }
        let now = Instant::now();
        let mut lines = self.renderer.live(now);
        let more = lines.len().saturating_sub(LIVE);
        lines.truncate(LIVE);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        if let Some(since) = self.lost {
            let time = duration(u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX));
            lines.push(format!("waiting for the kernel … {time}"));
        }
        if lines.is_empty() {
            return;
        }
        let columns = columns();
        let mut text = String::new();
        for line in &lines {
            // A line that wrapped would be two to erase.
            let cut: String = line.chars().take(columns.saturating_sub(1)).collect();
            text.push_str(&Style::Dim.paint(&cut, self.console.colour));
            text.push('\n');
        }
        self.write(&text);
        self.drawn = lines.len();
    }

    fn erase(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn > 0 {
            self.write(&format!("\x1b[{drawn}A\r\x1b[J"));
        }
    }

    fn write(&self, text: &str) {
        let mut out = io::stdout().lock();
        // A terminal that is gone ends the chat by its own signal.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

fn columns() -> usize {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => COLUMNS,
    }
}
