//! Turns that are written to files before they are let go: a file of JSON lines for each session, a line for each turn.
//!
//! A line is on the disk before its turn is deleted. What ends the process in between leaves a turn in both, and then twice in
//! the file: whoever reads takes each once. It deliberately does not read archives: they are for people and their tools.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use drupe_extension_api::{SessionId, TurnId, control::ArchivedTurn};

use crate::{Store, StoreError, retention::Old, rows::timestamp};

/// The file of a session: an id has no sign that a name of a file cannot have, and is shorter than one may be.
pub fn archive_file(folder: &Path, session: &SessionId) -> PathBuf {
    folder.join(format!("{session}.jsonl"))
}

impl Store {
    /// Writes turns to their files; gives those that are there now.
    pub(crate) async fn archive(&self, folder: &Path, old: &[Old]) -> Result<HashSet<TurnId>, StoreError> {
        let mut archived = HashSet::new();
        for Old { turn, accepted_ms, finished_ms, .. } in old {
            let Some(result) = self.turn_result(turn, false).await? else { continue };
            let session = result.session.clone();
            let line = ArchivedTurn {
                form: ArchivedTurn::FORM,
                accepted: timestamp(*accepted_ms),
                finished: timestamp(*finished_ms),
                result,
            };
            let line = serde_json::to_vec(&line)?;
            let file = archive_file(folder, &session);
            let write = file.clone();
            let written = tokio::task::spawn_blocking(move || append(&write, &line)).await;
            written.map_err(|_| StoreError::Closed)?.map_err(|error| unwritten(&file, error))?;
            // Deleted meanwhile, with its file: there is to be none again.
            if self.number_of(&session).await?.is_none() {
                remove_archive(folder, &session)?;
            }
            archived.insert(turn.clone());
        }
        Ok(archived)
    }
}

/// Removes the archive of a session, where there is one.
pub fn remove_archive(folder: &Path, session: &SessionId) -> Result<(), StoreError> {
    let file = archive_file(folder, session);
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unwritten(&file, error)),
        _ => Ok(()),
    }
}

fn unwritten(file: &Path, error: io::Error) -> StoreError {
    match StoreError::from(error) {
        StoreError::Full(why) => {
            StoreError::Io(format!("no room for the archive `{}` ({why})", file.display()))
        }
        other => StoreError::Io(format!("the archive `{}` cannot be written: {other}", file.display())),
    }
}

/// Adds a line, which is on the disk when this returns, or not in the file.
fn append(path: &Path, line: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let is_new = !path.exists();
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let before = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(line.len() + 2);
    if before > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(before - 1))?;
        file.read_exact(&mut last)?;
        // A line that a process did not end is none, and must not spoil this one.
        if last != *b"\n" {
            bytes.push(b'\n');
        }
    }
    bytes.extend(line);
    bytes.push(b'\n');
    let written = file.write_all(&bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        // On a full disk this frees what was taken; where it cannot be done, the next line begins behind it.
        let _ = file.set_len(before);
    }
    written?;
    if is_new {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
