//! A newer program on an older home, and an older program on a newer one: what is kept, what is refused, and the way back, which
//! is the one that is told. Nothing that was accepted is lost or answered twice.

#[path = "../../kernel/journal/src/tests/released/rows.rs"]
mod rows;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use self::rows::rows_of;
use crate::harness::{
    Daemon,
    copied::copy_program,
    model_server::{ModelServer, Say, latest},
    text, until,
};

/// A journal that the last release with version 5 wrote.
const VERSION_5: &str = include_str!("../fixtures/journal_5/journal.sql");

/// Turns that are at work when the program is replaced.
const TURNS: usize = 20;

fn journal(daemon: &Daemon) -> PathBuf {
    fs::canonicalize(daemon.path()).expect("the home is there").join("journal.db")
}

fn version(path: &Path) -> u32 {
    let db = Connection::open(path).expect("a journal");
    db.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a version")
}

fn with(daemon: &Daemon, statements: &str) {
    let db = Connection::open(daemon.path().join("journal.db")).expect("a journal");
    db.execute_batch(statements).expect("it is carried out");
    db.close().expect("it is closed");
}

fn stop(daemon: &mut Daemon) {
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0), "{}", daemon.log());
}

/// Answers of a session, in order.
fn answers(daemon: &Daemon, session: &str) -> Vec<String> {
    let shown = daemon.json(&["session", "show", session, "--json"]);
    let turns = shown["turns"].as_array().expect("turns").iter();
    turns.map(|turn| turn["content"].as_str().unwrap_or_default().to_owned()).collect()
}

fn kernels(daemon: &Daemon) -> usize {
    daemon.log().matches(" starts (process").count()
}

/// Copies of the journal in the home.
fn kept(daemon: &Daemon) -> Vec<String> {
    let names = fs::read_dir(daemon.path()).expect("a folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("journal.db.")).collect()
}

#[test]
fn an_older_journal_is_kept_and_log_status_and_doctor_name_the_copy() {
    let mut daemon = Daemon::home("");
    with(&daemon, VERSION_5);
    let told = text(&daemon.drupe(&["doctor", "--offline"]).stdout);
    assert!(told.contains("has version 5"), "{told}");
    daemon.run();
    let copy = journal(&daemon).with_file_name("journal.db.v5").display().to_string();
    assert_eq!(version(Path::new(&copy)), 5);
    assert!(version(&journal(&daemon)) > 5);
    let log = daemon.log();
    assert!(log.contains("was brought to this release's version") && log.contains(&copy), "{log}");
    let status = daemon.until_ready();
    assert!(status["notices"].to_string().contains(&copy), "{status}");
    let told = text(&daemon.drupe(&["doctor", "--offline"]).stdout);
    assert!(told.contains(&copy) && told.contains("the way back"), "{told}");
    assert!(daemon.says(&["restore", "--check", &copy]).contains("is whole"));
    // Whoever removes it hears no more of it.
    fs::remove_file(&copy).expect("it is there");
    assert!(!daemon.until_ready()["notices"].to_string().contains("journal.db.v5"));
}

#[test]
fn an_upgrade_that_fails_changes_nothing_and_ends_the_daemon_with_what_to_do() {
    let mut daemon = Daemon::home("");
    with(&daemon, VERSION_5);
    // Somebody has put a table there that a later version adds.
    with(&daemon, "CREATE TABLE tokens (a)");
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("the journal of version 5 cannot be brought to version"), "{log}");
    assert!(
        log.contains("nothing of it was changed") && log.contains("start the release that you had before"),
        "{log}"
    );
    assert_eq!(kernels(&daemon), 1, "{log}");
    assert!(!log.contains("safe mode"), "{log}");
    assert_eq!((version(&journal(&daemon)), kept(&daemon)), (5, vec![]));
    // Whoever starts the daemon by a command is told the same.
    let asked = daemon.drupe(&["ask", "hello"]);
    assert_eq!(asked.status.code(), Some(74), "{asked:?}");
    assert!(text(&asked.stderr).contains("cannot be brought to version"), "{asked:?}");
    with(&daemon, "DROP TABLE tokens");
    daemon.run();
    assert_eq!(kept(&daemon), ["journal.db.v5"]);
}

