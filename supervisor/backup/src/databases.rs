//! Databases that others write: copied as they are at one moment, never as raw files under a writer.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, backup::Backup};

/// How every file of SQLite begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// How long to wait for whoever writes to one.
const BUSY: Duration = Duration::from_secs(10);

/// What SQLite keeps beside a database while it is in use: a part of it, which a copy has inside.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

pub(crate) fn is_database(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut begin)).is_ok() && begin == *MAGIC
}

/// Whether a file belongs to a database beside it.
pub(crate) fn is_beside(path: &Path) -> bool {
    let Some(name) = path.to_str() else { return false };
    BESIDE.iter().filter_map(|end| name.strip_suffix(end)).any(|base| is_database(Path::new(base)))
}

/// Copies a database page by page, and checks the copy. Rows keep their numbers, which an index of text may rely on.
pub(crate) fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let source = Connection::open_with_flags(
        from,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    source.busy_timeout(BUSY)?;
    let mut copy = Connection::open(to)?;
    // All pages in one go: another process that writes would have it begin anew between two.
    Backup::new(&source, &mut copy)?.run_to_completion(i32::MAX, Duration::from_millis(50), None)?;
    // Out of the log, so that the copy is one file; whoever opens it next chooses again.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    let found: String = copy.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if found != "ok" {
        return Err(rusqlite::Error::ToSqlConversionFailure(format!("the copy is damaged: {found}").into()));
    }
    copy.close().map_err(|(_, error)| error)
}

/// Removes what SQLite may have left beside a copy that failed.
pub(crate) fn remove(path: &Path) {
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        // What is not there is what was wanted.
        let _ = fs::remove_file(PathBuf::from(name));
    }
}
