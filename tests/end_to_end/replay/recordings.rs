//! Recordings of releases, replayed by this one.
//!
//! Each folder of `tests/fixtures/recordings` is named by the release that made it and holds what that has left of the
//! conversations of [`scenes`](super::scenes): its home and its journal, as SQL. `just record` writes the one of this release;
//! those of releases that are out stay as they are.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, types::ValueRef};

use super::{scenes, the_same};
use crate::harness::Daemon;

/// The most bytes of one recording.
const MOST: u64 = 150_000;

/// The folder in which the home of a recording lies while that is made: models are told where a skill is.
const HOME: &str = "drupe-recording";

/// Days after which a recording is replayed as well.
const LATER_DAYS: i64 = 400;

fn recordings() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/recordings"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("it is copied")),
        }
    }
}

fn size(path: &Path) -> u64 {
    match path.is_dir() {
        true => {
            fs::read_dir(path).expect("a folder").map(|entry| size(&entry.expect("an entry").path())).sum()
        }
        false => fs::metadata(path).expect("a file").len(),
    }
}

fn journal(home: &Path) -> Connection {
    Connection::open(home.join("journal.db")).expect("a journal")
}

#[test]
fn what_releases_recorded_gives_the_same_today_and_another_day() {
    let mut folders: Vec<_> =
        fs::read_dir(recordings()).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    folders.sort();
    assert!(!folders.is_empty(), "no release is recorded");
    for folder in folders {
        println!("the recording in {}", folder.display());
        let mut daemon = Daemon::home("");
        copy(&folder.join("home"), daemon.path());
        let sql = fs::read_to_string(folder.join("journal.sql")).expect("the dump is there");
        journal(daemon.path()).execute_batch(&sql).expect("the dump is whole");
        has_all_of_it(&sql);
        daemon.run();
        let before = all_the_same(&daemon);
        daemon.says(&["stop"]);
        daemon.ended();
        // As it will be when this is run much later.
        age(&journal(daemon.path()));
        daemon.run();
        assert_eq!(all_the_same(&daemon), before, "{}", folder.display());
    }
}

/// Replays all sessions; how many turns each has.
fn all_the_same(daemon: &Daemon) -> Vec<(String, usize)> {
    let mut sessions = scenes::sessions(daemon);
    sessions.sort();
    let turns = |id: String| {
        let turns = the_same(daemon, &id)["turns"].as_array().expect("a list").len();
        (id, turns)
    };
    let all: Vec<_> = sessions.into_iter().map(turns).collect();
    assert!(all.iter().map(|(_, turns)| turns).sum::<usize>() >= 12 && all.len() >= 5, "{all:?}");
    all
}

