//! What can go wrong, by what a caller may do about it.

use drupe_agent::JournalFault;
use drupe_extension_api::{Fault, FaultCode, SessionId, TurnId};
use rusqlite::{ErrorCode, ffi};

use crate::{DeliveryId, bus::bytes::MOST_BYTES};

/// What most of this crate gives.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why the journal did not do what it was asked. Nothing of a request that failed is recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The next request may succeed, once there is space.
    #[error(
        "the journal cannot grow: its disk is full, or it is kept in memory and has 1 GiB; free some space, or \
         restart where it is in memory ({0})"
    )]
    Full(String),
    /// The next request may succeed, once the file can be written.
    #[error("the journal cannot be written: make its file and its file system writable ({0})")]
    ReadOnly(String),
    /// The file is not what was written into it.
    #[error("the journal is damaged: {0}; restore a backup, or move the file aside to begin anew")]
    Corrupt(String),
    /// What was written did not reach the disk for sure. Nothing more is written until the journal is opened anew.
    #[error(
        "the disk did not confirm what was written into the journal: it is read anew before anything else ({0})"
    )]
    Unsynced(String),
    /// There is too little memory for it; the next request may succeed.
    #[error("there is not enough memory for the journal: end other programs, or allow the daemon more ({0})")]
    NoMemory(String),
    /// The disk failed.
    #[error("the journal cannot reach its file: {0}")]
    Io(String),
    /// More requests wait than there is room for, or another process holds the file; try later.
    #[error("the journal is busy; try again later")]
    Busy,
    /// The messages of a topic that wait hold as much as they may.
    #[error(
        "topic `{0}` is full: {mb} MiB of its messages wait for who follows it; publish again once they were taken, and \
         publish less in one message",
        mb = MOST_BYTES / (1024 * 1024)
    )]
    TopicFull(String),
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// A newer release wrote it.
    #[error(
        "the journal has version {found}, this release knows {known}, and nothing of it was changed; start the release that \
         wrote it or a later one; {way_back}"
    )]
    Newer {
        /// Version of the file.
        found: u32,
        /// Version of this release.
        known: u32,
        /// How to stay with this release.
        way_back: String,
    },
    /// It cannot be brought to the version of this release, and is as it was.
    #[error(
        "the journal of version {found} cannot be brought to version {known} of this release: {why}; nothing of it was \
         changed: start the release that you had before, which goes on with it"
    )]
    Upgrade {
        /// The version that the file has.
        found: u32,
        /// The version that this release reads.
        known: u32,
        /// What failed, in words for people.
        why: String,
    },
    /// The SQLite that this program was built with has a fault that can lose commits.
    #[error("SQLite {0} can lose commits; build with 3.51.3 or later")]
    UnsafeSqlite(String),
    /// No such turn was accepted.
    #[error("there is no turn `{0}`")]
    UnknownTurn(TurnId),
    /// The turn has its answer, and gets no second one.
    #[error("turn `{0}` is finished already")]
    Finished(TurnId),
    /// The delivery is in another state than this step needs.
    #[error("delivery {delivery} is not `{needed}`")]
    Delivery {
        /// The delivery.
        delivery: DeliveryId,
        /// The state that it would have to be in.
        needed: &'static str,
    },
    /// The name is the id of one approval and the extension of another.
    #[error(
        "`{0}` is the id of one approval and the name of an extension that waits for another; \
         answer the other one by its own id first"
    )]
    AmbiguousApproval(String),
    /// What the approval was asked for is gone, or has changed and was asked for anew.
    #[error("approval `{approval}` was withdrawn: `{extension}` changed or is gone; list the approvals")]
    Withdrawn {
        /// The approval.
        approval: String,
        /// Its extension.
        extension: String,
    },
    /// There is no such schedule.
    #[error("there is no schedule `{0}`")]
    NoSchedule(String),
    /// The beginning of an id is that of several questions.
    #[error("several questions have an id that begins with `{0}`; give more of it")]
    AmbiguousQuestion(String),
    /// The answer is about something else than what waits under the id now.
    #[error("`{0}` is not what was shown to you; `drupe approvals` shows what it is now")]
    NotAsShown(String),
    /// The answer is to hold for more calls than the one that is asked about, and there can be no such answer.
    #[error("an answer to `{0}` holds for this one call alone; allow it without `for_session`")]
    NoGrant(String),
    /// The question asks for something that the answer does not have.
    #[error("`{0}` asks for something to be filled in; `drupe approvals allow {0}` asks you for it")]
    NothingFilled(String),
    /// The answer has something that the question does not ask for.
    #[error("`{0}` asks for nothing to be filled in; answer it without `values`")]
    NothingAsked(String),
    /// More was allowed for the rest of a session than a person keeps in view.
    #[error("too much is allowed in session `{0}` already; `drupe approvals revoke` takes some of it back")]
    TooManyGrants(SessionId),
    /// The question has its answer, or needs none any more.
    #[error("`{approval}` is `{state}` already; nothing waits for an answer to it")]
    Settled {
        /// The question.
        approval: String,
        /// How it stands.
        state: String,
    },
    /// A session is to be deleted in which a turn has no end yet.
    #[error("a turn of session `{0}` runs or waits; end it with `drupe session stop {0}`, then delete it")]
    AtWork(SessionId),
    /// The same while a message of it is on its way to people.
    #[error("a message of session `{0}` is being sent at the moment; delete it when that is done")]
    BeingSent(SessionId),
    /// A day that is none.
    #[error("`{0}` is not a day; write it as 2026-03-01")]
    Day(String),
    /// A row cannot be read as what it should be, or a value cannot be written as a row.
    #[error("a record of the journal has the wrong form: {0}")]
    Record(String),
    /// Any other fault of SQLite.
    #[error("the journal's database failed: {0}")]
    Database(String),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let text = error.to_string();
        if matches!(
            error,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..)
        ) {
            return Self::Record(text);
        }
        match error.sqlite_extended_error_code() {
            Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => return Self::Unsynced(text),
            // The index of the log, a file beside it, could not grow.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => return Self::Full(text),
            Some(ffi::SQLITE_IOERR_NOMEM) => return Self::NoMemory(text),
            _ => {}
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(text),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(text),
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Self::Io(text),
            Some(
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Busy,
            Some(ErrorCode::OutOfMemory) => Self::NoMemory(text),
            _ => Self::Database(text),
        }
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Record(error.to_string())
    }
}

impl From<std::io::Error> for StoreError {
    fn from(error: std::io::Error) -> Self {
        let text = error.to_string();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full(text),
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                Self::ReadOnly(text)
            }
            _ => Self::Io(text),
        }
    }
}

/// As callers see it.
impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Withdrawn { .. }
            | StoreError::AmbiguousApproval(_)
            | StoreError::AmbiguousQuestion(_)
            | StoreError::NotAsShown(_)
            | StoreError::NoGrant(_)
            | StoreError::NothingFilled(_)
            | StoreError::NothingAsked(_)
            | StoreError::TooManyGrants(_)
            | StoreError::AtWork(_)
            | StoreError::Settled { .. } => FaultCode::Invalid,
            StoreError::BeingSent(_) => FaultCode::Busy,
            _ => FaultCode::Unavailable,
        };
        let mut fault = Self::new(code, error.to_string());
        let for_good = matches!(
            error,
            StoreError::Corrupt(_)
                | StoreError::Newer { .. }
                | StoreError::Upgrade { .. }
                | StoreError::UnsafeSqlite(_)
                | StoreError::Record(_)
                | StoreError::Database(_)
        );
        fault.retriable &= !for_good;
        fault
    }
}

impl From<StoreError> for JournalFault {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}
