//! The power goes, or the disk is full, at any moment of an upgrade: the file is the old one or the new one, and nothing of it is
//! lost.

use std::{collections::BTreeMap, fs, path::Path};

use rusqlite::{Connection, types::Value};

use super::{
    super::{
        crash::{Victim, hear, say},
        *,
    },
    disk::{Chance, Disk},
};
use crate::{check, schema};

/// A real journal of version 5, with more turns than one page holds.
const OLD: &str = include_str!("../../../../../tests/fixtures/journal_5/journal.sql");
const VERSION: u32 = 5;

/// Losses of power that are looked at.
const LOSSES: usize = 60;

/// Writes it, with so many turns more.
pub fn write_old(path: &Path, turns: u32) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(OLD).unwrap();
    let text = "a longer text ".repeat(30);
    let more = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
                INSERT INTO turns (id, session, channel, external_id, kind, queue, text, accepted_ms, after_seq)
                SELECT 'more-' || n, 1, 'mail', 'more-' || n, 'user', 'followup', ?1, 1700000000000, 0 FROM n";
    db.execute(more, (text, turns)).unwrap();
    db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    db.close().unwrap();
}

type Rows = BTreeMap<String, Vec<Vec<Value>>>;

/// All rows but the facts about the file itself.
fn rows(path: &Path) -> (u32, Rows) {
    let db = Connection::open(path).unwrap();
    let whole: String = db.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let mut names = db
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('meta', 'sqlite_sequence')",
        )
        .unwrap();
    let names: Vec<String> = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let all = names.into_iter().map(|name| {
        let mut of = db.prepare(&format!("SELECT * FROM {name} ORDER BY 1, 2")).unwrap();
        let columns = of.column_count();
        let read = |row: &rusqlite::Row<'_>| (0..columns).map(|n| row.get(n)).collect();
        let rows = of.query_map([], read).unwrap().map(Result::unwrap).collect();
        (name, rows)
    });
    let all = all.collect();
    (schema::version_of(&db).unwrap(), all)
}

fn copied(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// What a start comes to that nothing disturbs: rows before it and after it.
struct Expected {
    old: (u32, Rows),
    new: (u32, Rows),
}

fn expected() -> Expected {
    let home = Home::new();
    write_old(&home.path(), 60);
    let old = rows(&home.path());
    assert_eq!((old.0, old.1["turns"].len() > 60), (VERSION, true));
    drop(home.open());
    Expected { old, new: rows(&home.path()) }
}

impl Expected {
    /// Looks at a folder as a disturbed start left it; whether the journal is the new one.
    fn holds(&self, folder: &Path) -> bool {
        let looked_at = copied(folder);
        let found = rows(&looked_at.path().join("journal.db"));
        let is_new = found.0 == schema::version();
        assert!(found == self.old || found == self.new, "version {} is neither of the two", found.0);
        let kept = folder.join("journal.db.v5");
        if is_new {
            assert!(kept.exists(), "a newer journal without what was before it");
        }
        if kept.exists() {
            assert_eq!(check(&kept).unwrap(), VERSION);
            assert!(rows(&copied(folder).path().join("journal.db.v5")) == self.old);
        }
        // The next start goes on with it.
        let home = Home::new();
        drop(home.open_as(&Storage::Full(folder.join("journal.db"))).unwrap());
        assert!(rows(&folder.join("journal.db")) == self.new, "a row was lost");
        assert_eq!(check(&kept).unwrap(), VERSION);
        assert!(!folder.join("journal.db.upgrading").exists());
        is_new
    }
}

#[test]
fn a_loss_of_power_at_any_moment_of_an_upgrade_leaves_the_old_journal_or_the_new_one() {
    let expected = expected();
    let (mut old, mut new) = (0, 0);
    for seed in 1.. {
        if old + new >= LOSSES && new > 0 {
            break;
        }
        assert!(seed < 40, "{old} times the old one, {new} times the new one");
        let home = Home::new();
        write_old(&home.path(), 60);
        let mut victim = Victim::start(&format!("upgrade {seed}"), &home.path());
        loop {
            let line = victim.line();
            let Some((folder, named)) = line.strip_prefix("lost ").and_then(|lost| lost.split_once(' '))
            else {
                break;
            };
            let folder = Path::new(folder);
            // The name that the copy was given is on the disk, or not yet: in any case before the new version counts.
            let is_new = rows(&copied(folder).path().join("journal.db")).0 == schema::version();
            if named == "true" && (is_new || (old + new) % 2 == 0) {
                fs::rename(folder.join("journal.db.upgrading"), folder.join("journal.db.v5")).unwrap();
            }
            match expected.holds(folder) {
                true => new += 1,
                false => old += 1,
            }
            fs::remove_dir_all(folder).unwrap();
            victim.order("go on");
        }
        victim.kill();
    }
    assert!(old > LOSSES / 2 && new > 0, "{old} times the old one, {new} times the new one");
}

/// The process that upgrades, and sees the power go meanwhile.
pub async fn upgrade_until_killed(path: &Path, seed: u64) {
    let (place, home) = (tempfile::tempdir().unwrap(), path.parent().unwrap().to_owned());
    let mut number = 0;
    Disk::begin(Chance::new(seed), move |lost| {
        number += 1;
        let place = place.path().join(number.to_string());
        lost.write_to(&place);
        let named = home.join("journal.db.v5").exists();
        say(&format!("lost {} {named}", place.display()));
        hear();
    });
    // What a close writes back is the new journal, in pieces.
    Home::new().open_as(&Storage::Full(path.to_owned())).unwrap().close().await.unwrap();
    say("done");
    hear();
}

#[test]
fn a_disk_that_is_full_at_any_moment_of_an_upgrade_leaves_the_old_journal_and_the_next_start_goes_on() {
    let mut victim = Victim::start("full_upgrade", Path::new("/nowhere"));
    let line = victim.line();
    let refused: u64 = line.strip_prefix("refused ").unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    assert!(refused > 50, "{line}");
    victim.kill();
}

/// The process that upgrades on a disk without room, each time with room for some writes more.
pub fn upgrade_without_room() {
    Disk::begin(Chance::new(1), |_| ());
    let expected = expected();
    let (mut refused, mut room) = (0, 0);
    loop {
        let home = Home::new();
        write_old(&home.path(), 60);
        Disk::has_room_for(room);
        let opened = home.try_open().map(drop);
        Disk::has_room_for(u64::MAX);
        let undone = match opened {
            Ok(()) => break,
            Err(StoreError::Full(why)) => why.contains("is as it was"),
            Err(other) => panic!("{other}"),
        };
        if undone {
            refused += 1;
            let names = fs::read_dir(home.folder.path()).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.retain(|name| name != "journal.db-wal" && name != "journal.db-shm");
            assert_eq!(names, ["journal.db"], "what takes room is removed");
            assert!(rows(&home.path()) == expected.old);
        }
        // What the start writes after it finds no room either.
        assert_eq!(expected.holds(home.folder.path()), !undone);
        // A page and what is before it in a log are two writes.
        room += 3;
    }
    say(&format!("refused {refused}"));
    hear();
}
