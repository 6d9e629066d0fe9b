//! A copy of the file that is whole, and what becomes of one that is put back in its place.
//!
//! A copy is made by another process than the one that writes: it waits for nobody, and nobody waits for it. What a copy of
//! yesterday still has before it may have been done since. So when it is put back nothing of that is done by itself:
//! turns without an answer end, what was to go out is uncertain, messages of topics are dead letters, and times that have
//! passed are settled. It deliberately does not decide where copies are and how long they are kept.

use std::{
    fs::{File, OpenOptions},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use drupe_agent::Clock;
use drupe_extension_api::{AgentResponse, FailureClass, TurnId};
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::{
    DeliveryId, Sent, Store, StoreError,
    open::{self, LOCKED, beside, check_sqlite},
    opening::Opening,
    outbox,
    retention::{note, noted},
    rows::{id, timestamp},
    schema::{self, APPLICATION_ID},
    turns,
    upgrade::Precious,
    writer::{Survives, Waits, Writer, Writing},
};

/// What was put back, and when.
const PUT_BACK: &str = "put_back";

/// Positions that are left out behind the last event of each session: whoever read further than the copy goes must not take
/// new events for those that they know. More than a session has between two copies.
const UNKNOWN_EVENTS: i64 = 1 << 20;

/// What a journal that was put back does not go on with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutBack {
    /// When the copy was made.
    pub made: Timestamp,
    /// When it was put back.
    pub put_back: Timestamp,
    /// Turns without an answer that ended.
    pub turns: u64,
    /// Messages to people that are uncertain.
    pub deliveries: u64,
    /// Messages of topics that are dead letters.
    pub messages: u64,
    /// Runs of schedules of which nobody knows whether they were done.
    pub runs: u64,
    /// Named tokens that it has: one that was revoked since is valid again.
    #[serde(default)]
    pub tokens: Vec<String>,
}

/// Copies the journal at `from`, whether a kernel has it open or not, to `to`, and checks the copy as a whole. Gives its
/// version.
///
/// `to` must not exist. Deleted rows are not in the copy. It waits for nothing but the disk; the log of a journal that is
/// written to grows meanwhile.
pub fn copy(from: &Path, to: &Path) -> Result<u32, StoreError> {
    check_sqlite()?;
    // Whoever closes a file last writes its log back, and one that can only read would leave it beside the file.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(from, flags)?;
    db.busy_timeout(LOCKED)?;
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if application != APPLICATION_ID {
        return Err(StoreError::Corrupt(format!("`{}`: it is not a journal of drupe", from.display())));
    }
    // SQLite would make it readable for everybody; a file that is there and empty keeps its mode.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let name = to.to_str().ok_or_else(|| {
        StoreError::Io(format!("`{}`: the path of a copy must be valid UTF-8", to.display()))
    })?;
    db.execute("VACUUM INTO ?1", [name])?;
    file.sync_all()?;
    check(to)
}

/// Checks every page and every index of a journal that nobody has open, and that has no log beside it. Gives its version.
pub fn check(path: &Path) -> Result<u32, StoreError> {
    check_seen(path, None)
}

/// The same, and counts how far it came.
pub(crate) fn check_seen(path: &Path, opening: Option<&Arc<Opening>>) -> Result<u32, StoreError> {
    let mut db = open_still(path)?;
    if let Some(opening) = opening {
        opening.count(&mut db)?;
    }
    let application: i32 = db.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found: String = db.pragma_query_value(None, "integrity_check", |row| row.get(0))?;
    let damage = match application {
        APPLICATION_ID if found == "ok" => return schema::version_of(&db),
        APPLICATION_ID => found,
        _ => "it is not a journal of drupe".to_owned(),
    };
    Err(StoreError::Corrupt(format!("`{}`: {damage}", path.display())))
}

/// The version of such a journal, of which nothing else is read.
pub fn version_in(path: &Path) -> Result<u32, StoreError> {
    let db = open_still(path)?;
    match db.pragma_query_value(None, "application_id", |row| row.get(0))? {
        APPLICATION_ID => schema::version_of(&db),
        _ => Err(StoreError::Corrupt(format!("`{}`: it is not a journal of drupe", path.display()))),
    }
}

/// A connection to a file that does not change: it makes no files beside it.
fn open_still(path: &Path) -> Result<Connection, StoreError> {
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                name.push(char::from(*byte))
            }
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(name, flags)?)
}