#[test]
fn an_older_release_leaves_a_newer_journal_alone_and_its_own_words_lead_back() {
    let mut daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "before")["status"], "success");
    stop(&mut daemon);
    // What a newer release does at its first start, and after it.
    let (journal, known) = (journal(&daemon), version(&journal(&daemon)));
    let copy = journal.with_file_name(format!("journal.db.v{known}"));
    let db = Connection::open(&journal).expect("a journal");
    db.execute("VACUUM INTO ?1", [copy.to_str()]).expect("it is copied");
    db.execute_batch(&format!(
        "CREATE TABLE later (a); PRAGMA user_version = {};
         UPDATE turns SET text = 'of the newer release';",
        known + 1
    ))
    .expect("it is newer");
    drop(db);
    let newer = fs::read(&journal).expect("a file");
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
    assert_eq!(kernels(&daemon), 2, "{}", daemon.log());
    assert!(fs::read(&journal).expect("a file") == newer, "it is left alone");
    let log = daemon.log();
    let said = log.lines().find(|line| line.contains("this release knows")).expect("it says why").to_owned();
    let command =
        said.split('`').find(|word| word.starts_with("drupe restore")).expect("it says how").to_owned();
    let doctor = text(&daemon.drupe(&["doctor", "--offline"]).stdout);
    assert!(doctor.split_whitespace().collect::<Vec<_>>().join(" ").contains(&command), "{doctor}");

    // The words of the command, without the home, which the harness names.
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let [verb, file, "--home", home] = words[..] else { panic!("{command}") };
    assert_eq!(Path::new(home), fs::canonicalize(daemon.path()).expect("the home"));
    let restored = daemon.json(&[verb, file, "--json"]);
    assert_eq!(version(&journal), known);
    let aside = restored["aside"].as_str().expect("it is kept").to_owned();
    assert_eq!(version(&Path::new(&aside).join("journal.db")), known + 1, "{restored}");
    daemon.run();
    let shown = daemon.json(&["session", "show", "s", "--json"]);
    assert!(shown.to_string().contains("before") && !shown.to_string().contains("newer release"), "{shown}");
    assert_eq!(daemon.turn("s", "after")["status"], "success");
    assert_eq!(answers(&daemon, "s").len(), 2);
    // And forth again, with the journal that was put aside: only the newer release reads it.
    stop(&mut daemon);
    let newer = Path::new(&aside).join("journal.db").display().to_string();
    let refused = daemon.drupe(&["restore", &newer]);
    assert!(text(&refused.stderr).contains("restore it with the release that wrote it"), "{refused:?}");
    assert_eq!(version(&journal), known);
}

#[test]
fn an_upgraded_journal_goes_back_to_what_it_was_and_does_nothing_twice() {
    let mut daemon = Daemon::home("");
    with(&daemon, VERSION_5);
    with(
        &daemon,
        "INSERT INTO turns (id, session, channel, external_id, kind, queue, text, accepted_ms, after_seq)
         VALUES ('01a2094a-d809-74ad-8c8a-b2c4de623eff', 1, '', 'late', 'user', 'followup', 'a late question', 1795452229700, 132);
         UPDATE sessions SET turns = 12 WHERE number = 1;",
    );
    let waiting = {
        let db = Connection::open(journal(&daemon)).expect("a journal");
        let count = "SELECT count(*) FROM turns WHERE finished_ms IS NULL";
        db.query_row(count, [], |row| row.get::<_, u32>(0)).expect("a number")
    };
    daemon.run();
    until("all are answered", || {
        (daemon.until_ready()["queued_turns"] == 0 && daemon.until_ready()["running_turns"] == 0)
            .then_some(())
    })
    .expect("they end");
    stop(&mut daemon);
    let copy = journal(&daemon).with_file_name("journal.db.v5").display().to_string();
    // The home's own journal is none that was kept.
    let own = journal(&daemon).display().to_string();
    let refused = daemon.drupe(&["restore", &own]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("is the journal of this home"),
        "{refused:?}"
    );
    let restored = daemon.json(&["restore", &copy, "--json"]);
    assert_eq!(restored["journal"]["turns"], json!(waiting), "{restored}");
    assert_eq!(restored["drupe"], Value::Null);
    daemon.run();
    let shown = daemon.json(&["session", "show", "s", "--json"]);
    let cancelled = shown["turns"].as_array().expect("turns").iter();
    let cancelled = cancelled.filter(|turn| turn.to_string().contains("was restored from a backup")).count();
    assert_eq!(cancelled, waiting as usize, "{shown:#}");
}

