//! Opening the file: made whole or not at all, checked after a crash, never taken for empty.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};

use crate::{
    StoreError, ahead,
    broken::{doubt, is_doubted, trust},
    opening::{Stage, UNREAD},
    schema::{APPLICATION_ID, STEPS},
    upgrade::{self, Precious},
};

/// The first SQLite whose write-ahead log cannot be reset while another connection still relies on it.
const SAFE_SQLITE: i32 = 3_051_003;

/// How long to wait for another process that has the file locked, such as one that makes a backup.
const BUSY: Duration = Duration::from_secs(2);

/// The same while it is opened. Nobody is served yet, and a start that fails is tried again a few times only.
pub(crate) const LOCKED: Duration = Duration::from_secs(60);

/// The file that the write-ahead log is cut back to after a checkpoint, so that one busy hour does not hold the
/// disk for ever.
const LOG_BYTES: i64 = 16 * 1024 * 1024;

/// Pages of the log after which SQLite writes it back by itself, where nobody else does: as without this.
const WRITTEN_BACK: u32 = 1_000;

/// Where rows are kept, and what a commit waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In a file; what was promised to the outside survives a loss of power.
    Full(PathBuf),
    /// In a file, without ever waiting for the disk: survives the process, but a loss of power may damage it.
    Process(PathBuf),
    /// In memory: nothing survives.
    Memory,
}

/// Refuses a SQLite that can lose commits.
pub(crate) fn check_sqlite() -> Result<(), StoreError> {
    if rusqlite::version_number() < SAFE_SQLITE {
        return Err(StoreError::UnsafeSqlite(rusqlite::version().to_owned()));
    }
    Ok(())
}

/// A database without a file: one block of memory, and a cache of its pages as for a file.
///
/// SQLite's own kind of database in memory keeps all pages in its cache instead. That cache is searched whole by each
/// commit that puts split pages in order, which costs the more the longer the journal is.
pub(crate) fn memory() -> Result<Connection, StoreError> {
    let mut db =
        Connection::open_with_flags_and_vfs("journal", writing() | OpenFlags::SQLITE_OPEN_CREATE, c"memdb")?;
    caches(&db)?;
    upgrade::begin(&mut db, STEPS)?;
    Ok(db)
}

/// The connection that writes, on a file that is ready to be used.
pub(crate) fn file(precious: &Precious<'_>) -> Result<Connection, StoreError> {
    let path = precious.path;
    match fs::metadata(path) {
        Ok(found) if found.len() == 0 => return Err(damaged(path, "it is empty")),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path)?,
        Err(error) => return Err(error.into()),
    }
    ready(precious).map_err(|error| match error {
        StoreError::Corrupt(detail) if !detail.starts_with('`') => damaged(path, &detail),
        error @ StoreError::Unsynced(_) => {
            doubt(path, &error);
            error
        }
        other => other,
    })
}

/// A connection that cannot write, on a file that is open already.
pub(crate) fn read_only(path: &Path) -> Result<Connection, StoreError> {
    let db = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.busy_timeout(BUSY)?;
    keep_plans(&db)?;
    db.set_prepared_statement_cache_capacity(48);
    db.pragma_update(None, "cache_size", -512)?;
    Ok(db)
}

/// A plan holds for all values of its parameters. SQLite otherwise plans a kept statement anew for other values, which
/// costs more than our statements, which all follow an index, take to run.
pub(crate) fn keep_plans(db: &Connection) -> Result<(), StoreError> {
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Moves a damaged journal aside, with its log, so that the next start begins anew; gives its new path.
///
/// Nothing calls this by itself: what is set aside is no longer remembered by the daemon. `now_ms` (milliseconds
/// since 1970) becomes part of the name. The journal must not be open.
pub fn set_aside(path: &Path, now_ms: i64) -> Result<PathBuf, StoreError> {
    let aside = beside(path, &format!(".corrupt-{now_ms}"));
    for suffix in ["-wal", "-shm", ".doubted", ""] {
        match fs::rename(beside(path, suffix), beside(&aside, suffix)) {
            Err(error) if suffix.is_empty() || error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error.into());
            }
            _ => {}
        }
    }
    Ok(aside)
}

