//! Texts to parse and places in them; reading files within bounds.
//!
//! Anything that is not a regular file of bounded size and valid UTF-8 is refused before its content is looked
//! at: a named pipe would block, a device would never end.

use std::{
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use rustix::fs::{Mode, OFlags};

use crate::{Diagnostics, visible::masked};

/// The most that a configuration file, a manifest or a file that one names may hold.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Where a text came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SourceOrigin {
    File(PathBuf),
    Environment(String),
    CommandLine(String),
}

/// A text with its origin.
#[derive(Debug)]
pub(crate) struct Source {
    pub origin: SourceOrigin,
    pub text: String,
    /// What must not be shown; unset means that nobody looked yet, and then nothing is shown.
    secrets: OnceLock<Vec<Range<usize>>>,
}

impl Source {
    pub fn new(origin: SourceOrigin, text: String) -> Arc<Self> {
        Arc::new(Self { origin, text, secrets: OnceLock::new() })
    }

    pub fn name(&self) -> PathBuf {
        match &self.origin {
            SourceOrigin::File(path) => path.clone(),
            SourceOrigin::Environment(name) => format!("environment:{name}").into(),
            SourceOrigin::CommandLine(key) => format!("command line:{key}").into(),
        }
    }

    /// Says which parts are secret; the rest may then be shown. Only the first call counts.
    pub fn reveal_except(&self, secrets: Vec<Range<usize>>) {
        self.secrets.get_or_init(|| secrets);
    }

    /// A part of the text with its secrets masked, byte for byte. Nothing before it is known what is secret.
    fn shown(&self, part: Range<usize>) -> Option<String> {
        let secrets = self.secrets.get()?;
        let mut bytes = self.text.get(part.clone())?.as_bytes().to_vec();
        for secret in secrets {
            let (start, end) = (secret.start.max(part.start), secret.end.min(part.end));
            if start < end {
                bytes[start - part.start..end - part.start].fill(b'*');
            }
        }
        // A mask covers whole values, hence whole characters.
        String::from_utf8(bytes).ok()
    }
}

/// A place in a [`Source`].
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub source: Arc<Source>,
    pub line: u32,
    pub column: u32,
    pub start: usize,
    pub len: usize,
}

impl At {
    /// The place of what no file holds.
    pub fn nowhere() -> Self {
        Self::start_of(&Source::new(SourceOrigin::CommandLine("built-in".into()), String::new()))
    }

    pub fn start_of(source: &Arc<Source>) -> Self {
        Self { source: source.clone(), line: 1, column: 1, start: 0, len: 0 }
    }

    /// The line that it is in, cut to what a terminal can show and without what must not be shown; and offset and
    /// length within that text.
    pub fn shown_line(&self) -> Option<(String, (usize, usize))> {
        let text = &self.source.text;
        let start = text.floor_char_boundary(self.start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        // The renderer panics at a line of 64 KiB, and nobody reads one.
        let from = line_start.max(text.floor_char_boundary(start.saturating_sub(MAX_SHOWN)));
        let to = line_end.min(text.floor_char_boundary(start + MAX_SHOWN));
        let mut line = masked(&self.source.shown(from..to)?);
        if text[..to].ends_with('\r') {
            line.pop();
        }
        let offset = (start - from).min(line.len());
        let len = self.len.min(line.len() - offset);
        Some((line, (offset, len)))
    }
}

/// Bytes on each side of a fault.
const MAX_SHOWN: usize = 200;

/// Whether the last part of a path may be a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Followed,
    Refused,
}

/// Reads a text file that a configuration or a manifest named, such as a prompt: whole and once.
///
/// It never waits: what is no regular file (a pipe, a device, a folder, a link) is refused before it is read.
///
/// # Errors
/// What is wrong with it: not a regular file, unreadable, larger than a mebibyte, or not UTF-8.
pub fn read_text_file(path: &Path) -> Result<String, Diagnostics> {
    let mut faults = Diagnostics::default();
    read_text(path, Links::Refused, &mut faults).ok_or(faults)
}

/// Reads a whole text file; what is wrong with it goes to `faults`.
pub(crate) fn read_text(path: &Path, links: Links, faults: &mut Diagnostics) -> Option<String> {
    let file = open(path, links, faults)?;
    read_open(path, file, faults)
}

/// Opens a regular file without blocking on anything else.
pub(crate) fn open(path: &Path, links: Links, faults: &mut Diagnostics) -> Option<File> {
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    if links == Links::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(descriptor) => File::from(descriptor),
        Err(rustix::io::Errno::LOOP) => {
            let message = format!("`{}` is a symbolic link, expected a regular file", path.display());
            faults.file_error("symlink", path, 0, message).help("put the file itself there");
            return None;
        }
        Err(rustix::io::Errno::NOENT) if path.is_symlink() => {
            let message = format!("`{}` is a symbolic link to nothing", path.display());
            faults.file_error("broken_link", path, 0, message).help("create what it names, or remove it");
            return None;
        }
        Err(rustix::io::Errno::NOENT) => {
            let message = format!("`{}` does not exist", path.display());
            faults.file_error("not_found", path, 0, message).help("create it, or correct the path");
            return None;
        }
        Err(error) => {
            let message = format!("`{}` cannot be opened: {}", path.display(), std::io::Error::from(error));
            faults.file_error("unreadable", path, 0, message).help("check its kind and its permissions");
            return None;
        }
    };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Some(file),
        Ok(metadata) => {
            let kind = if metadata.is_dir() { "a folder" } else { "a pipe, socket or device" };
            let message = format!("`{}` is {kind}, expected a regular file", path.display());
            faults.file_error("not_a_file", path, 0, message).help("put a text file there");
            None
        }
        Err(error) => {
            faults.file_error("unreadable", path, 0, format!("`{}` cannot be read: {error}", path.display()));
            None
        }
    }
}

/// The path without links, of a file or folder that was there a moment ago.
pub(crate) fn canonical(path: &Path, faults: &mut Diagnostics) -> Option<PathBuf> {
    let refused = |error| {
        let message = format!("`{}` cannot be reached: {error}", path.display());
        faults.file_error("unreadable", path, 0, message).help("check the folders above it");
    };
    path.canonicalize().map_err(refused).ok()
}

fn too_large(path: &Path, faults: &mut Diagnostics) {
    let message = format!("`{}` is larger than {} KiB", path.display(), MAX_FILE_BYTES / 1024);
    faults.file_error("too_large", path, 0, message).help("split it, or move data out of it");
}

/// Reads what [`open`] gave.
pub(crate) fn read_open(path: &Path, file: File, faults: &mut Diagnostics) -> Option<String> {
    // A sparse file can claim terabytes and hold nothing; one that grows meanwhile is cut off below.
    if file.metadata().is_ok_and(|metadata| metadata.len() > MAX_FILE_BYTES) {
        too_large(path, faults);
        return None;
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes) {
        let message = format!("`{}` cannot be read: {error}", path.display());
        faults.file_error("unreadable", path, 0, message).help("check its disk and its permissions");
        return None;
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        too_large(path, faults);
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
            let message = format!("`{}` is not valid UTF-8 at byte {valid}", path.display());
            let line = u32::try_from(line).unwrap_or(u32::MAX);
            faults.file_error("not_utf8", path, line, message).help("save it as UTF-8");
            None
        }
    }
}
