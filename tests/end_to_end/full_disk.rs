//! A disk that is really full: a small file system in memory, in a mount namespace of its own.

use std::{
    fs::{self, File},
    io::Write as _,
    path::Path,
    process::Command,
    sync::{Mutex, mpsc::channel},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{
        Client, Daemon, PATIENCE,
        model_server::{ModelServer, Say},
        text, unique, until,
    },
    service::Systemd,
};

/// Runs a test with its temporary files on the small file system.
const WITHIN: &str = r#"mount -t tmpfs -o size=64m none "$0" || exit 77
TMPDIR="$0" exec "$1" --exact "$2" --ignored --nocapture"#;

#[test]
fn a_message_that_a_full_disk_cannot_keep_is_refused_and_all_goes_on_once_there_is_room() {
    on_a_small_one("within_a_small_file_system");
}

#[test]
fn on_a_full_disk_a_running_turn_can_be_stopped_and_the_daemon_as_well() {
    on_a_small_one("stopped_on_a_small_file_system");
}

#[test]
fn on_a_full_disk_no_backup_is_made_and_none_is_restored_until_there_is_room() {
    on_a_small_one("backed_up_on_a_small_file_system");
}

#[test]
fn on_a_full_disk_an_older_journal_stays_what_it_is_until_there_is_room() {
    on_a_small_one("upgraded_on_a_small_file_system");
}

#[test]
fn on_a_full_disk_the_log_loses_lines_and_tells_of_it_once_there_is_room() {
    on_a_small_one("logged_on_a_small_file_system");
}

#[test]
fn a_full_disk_is_no_reason_for_systemd_to_end_the_daemon() {
    on_a_small_one("watched_on_a_small_file_system");
}

/// Runs one that is marked as ignored below.
fn on_a_small_one(name: &str) {
    on_its_own(&format!("full_disk::{name}"));
}

/// Runs an ignored test whose temporary folder is a file system of its own.
pub fn on_its_own(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("a test program");
    let output = Command::new("unshare")
        .args(["-rm", "sh", "-c", WITHIN])
        .arg(folder.path())
        .arg(test)
        .arg(name)
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) && !text(&output.stderr).starts_with("unshare:") => {
            output
        }
        refused => {
            println!("skipped: this system lets nobody mount a small file system: {refused:?}");
            return;
        }
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

#[test]
#[ignore = "it fills the file system of the temporary folder; the test above gives it one of its own"]
fn logged_on_a_small_file_system() {
    let daemon = Daemon::start("log: trace\nlog_file: {enabled: true, max_mb: 8, keep: 1}\n");
    let file = daemon.path().join("state/drupe.log");
    let kept = || fs::read_to_string(&file).unwrap_or_default();
    assert!(until("it begins", || kept().contains("\"ready\"").then_some(())).is_some(), "{}", daemon.log());
    let filler = std::env::temp_dir().join("filler");
    // What is said meanwhile finds no room.
    for _ in 0..200 {
        fill(&filler);
        let _ = submit(&daemon, &unique());
    }
    assert_eq!(daemon.until_ready()["restarts"], 0);
    fs::remove_file(&filler).expect("it is there");
    let told = |log: &str| log.contains("bytes of the log are lost: its file could not be written");
    let said = until("the loss is told", || {
        let _ = submit(&daemon, &unique());
        Some(kept()).filter(|log| told(log))
    });
    let said = said.unwrap_or_else(|| panic!("{}", kept()));
    for line in said.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    let elsewhere =
        until("it is told elsewhere", || daemon.log().contains("or its disk was full").then_some(()));
    assert!(elsewhere.is_some(), "{}", daemon.log());
}

