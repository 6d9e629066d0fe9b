//! How an older file becomes a newer one: it is copied before, changed in one transaction, and checked before that is
//! committed. Whatever fails, the file is as it was.
//!
//! The copy lies beside the file as `<name>.v<N>`, by the version that it has: it is the way back to the release that wrote it.
//! Nothing here goes back by itself, and a file of a newer release is refused, not read by guess.

use std::{
    fs::{self, File, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};

use crate::{
    Store, StoreError, backup,
    open::beside,
    opening::{Opening, Stage},
    retention::noted,
    rows::timestamp,
    schema::{APPLICATION_ID, number, version_of},
};

/// In `meta`: the last upgrade.
const UPGRADED: &str = "upgraded";

/// Copies that are kept, those of the latest versions: whoever goes back goes back to the release that they had, or to one or
/// two before it.
const KEPT: usize = 3;

/// How the name of a copy ends that is being made. Under its own name a copy is whole.
const FRESH: &str = ".upgrading";

/// When the file was brought to another version last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upgraded {
    pub from: u32,
    pub to: u32,
    pub at: Timestamp,
}

/// The file as it was before it was brought to a later version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptJournal {
    pub path: PathBuf,
    pub version: u32,
    pub bytes: u64,
}

/// A file that holds what nobody has twice.
pub(crate) struct Precious<'a> {
    pub path: &'a Path,
    /// Whether a copy of it as it was is to stay. Without one it has to be somewhere else.
    pub keeps: bool,
    pub now_ms: i64,
    pub opening: &'a Arc<Opening>,
}

/// Brings an empty database to the version of `steps`.
pub(crate) fn begin(db: &mut Connection, steps: &[&str]) -> Result<(), StoreError> {
    let work = db.transaction()?;
    take(&work, steps, 0)?;
    Ok(work.commit()?)
}

/// Refuses a file that a newer release wrote, and says how to go back.
pub(crate) fn check_version(db: &Connection, steps: &[&str], path: &Path) -> Result<(), StoreError> {
    let (found, known) = (version_of(db)?, number(steps));
    match found > known {
        true => Err(StoreError::Newer { found, known, way_back: way_back(path, known) }),
        false => Ok(()),
    }
}

/// Takes the steps that a file has not taken, all or none of them; whether there were any. Then all of the file was checked.
pub(crate) fn upgrade(db: &mut Connection, steps: &[&str], file: &Precious<'_>) -> Result<bool, StoreError> {
    check_version(db, steps, file.path)?;
    let fresh = beside(file.path, FRESH);
    let (found, known) = (version_of(db)?, number(steps));
    if found == known {
        // What was cut off is of no use, and does no harm.
        let _ = remove(&fresh);
        return Ok(false);
    }
    file.opening.enter(Stage::Migrates);
    remove(&fresh)?;
    let kept = beside(file.path, &format!(".v{found}"));
    let before = kept.exists();
    let copied = if file.keeps { copy(db, &fresh, found, file) } else { Ok(()) };
    let outcome = copied.and_then(|()| change(db, steps, file, (&fresh, &kept)));
    if let Err(error) = outcome {
        // Room that it takes may be what is missing.
        let _ = remove(&fresh);
        if !before && version_of(db).is_ok_and(|version| version == found) {
            let _ = remove(&kept);
        }
        return Err(unchanged(error, found, known));
    }
    tracing::info!(from = found, to = known, "the journal was brought to this release's version");
    if file.keeps {
        tracing::info!(file = %kept.display(), "the journal is kept as it was before");
        let_go(file.path, found);
    }
    Ok(true)
}

/// Copies the file, on the disk, and checks the copy.
fn copy(db: &Connection, to: &Path, version: u32, file: &Precious<'_>) -> Result<(), StoreError> {
    // SQLite would make it readable for everybody; a file that is there and empty keeps its mode.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let name = to.to_str().ok_or_else(|| StoreError::Io("the journal's path is not valid UTF-8".into()))?;
    db.execute("VACUUM INTO ?1", [name])?;
    made.sync_all()?;
    match backup::check_seen(to, Some(file.opening)) {
        Ok(copied) if copied == version => Ok(()),
        Ok(copied) => Err(StoreError::Database(format!("its copy has version {copied}"))),
        // What is damaged in the copy came from the file.
        Err(StoreError::Corrupt(why)) => {
            Err(StoreError::Corrupt(format!("`{}`: {why}", file.path.display())))
        }
        Err(other) => Err(other),
    }
}

