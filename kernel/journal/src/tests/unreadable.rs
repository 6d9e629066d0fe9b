//! Rows that this release cannot read.

use std::{
    io,
    sync::{Arc, Mutex},
};

use drupe_extension_api::control::{Allowance, Power, TokenStatus};
use rusqlite::Connection;

use super::*;
use crate::{sessions, tokens, turns};

/// What was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How many rows can be read, and what is logged of the others.
fn left(list: impl Fn(&Connection) -> usize, db: &Connection) -> (usize, String) {
    let logged = Logged::default();
    let to = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone()).finish();
    let count = tracing::subscriber::with_default(subscriber, || list(db));
    let text = String::from_utf8(logged.0.lock().unwrap().clone()).unwrap();
    (count, text)
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_takes_no_other_with_it() {
    let home = Home::new();
    let store = home.open();
    for name in ["good", "bad"] {
        let token = TokenStatus {
            name: name.into(),
            may: vec![Power::Read],
            sessions: None,
            agents: Vec::new(),
            per_day: Allowance { max_tokens: Some(5), ..Allowance::default() },
            per_day_each: Allowance::default(),
            created: "2026-01-01T00:00:00Z".parse().unwrap(),
        };
        assert!(store.make_token(token, name.into()).await.unwrap());
        store.accept(message(name, name, "go")).await.unwrap();
    }
    let bad = store.accept(message("another", "another", "go")).await.unwrap().turn;
    store.close().await.unwrap();
    let db = Connection::open(home.path()).unwrap();
    for (spoil, list, what, name, readable) in [
        (
            "UPDATE tokens SET may = '[\"fly\"]' WHERE name = 'bad'".to_owned(),
            (|db| tokens::all(db).unwrap().len()) as fn(&Connection) -> usize,
            "a token",
            "bad",
            1,
        ),
        (
            "UPDATE sessions SET agent = 'No Agent' WHERE id = 'bad'".to_owned(),
            |db| sessions::list(db).unwrap().len(),
            "a session",
            "bad",
            2,
        ),
        (
            format!("UPDATE turns SET origin = 'carrier-pigeon:3' WHERE id = '{bad}'"),
            |db| turns::unfinished(db).unwrap().len(),
            "a turn",
            bad.as_str(),
            // That of the other session cannot be read either.
            1,
        ),
    ] {
        db.execute(&spoil, []).unwrap();
        let (count, logged) = left(list, &db);
        assert_eq!(count, readable, "{what}");
        assert!(logged.contains(&format!("the row of {what}")) && logged.contains(name), "{logged}");
    }
    // Nor does it keep a kernel from beginning.
    drop(db);
    assert_eq!(home.open().tokens().await.unwrap().len(), 1);
}