#[test]
#[ignore = "it fills the file system of the temporary folder; the test above gives it one of its own"]
fn within_a_small_file_system() {
    let daemon = Daemon::start("");
    let before = daemon.until_ready();
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let filler = std::env::temp_dir().join("filler");
    fill(&filler);

    // What is left of the pages that the journal has already is used up first.
    let mut accepted = Vec::new();
    let refused = loop {
        match submit(&daemon, &unique()) {
            Ok(turn) => accepted.push(turn),
            Err(refused) => break refused,
        }
        fill(&filler);
        assert!(accepted.len() < 1_000, "a full disk takes everything in");
    };
    assert!(refused.contains("unavailable") && refused.contains("disk is full"), "{refused}");
    let home = fs::canonicalize(daemon.path()).expect("the home is there");
    let told = daemon.until_status("the disk is told of", |status| {
        let notices = status["notices"].to_string();
        notices.contains("only") && notices.contains(&*home.to_string_lossy())
    });
    assert_eq!(told["state"], "ready", "{told}");
    let again = unique();
    assert!(submit(&daemon, &again).is_err());
    let asked = daemon.drupe(&["ask", "hello"]);
    assert_eq!(asked.status.code(), Some(75), "{asked:?}");
    assert!(text(&asked.stderr).contains("disk is full"), "{asked:?}");

    // A kernel that has to begin on it takes what is there, or waits for room.
    let kernel = u32::try_from(before["kernel_pid"].as_u64().expect("a pid")).expect("a pid");
    Daemon::signal(kernel, Signal::KILL);
    let begun = || {
        let output = daemon.drupe(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        (status["restarts"].as_u64()? > 0).then_some(status)
    };
    let status = until("another kernel begins", begun).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert_eq!(status["safe_mode"], false, "{status}");

    fs::remove_file(&filler).expect("it is there");
    let retried = until("it is taken in", || submit(&daemon, &again).ok());
    accepted.push(retried.unwrap_or_else(|| panic!("{}", daemon.log())));
    for turn in &accepted {
        assert_eq!(daemon.wait(turn)["status"], "success", "{turn}\n{}", daemon.log());
    }
    let answered = daemon.client().ask("sessions.show", json!({"id": "full"})).expect("the session is there");
    assert_eq!(answered["turns"].as_array().map(Vec::len), Some(accepted.len()), "each once: {answered}");
    let after = daemon.until_ready();
    assert_eq!(after["safe_mode"], false, "{after}");
    assert!(!after["notices"].to_string().contains("only"), "{after}");
}

#[test]
#[ignore = "it fills the file system of the temporary folder; a test above gives it one of its own"]
fn backed_up_on_a_small_file_system() {
    let mut daemon = Daemon::start("journal: {backup: {every: hourly, keep: 1}}\n");
    daemon.until_status("one is made", |status| status["backup"]["last"]["file"].is_string());
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let listed = |folder: &str| -> Vec<_> {
        let entries = fs::read_dir(daemon.path().join(folder)).expect("a folder").flatten();
        entries.map(|entry| entry.file_name()).collect()
    };
    let before = listed("backups");
    let filler = std::env::temp_dir().join("filler");
    fill(&filler);
    let failed = daemon.drupe(&["backup"]);
    assert_eq!(failed.status.code(), Some(75), "{failed:?}");
    assert_eq!(listed("backups"), before, "what is whole stays, and nothing else is there");
    fs::remove_file(&filler).expect("it is there");
    let good = daemon.says(&["backup"]).trim().to_owned();
    daemon.says(&["stop"]);
    daemon.ended();
    daemon.write("drupe.yaml", "log: warn\n");
    fill(&filler);
    let failed = daemon.drupe(&["restore", &good]);
    assert_eq!(failed.status.code(), Some(75), "{failed:?}");
    assert_eq!(fs::read_to_string(daemon.path().join("drupe.yaml")).expect("a file"), "log: warn\n");
    fs::remove_file(&filler).expect("it is there");
    daemon.says(&["restore", &good]);
    daemon.run();
    let shown = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("the session is there");
    assert_eq!(shown["turns"].as_array().map(Vec::len), Some(1));
}

#[test]
#[ignore = "it fills the file system of the temporary folder; a test above gives it one of its own"]
fn upgraded_on_a_small_file_system() {
    let mut daemon = Daemon::home("");
    let journal = daemon.path().join("journal.db");
    let db = rusqlite::Connection::open(&journal).expect("a journal");
    db.execute_batch(include_str!("../fixtures/journal_5/journal.sql")).expect("it is written");
    // Larger than what is left for a copy of it below.
    let more = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
                INSERT INTO turns (id, session, channel, external_id, kind, queue, text, accepted_ms, after_seq, until_seq, starts, started_ms,
                                   finished_ms, response, spend, diagnostics)
                SELECT 'more-' || n, 2, '', 'more-' || n, 'user', 'followup', ?1, 1795452229660, 5, 5, 1, 1795452229660, 1795452229660,
                       response, spend, diagnostics FROM n JOIN turns ON turns.number = 12";
    db.execute(more, ["x".repeat(4_000)]).expect("they are added");
    db.execute_batch(
        "INSERT INTO turns (id, session, channel, external_id, kind, queue, text, accepted_ms, after_seq)
         VALUES ('01a2094a-d809-74ad-8c8a-b2c4de623eff', 1, '', 'late', 'user', 'followup', 'a late question', 1795452229700, 132);
         UPDATE sessions SET turns = 12 WHERE number = 1; UPDATE sessions SET turns = 1001 WHERE number = 2",
    )
    .expect("it is added");
    db.close().expect("it is closed");
    let version = || {
        let db = rusqlite::Connection::open(&journal).expect("a journal");
        db.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).expect("a version")
    };
    let filler = std::env::temp_dir().join("filler");
    fill(&filler);
    // Room for what a supervisor writes, for a part of the copy; then for the copy, and not for the change.
    let size = fs::metadata(&filler).expect("it is there").len();
    for (number, room) in [2 << 20, 6 << 20].into_iter().enumerate() {
        File::options()
            .write(true)
            .open(&filler)
            .expect("it is there")
            .set_len(size - room)
            .expect("it is shorter");
        if number == 0 {
            daemon.spawn();
        }
        let tries = daemon.log().matches("is as it was").count();
        let again = until("it is tried again", || {
            (daemon.log().matches("is as it was").count() > tries + 1).then_some(())
        });
        again.unwrap_or_else(|| panic!("{}", daemon.log()));
        assert_eq!(version(), 5);
        assert!(!daemon.path().join("journal.db.v5").exists(), "it would take the room that is missing");
    }
    assert!(daemon.log().contains("disk is full") && !daemon.log().contains("safe mode"), "{}", daemon.log());
    fs::remove_file(&filler).expect("it is there");
    let status = daemon.until_ready();
    assert_eq!(status["safe_mode"], false, "{status}");
    assert!(daemon.path().join("journal.db.v5").exists());
    let turns = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("the session is there");
    assert_eq!(turns["turns"].as_array().map(Vec::len), Some(12), "{turns}");
    let late = daemon.wait("01a2094a-d809-74ad-8c8a-b2c4de623eff");
    assert_eq!(late["status"], "success", "{late}");
}