/// A model that answers nobody until it may, and then says whom it answers.
struct Held {
    server: ModelServer,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Held {
    fn new() -> Self {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let door = Arc::clone(&open);
        let server = ModelServer::start(move |request| {
            let (lock, changed) = &*door;
            let held = lock.lock().expect("nobody panics with it");
            drop(changed.wait_while(held, |open| !*open).expect("nobody panics with it"));
            Say::Text(format!("answer to {}", latest(request).1))
        });
        Self { server, open }
    }

    /// A configuration with this model, in which all of them may run at once.
    fn config(&self, drain_ms: u32) -> String {
        let limits = "limits: {concurrency: {runs_of_one_agent: 32}}";
        format!("{}      concurrency: 32\ndrain_timeout_ms: {drain_ms}\n{limits}\n", self.server.config())
    }

    fn let_go(&self) {
        *self.open.0.lock().expect("nobody panics with it") = true;
        self.open.1.notify_all();
    }

    /// Waits until all turns are with the model.
    fn until_all_ask(&self, daemon: &Daemon) {
        let all = || {
            let asked: BTreeSet<String> =
                self.server.requests().iter().map(|request| latest(request).1).collect();
            (asked.len() >= TURNS).then_some(())
        };
        until("all turns ask the model", all).unwrap_or_else(|| panic!("{}", daemon.log()));
    }
}

fn begin(daemon: &Daemon) -> Vec<String> {
    (0..TURNS).map(|n| daemon.submit(&format!("s{n}"), &format!("question {n}"))).collect()
}

/// Each has its answer, once.
fn are_answered_once(daemon: &Daemon, turns: &[String]) {
    for (n, turn) in turns.iter().enumerate() {
        let ended = daemon.wait(turn);
        assert_eq!(ended["status"], "success", "{ended}\n{}", daemon.log());
        let session = format!("s{n}");
        assert_eq!(answers(daemon, &session), [format!("answer to question {n}")], "{turn}");
        let completed = daemon.events(&session).into_iter();
        let completed =
            completed.filter(|event| event.to_string().contains("interaction.turn.completed")).count();
        assert_eq!(completed, 1, "{:#?}", daemon.events(&session));
    }
}

/// Puts another file in the place of the program, as a package does.
fn replace_program(daemon: &Daemon) {
    let program = daemon.path().ancestors().nth(3).expect("a user's folder").join(".local/bin/drupe");
    let fresh = program.with_file_name("drupe.new");
    copy_program(crate::harness::DRUPE, &fresh);
    let mut file = fs::File::options().append(true).open(&fresh).expect("a file");
    file.write_all(b"another release").expect("it is written");
    drop(file);
    fs::rename(&fresh, &program).expect("it is replaced");
}

#[test]
fn a_program_that_is_replaced_below_twenty_running_turns_answers_each_of_them_once() {
    // They end within the time that they have; or go on in the next kernel.
    for (drain, within) in [(30_000, true), (200, false)] {
        let held = Held::new();
        let mut daemon = Daemon::installed(&held.config(drain));
        daemon.run();
        let turns = begin(&daemon);
        held.until_all_ask(&daemon);
        let before = daemon.until_ready();
        replace_program(&daemon);
        daemon.client().ask("restart", json!({"reason": "an upgrade"})).expect("it restarts");
        if within {
            daemon.until_status("it drains", |status| status["state"] == "draining");
            held.let_go();
        }
        let after = daemon.until_status("the next kernel", |status| {
            status["state"] == "ready" && status["kernel_pid"] != before["kernel_pid"]
        });
        held.let_go();
        are_answered_once(&daemon, &turns);
        assert_eq!((&after["restarts"], &after["safe_mode"]), (&json!(1), &json!(false)), "{after}");
        assert!(
            !daemon.log().contains("going on with the program that the supervisor runs"),
            "{}",
            daemon.log()
        );
        assert_eq!(held.server.requests().len() > TURNS, !within, "those that were cut off ask again");
    }
}

#[test]
fn twenty_turns_that_an_older_release_began_are_answered_once_after_its_journal_was_upgraded() {
    let held = Held::new();
    let mut daemon = Daemon::home(&held.config(100));
    daemon.run();
    let turns = begin(&daemon);
    held.until_all_ask(&daemon);
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
    // The journal as the version before had it: its last step added one table.
    with(&daemon, "DROP TABLE people; PRAGMA user_version = 17");
    held.let_go();
    daemon.run();
    are_answered_once(&daemon, &turns);
    let copy = Connection::open(journal(&daemon).with_file_name("journal.db.v17")).expect("it is kept");
    let waiting: u32 = copy
        .query_row("SELECT count(*) FROM turns WHERE finished_ms IS NULL", [], |row| row.get(0))
        .expect("a number");
    assert_eq!(waiting as usize, TURNS, "as they were");
}

/// A file of the journal's own tests.
fn of_the_journal(name: &str) -> String {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/journal/src/tests"));
    fs::read_to_string(folder.join(name)).expect("it is there")
}

/// A journal of that version, with rows of all tables: written by a program of that version, or made from its schema.
fn journal_of(version: usize) -> String {
    let (schema, rows) =
        (of_the_journal(&format!("version_{version}.sql")), of_the_journal("released/rows.sql"));
    format!("{schema}\n{}", rows_of(&rows, version))
}

#[test]
fn a_home_of_every_version_that_there_was_is_served_and_gone_on_with() {
    for version in 1..=drupe_journal::schema::version() as usize {
        let server = ModelServer::start(|request| Say::Text(format!("answer to {}", latest(request).1)));
        let mut daemon = Daemon::home(&server.config());
        with(&daemon, &journal_of(version));
        daemon.run();
        let status = daemon.until_status("all are answered", |status| {
            status["state"] == "ready" && status["queued_turns"] == 0 && status["running_turns"] == 0
        });
        assert_eq!(
            (&status["restarts"], &status["safe_mode"]),
            (&json!(0), &json!(false)),
            "version {version}: {status}"
        );
        let shown = daemon.json(&["session", "show", "s", "--json"]);
        let turns = shown["turns"].as_array().expect("turns");
        assert_eq!(turns.len(), if version == 1 { 2 } else { 3 }, "version {version}: {shown:#}");
        assert_eq!(turns[0]["content"], "hi", "version {version}");
        // The one that nobody had begun has its answer; one that was begun goes on, or says why it cannot.
        let last = &turns[turns.len() - 1];
        assert!(last["content"].to_string().contains("answer to and"), "version {version}: {last:#}");
        assert!(turns.iter().all(|turn| turn["status"].is_string()), "version {version}: {shown:#}");
        daemon.says(&["trace", "s"]);
        daemon.says(&["why", turns[0]["turn"].as_str().expect("an id")]);
        assert_eq!(daemon.turn("s", "and now")["content"], "answer to and now", "version {version}");
        if version >= 2 {
            assert!(daemon.says(&["approvals", "--json"]).contains("\"files\""), "version {version}");
        }
        if version >= 18 {
            assert!(daemon.says(&["pair", "--json"]).contains("Ada"), "version {version}");
        }
        stop(&mut daemon);
        let db = Connection::open(journal(&daemon)).expect("a journal");
        if version >= 12 {
            // Its extension is not there, so it is not offered; its slots stay settled.
            let kept = "SELECT paused || ' ' || (SELECT count(*) FROM schedule_runs) FROM schedules WHERE id = 'report'";
            let kept: String = db.query_row(kept, [], |row| row.get(0)).expect("the schedule");
            assert_eq!(kept, "it failed five times 2", "version {version}");
        }
        let sent: (u32, String) = db
            .query_row("SELECT count(*), min(state) FROM outbox WHERE text = 'hi'", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .expect("what was to go out");
        assert!(sent.0 == 1 && sent.1 != "sent", "version {version}: {sent:?}");
    }
}
