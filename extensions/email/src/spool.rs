//! A mail as it comes in, piece by piece: what is said in it stays in memory, and most of what its files hold lies on the disk. Decides nothing.
//!
//! Programs write files as lines of base64. Of a long run of such lines all behind its beginning is put into a file of the extension's folder
//! and left out of what is read. So a mail of any length takes no more memory than its words may, and whoever reads it finds its parts.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, BufWriter, Write},
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use mail_parser::decoders::{base64::base64_decode, quoted_printable::quoted_printable_decode};

use crate::files::{Coding, MailFile};

/// What is kept of a mail in memory, in bytes.
const KEPT: usize = 4 * 1024 * 1024;
/// What of a run of base64 stays where it stands: more than the longest text that is handed on.
const STAYS: usize = 128 * 1024;
/// The shortest and the longest line of a run. Most have 76 letters; no server takes lines of more than a thousand.
const LINES: (usize, usize) = (60, 1_000);
/// The file of what is left out.
const RUNS: &str = "runs";
/// Bytes of it that are read at once.
const PART: usize = 64 * 1024;

/// A mail, or its beginning.
pub struct MailSpool {
    folder: PathBuf,
    text: Vec<u8>,
    runs: Vec<LeftOut>,
    file: Option<BufWriter<File>>,
    /// Bytes of the run that goes on.
    run: usize,
    /// A line whose end has not come.
    begun: Vec<u8>,
    is_full: bool,
}

/// Where something was left out of the text, and how much.
struct LeftOut {
    at: usize,
    bytes: usize,
}

impl MailSpool {
    /// A mail of which nothing came so far; what there is no room for goes into this folder.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            text: Vec::new(),
            runs: Vec::new(),
            file: None,
            run: 0,
            begun: Vec::new(),
            is_full: false,
        }
    }

    /// Takes the next piece of it.
    pub fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = line.ends_with(b"\n") || self.begun.len() + line.len() > LINES.1;
            match (is_whole, self.begun.is_empty()) {
                (true, true) => self.take_line(line)?,
                (true, false) => {
                    self.begun.extend_from_slice(line);
                    self.end()?;
                }
                (false, _) => self.begun.extend_from_slice(line),
            }
        }
        Ok(())
    }

    /// Takes what was begun as a line, since nothing follows.
    pub fn end(&mut self) -> io::Result<()> {
        let begun = std::mem::take(&mut self.begun);
        self.take_line(&begun)
    }

    fn take_line(&mut self, line: &[u8]) -> io::Result<()> {
        self.run = if is_coded(line) { self.run + line.len() } else { 0 };
        if self.is_full {
            return Ok(());
        }
        if self.run <= STAYS {
            self.is_full = self.text.len() + line.len() > KEPT;
            if !self.is_full {
                self.text.extend_from_slice(line);
            }
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => BufWriter::new(made(&self.folder, RUNS)?),
        };
        self.file.insert(file).write_all(line)?;
        match self.runs.last_mut().filter(|run| run.at == self.text.len()) {
            Some(run) => run.bytes += line.len(),
            None => self.runs.push(LeftOut { at: self.text.len(), bytes: line.len() }),
        }
        Ok(())
    }

    /// What is to be read, of all that came.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether what follows is not kept any more.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Writes a file of the mail into the folder, as it was before it was sent.
    pub fn write(&mut self, file: &MailFile, name: &str) -> io::Result<()> {
        if let Some(runs) = &mut self.file {
            runs.flush()?;
        }
        let mut to = BufWriter::new(made(&self.folder, name)?);
        match file.coding {
            Coding::Plain => self.each(&file.body, |bytes| to.write_all(bytes))?,
            Coding::Base64 => {
                let mut letters = Vec::new();
                self.each(&file.body, |bytes| {
                    letters.extend(bytes.iter().filter(|byte| is_letter(byte) || **byte == b'='));
                    let rest = letters.split_off(letters.len() / 4 * 4);
                    to.write_all(&base64_decode(&std::mem::replace(&mut letters, rest)).unwrap_or_default())
                })?;
                // What is missing in the end are signs that say so.
                letters.extend(std::iter::repeat_n(b'=', (4 - letters.len() % 4) % 4));
                to.write_all(&base64_decode(&letters).unwrap_or_default())?;
            }
            Coding::QuotedPrintable => {
                let mut whole = Vec::new();
                self.each(&file.body, |bytes| {
                    whole.extend_from_slice(bytes);
                    Ok(())
                })?;
                to.write_all(&quoted_printable_decode(&whole).unwrap_or(whole))?;
            }
        }
        to.flush()
    }

    /// All that stood in a place of the mail, in parts.
    fn each(&self, place: &Range<usize>, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let (mut at, mut before) = (place.start, 0_u64);
        for run in &self.runs {
            // The end of the line before a boundary belongs to that, and not to what stands above it.
            if (at..=place.end + "\r\n".len()).contains(&run.at) {
                take(&self.text[at..run.at])?;
                at = run.at;
                let mut part = vec![0; PART.min(run.bytes)];
                let mut read = 0;
                while let (Some(runs), true) = (&self.file, read < run.bytes) {
                    let next = part.len().min(run.bytes - read);
                    runs.get_ref().read_exact_at(&mut part[..next], before + read as u64)?;
                    take(&part[..next])?;
                    read += next;
                }
            }
            before += run.bytes as u64;
        }
        take(self.text.get(at..place.end).unwrap_or_default())
    }
}

/// Removes what was written into a folder, and the folder.
pub fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn made(folder: &Path, name: &str) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600).open(folder.join(name))
}

/// Whether a line can be one of base64, and nothing else that says something.
fn is_coded(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    (LINES.0..=LINES.1).contains(&line.len()) && line.iter().all(is_letter)
}

fn is_letter(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}
