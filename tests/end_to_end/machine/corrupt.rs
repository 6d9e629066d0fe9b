//! A journal whose bytes have changed on the disk, while no daemon ran and beneath one that runs.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::json;

use super::{kernel, starts};
use crate::harness::{Client, Daemon, text, until};

const PAGE: u64 = 4096;

fn journal(daemon: &Daemon) -> PathBuf {
    daemon.path().join("journal.db")
}

/// A daemon with some conversations.
fn with_conversations() -> Daemon {
    let daemon = Daemon::start("");
    for session in ["a", "b", "c"] {
        assert_eq!(daemon.turn(session, &"hello ".repeat(4_000))["status"], "success");
    }
    daemon
}

/// Ends supervisor and kernel as a loss of power would.
fn cut_off(daemon: &mut Daemon) {
    let kernel = kernel(daemon);
    for pid in [daemon.supervisor_pid(), kernel] {
        Daemon::signal(pid, Signal::KILL);
    }
    daemon.ended();
    // While it still ends it has the journal open, and whoever closes it then does not write the log back.
    let gone = until("the kernel is gone", || {
        let stat = fs::read_to_string(format!("/proc/{kernel}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    gone.expect("it was killed");
}

/// Takes the log into the file.
fn write_back(daemon: &Daemon) {
    let db = Connection::open(journal(daemon)).expect("a journal");
    // Nothing stays in the log: what is read there would hide what is damaged in the file.
    let emptied = until("it is written back", || {
        let is_held: bool = db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).ok()?;
        (!is_held).then_some(())
    });
    emptied.expect("nobody has it open");
}

/// Overwrites pages of the file from a number on, which begins with 0.
fn overwrite(daemon: &Daemon, from: u64, pages: u64) {
    let file = File::options().write(true).open(journal(daemon)).expect("a journal");
    file.write_all_at(&vec![0xa5; (pages * PAGE) as usize], from * PAGE).expect("it can be written");
}

fn pages(daemon: &Daemon) -> u64 {
    fs::metadata(journal(daemon)).expect("a journal").len() / PAGE
}

/// The first page of what holds turns: of the table, or of an index of it.
fn first_page(daemon: &Daemon, kind: &str) -> u64 {
    let db = Connection::open(journal(daemon)).expect("a journal");
    let sql =
        "SELECT rootpage FROM sqlite_schema WHERE type = ?1 AND tbl_name = 'turns' ORDER BY rootpage DESC";
    let root: i64 = db.query_row(sql, [kind], |row| row.get(0)).expect("it is there");
    u64::try_from(root).expect("a page") - 1
}

/// The start ends at once, says what is wrong, and has changed nothing.
fn is_refused(daemon: &mut Daemon) {
    let (before, started) = (fs::read(journal(daemon)).expect("a journal"), starts(daemon));
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
    assert_eq!(starts(daemon), started + 1, "no start mends it: {}", daemon.log());
    assert!(daemon.log().contains("the journal is damaged"), "{}", daemon.log());
    assert!(fs::read(journal(daemon)).expect("a journal") == before, "it was changed");
    let asked = daemon.drupe(&["status"]);
    assert_eq!(asked.status.code(), Some(69), "{asked:?}");
    assert!(text(&asked.stderr).contains("drupe doctor"), "{asked:?}");
    let looked = daemon.drupe(&["doctor", "--offline"]);
    assert_eq!(looked.status.code(), Some(1), "{}", text(&looked.stdout));
    assert!(text(&looked.stdout).contains("damaged"), "{}", text(&looked.stdout));
}

#[test]
fn a_journal_that_was_damaged_while_no_daemon_ran_is_found_kept_and_restored_by_the_command_that_is_named() {
    let mut daemon = with_conversations();
    daemon.says(&["backup"]);
    assert_eq!(daemon.turn("d", "after the backup")["status"], "success");
    cut_off(&mut daemon);
    write_back(&daemon);
    overwrite(&daemon, first_page(&daemon, "table"), 1);
    let damaged = fs::read(journal(&daemon)).expect("a journal");
    is_refused(&mut daemon);

    let log = daemon.log();
    let command = log.rsplit_once("`drupe restore ").expect("a command is named").1;
    let words = command.split_once('`').expect("it ends").0;
    let doctor = daemon.drupe(&["doctor", "--offline"]);
    assert!(text(&doctor.stdout).contains(&format!("`drupe restore {words}`")), "{}", text(&doctor.stdout));
    let (file, home) = words.split_once(" --home ").expect("it names the home");
    assert_eq!(Path::new(home), daemon.path());
    daemon.says(&["restore", file]);
    daemon.run();
    let sessions = daemon.client().ask("sessions.list", json!({})).expect("a list").to_string();
    assert!(
        sessions.contains("\"a\"") && sessions.contains("\"c\"") && !sessions.contains("\"d\""),
        "{sessions}"
    );
    assert_eq!(daemon.turn("a", "on it goes")["status"], "success");
    let aside = fs::read_dir(daemon.path()).expect("a home").flatten();
    let kept = aside
        .map(|entry| entry.path().join("journal.db"))
        .find(|path| path.to_string_lossy().contains("before-restore-") && path.exists());
    assert!(fs::read(kept.expect("it is kept")).expect("a file") == damaged);
}

#[test]
fn each_kind_of_page_that_is_damaged_is_found_by_the_start_after_an_unclean_end() {
    let mut daemon = with_conversations();
    cut_off(&mut daemon);
    write_back(&daemon);
    let whole = fs::read(journal(&daemon)).expect("a journal");
    let log = daemon.path().join("journal.db-wal");
    let (index, table) = (first_page(&daemon, "index"), first_page(&daemon, "table"));
    for (what, page) in [("the header", 0), ("an index", index), ("a table", table)] {
        fs::write(journal(&daemon), &whole).expect("it is written");
        let _ = fs::remove_file(&log);
        overwrite(&daemon, page, 1);
        println!("{what}");
        is_refused(&mut daemon);
    }
    fs::write(journal(&daemon), &whole).expect("it is written");
    daemon.run();
    assert_eq!(daemon.turn("a", "on it goes")["status"], "success");
}

#[test]
fn a_log_that_was_changed_on_the_disk_is_told_of_by_status_and_doctor() {
    let mut daemon = with_conversations();
    cut_off(&mut daemon);
    let log = daemon.path().join("journal.db-wal");
    let mut bytes = fs::read(&log).expect("a log");
    let place = bytes.len() / 2;
    bytes[place..place + 16].fill(0xa5);
    fs::write(&log, bytes).expect("it is written");
    let looked = text(&daemon.drupe(&["doctor", "--offline"]).stdout);
    assert!(looked.contains("could not be read to its end"), "{looked}");
    daemon.run();
    let notices = daemon.until_ready()["notices"].to_string();
    assert!(notices.contains("could not be read to its end"), "{notices}");
    assert_eq!(daemon.turn("new", "on it goes")["status"], "success");
}

/// Damages a journal beneath a kernel, which finds it when somebody reads an old conversation, and ends.
fn damage_beneath(daemon: &mut Daemon) {
    write_back(daemon);
    let (from, last) = (pages(daemon) / 10, pages(daemon));
    overwrite(daemon, from, last - from);
    let ask = || -> Option<String> {
        let mut client = Client::connect(daemon.path()).ok()?;
        client.ask("sessions.show", json!({"id": "more-1"})).err()
    };
    let refused = until("a page is read", ask).unwrap_or_else(|| panic!("{}", daemon.log()));
    println!("{refused}");
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
}

/// A daemon with so many conversations that not all of them are in memory.
fn with_many_conversations() -> Daemon {
    let daemon = with_conversations();
    for n in 0..20 {
        assert_eq!(daemon.turn(&format!("more-{n}"), &"hello ".repeat(4_000))["status"], "success");
    }
    daemon
}

#[test]
fn a_page_that_is_damaged_beneath_a_daemon_in_safe_mode_lets_no_kernel_out_of_it() {
    let mut daemon = with_many_conversations();
    for _ in 0..6 {
        daemon.kill_kernel();
    }
    assert_eq!(daemon.until_ready()["safe_mode"], true);
    damage_beneath(&mut daemon);
    let log = daemon.log();
    assert_eq!(starts(&daemon), 8, "six were killed, one served, and one looked at all of it: {log}");
    assert_eq!(log.matches(" starts in safe mode (process").count(), 2, "{log}");
}

#[test]
fn a_doubted_journal_that_is_whole_is_not_looked_at_once_more_behind_the_start() {
    let mut daemon = with_conversations();
    cut_off(&mut daemon);
    daemon.write("journal.db.doubted", "the disk did not confirm what was written");
    daemon.run();
    assert_eq!(daemon.turn("a", "on it goes")["status"], "success");
    assert!(daemon.log().contains("all of it is checked"), "{}", daemon.log());
    assert!(!daemon.path().join("journal.db.doubted").exists());
    // The next one is not closed in order either, and nobody doubts it.
    daemon.kill_kernel();
    let looked = || daemon.log().matches("the journal is whole: all of it was checked").count();
    until("the next kernel has looked", || (looked() > 0).then_some(())).expect("it looks");
    assert_eq!(looked(), 1, "{}", daemon.log());
}

#[test]
fn a_page_that_is_damaged_beneath_a_daemon_ends_it_once_instead_of_turn_after_turn() {
    let mut daemon = with_many_conversations();
    damage_beneath(&mut daemon);
    let log = daemon.log();
    assert_eq!(log.matches("the journal is not gone on with").count(), 1, "{log}");
    assert_eq!(starts(&daemon), 2, "one that ran, and one that looked at all of it: {log}");
    assert!(log.contains("restart: the journal is damaged"), "{log}");
    is_refused(&mut daemon);
}

#[test]
fn an_index_that_no_quick_look_finds_wanting_is_found_behind_the_start() {
    let mut daemon = with_conversations();
    daemon.says(&["stop"]);
    daemon.ended();
    unindex(&daemon);
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("restart: the journal is damaged") && log.contains("index"), "{log}");
    is_refused(&mut daemon);
}

/// Has an index lead to a row by what it is not, in a journal that counts as not closed.
fn unindex(daemon: &Daemon) {
    let sql = "SELECT name, tbl_name, rootpage, sql FROM sqlite_schema
               WHERE type = 'index' AND tbl_name = 'turns' AND sql IS NOT NULL";
    let open = || Connection::open(journal(daemon)).expect("a journal");
    let db = open();
    let index: (String, String, i64, String) = db
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .expect("an index");
    db.execute("INSERT INTO meta VALUES ('open', '1')", []).expect("a mark");
    db.pragma_update(None, "writable_schema", "ON").expect("a pragma");
    db.execute("DELETE FROM sqlite_schema WHERE name = ?1", [&index.0]).expect("it is gone");
    drop(db);
    let db = open();
    db.pragma_update(None, "foreign_keys", "OFF").expect("a pragma");
    db.execute("UPDATE turns SET session = session + 9 WHERE number = 2", []).expect("it is another one's");
    db.pragma_update(None, "writable_schema", "ON").expect("a pragma");
    let again =
        "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('index', ?1, ?2, ?3, ?4)";
    db.execute(again, index).expect("it is back");
}
