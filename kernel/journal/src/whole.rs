//! Looking at every page and every index of a journal while it is used: what the quick look of a start leaves out.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{Store, StoreError, open::read_only};

/// Steps of SQLite between two looks at the time: a fraction of a millisecond.
const STEP: i32 = 1_000;

/// It works for so long, then rests: a fifth of a processor, and of what the disk gives, is left to it.
const WORK: Duration = Duration::from_millis(2);
const REST: Duration = Duration::from_millis(8);

impl Store {
    /// Looks at all of it, a table after the other. Where something is damaged, the journal is not gone on with from then on:
    /// see [`broken`](Store::broken). Dropping this ends it.
    pub async fn check_whole(&self) -> Result<(), StoreError> {
        let Some(path) = self.file() else { return Ok(()) };
        let (path, stopped) = (path.to_owned(), Arc::<AtomicBool>::default());
        let _stops = Stops(Arc::clone(&stopped));
        let (reply, answer) = oneshot::channel();
        thread::Builder::new().name("journal-check".into()).spawn(move || {
            // Nobody waits any longer: the next start looks again.
            let _ = reply.send(check(&path, &stopped));
        })?;
        self.broken.note(answer.await.unwrap_or(Err(StoreError::Closed)))
    }
}

/// Ends the check where nobody waits for it.
struct Stops(Arc<AtomicBool>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check(path: &Path, stopped: &Arc<AtomicBool>) -> Result<(), StoreError> {
    let mut db = read_only(path)?;
    let (stopping, mut since) = (Arc::clone(stopped), Instant::now());
    let pace = move || {
        if since.elapsed() >= WORK {
            thread::sleep(REST);
            since = Instant::now();
        }
        stopping.load(Ordering::Relaxed)
    };
    db.progress_handler(STEP, Some(pace))?;
    let tables: Vec<String> = {
        let mut all = db.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rootpage")?;
        all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?
    };
    for table in tables {
        // A reading for each, so that the log can begin anew between two.
        let found: String = db.query_row(&check_of(&table), [], |row| row.get(0))?;
        if found != "ok" {
            return Err(StoreError::Corrupt(format!("`{}`: {found}", path.display())));
        }
    }
    Ok(())
}

fn check_of(table: &str) -> String {
    format!("PRAGMA integrity_check('{}')", table.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_nobody_waits_for_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("other.db");
        let rows = "CREATE TABLE rows (a); WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000)
                    INSERT INTO rows SELECT i FROM n";
        rusqlite::Connection::open(&path).and_then(|db| db.execute_batch(rows)).expect("a file");
        assert_eq!(check(&path, &Arc::default()), Ok(()));
        assert!(check(&path, &Arc::new(AtomicBool::new(true))).is_err());
    }
}
