//! A journal of an older release, read by this one: what operators are shown of it stays what it was.
//!
//! `tests/fixtures/journal_5` holds such a journal as SQL, written by the last release that wrote version 5: tool calls that went well,
//! failed and were refused, one over a limit in a sub-agent, a failed attempt that was repeated, a plan, a message that was
//! taken in, a turn that was stopped, one whose kernel was killed while a call ran, an agent that nobody has. Beside it lies
//! what that release printed of it. `BLESS=1` writes these files anew; do so only where what is printed is meant to change.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};

use crate::harness::Daemon;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/journal_5")).join(name)
}

/// Compares with what the older release printed.
fn is_as_it_was(name: &str, printed: &str) {
    let path = fixture(name);
    if env::var_os("BLESS").is_some() {
        fs::write(&path, printed).expect("the file can be written");
    }
    let before = fs::read_to_string(&path).expect("the file is there");
    if let Some((line, (was, is))) =
        before.lines().zip(printed.lines()).enumerate().find(|(_, (was, is))| was != is)
    {
        panic!("{name}, line {}:\nwas {was}\nis  {is}", line + 1);
    }
    assert_eq!(before.lines().count(), printed.lines().count(), "{name} has other lines at its end");
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[test]
fn what_is_shown_of_a_journal_of_an_older_release_stays_what_it_was() {
    let mut daemon = Daemon::home("");
    let sql = fs::read_to_string(fixture("journal.sql")).expect("the dump is there");
    let journal = rusqlite::Connection::open(daemon.path().join("journal.db")).expect("a file");
    journal.execute_batch(&sql).expect("the dump is whole");
    drop(journal);
    daemon.run();
    is_as_it_was("trace.txt", &daemon.says(&["trace", "s", "--all"]));
    is_as_it_was("export.json", &pretty(&daemon.json(&["session", "export", "s"])));
    let session = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("the session");
    let turns = session["turns"].as_array().expect("turns").iter();
    let why = turns.map(|turn| daemon.json(&["why", turn["turn"].as_str().expect("an id"), "--json"]));
    is_as_it_was("why.json", &pretty(&why.collect()));
    let usage = ["agent", "model", "session", "day"].map(|by| daemon.json(&["usage", "--by", by, "--json"]));
    is_as_it_was("usage.json", &pretty(&json!(usage)));
}
