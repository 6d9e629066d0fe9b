//! A journal that lies alone: what an upgrade kept of the one before. It takes the place of the journal, and of nothing else.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::Arc,
};

use drupe_agent::SystemClock;
use drupe_journal::{check, put_back, schema, version_in};
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    BackupError,
    covered::JOURNAL,
    databases,
    error::{At, of},
    files::create,
    restore::Staged,
    swap::{Moves, aside},
};

/// What is beside a journal in use, and belongs to it.
const WITH_IT: [&str; 4] = [JOURNAL, "journal.db-shm", "journal.db-wal", "journal.db.doubted"];

/// A file that is one, and whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JournalAlone {
    pub version: u32,
    /// When the file was written last.
    pub made: Timestamp,
}

/// Looks whether a file is a journal in place of a backup; then it is checked page by page.
pub fn journal_alone(file: &Path) -> Result<Option<JournalAlone>, BackupError> {
    if !databases::is_database(file) {
        return Ok(None);
    }
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    if Path::new(&log).exists() {
        let why = "a log lies beside it, so it is in use or was not closed in order, and no copy that an upgrade kept";
        return Err(BackupError::unusable(file, why));
    }
    // Of a newer release nothing else is asked.
    let (found, known) = (version_in(file)?, schema::version());
    if found > known {
        return Err(BackupError::NewerJournal { path: file.to_owned(), found, known });
    }
    let version = check(file)?;
    let made = fs::metadata(file).and_then(|found| found.modified()).at(file)?;
    let made = Timestamp::try_from(made).map_err(|error| of(file, io::Error::other(error)))?;
    Ok(Some(JournalAlone { version, made }))
}

/// Copies it into the folder of new files, and settles what must not be done again.
pub(crate) fn stage(
    home: &Path,
    file: &Path,
    new: &Path,
    found: JournalAlone,
) -> Result<Staged, BackupError> {
    let to = new.join(JOURNAL);
    let mut copy = create(&to).at(&to)?;
    io::copy(&mut File::open(file).at(file)?, &mut copy).at(&to)?;
    copy.sync_all().at(&to)?;
    let settled = put_back(&to, found.made, Arc::new(SystemClock))?;
    let old = WITH_IT.iter().filter(|name| home.join(name).exists()).map(|name| (*name).to_owned());
    Ok(Staged {
        made: found.made,
        drupe: None,
        left_out: Vec::new(),
        journal: Some(settled),
        moves: Moves { aside: aside(), old: old.collect(), new: vec![JOURNAL.to_owned()] },
    })
}
