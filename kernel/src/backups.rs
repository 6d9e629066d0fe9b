//! Backups that the daemon makes by itself, and which there are.
//!
//! Each is made by a process of its own, which reads the home's files and asks the kernel nothing: turns do not wait for it, and
//! its memory goes with it. One that failed is told once and tried again; the oldest goes only once a newer one is whole.

use std::{
    fs,
    io::Write,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use drupe_agent::one_line;
use drupe_config::{Config, Durability};
use drupe_confine::{Confined, Limits, Profile, own_program};
use drupe_extension_api::{
    FaultCode,
    control::{BackupFile, BackupStatus, FailedBackup},
};
use drupe_journal::shell_word;
use drupe_wiring::NOTICE;
use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use crate::{base::Base, life::Life, outbox::Outbox};

/// The verb under which the binary must make a backup, or say which of some is whole, as `work` asks it to.
pub const VERB: &str = "make-backup";

/// How the names of files begin that the daemon makes: it removes no others.
const SCHEDULED: &str = "scheduled-";
/// How those begin that `drupe backup` makes in the same folder.
const BY_HAND: &str = "drupe-";
const ENDING: &str = ".tar.gz";
const ENCRYPTED: &str = "age";

/// The form of the time in a name.
const TIME: &str = "%Y%m%dT%H%M%S";

/// The longest time between two looks at the clock, which may be set, and stands while the machine sleeps.
const LOOK: Duration = Duration::from_secs(600);

/// How soon one that failed is tried again, doubled each time up to the longest.
const AGAIN: Duration = Duration::from_secs(60);
const LONGEST_AGAIN: Duration = Duration::from_secs(3_600);

/// How long one may take: a disk over which a large journal takes longer is no place for backups.
const DEADLINE: Duration = Duration::from_secs(12 * 3_600);

/// The same for the question which backup is whole: a start waits for it, and says without it what is wrong with the journal.
const WHOLE: Duration = Duration::from_secs(120);

/// How far it gives way to everything else.
const NICE: u8 = 10;

/// The most that is read of what the process says.
const MOST: usize = 16 * 1024;

/// The backups of a home.
pub struct Backups {
    base: Arc<Base>,
    life: Life,
    outbox: Arc<Outbox>,
    failed: Mutex<Option<FailedBackup>>,
}

/// A file that is a backup by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    path: PathBuf,
    made: Timestamp,
    scheduled: bool,
}

/// Why the process made none, for people.
struct NoBackup(String);

impl NoBackup {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// What the process says came of it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Made { bytes: u64 },
    Whole(Option<PathBuf>),
    Failed(String),
}

impl Backups {
    pub fn new(base: Arc<Base>, life: Life, outbox: Arc<Outbox>) -> Self {
        Self { base, life, outbox, failed: Mutex::default() }
    }

    /// Makes them when they are due, until the kernel drains.
    pub async fn run(self: Arc<Self>) {
        let Some(every) = self.every() else { return };
        while !self.life.cancel.is_cancelled() {
            let wait = self.next(every).as_millisecond().saturating_sub(self.base.clock.now_ms());
            let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
            if wait.is_zero() {
                self.life.cancel.run_until_cancelled(self.make()).await;
            } else {
                self.life.cancel.run_until_cancelled(tokio::time::sleep(wait.min(LOOK))).await;
            }
        }
    }

    fn every(&self) -> Option<SignedDuration> {
        let journal = &self.base.config.journal;
        if journal.durability == Durability::Memory {
            return None;
        }
        let every = journal.backup.every.as_ref()?.duration();
        SignedDuration::try_from(every).ok()
    }

    /// When the next one is due: now where there is none, later where the last attempt failed.
    fn next(&self, every: SignedDuration) -> Timestamp {
        if let Some(failed) = &*self.failed.lock() {
            return again(failed, now(&self.base));
        }
        let now = now(&self.base);
        let last = made_by(now, &folder(&self.base)).into_iter().find(|found| found.scheduled);
        last.and_then(|last| last.made.checked_add(every).ok()).unwrap_or(now)
    }

