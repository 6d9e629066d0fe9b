//! What a call does to one file: decided first, then shown to a person or done.
//!
//! Between the two somebody may change the file. So what is shown has a seal, over the lines that go and come and over those
//! around them. Where that is another one when the call runs, the call fails: a person agreed to something else. Changes elsewhere in
//! the file leave the seal alone, because what the call does is what was shown all the same.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use drupe_extension_api::{Fault, FaultCode, ToolPreview};
use sha2::{Digest as _, Sha256};
use similar::TextDiff;

use crate::lines;

/// Of what is looked at to tell text from other content: as much as common tools do.
const SNIFF: usize = 8000;

/// Lines around those that change, as `diff -u` has them.
const AROUND: usize = 3;

/// The longest text of which a diff is made: what two thousand pages have is not read before an answer.
const DIFFED: usize = 1 << 20;

/// How long a diff is looked for that is as short as can be; then it is one that is right and longer.
const TIME: Duration = Duration::from_millis(500);

/// What a file holds, as far as this extension cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    /// Whether strangers may have written some of it.
    pub strangers: bool,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    Absent,
    Held(FileContent),
    /// A file that is too long to be read: its size, and when it was changed.
    Long {
        bytes: u64,
        changed: String,
    },
}

/// A change of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct FileChange {
    /// As the call names the file.
    pub name: String,
    /// From the root of the workspace.
    pub path: PathBuf,
    pub before: FileState,
    /// What it is to hold; none where it is to be gone.
    pub after: Option<FileContent>,
    /// The file that is to have this name, from the root of the workspace; none where a file keeps its name.
    pub from: Option<PathBuf>,
}

