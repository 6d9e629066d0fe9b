//! The journal as a file, and what in it waits for the operator.

use std::path::Path;

use drupe_kernel::{
    StoreError,
    backups::{files, restore_encrypted},
    examine::{Examined, Undelivered, Unsettled, examine},
    journal_version, kept_beside, shell_word, way_back,
};
use drupe_link::Home;
use jiff::{SignedDuration, Timestamp};

use super::finding::Finding;
use crate::supervise::record::Record;

const JOURNAL: &str = "journal";
const DELIVERIES: &str = "deliveries";
const SCHEDULES: &str = "schedules";
const APPROVALS: &str = "approvals";

/// How far back messages that did not arrive are told.
const LATELY: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A write-ahead log beyond this is not written back, or somebody reads for hours.
const LOG: u64 = 64 << 20;

/// A file of which more than this, and more than half, holds nothing.
const FREE: u64 = 64 << 20;

/// `backups` is the folder of those of the home.
pub fn look(
    (home, backups): (&Home, &Path),
    runs: bool,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> Option<Examined> {
    let path = home.path().join("journal.db");
    if !path.exists() {
        findings.push(absent(home, &path));
        return None;
    }
    let since = now.checked_sub(LATELY).unwrap_or(Timestamp::MIN);
    let examined = match examine(&path, since) {
        Ok(examined) => examined,
        Err(error) => {
            let fix = match &error {
                StoreError::Corrupt(_) | StoreError::Record(_) | StoreError::Database(_) => put_back(home, backups),
                _ => "run this as the user whose home it is, end other programs that have the file open, and look at its disk"
                    .to_owned(),
            };
            findings.push(Finding::fault(JOURNAL, error.to_string()).fix(fix));
            return None;
        }
    };
    let before = findings.len();
    let Examined { version, bytes, free_bytes, log_bytes, open, faults, waiting, lost } = &examined;
    let (known, shown) = (journal_version(), path.display());
    if !faults.is_empty() {
        let message = format!("`{shown}` is damaged: {}", faults.join("; "));
        findings.push(Finding::fault(JOURNAL, message).fix(put_back(home, backups)));
    }
    if *version > known {
        let message = format!("`{shown}` has version {version}, and this release knows {known}");
        let fix = format!("start the release that wrote it or a later one; {}", way_back(&path, known));
        findings.push(Finding::fault(JOURNAL, message).fix(fix));
    }
    if *version < known {
        let message =
            format!("`{shown}` has version {version}; the next start brings it to {known} and keeps a copy");
        findings.push(Finding::remark(JOURNAL, message));
    }
    if *open && !runs && !home.is_held() {
        let message = format!(
            "`{shown}` was not closed in order; the next start checks it and goes on with what was begun"
        );
        findings.push(Finding::remark(JOURNAL, message));
    }
    if let Some(lost) = lost.filter(|_| !runs && !home.is_held()) {
        findings.push(Finding::warning(JOURNAL, lost).fix(LOST));
    }
    if *log_bytes > LOG {
        let message = format!("its write-ahead log has {} MiB", log_bytes >> 20);
        let fix = "something reads the file for a long time: end other programs that have it open; then `drupe restart`";
        findings.push(Finding::warning(JOURNAL, message).fix(fix));
    }
    if *free_bytes > FREE && *free_bytes > bytes / 2 {
        let message = format!("{} of its {} MiB hold nothing any more", free_bytes >> 20, bytes >> 20);
        findings.push(
            Finding::remark(JOURNAL, message).fix("a daemon that runs gives them back, some at a time"),
        );
    }
    if findings.len() == before {
        findings.push(Finding::fine(JOURNAL, format!("it is whole: {} MiB, version {version}", bytes >> 20)));
    }
    for kept in kept_beside(&path) {
        let (kept, version, bytes) = (kept.path.display(), kept.version, kept.bytes);
        let message = format!(
            "`{kept}` is the journal as it was before an upgrade, {} MB of version {version}",
            bytes.div_ceil(1_000_000)
        );
        findings.push(
            Finding::remark(JOURNAL, message)
                .fix("it is the way back to the release before; delete it when all is well"),
        );
    }
    if let Some(waiting) = waiting {
        work(waiting, runs, findings);
    }
    Some(examined)
}

const LOST: &str = "copy the file and its `-wal` before the next start, which goes on without these pages; look at what the last \
                    conversations have";

/// What helps a journal that is damaged.
fn put_back(home: &Home, backups: &Path) -> String {
    let whole = files(backups).into_iter().find(|file| drupe_backup::check(file, None).is_ok());
    match whole {
        Some(file) => {
            let newer = restore_encrypted(backups, home.path(), Some(&file));
            let newer =
                newer.map_or_else(String::new, |newer| format!("; an encrypted one is newer: {newer}"));
            format!(
                "stop the daemon, then `drupe restore {} --home {}`, the newest backup that is whole{newer}",
                shell_word(&file),
                shell_word(home.path())
            )
        }
        None => format!(
            "no backup in `{}` is whole: {} puts another one back; without one stop the daemon, move the file aside, with its `-wal`, \
             and keep it: a new one begins empty",
            backups.display(),
            restore_encrypted(backups, home.path(), None)
                .unwrap_or_else(|| "`drupe restore FILE`".to_owned())
        ),
    }
}

/// A home that has had kernels has had a journal.
fn absent(home: &Home, path: &Path) -> Finding {
    let shown = path.display();
    if Record::open(home).generation() == 0 {
        return Finding::remark(JOURNAL, "there is none yet; the first start makes it");
    }
    let message = format!("`{shown}` is gone, and this home has had kernels");
    Finding::fault(JOURNAL, message)
        .fix("`drupe restore FILE` puts a backup back, unless `journal.durability` is `memory`; the next start would begin empty")
}

/// What somebody should look at.
fn work(waiting: &Unsettled, runs: bool, findings: &mut Vec<Finding>) {
    let Unsettled { queued, uncertain, failed, schedules, dead, questions, .. } = waiting;
    if *queued > 0 && !runs {
        let message = format!("{queued} messages wait for an answer, and no daemon runs");
        findings.push(Finding::warning(JOURNAL, message).fix("`drupe run`"));
    }
    let told = |one: &Undelivered, fate: &str| {
        format!(
            "a message of session `{}` through `{}` {fate}, at {}: {}",
            one.session, one.channel, one.at, one.why
        )
    };
    for one in uncertain {
        let message = told(one, "may or may not have arrived");
        let fix = format!(
            "look there; it is not sent again by itself. `drupe session show {}` has its text",
            one.session
        );
        findings.push(Finding::warning(DELIVERIES, message).fix(fix));
    }
    for one in failed {
        let fix = format!("see that `{}` works (`drupe ext show {0}`), and ask again", one.channel);
        findings.push(Finding::warning(DELIVERIES, told(one, "did not arrive")).fix(fix));
    }
    for (id, why) in schedules {
        let fix =
            format!("`drupe schedule show {id}` has its runs; `drupe schedule resume {id}` goes on with it");
        findings.push(Finding::warning(SCHEDULES, format!("`{id}`: {why}")).fix(fix));
    }
    if *dead > 0 {
        let message = format!("{dead} messages between extensions were given up");
        findings.push(Finding::warning(DELIVERIES, message).fix("`drupe bus dead` lists them"));
    }
    let (extensions, calls) = questions;
    if extensions + calls > 0 {
        let message = format!("{} questions wait for you", extensions + calls);
        findings.push(Finding::remark(APPROVALS, message).fix("`drupe approvals`"));
    }
}
