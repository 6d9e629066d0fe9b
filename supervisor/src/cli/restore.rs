//! `drupe restore`: a backup becomes the home, while no daemon runs.

use std::path::{Path, PathBuf};

use drupe_backup::{BackupError, PutBack, Restored, check, is_cut_off, journal_alone, restore};

use super::{Context, Facts, backup::left_out, failure::Failure, figures::many};

/// What `drupe restore` is told.
#[derive(Debug, clap::Args)]
pub struct Restore {
    /// The backup, as `drupe backup` made it, or a journal that an upgrade kept: `HOME/journal.db.v<N>`
    file: PathBuf,
    /// The file with your key of age, where the backup is encrypted
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Only read all of it and say whether it could be restored
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    facts: Facts,
}

impl Restore {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        let file = context.here.join(self.file);
        let identity = self.identity.map(|identity| context.here.join(identity));
        if self.check
            && let Some(found) = journal_alone(&file)?
        {
            if self.facts.json {
                return context.console.json(&found).map(|()| 0);
            }
            let (file, version, made) = (file.display(), found.version, found.made);
            context
                .console
                .print(&format!("{file} is whole: a journal of version {version} alone, of {made}"))?;
            return Ok(0);
        }
        if self.check {
            let manifest = check(&file, identity.as_deref())?;
            if self.facts.json {
                return context.console.json(&manifest).map(|()| 0);
            }
            let entries = many(manifest.entries.len() as u64, "entry", "entries");
            let text = format!(
                "{} is whole: made at {} by drupe {}, {entries}",
                file.display(),
                manifest.made,
                manifest.drupe
            );
            context.console.print(&text)?;
            left_out(context, &manifest.left_out);
            return Ok(0);
        }
        let restored = restore(context.home().path(), &file, identity.as_deref())?;
        if self.facts.json {
            return context.console.json(&restored).map(|()| 0);
        }
        // A journal alone does not say which release made it.
        let what = if restored.drupe.is_some() { "" } else { "the journal of " };
        let text = format!("{what}{} is what it was at {}", context.home().path().display(), restored.made);
        context.console.print(&text)?;
        for line in told(&restored) {
            context.console.remark(&line);
        }
        left_out(context, &restored.left_out);
        Ok(0)
    }
}

/// What somebody has to know before they start the daemon.
fn told(restored: &Restored) -> Vec<String> {
    let mut lines = Vec::new();
    match &restored.aside {
        Some(aside) => lines.push(format!("what stood there is kept in {}", aside.display())),
        None => lines.push("nothing stood there before".into()),
    }
    if !restored.kept.is_empty() {
        lines.push(format!("left as it was: {}", restored.kept.join(", ")));
    }
    match &restored.journal {
        None => lines.push("the backup has no journal: the daemon begins a new one".into()),
        Some(settled) => lines.extend(settled_lines(settled)),
    }
    lines
}

/// What is not done by itself, since it may have been done after the backup was made.
fn settled_lines(settled: &PutBack) -> Vec<String> {
    let mut lines = Vec::new();
    let counted = [
        (
            settled.turns,
            "turn had no answer then, and ends without one",
            "turns had no answer then, and end without one",
        ),
        (
            settled.deliveries,
            "message to people may have been sent since, and is not sent again",
            "messages to people may have been sent since, and are not sent again",
        ),
        (
            settled.messages,
            "message of a topic may have been delivered since: `drupe bus dead`",
            "messages of topics may have been delivered since: `drupe bus dead`",
        ),
        (
            settled.runs,
            "run of a schedule was not over then, and is not done again",
            "runs of schedules were not over then, and are not done again",
        ),
    ];
    for (count, one, several) in counted {
        if count > 0 {
            lines.push(many(count, one, several));
        }
    }
    lines.push("times of schedules that have passed are not made up for; use since then is not counted in the limits".into());
    if !settled.tokens.is_empty() {
        let names = settled.tokens.join(", ");
        lines.push(format!(
            "these tokens are valid, also if they were revoked since: {names}; look at `drupe token list`"
        ));
    }
    lines
}

/// What somebody writes into a home of which a part lies aside goes aside itself when the restore is finished.
pub fn not_half_restored(home: &Path) -> Result<(), Failure> {
    match is_cut_off(home) {
        true => Err(BackupError::CutOff(home.to_owned()).into()),
        false => Ok(()),
    }
}