    async fn make(&self) {
        let (folder, base) = (folder(&self.base), &self.base);
        let recipients = &base.config.journal.backup.recipients;
        let mut file = folder.join(format!("{SCHEDULED}{}Z{ENDING}", now(base).strftime(TIME)));
        if !recipients.is_empty() {
            file.add_extension(ENCRYPTED);
        }
        let order = json!({"make": {"home": base.home.root(), "file": file, "except": [folder], "encrypt": recipients}});
        let made = match make_folder(&folder) {
            Ok(()) => work(base, order, &folder).await,
            Err(error) => Err(NoBackup(format!("`{}` cannot be made: {error}", folder.display()))),
        };
        let why = match made {
            Ok(Said::Made { bytes }) => {
                tracing::info!(file = %file.display(), bytes, "made a backup");
                let before = self.failed.lock().take();
                self.let_go(&folder);
                if before.is_some() {
                    self.tell("Backups are made again.").await;
                }
                return;
            }
            Ok(Said::Failed(why)) | Err(NoBackup(why)) => one_line(&why, NOTICE),
            Ok(Said::Whole(_)) => "the process answered something else".to_owned(),
        };
        tracing::warn!(%why, "no backup was made; it is tried again");
        if self.note(&why) == 1 {
            self.tell(&format!(
                "No backup was made: {why}. It is tried again; `drupe status` shows the last one."
            ))
            .await;
        }
    }

    /// Notes a failure, and gives how many there were in a row.
    fn note(&self, why: &str) -> u32 {
        let now = now(&self.base);
        let mut failed = self.failed.lock();
        let (since, attempts) = failed.as_ref().map_or((now, 0), |failed| (failed.since, failed.attempts));
        let again = AGAIN.saturating_mul(1 << attempts.min(10)).min(LONGEST_AGAIN);
        let again = now.checked_add(again).unwrap_or(now);
        *failed = Some(FailedBackup { since, again, attempts: attempts + 1, why: why.to_owned() });
        attempts + 1
    }

    /// Removes the oldest that the daemon made, beyond those that are kept. Called after one was made, which is the newest; what bears a time of
    /// the future counts for none, and stays until that has come.
    fn let_go(&self, folder: &Path) {
        let now = now(&self.base);
        for old in beyond(made_by(now, folder), self.base.config.journal.backup.keep) {
            if let Err(error) = fs::remove_file(&old) {
                tracing::warn!(file = %old.display(), %error, "an old backup is not removed");
            }
        }
    }

    async fn tell(&self, text: &str) {
        match self.outbox.tell(None, text.to_owned()).await {
            Err(fault) if fault.code != FaultCode::NotFound => {
                tracing::warn!(%fault, "nobody is told of a backup")
            }
            // Nobody has written yet.
            _ => {}
        }
    }

    /// How they stand; none where none is made and there is none.
    pub fn status(&self) -> Option<BackupStatus> {
        let (every, folder) = (self.every(), folder(&self.base));
        let last = made_by(now(&self.base), &folder).into_iter().next();
        if every.is_none() && last.is_none() {
            return None;
        }
        let shown = |found: Found| BackupFile {
            bytes: fs::metadata(&found.path).map_or(0, |found| found.len()),
            file: found.path.display().to_string(),
            made: found.made,
        };
        Some(BackupStatus {
            directory: folder.display().to_string(),
            last: last.map(shown),
            next: every.map(|every| self.next(every)),
            failed: self.failed.lock().clone(),
        })
    }
}

/// The newest backup of a home, by its file and when it was made, and the folder in which it would be.
pub fn newest(config: &Config, home: &Path) -> (PathBuf, Option<(PathBuf, Timestamp)>) {
    let folder = directory(config, home);
    let newest = made_by(Timestamp::now(), &folder).into_iter().next();
    (folder, newest.map(|found| (found.path, found.made)))
}

