//! Where lines of a log go.

use std::io;

use crate::Redactor;

/// Writes without secrets. Each write is looked through by itself: whoever writes hands in whole lines.
pub struct Writer<W> {
    redactor: Redactor,
    to: W,
}

impl<W> Writer<W> {
    pub(crate) fn new(redactor: Redactor, to: W) -> Self {
        Self { redactor, to }
    }
}

impl<W: io::Write> io::Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(self.redactor.text(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
