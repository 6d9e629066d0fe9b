//! A connection that only reads, with a thread for answers that take long: they delay no commit, and no task.

use std::sync::Mutex;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::{StoreError, shared::lock};

/// What the reader's thread is told.
pub(crate) enum Question {
    Ask(Box<dyn FnOnce(&Connection) + Send>),
    Stop(oneshot::Sender<()>),
}

impl Question {
    /// A question and its answer.
    pub fn posted<F, T>(ask: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>)
    where
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
        T: Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let ask = move |db: &Connection| {
            // Nobody waits any longer: there is nothing to undo.
            let _ = reply.send(consistently(db, ask));
        };
        (Self::Ask(Box::new(ask)), answer)
    }
}

/// Serves until it is told to stop, or nobody is left to ask.
pub(crate) fn serve(reader: &Mutex<Option<Connection>>, mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.blocking_recv() {
        let mut db = lock(reader);
        match question {
            Question::Ask(ask) => {
                if let Some(db) = &*db {
                    ask(db);
                }
            }
            Question::Stop(reply) => {
                *db = None;
                let _ = reply.send(());
                return;
            }
        }
    }
}

/// All statements of one answer see the same commits.
pub(crate) fn consistently<T>(
    db: &Connection,
    ask: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    db.prepare_cached("BEGIN")?.execute([])?;
    let answer = ask(db);
    // SQLite itself ends it where the disk fails; what was wrong is in the answer.
    if !db.is_autocommit() {
        db.prepare_cached("COMMIT")?.execute([])?;
    }
    answer
}