/// Bytes as text, where they are.
pub fn as_text(bytes: &[u8]) -> Option<&str> {
    if bytes.iter().take(SNIFF).any(|byte| *byte == 0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl FileState {
    /// The hash of what is there; none where nothing is, or too much.
    pub fn hash(&self) -> Option<String> {
        match self {
            Self::Held(content) => Some(hash(&content.bytes)),
            Self::Absent | Self::Long { .. } => None,
        }
    }
}

impl FileChange {
    /// Whether the file is so already.
    pub fn is_nothing(&self) -> bool {
        match (&self.before, &self.after) {
            _ if self.from.is_some() => false,
            (FileState::Absent, None) => true,
            // A mark that is to come or to go is a change as well.
            (FileState::Held(before), Some(after)) => before == after,
            _ => false,
        }
    }

    /// Fails where a person was shown another change than this one.
    pub fn as_shown(&self, shown: Option<&str>) -> Result<(), Fault> {
        if shown.is_none_or(|seal| seal == self.seal()) {
            return Ok(());
        }
        let message = format!(
            "`{}` was changed after a person was shown what this call would do to it, so that it would do something else now; \
             nothing was written",
            self.name
        );
        Err(Fault::new(FaultCode::Denied, message)
            .help("read the file and call again: the person is shown what would change then"))
    }

    /// What is shown before it is done.
    pub fn preview(&self) -> ToolPreview {
        ToolPreview { text: self.text(), seal: Some(self.seal()), ..ToolPreview::default() }
    }

    fn text(&self) -> String {
        let name = one_line(&self.name);
        if let (Some(from), Some(content)) = (&self.from, &self.after) {
            let from = one_line(&from.to_string_lossy());
            return format!("`{from}` becomes `{name}`, {}", size(&content.bytes));
        }
        if self.is_nothing() {
            return format!("nothing: `{name}` is so already");
        }
        let (before, after) = match (&self.before, &self.after) {
            (FileState::Long { bytes, .. }, after) => {
                let then = after.as_ref().map_or("nothing".to_owned(), |after| size(&after.bytes));
                return format!("`{name}` has {bytes} bytes, all of which become {then}");
            }
            (FileState::Absent, after) => (None, after.as_ref()),
            (FileState::Held(before), after) => (Some(before), after.as_ref()),
        };
        let text = |content: Option<&FileContent>| {
            content.map_or(Some(String::new()), |content| as_text(&content.bytes).map(str::to_owned))
        };
        let sized = |content: Option<&FileContent>| {
            content.map_or("no file".to_owned(), |content| size(&content.bytes))
        };
        let mut shown = String::new();
        match (text(before), text(after)) {
            (Some(old), Some(new)) if old.len().max(new.len()) <= DIFFED => {
                shown = format!("--- {}\n+++ {}\n", side(before, &name), side(after, &name));
                if before.is_none() && new.is_empty() {
                    shown.push_str("a new file that is empty\n");
                } else if after.is_none() && old.is_empty() {
                    shown.push_str("the file, which is empty, goes\n");
                } else if old == new {
                    // The mark of strangers comes or goes.
                    shown.push_str("no line changes\n");
                }
                diff(&mut shown, &old, &new);
            }
            (Some(old), Some(new)) => {
                let lines = lines::difference(&old, &new);
                let _ =
                    write!(shown, "`{name}`, {} before and {} after: {lines}", sized(before), sized(after));
            }
            _ => {
                let _ = write!(shown, "`{name}` is a binary file: {} become {}", sized(before), sized(after));
            }
        }
        shown
    }

    /// Names the change: that of a text by what is around it, so that it holds wherever these lines stand.
    fn seal(&self) -> String {
        let mut seal = Sha256::new();
        let mut add = |part: &[u8]| {
            seal.update((part.len() as u64).to_le_bytes());
            seal.update(part);
        };
        add(self.path.as_os_str().as_encoded_bytes());
        if let Some(from) = &self.from {
            add(from.as_os_str().as_encoded_bytes());
        }
        add(match (&self.before, &self.after) {
            (FileState::Absent, _) => b"new",
            (_, None) => b"gone",
            _ => b"other",
        });
        let before: &[u8] = match &self.before {
            FileState::Absent => b"",
            FileState::Held(content) => &content.bytes,
            FileState::Long { bytes, changed } => {
                add(&bytes.to_le_bytes());
                changed.as_bytes()
            }
        };
        let after: &[u8] = self.after.as_ref().map_or(b"", |content| &content.bytes);
        let is_long = matches!(self.before, FileState::Long { .. });
        match (as_text(before).filter(|_| !is_long), as_text(after)) {
            (Some(before), Some(after)) => {
                let (before, after) = (split(before), split(after));
                let (head, tail) = lines::alike(&before, &after);
                let (old, new) = (&before[head..before.len() - tail], &after[head..after.len() - tail]);
                let around = [
                    &before[head.saturating_sub(AROUND)..head],
                    &before[before.len() - tail..(before.len() - tail + AROUND).min(before.len())],
                ];
                for part in [old, new, around[0], around[1]] {
                    add(&(part.len() as u64).to_le_bytes());
                    part.iter().for_each(|line| add(line.as_bytes()));
                }
            }
            _ => {
                add(before);
                add(after);
            }
        }
        hex(&seal.finalize())
    }
}

fn side<'a>(content: Option<&FileContent>, name: &'a str) -> &'a str {
    if content.is_some() { name } else { "/dev/null" }
}

/// The difference of two texts as hunks.
fn diff(shown: &mut String, old: &str, new: &str) {
    // By line ends alone: a carriage return within a line is a part of it.
    let (old, new) = (split(old), split(new));
    let diff = TextDiff::configure().timeout(TIME).newline_terminated(true).diff_slices(&old, &new);
    for hunk in diff.unified_diff().context_radius(AROUND).iter_hunks() {
        if shown.len() > ToolPreview::MAX {
            break;
        }
        let _ = write!(shown, "{hunk}");
    }
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
}

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

fn size(bytes: &[u8]) -> String {
    format!("{} bytes", bytes.len())
}

/// A name as it stands in a line: none can make a line of its own.
fn one_line(name: &str) -> String {
    name.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
