//! What is left in files of the data folder when the process is gone.

use std::{
    fs::OpenOptions,
    io::{ErrorKind, Result, Write as _},
    path::Path,
};

/// Whether this is the first time: makes the file, durably, if it is.
pub fn first(marker: &Path) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(marker) {
        Ok(file) => file.sync_all().map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Appends a line, durably.
pub fn append(path: &Path, line: &str) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{line}")?;
    file.sync_all()
}