/// A recording that lacks one of these tests less than it is there for.
fn has_all_of_it(sql: &str) {
    for (what, record) in [
        ("a sub-agent", r#""tool":"agent_counter""#),
        ("several in one step", r#""index":2,"effect""#),
        ("a structured answer", r#""tool":"agent_counter""#),
        ("an answer that was mended", r#""entry":"note""#),
        ("a skill", r#""tool":"load_skill""#),
        ("a handoff", r#""tool":"handoff_poet""#),
        ("its end", r#""tool":"return_control""#),
        ("a question that was agreed to", r#""state":"allowed""#),
        ("one that was not", r#""state":"denied""#),
        ("a spawned agent", r#""tool":"spawn_agent""#),
        ("one that was told more", r#""given_by":"#),
        ("one that was closed", r#""tool":"close_agent""#),
        ("one that its caller described", r#""agent":"orchestrator-inline""#),
        ("one that outlived the turn", "work:a-"),
        ("its report", "has done its task"),
    ] {
        assert!(sql.contains(record), "the recording has none: {what} ({record})");
    }
}

/// Moves all times back.
fn age(journal: &Connection) {
    let ms = LATER_DAYS * 86_400_000;
    let mut columns = journal
        .prepare(
            "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
             WHERE m.type = 'table' AND c.name LIKE '%\\_ms' ESCAPE '\\'",
        )
        .expect("a schema");
    let columns = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("columns");
    let columns: Vec<(String, String)> = columns.map(|column| column.expect("a column")).collect();
    assert!(columns.len() > 10, "{columns:?}");
    for (table, column) in columns {
        journal
            .execute(&format!("UPDATE {table} SET {column} = {column} - ?1"), [ms])
            .expect("it is written");
    }
}

#[test]
#[ignore = "writes the recording of this release: `just record`"]
fn this_release_is_recorded() {
    let folder = recordings().join(env!("CARGO_PKG_VERSION"));
    let (_server, mut daemon) = scenes::start(|settings| Daemon::home_called(HOME, settings));
    scenes::play(&daemon);
    scenes::sessions(&daemon).iter().for_each(|session| drop(the_same(&daemon, session)));
    daemon.says(&["stop"]);
    daemon.ended();
    let sql = dump(&journal(daemon.path()));
    let rest = sql.replace(&format!("/tmp/{HOME}/"), "");
    for private in [env!("CARGO_MANIFEST_DIR"), "127.0.0.1", "/home/", "/root/", "/tmp/"] {
        assert!(!rest.contains(private), "the recording would tell of this machine: {private}");
    }
    let _ = fs::remove_dir_all(&folder);
    for part in ["extensions", "skills"] {
        copy(&daemon.path().join(part), &folder.join("home").join(part));
    }
    // Nobody is asked when it is replayed.
    let models = "models:\n  aliases: {default: local/test}\n  providers:\n    local: {kind: openai_chat, base_url: \"http://localhost:9/v1\", api_key: none}\n";
    fs::write(folder.join("home/drupe.yaml"), format!("{models}{}", scenes::SETTINGS)).expect("a file");
    fs::write(folder.join("journal.sql"), sql).expect("a file");
    assert!(size(&folder) <= MOST, "{} bytes are too many for a recording", size(&folder));
}

/// Tables of what the daemon did beside the conversations, whose rows say nothing to a replay.
const BESIDE: [&str; 6] = ["audit", "extension_states", "meta", "restarts", "tokens", "usage"];

/// The journal as SQL.
fn dump(journal: &Connection) -> String {
    let mut schema = journal
        .prepare("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type DESC, name")
        .expect("a schema");
    let schema = schema.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("a schema");
    let schema: Vec<(String, String, String)> = schema.map(|row| row.expect("a row")).collect();
    let pragma = |name: &str| -> i64 {
        journal.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0)).expect("a number")
    };
    let mut out = String::from("PRAGMA foreign_keys = OFF;\nPRAGMA journal_mode = WAL;\n");
    for name in ["application_id", "user_version"] {
        out += &format!("PRAGMA {name} = {};\n", pragma(name));
    }
    for (kind, name, sql) in schema {
        // It comes by itself where a table counts its rows.
        if name != "sqlite_sequence" {
            out += &format!("{sql};\n");
        }
        if kind == "table" && !BESIDE.contains(&name.as_str()) {
            out += &rows(journal, &name);
        }
    }
    out
}

fn rows(journal: &Connection, table: &str) -> String {
    let mut rows = journal.prepare(&format!("SELECT * FROM {table}")).expect("a table");
    let columns = rows.column_count();
    let mut rows = rows.query([]).expect("rows");
    let mut out = String::new();
    while let Some(row) = rows.next().expect("a row") {
        let values = (0..columns).map(|column| match row.get_ref(column).expect("a value") {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(value) => value.to_string(),
            ValueRef::Real(value) => format!("{value:?}"),
            ValueRef::Text(text) => {
                format!("'{}'", std::str::from_utf8(text).expect("text").replace('\'', "''"))
            }
            ValueRef::Blob(bytes) => {
                format!("X'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
            }
        });
        out += &format!("INSERT INTO {table} VALUES ({});\n", values.collect::<Vec<_>>().join(", "));
    }
    out
}