/// What to do where the journal is damaged: which backup is whole, and how it is put back. None where there is none.
pub fn advice(base: &Base) -> Option<String> {
    let folder = folder(base);
    let files = files(&folder);
    let encrypted = |than: Option<&Path>| {
        restore_encrypted(&folder, base.home.root(), than).map(|restore| {
            format!("an encrypted backup is not checked without its key: stop the daemon, then {restore}")
        })
    };
    if files.is_empty() {
        return encrypted(None);
    }
    let asked = start(base, &json!({"whole": files}), &folder, WHOLE).and_then(|child| finish(child, WHOLE));
    Some(match asked {
        Ok(Said::Whole(Some(file))) => {
            let (path, home) = (shell_word(&file), shell_word(base.home.root()));
            let newer = encrypted(Some(&file))
                .map_or_else(String::new, |newer| format!("; of a later time, {newer}"));
            let file = file.display();
            format!(
                "the newest whole backup is `{file}`: stop the daemon, then `drupe restore {path} --home {home}`{newer}"
            )
        }
        Ok(_) => {
            let more = encrypted(None).map_or_else(String::new, |encrypted| format!("; {encrypted}"));
            format!("none of the backups in `{}` is whole{more}", folder.display())
        }
        Err(NoBackup(why)) => {
            format!("whether a backup in `{}` is whole is not known: {why}", folder.display())
        }
    })
}

/// Asks a process, whose end no thread waits for. Dropping this kills it.
async fn work(base: &Base, order: Value, folder: &Path) -> Result<Said, NoBackup> {
    let child = start(base, &order, folder, DEADLINE)?;
    let ending = child.ending().map_err(NoBackup::of)?;
    ending.set_nonblocking(true).map_err(NoBackup::of)?;
    let ending = UnixStream::from_std(ending).map_err(NoBackup::of)?;
    ending.readable().await.map_err(NoBackup::of)?;
    ending.into_std().and_then(|ending| ending.set_nonblocking(false)).map_err(NoBackup::of)?;
    tokio::task::spawn_blocking(move || finish(child, DEADLINE)).await.map_err(NoBackup::of)?
}

fn start(
    base: &Base,
    order: &Value,
    folder: &Path,
    deadline: Duration,
) -> Result<drupe_confine::Child, NoBackup> {
    let exe = own_program(&base.start.exe);
    // It starts `age` where the kernel itself would find it.
    let path = base.sources.environment.get("PATH").map_or("/usr/bin:/bin", String::as_str);
    let age = std::env::split_paths(path).map(|folder| folder.join("age")).find(|file| file.is_file());
    let limits = Limits { nice: Some(NICE), ..Limits::default() };
    // It writes beside the journal what every reader of it does.
    let profile = Profile { limits, ..Profile::program() }.read(&exe).write(base.home.root()).write(folder);
    let profile = age.into_iter().fold(profile, Profile::read);
    let process = Confined::new(&exe, profile, &exe).arg(VERB).env("PATH", path);
    let process = process.deadline(deadline).stdin(Stdio::piped());
    let mut child = process.spawn_captured().map_err(NoBackup::of)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads no more has ended: how, is told by its end.
        let _ = stdin.write_all(order.to_string().as_bytes());
    }
    Ok(child)
}

fn finish(child: drupe_confine::Child, deadline: Duration) -> Result<Said, NoBackup> {
    let outcome = child.finish(MOST).map_err(NoBackup::of)?;
    if let Ok(said) = serde_json::from_slice(&outcome.stdout) {
        return Ok(said);
    }
    if outcome.timed_out {
        return Err(NoBackup(format!("it took more than {} minutes", deadline.as_secs() / 60)));
    }
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
    Err(NoBackup(format!("the process that makes it ended with {}: {last}", outcome.status)))
}

fn folder(base: &Base) -> PathBuf {
    directory(&base.config, base.home.root())
}

fn directory(config: &Config, home: &Path) -> PathBuf {
    config.journal.backup.directory.clone().unwrap_or_else(|| home.join("backups"))
}