#[test]
#[ignore = "it fills the file system of the temporary folder; a test above gives it one of its own"]
fn stopped_on_a_small_file_system() {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (Mutex::new(told), Mutex::new(held));
    let server = ModelServer::start(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        // Nobody lets it answer before the test ends.
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("late".into())
    });
    let mut daemon = Daemon::start(&(server.config() + "drain_timeout_ms: 100\n"));
    daemon.until_ready();
    let turn = daemon.submit("full", "hello");
    asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", daemon.log()));
    let filler = std::env::temp_dir().join("filler");
    fill(&filler);
    while submit(&daemon, &unique()).is_ok() {
        fill(&filler);
    }
    let stopped = daemon.drupe(&["session", "stop", "full"]);
    assert_eq!(stopped.status.code(), Some(75), "{stopped:?}");
    assert!(text(&stopped.stderr).contains("is being stopped, which is not recorded"), "{stopped:?}");
    fs::remove_file(&filler).expect("it is there");
    assert_eq!(daemon.wait(&turn)["class"], "cancelled", "{}", daemon.log());

    daemon.submit("other", "hello");
    asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", daemon.log()));
    fill(&filler);
    while submit(&daemon, &unique()).is_ok() {
        fill(&filler);
    }
    let kernels = daemon.log().matches(" starts (process").count();
    let stopped = daemon.drupe(&["stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(matches!(daemon.ended(), Some(0 | 1)), "{}", daemon.log());
    assert_eq!(daemon.log().matches(" starts (process").count(), kernels, "no other kernel follows");
    drop(go);
}

#[test]
#[ignore = "it fills the file system of the temporary folder; a test above gives it one of its own"]
fn watched_on_a_small_file_system() {
    let mut daemon = Daemon::home("");
    let systemd = Systemd::of(&mut daemon);
    daemon.run();
    systemd.until("READY=1", &daemon);
    let filler = std::env::temp_dir().join("filler");
    fill(&filler);
    while submit(&daemon, &unique()).is_ok() {
        fill(&filler);
    }
    // For twice as long as systemd waits for one.
    assert!(systemd.signs(Duration::from_secs(8)) >= 3, "{}", daemon.log());
    assert!(!daemon.log().contains("has not answered"), "{}", daemon.log());
    fs::remove_file(&filler).expect("it is there");
    let again = unique();
    let taken = until("it is taken in", || submit(&daemon, &again).ok());
    taken.unwrap_or_else(|| panic!("{}", daemon.log()));
}

fn submit(daemon: &Daemon, external_id: &str) -> Result<String, String> {
    let message = json!({"external_id": external_id, "session": "full", "text": "x".repeat(4_000)});
    let taken_in: Value = Client::connect(daemon.path())?.ask("turn.submit", message)?;
    Ok(taken_in["turn"].as_str().expect("a turn").to_owned())
}

/// Takes all that is left.
fn fill(file: &Path) {
    let mut file = File::options().create(true).append(true).open(file).expect("a name needs no room");
    for bytes in [1 << 16, 1 << 12, 1] {
        while file.write(&vec![0; bytes]).is_ok_and(|written| written > 0) {}
    }
}
