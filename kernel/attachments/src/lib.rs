//! Files that come with messages of people and go out with them: where they are kept, under which names, and how many of them.
//!
//! What comes in is a file of the workspace, beneath `inbox`, so that it is read by the tools that read others. Its name is made from
//! what a stranger calls it, its place from the message that it came with, so that a message that comes twice has one file. It is there
//! whole or not at all, it is never written over, and it bears the mark of text of strangers. What goes out is a copy, kept
//! until it is known what became of its message. Nothing here fetches or sends anything.

mod inbox;
mod kind;
mod name;
mod outgoing;

use std::{fs::File, io, path::Path};

use drupe_confine::{open_beneath, open_root};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};

pub use inbox::{
    FOLDER, InboxFile, LARGEST_RECEIVED, OF_ALL, OF_CONVERSATION, OF_WRITER, Receiving, WorkspaceInbox,
};
pub use kind::FileKind;
pub use name::safe_name;
pub use outgoing::{LARGEST_SENT, LENT, LentFile, MOST_WAITING, OutgoingFiles};

/// The attribute that marks a file in which text of strangers stands, as the tools for files know it.
const MARK: &str = "user.drupe.strangers";

/// Bytes that are looked at at once. By the first of them it is known what a file is.
const PART: u64 = 64 << 10;

/// Opens a file beneath a folder in which somebody else writes, and its size.
fn regular(folder: &Path, path: &str) -> io::Result<(File, u64)> {
    // A pipe must not make this wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let file = File::from(open_beneath(open_root(folder)?, Path::new(path), flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_file() { Ok((file, found.len())) } else { Err(io::Error::other("it is no file")) }
}

fn hash(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