/// Notes that the journal was closed in order.
pub(crate) fn unmark(db: &Connection) -> Result<(), StoreError> {
    db.execute("DELETE FROM meta WHERE key = 'open'", [])?;
    Ok(())
}

/// Builds a new file under another name: a file under its own name is complete, so an empty one is damage.
fn create(path: &Path) -> Result<(), StoreError> {
    if fs::exists(beside(path, "-wal"))? {
        return Err(damaged(path, "its write-ahead log is there, but the file itself is gone"));
    }
    let new = beside(path, ".new");
    for suffix in ["-wal", "-shm", ""] {
        match fs::remove_file(beside(&new, suffix)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    // Conversations are nobody else's business; SQLite gives its log the same mode.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let mut db = connect(&new)?;
    // So that what is let go of can be given back piece by piece. It has to be said before the first table is made.
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    log_ahead(&db)?;
    upgrade::begin(&mut db, STEPS)?;
    db.close().map_err(|(_, error)| error)?;
    File::open(&new)?.sync_all()?;
    fs::rename(&new, path)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

fn ready(precious: &Precious<'_>) -> Result<Connection, StoreError> {
    let Precious { path, opening, .. } = *precious;
    let has_log = fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let mut db = connect(path)?;
    // What is refused below stays as it is, with its log.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    db.busy_timeout(LOCKED)?;
    opening.count(&mut db)?;
    let unread = ahead::is_unread(path)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Err(damaged(path, "it is not a journal of drupe"));
    }
    // Of a newer release nothing is changed, not even how its log is kept.
    upgrade::check_version(&db, STEPS, path)?;
    log_ahead(&db)?;
    // What SQLite writes back by itself it tells nobody of, nor that the disk did not confirm it.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    let doubted = is_doubted(path);
    if doubted {
        tracing::warn!("an earlier kernel did not go on with the journal; all of it is checked");
        opening.enter(Stage::Checks);
        opening.doubted();
        verify(&db, path, "integrity_check")?;
        // Written once more, and confirmed: what an earlier sync did not, a later one would not be asked for again.
        let held: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        if held {
            return Err(StoreError::Busy);
        }
    }
    let checked = upgrade::upgrade(&mut db, STEPS, precious)? || doubted;
    let open: Option<String> =
        db.query_row("SELECT value FROM meta WHERE key = 'open'", [], |row| row.get(0)).optional()?;
    if unread {
        tracing::warn!("{UNREAD}");
        opening.unread();
    }
    if open.is_some() || unread {
        opening.not_closed();
    }
    if (open.is_some() || unread) && !checked {
        tracing::info!("the journal was not closed in order; checking it");
        opening.enter(Stage::Checks);
        verify(&db, path, "quick_check")?;
    }
    db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('open', '1')", [])?;
    trust(path)?;
    opening.done(&mut db)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    db.pragma_update(None, "wal_autocheckpoint", WRITTEN_BACK)?;
    db.busy_timeout(BUSY)?;
    Ok(db)
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    let db = Connection::open_with_flags(path, writing())?;
    db.busy_timeout(BUSY)?;
    Ok(db)
}

/// Changes the file: not before it is known to be ours.
fn log_ahead(db: &Connection) -> Result<(), StoreError> {
    let mode: String = db.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::Io(format!("its file system allows no write-ahead log (mode `{mode}`)")));
    }
    db.pragma_update(None, "synchronous", "NORMAL")?;
    db.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
    caches(db)
}

fn writing() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

fn caches(db: &Connection) -> Result<(), StoreError> {
    // In kibibytes: the pages at the ends of a few tables are all that is written again and again.
    db.pragma_update(None, "cache_size", -1024)?;
    // What a row was before it moved or changed is overwritten in the pages that are written in any case: else it would outlive
    // a session that is deleted.
    db.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    // What a savepoint may have to bring back.
    db.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}

fn verify(db: &Connection, path: &Path, check: &str) -> Result<(), StoreError> {
    let found: String = db.pragma_query_value(None, check, |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(damaged(path, &found)) }
}

fn damaged(path: &Path, detail: &str) -> StoreError {
    StoreError::Corrupt(format!("`{}`: {detail}", path.display()))
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