/// Makes a copy that was made at `made` fit to be the journal again: brings it to this release's version, and settles what a
/// kernel would otherwise do once more. A copy that was settled already is settled again without harm.
///
/// No kernel may have it open. It is closed in order, and has no log beside it, when this returns.
pub fn put_back(path: &Path, made: Timestamp, clock: Arc<dyn Clock>) -> Result<PutBack, StoreError> {
    check_sqlite()?;
    let opening = Arc::default();
    // As it was it is in the backup.
    let precious = Precious { path, keeps: false, now_ms: clock.now_ms(), opening: &opening };
    let db = open::file(&precious)?;
    let mut writer =
        Writer::new(db, Waits::WherePromised, clock, Arc::new(|_| ()), Arc::default(), Arc::default())?;
    let settled = writer.alone(Survives::Power, |on| settle(on, made))?;
    writer.close()?;
    if beside(path, "-wal").exists() {
        return Err(StoreError::Io("what was settled could not be written back into the file".into()));
    }
    File::open(path)?.sync_all()?;
    Ok(settled)
}

fn settle(on: &mut Writing<'_>, made: Timestamp) -> Result<PutBack, StoreError> {
    let why = format!("the journal was restored from a backup of {made}");
    let now = on.now_ms();
    let open: Vec<TurnId> = {
        let mut all = on.statement("SELECT id FROM turns WHERE finished_ms IS NULL ORDER BY number")?;
        all.query_map([], |row| id(row, 0))?.collect::<Result<_, _>>()?
    };
    let text = format!("{why}; whether this was answered since is not known. Send it again if it was not");
    let response = AgentResponse::error(FailureClass::Cancelled, text);
    open.iter().try_for_each(|turn| turns::give_up(on, turn, &response))?;
    on.statement("UPDATE questions SET state = 'withdrawn', answered_ms = ?1 WHERE state = 'pending'")?
        .execute([now])?;
    let due: Vec<(DeliveryId, bool)> = {
        let mut all = on.statement(
            "SELECT number, state = 'due' FROM outbox WHERE state IN ('due', 'sending') ORDER BY number",
        )?;
        let rows = all.query_map([], |row| Ok((DeliveryId(row.get(0)?), row.get(1)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let doubt = Sent::Uncertain(format!("{why}, and it may have been sent since"));
    for (delivery, is_due) in &due {
        if *is_due {
            outbox::sending(on, *delivery)?;
        }
        outbox::ended(on, *delivery, &doubt)?;
    }
    // Not by way of the bound on dead letters: none of them may be lost here.
    let messages = on
        .statement("UPDATE deliveries SET dead = 1, why = ?1 WHERE dead = 0")?
        .execute([&format!("{why}, and it may have been delivered since")])?;
    on.statement("UPDATE schedules SET through_ms = max(through_ms, ?1)")?.execute([now])?;
    let runs = on
        .statement(
            "UPDATE schedule_runs SET state = 'unknown', detail = ?2, changed_ms = ?1
             WHERE state IN ('waiting', 'running')",
        )?
        .execute((now, &why))?;
    on.statement("UPDATE restarts SET consumed_ms = ?1 WHERE consumed_ms IS NULL")?.execute([now])?;
    let tokens: Vec<String> = {
        let mut all = on.statement("SELECT name FROM tokens ORDER BY name")?;
        all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    on.statement(
        "UPDATE sessions SET least_seq = ?1 + max(least_seq, coalesce(
             (SELECT (id + positions - 1) % 4294967296 FROM log
              WHERE id > sessions.number * 4294967296 AND id < (sessions.number + 1) * 4294967296
              ORDER BY id DESC LIMIT 1), 0))",
    )?
    .execute([UNKNOWN_EVENTS])?;
    let settled = PutBack {
        made,
        put_back: timestamp(now),
        turns: open.len() as u64,
        deliveries: due.len() as u64,
        messages: messages as u64,
        runs: runs as u64,
        tokens,
    };
    note(on, PUT_BACK, &settled)?;
    Ok(settled)
}

impl Store {
    /// What was settled when this journal was put back last; none where it never was.
    pub async fn put_back(&self) -> Result<Option<PutBack>, StoreError> {
        self.read_few(|db| noted(db, PUT_BACK)).await
    }
}