/// Takes the steps and checks what came of them. The copy gets its own name only when nothing can fail any more but the commit.
fn change(
    db: &mut Connection,
    steps: &[&str],
    file: &Precious<'_>,
    (fresh, kept): (&Path, &Path),
) -> Result<(), StoreError> {
    let (found, known) = (version_of(db)?, number(steps));
    // Rows that referred to nothing before are not this upgrade's fault.
    let dangling = dangling(db)?;
    let work = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    take(&work, steps, found)?;
    let upgraded = Upgraded { from: found, to: known, at: timestamp(file.now_ms) };
    work.execute(
        "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)",
        (UPGRADED, serde_json::to_string(&upgraded)?),
    )?;
    check(&work, known, dangling)?;
    if file.keeps {
        fs::rename(fresh, kept)?;
        if let Some(folder) = kept.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
    }
    Ok(work.commit()?)
}

fn take(on: &Connection, steps: &[&str], found: u32) -> Result<(), StoreError> {
    for (sql, version) in steps.iter().zip(1..).skip(found as usize) {
        on.execute_batch(sql)?;
        on.pragma_update(None, "user_version", version)?;
    }
    Ok(on.pragma_update(None, "application_id", APPLICATION_ID)?)
}

/// Whether what the steps came to is whole.
fn check(on: &Connection, known: u32, dangling_before: u64) -> Result<(), StoreError> {
    let version = version_of(on)?;
    if version != known {
        return Err(StoreError::Database(format!("it came to version {version}")));
    }
    let found: String = on.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if found != "ok" {
        return Err(StoreError::Database(format!("what it came to is damaged: {found}")));
    }
    match dangling(on)? {
        after if after > dangling_before => Err(StoreError::Database(format!(
            "{} of its rows would refer to nothing",
            after - dangling_before
        ))),
        _ => Ok(()),
    }
}

/// Rows that refer to others which are not there.
fn dangling(db: &Connection) -> Result<u64, StoreError> {
    let mut all = db.prepare("PRAGMA foreign_key_check")?;
    let mut rows = all.query([])?;
    let mut count = 0;
    while rows.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// What may go better later stays that; anything else is a fault of the upgrade.
fn unchanged(error: StoreError, found: u32, known: u32) -> StoreError {
    let what = format!("it was to be brought from version {found} to {known}, and is as it was");
    match error {
        StoreError::Full(why) => StoreError::Full(format!("{what}: {why}")),
        StoreError::ReadOnly(why) => StoreError::ReadOnly(format!("{what}: {why}")),
        StoreError::Io(why) => StoreError::Io(format!("{what}: {why}")),
        StoreError::Database(why) | StoreError::Record(why) => StoreError::Upgrade { found, known, why },
        other => other,
    }
}

/// The copies beside a journal, that of the latest version first. By their names: none of them is read.
pub fn kept_beside(journal: &Path) -> Vec<KeptJournal> {
    let folder = match journal.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Some(name) = journal.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let of = |entry: fs::DirEntry| {
        let found = entry.file_name();
        let version = found.to_str()?.strip_prefix(name)?.strip_prefix(".v")?.parse().ok()?;
        let bytes = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
        Some(KeptJournal { path: entry.path(), version, bytes })
    };
    let mut all: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(of).collect();
    all.sort_by_key(|kept| std::cmp::Reverse(kept.version));
    all
}

/// Removes the copies of the oldest versions; the one that was just made stays in any case.
fn let_go(journal: &Path, made: u32) {
    let others = kept_beside(journal).into_iter().filter(|kept| kept.version != made);
    for old in others.skip(KEPT - 1) {
        match fs::remove_file(&old.path) {
            Ok(()) => tracing::info!(file = %old.path.display(), "an older copy of the journal was let go"),
            Err(error) => {
                tracing::warn!(file = %old.path.display(), %error, "an older copy of the journal is not removed")
            }
        }
    }
}

/// How a home gets a journal back that a release of version `known` reads, in words that stand behind a semicolon.
pub fn way_back(journal: &Path, known: u32) -> String {
    let read =
        |kept: &KeptJournal| backup::version_in(&kept.path).is_ok_and(|version| version == kept.version);
    let mut all = kept_beside(journal).into_iter().filter(|kept| kept.version <= known && read(kept));
    match (all.next(), journal.parent()) {
        (Some(kept), Some(home)) => format!(
            "or stay with this release and go back to `{0}`, which was kept before the upgrade: stop the daemon, then \
             `drupe restore {1} --home {2}`; what happened since the upgrade is put aside",
            kept.path.display(),
            shell_word(&kept.path),
            shell_word(home)
        ),
        _ => "no copy of an earlier version lies beside it: to stay with this release, `drupe restore` a backup that it made"
            .to_owned(),
    }
}

/// A path as one word of a shell.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

impl Store {
    /// When this journal was brought to another version last; none where it began with the one that it has.
    pub async fn upgraded(&self) -> Result<Option<Upgraded>, StoreError> {
        self.read_few(|db| noted(db, UPGRADED)).await
    }
}
