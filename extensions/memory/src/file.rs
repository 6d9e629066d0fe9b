//! The database file: made whole or not at all, known as ours before it is changed, never taken for empty.
//!
//! A rollback journal and no write-ahead log: what was deleted would stay in a log until that is cut, a reader that does not
//! wait for a writer is of no use to one process, and the journal is gone with its transaction. `secure_delete` overwrites
//! what rows leave behind, and the option of the same name of FTS5 takes the words of a deleted text out of the index at once,
//! where it would otherwise only note that they no longer hold. Sources: <https://www.sqlite.org/pragma.html#pragma_secure_delete>,
//! <https://www.sqlite.org/fts5.html#the_secure_delete_configuration_option>, read on 2026-11-24.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    ops::Range,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use drupe_extension_api::{Fault, FaultCode};
use rusqlite::{Connection, Error, ErrorCode, OpenFlags};

/// Stands in the header of the file: "drmf", a file of drupe's memory.
const APPLICATION: i32 = 0x6472_6d66;

/// The form of the tables below, in `user_version`. A change of them, or of how texts become words, raises it and brings a step
/// from the form before.
const VERSION: i32 = 2;

/// What brings a file from the form before, by the form that it leads to.
const STEPS: [(i32, &str); 1] = [(2, VECTORS)];

/// Added by the second form.
const VECTORS: &str = "
-- What facts mean, of those for which a model was asked.
CREATE TABLE vectors (
    fact INTEGER PRIMARY KEY,
    -- Each byte is a number from -127 to 127, which counts so much.
    scale REAL NOT NULL,
    numbers BLOB NOT NULL
) STRICT;
-- The model that all of these are of, with how many numbers a vector of it has: one row, or none without vectors.
CREATE TABLE vector_model (model TEXT NOT NULL, numbers INTEGER NOT NULL) STRICT;
";

const TABLES: &str = "
CREATE TABLE facts (
    -- Never given twice: an id that a conversation still holds must not come to mean another fact.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    text TEXT NOT NULL,
    -- What two texts share that say the same.
    likeness TEXT NOT NULL,
    -- Words in the index.
    length INTEGER NOT NULL,
    confidence REAL NOT NULL,
    session TEXT NOT NULL,
    turn TEXT NOT NULL,
    agent TEXT NOT NULL,
    -- The call that wrote it last: a repetition of the call is known by it.
    effect TEXT NOT NULL,
    -- Whether the operator wrote it last.
    by_operator INTEGER NOT NULL,
    -- Whether it was kept while text of strangers was in the conversation.
    strangers INTEGER NOT NULL,
    -- Milliseconds since 1970.
    made INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    recalled INTEGER
) STRICT;
CREATE UNIQUE INDEX facts_by_likeness ON facts (namespace, likeness);
-- All that a search reads of the facts that do not fit.
CREATE INDEX facts_by_namespace ON facts (namespace, id, length);
CREATE INDEX facts_by_effect ON facts (effect);
-- With the words as they were when they came in: what is taken out of the index is exactly these, whatever a later release makes of
-- a text. Marks count as parts of words, since many scripts write vowels with them.
CREATE VIRTUAL TABLE words USING fts5(
    text, columnsize = 0,
    tokenize = \"porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'\"
);
INSERT INTO words(words, rank) VALUES('secure-delete', 1);
";

/// How the name of a copy ends that is being made.
const FRESH: &str = ".upgrading";

/// How long to wait for another process that has the file locked, such as one that makes a backup. A turn waits no longer for
/// its facts.
const BUSY: Duration = Duration::from_secs(1);

/// A connection to the file. One that is not there is made.
pub fn open(path: &Path) -> Result<Connection, Fault> {
    match fs::metadata(path) {
        Ok(found) if found.len() == 0 => return Err(damaged(path, "it is empty")),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => create(path)?,
        Err(error) => {
            let message = format!("`{}` cannot be used: {error}", path.display());
            return Err(Fault::new(Fault::from(error).code, message));
        }
    }
    let db = connect(path)?;
    let version = check(&db, path)?;
    bring_up(&db, path, version)?;
    Ok(db)
}

/// Builds a new file under another name: a file under its own name is complete, so an empty one is damage.
fn create(path: &Path) -> Result<(), Fault> {
    let unmade = |error: std::io::Error| {
        Fault::new(Fault::from(error).code, format!("`{}` could not be made", path.display()))
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    // No more than this one: where those above are gone the home was moved, and what is made in its old place is lost.
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(unmade(error)),
        _ => {}
    }
    let new = beside(path, ".new");
    for suffix in ["-journal", ""] {
        match fs::remove_file(beside(&new, suffix)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(unmade(error)),
            _ => {}
        }
    }
    // What is remembered of a person is nobody else's business; SQLite gives its journal the same mode.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(unmade)?;
    let db = connect(&new)?;
    let made = format!(
        "BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; {TABLES} {VECTORS} COMMIT;"
    );
    db.execute_batch(&made).map_err(|error| fault(path, &error))?;
    db.close().map_err(|(_, error)| fault(path, &error))?;
    File::open(&new).and_then(|file| file.sync_all()).map_err(unmade)?;
    fs::rename(&new, path).map_err(unmade)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(unmade)
}