fn is_encrypted(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENCRYPTED)
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn now(base: &Base) -> Timestamp {
    Timestamp::from_millisecond(base.clock.now_ms()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The files of a folder that are backups by their names, the newest first.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    found(folder).into_iter().map(|found| found.path).filter(|path| !is_encrypted(path)).collect()
}

/// What puts the newest encrypted backup of a folder into a home, where there is one that is newer `than` another. Nobody checks one
/// without its key.
pub fn restore_encrypted(folder: &Path, home: &Path, than: Option<&Path>) -> Option<String> {
    let newer =
        found(folder).into_iter().map(|found| found.path).take_while(|path| than != Some(path.as_path()));
    let file = newer.into_iter().find(|path| is_encrypted(path))?;
    Some(format!("`drupe restore {} --identity KEY --home {}`", shell_word(&file), shell_word(home)))
}

/// The backups in a folder that were made by then, the newest first. One of the future was made before the clock was set back.
fn made_by(now: Timestamp, folder: &Path) -> Vec<Found> {
    found(folder).into_iter().filter(|found| found.made <= now).collect()
}

/// When it is tried again after a failure: now, where that lies further ahead than ever, since the clock was set back.
fn again(failed: &FailedBackup, now: Timestamp) -> Timestamp {
    let latest = now.checked_add(LONGEST_AGAIN).unwrap_or(now);
    if failed.again > latest { now } else { failed.again }
}

/// The backups in a folder, the newest first.
fn found(folder: &Path) -> Vec<Found> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<Found> = files.filter_map(|file| named(file.path())).collect();
    all.sort_by(|one, other| (other.made, &other.path).cmp(&(one.made, &one.path)));
    all
}

/// What a file is by its name; none where it is something else.
fn named(path: PathBuf) -> Option<Found> {
    let whole = path.file_name()?.to_str()?;
    let name = if is_encrypted(&path) { whole.strip_suffix(".age")? } else { whole };
    let (scheduled, rest) = match name.strip_prefix(SCHEDULED) {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix(BY_HAND)?),
    };
    // Parts of a second tell two of the same second apart.
    let time = rest.strip_suffix(ENDING)?.strip_suffix('Z')?;
    let time = time.split_once('.').map_or(time, |(time, _)| time);
    let made = DateTime::strptime(TIME, time).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(Found { made, scheduled, path })
}

/// Those of the daemon beyond the newest `keep`; the newest of all is never one of them.
fn beyond(found: Vec<Found>, keep: usize) -> Vec<PathBuf> {
    found.into_iter().filter(|found| found.scheduled).skip(keep.max(1)).map(|found| found.path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> (tempfile::TempDir, Vec<Found>) {
        let folder = tempfile::tempdir().expect("a folder");
        for name in names {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let all = found(folder.path());
        (folder, all)
    }

    #[test]
    fn the_daemon_lets_go_of_the_oldest_of_its_own_and_of_nothing_else() {
        let (_folder, all) = of(&[
            "scheduled-20260103T000000Z.tar.gz",
            "scheduled-20260101T000000Z.tar.gz",
            "scheduled-20260102T000000Z.tar.gz",
            "scheduled-20250101T000000Z.tar",
            "scheduled-yesterdayZ.tar.gz",
            "drupe-20240101T000000.123Z.tar.gz",
            ".scheduled-20230101T000000Z.tar.gz.drupe-part",
            "letter.txt",
        ]);
        let names = |paths: Vec<PathBuf>| -> Vec<String> {
            paths
                .iter()
                .map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(all.len(), 4, "{all:?}");
        assert_eq!(all[0].made.to_string(), "2026-01-03T00:00:00Z");
        assert!(!all[3].scheduled);
        assert_eq!(names(beyond(all.clone(), 2)), ["scheduled-20260101T000000Z.tar.gz"]);
        assert_eq!(beyond(all.clone(), 0).len(), 2, "the newest stays");
        assert!(beyond(all, 3).is_empty());
    }

    #[test]
    fn what_was_noted_before_the_clock_was_set_back_holds_no_backup_up() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a time");
        let failed = FailedBackup { since: at(0), again: at(10_000), attempts: 1, why: String::new() };
        assert_eq!(again(&failed, at(9_000)), at(10_000));
        assert_eq!(again(&failed, at(1_000)), at(1_000));
    }

    #[test]
    fn a_backup_of_the_future_is_not_the_newest() {
        let (folder, _) = of(&["scheduled-20300101T000000Z.tar.gz", "scheduled-20260101T000000Z.tar.gz"]);
        let made = made_by("2026-06-01T00:00:00Z".parse().expect("a time"), folder.path());
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].made.to_string(), "2026-01-01T00:00:00Z");
    }
}
