//! Texts beneath a folder: reached by no link, and of bounded size.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Component, Path},
};

use drupe_confine::{open_beneath, open_root};
use rustix::fs::{Mode, OFlags};

/// Why a file beneath a folder gives no text, as it stands after the file's name.
#[derive(Debug, thiserror::Error)]
pub enum NoFileText {
    #[error("is no path beneath its folder: leave out `..` and a `/` at the beginning")]
    Path,
    #[error("does not exist")]
    Missing,
    #[error("is no file")]
    Kind,
    #[error("is longer than {0} KiB")]
    Long(u64),
    #[error("is no text")]
    Bytes,
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
}

/// The bytes of a file beneath a folder, where it has at most so many.
///
/// # Errors
/// Why there are none.
pub fn bytes(folder: &Path, path: &str, most: u64) -> Result<Vec<u8>, NoFileText> {
    let relative = Path::new(path);
    if path.is_empty() || !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(NoFileText::Path);
    }
    let opened = open_root(folder).and_then(|root| {
        open_beneath(root, relative, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).map(File::from)
    });
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NoFileText::Missing,
        _ => NoFileText::Open(error),
    })?;
    let about = file.metadata().map_err(NoFileText::Read)?;
    if !about.is_file() {
        return Err(NoFileText::Kind);
    }
    if about.len() > most {
        return Err(NoFileText::Long(most / 1024));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(NoFileText::Read)?;
    Ok(bytes)
}

/// The text of a file beneath a folder.
///
/// # Errors
/// Why there is none.
pub fn text(folder: &Path, path: &str, most: u64) -> Result<String, NoFileText> {
    String::from_utf8(bytes(folder, path, most)?).map_err(|_| NoFileText::Bytes)
}
