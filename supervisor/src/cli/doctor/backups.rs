//! Whether there is a backup of the home, and of when.

use drupe_config::{Config, Durability};
use drupe_kernel::backups::newest;
use drupe_link::Home;
use jiff::{SignedDuration, Timestamp};

use super::finding::Finding;

const BACKUPS: &str = "backups";

/// `told` says that the daemon has said already why it makes none.
pub fn look(home: &Home, config: &Config, told: bool, now: Timestamp, findings: &mut Vec<Finding>) {
    let journal = &config.journal;
    if told || journal.durability == Durability::Memory || !home.path().join("journal.db").exists() {
        return;
    }
    let every = journal.backup.every.as_ref().map(|every| every.duration());
    let every = every.and_then(|every| SignedDuration::try_from(every).ok());
    let (folder, newest) = newest(config, home.path());
    let folder = folder.display();
    let finding = match (newest, every) {
        (None, None) => Finding::remark(BACKUPS, format!("there is none in `{folder}`, and none is made"))
            .fix("`drupe backup` makes one; with `journal.backup.every: daily` the daemon makes them"),
        (None, Some(_)) => Finding::warning(
            BACKUPS,
            format!("there is none in `{folder}`, although `journal.backup.every` is set"),
        )
        .fix(MAKES),
        (Some((file, made)), Some(every)) if now.duration_since(made) > every.saturating_mul(2) => {
            let message = format!(
                "the newest is of {made}, more than twice as long ago as `journal.backup.every` says: `{}`",
                file.display()
            );
            Finding::warning(BACKUPS, message).fix(MAKES)
        }
        (Some((file, made)), _) => {
            Finding::fine(BACKUPS, format!("the newest is of {made}: `{}`", file.display()))
        }
    };
    findings.push(finding);
}

const MAKES: &str = "a daemon that runs makes one within minutes; `drupe backup` makes one now";
