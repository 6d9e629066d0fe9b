//! The keyboard while a turn runs: keys come one by one and are not shown by the terminal, but by the screen.

use std::{
    collections::VecDeque,
    io::{self, Write},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::read,
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr},
};

use super::typing::{Key, Line};

/// Has a terminal mark what is pasted, and lets it go.
const PASTE: [&[u8]; 2] = [b"\x1b[?2004h", b"\x1b[?2004l"];

/// Bytes that one read takes.
const READ: usize = 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum Pressed {
    /// The end of the line that is being typed, for a screen.
    Typing(String),
    Sent(String),
    /// Ctrl-D.
    End,
}

/// The keyboard. The terminal is as it was when this is dropped.
pub struct Keyboard {
    before: Termios,
    line: Line,
    /// Bytes that were read and not yet looked at.
    waiting: VecDeque<u8>,
    gone: bool,
}

impl Keyboard {
    /// Takes the keyboard; none where the terminal refuses.
    pub fn take() -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok()?;
        let mut keys = before.clone();
        keys.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
        // Ctrl-C stops the turn; what was typed before it stays.
        keys.local_modes.insert(LocalModes::NOFLSH);
        keys.special_codes[SpecialCodeIndex::VMIN] = 1;
        keys.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin, OptionalActions::Now, &keys).ok()?;
        write(PASTE[0]);
        Some(Self { before, line: Line::default(), waiting: VecDeque::new(), gone: false })
    }

    /// What was typed and not sent.
    pub fn unsent(&self) -> &str {
        self.line.text()
    }

    /// Waits for a key, at most so long.
    pub fn read(&mut self, most: Duration) -> io::Result<Option<Pressed>> {
        if self.waiting.is_empty() {
            self.fill(most)?;
        }
        let mut changed = false;
        if self.gone {
            return Ok(Some(Pressed::End));
        }
        while let Some(byte) = self.waiting.pop_front() {
            match self.line.push(byte) {
                Key::Nothing => {}
                Key::Changed => changed = true,
                Key::Sent(text) => return Ok(Some(Pressed::Sent(text))),
                Key::End => return Ok(Some(Pressed::End)),
            }
        }
        Ok(changed.then(|| Pressed::Typing(self.line.end().to_owned())))
    }

    fn fill(&mut self, most: Duration) -> io::Result<()> {
        let stdin = rustix::stdio::stdin();
        let time = Timespec::try_from(most).map_err(io::Error::other)?;
        // A signal ends the wait, which its flag explains.
        if !matches!(poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&time)), Ok(1..)) {
            return Ok(());
        }
        let mut bytes = [0; READ];
        match read(stdin, &mut bytes) {
            Ok(0) => self.gone = true,
            Ok(count) => self.waiting.extend(&bytes[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        write(PASTE[1]);
        // A terminal that is gone has no modes to restore.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

fn write(order: &[u8]) {
    let mut out = io::stdout().lock();
    // A terminal that does not hear it pastes line by line.
    let _ = out.write_all(order).and_then(|()| out.flush());
}
