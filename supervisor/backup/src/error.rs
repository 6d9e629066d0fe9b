//! Why a backup was not made, or not restored.

use std::{io, path::PathBuf};

use drupe_journal::StoreError;

/// Nothing is left behind of a backup that was not made, and a home that was not restored is as it was.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("`{0}` is there already, and no backup is written over another file; name another one")]
    Exists(PathBuf),
    #[error("there is no home at `{0}`, so there is nothing to back up")]
    NoHome(PathBuf),
    #[error(
        "a restore of `{0}` is not finished; `drupe run` finishes it, and so does another `drupe restore`"
    )]
    CutOff(PathBuf),
    /// It may go better later.
    #[error(
        "a restore of `{0}` is at work, and a backup would mix what was there before with what comes; make it when that has ended"
    )]
    Restoring(PathBuf),
    /// It may go better later.
    #[error(
        "a backup of `{0}` is being made, and a restore would move its files away; restore when that has ended"
    )]
    BackingUp(PathBuf),
    #[error("another process makes the backup `{0}` at the moment")]
    AtWork(PathBuf),
    /// It may go better later.
    #[error("there is no room for `{path}`: {error}; free some space, then try again")]
    Full { path: PathBuf, error: io::Error },
    #[error("`{path}`: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Journal(#[from] StoreError),
    #[error("`{path}` is no backup that can be used: {why}")]
    Unusable { path: PathBuf, why: String },
    #[error(
        "`{path}` was made by drupe {by}, whose journal has version {found}, and this program knows {known}; install drupe \
         {by} or a later release, then restore it with that"
    )]
    Newer { path: PathBuf, by: String, found: u32, known: u32 },
    /// A journal that lies alone.
    #[error(
        "`{path}` is a journal of version {found}, and this program knows {known}; restore it with the release that wrote it, \
         or a later one"
    )]
    NewerJournal { path: PathBuf, found: u32, known: u32 },
    /// The daemon of the home, by its process where that is known.
    #[error("a daemon serves `{home}`{}; stop it with `drupe stop`, then restore", named(*.pid))]
    Held { home: PathBuf, pid: Option<u32> },
    #[error("`{0}` is encrypted; give the file with your key: `--identity FILE`")]
    NeedsIdentity(PathBuf),
    #[error(
        "`{0}` is neither a recipient of age (`age1…`, `ssh-ed25519 …`, `ssh-rsa …`) nor a file of such; `age-keygen` makes \
         a key and says its recipient"
    )]
    Recipient(String),
    #[error(
        "the program `age` is needed to encrypt backups and to read those, and cannot be started: {0}; install it"
    )]
    NoAge(io::Error),
    #[error("`age` failed: {0}")]
    Age(String),
}

fn named(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl BackupError {
    /// Whether it may go better later, without anything being changed but room on a disk.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::AtWork(_)
                | Self::Restoring(_)
                | Self::BackingUp(_)
                | Self::Journal(StoreError::Full(_) | StoreError::Busy)
        )
    }

    /// Whether the home's own journal, or its disk, is at fault.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Journal(StoreError::Corrupt(_) | StoreError::Io(_)))
    }

    pub(crate) fn unusable(path: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Unusable { path: path.into(), why: why.into() }
    }
}

/// Says which file it was.
pub(crate) trait At<T> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T, BackupError>;
}

/// What a fault of that file is.
pub(crate) fn of(path: impl Into<PathBuf>, error: io::Error) -> BackupError {
    let path = path.into();
    match error.kind() {
        // A bound on the size of files is a disk that has no more room for this one.
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            BackupError::Full { path, error }
        }
        _ => BackupError::Io { path, error },
    }
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, path: impl Into<PathBuf>) -> Result<T, BackupError> {
        self.map_err(|error| of(path, error.into()))
    }
}