fn connect(path: &Path) -> Result<Connection, Fault> {
    let of = |error: Error| fault(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).map_err(of)?;
    db.busy_timeout(BUSY).map_err(of)?;
    // Kibibytes: what one search reads of a large file. The system's own cache has the rest.
    db.pragma_update(None, "cache_size", -512).map_err(of)?;
    db.pragma_update(None, "temp_store", "MEMORY").map_err(of)?;
    db.pragma_update_and_check(None, "secure_delete", true, |_| Ok(())).map_err(of)?;
    Ok(db)
}

/// Refuses what is not ours, was written by a newer release, or is damaged, and gives its form. It changes nothing.
fn check(db: &Connection, path: &Path) -> Result<i32, Fault> {
    let number = |name: &str| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let of = |error: Error| fault(path, &error);
    if number("application_id").map_err(of)? != APPLICATION {
        return Err(damaged(path, "it is no file of the extension `memory`"));
    }
    let version = number("user_version").map_err(of)?;
    if !(1..=VERSION).contains(&version) {
        let message = format!(
            "`{}` was written by a newer drupe: its form is {version}, this one knows {VERSION}",
            path.display()
        );
        let kept = (1..=VERSION).rev().map(|of| kept(path, of)).find(|kept| kept.exists());
        let help = kept.map_or_else(
            || "run that version of drupe again, or move the file away: then a new one is made".to_owned(),
            |kept| {
                format!(
                    "run that version of drupe again, or put `{}` in its place, as it was before the upgrade",
                    kept.display()
                )
            },
        );
        return Err(Fault::new(FaultCode::Unsupported, message).help(help));
    }
    let found: String = db.pragma_query_value(None, "quick_check", |row| row.get(0)).map_err(of)?;
    if found == "ok" { Ok(version) } else { Err(damaged(path, &found)) }
}

/// Brings the file of an older release to the present form, by all steps or none. What it was stays beside it as `<name>.v<N>`, by its
/// form, as the journal of a home does: the way back to the release before.
fn bring_up(db: &Connection, path: &Path, version: i32) -> Result<(), Fault> {
    if version == VERSION {
        return Ok(());
    }
    copy(db, path, version).inspect_err(|_| drop(fs::remove_file(beside(path, FRESH))))?;
    let steps: String = STEPS.into_iter().filter(|(to, _)| *to > version).map(|(_, step)| step).collect();
    let all = format!("BEGIN IMMEDIATE; {steps} PRAGMA user_version = {VERSION}; COMMIT;");
    db.execute_batch(&all).map_err(|error| fault(path, &error))
}

/// Copies the file before it is changed: whole and checked under its own name, or not there.
fn copy(db: &Connection, path: &Path, version: i32) -> Result<(), Fault> {
    let failed = |error: std::io::Error| {
        let message = format!(
            "`{}` is not brought to its new form, since no copy of it could be made: {error}",
            path.display()
        );
        Fault::new(Fault::from(error).code, message)
    };
    let (fresh, folder) = (beside(path, FRESH), path.parent().unwrap_or(Path::new(".")));
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    // SQLite writes into a file that is there and empty, and leaves its mode.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(failed)?;
    db.execute("VACUUM INTO ?1", [fresh.to_str()]).map_err(|error| fault(path, &error))?;
    check(&connect(&fresh)?, &fresh)?;
    File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&fresh, kept(path, version)).map_err(failed)?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    remove_kept(path, 1..version);
    Ok(())
}

fn kept(path: &Path, version: i32) -> PathBuf {
    beside(path, &format!(".v{version}"))
}

/// Removes what upgrades have kept of an open file: nobody who has something forgotten wants it to lie there.
pub fn forget_kept(db: &Connection) {
    db.path().into_iter().for_each(|path| remove_kept(Path::new(path), 1..VERSION));
}

fn remove_kept(path: &Path, versions: Range<i32>) {
    // What is not there is what was wanted.
    versions.for_each(|of| drop(fs::remove_file(kept(path, of))));
}

fn damaged(path: &Path, detail: &str) -> Fault {
    Fault::internal(format!("`{}` is damaged: {detail}", path.display()))
        .help("restore it from a backup, or move it away: then a new one is made")
}

/// A failure of SQLite, with the file and what mends it.
pub fn fault(path: &Path, error: &Error) -> Fault {
    let (code, detail) = match error {
        Error::SqliteFailure(found, detail) => {
            (Some(found.code), detail.clone().unwrap_or_else(|| found.to_string()))
        }
        other => (None, other.to_string()),
    };
    match code {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(path, &detail),
        Some(ErrorCode::DiskFull) => {
            Fault::new(FaultCode::Other, format!("the disk of `{}` is full", path.display()))
                .help("make room there")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Fault::new(FaultCode::Busy, format!("another process has `{}` locked", path.display()))
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Fault::new(FaultCode::Denied, format!("`{}` cannot be used: {detail}", path.display()))
                .help("see who owns the file and its folder")
        }
        _ => Fault::internal(format!("`{}`: {detail}", path.display())),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
