//! A clock that is set while the daemon runs, or was wrong when it started.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Mutex,
        mpsc::{Receiver, channel},
    },
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon, PATIENCE, built,
    model_server::{ModelServer, Say},
    until,
};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const CENTURY: i64 = 36_525 * DAY;

/// The clock of a daemon, and of commands for its home.
struct Clock(File);

impl Clock {
    fn of(daemon: &mut Daemon) -> Self {
        let path = daemon.path().join("clock");
        let file = File::create(&path).expect("a file");
        daemon.variable("DRUPE_TEST_CLOCK", &path.to_string_lossy());
        daemon.variable("LD_PRELOAD", &built("clock").to_string_lossy());
        let clock = Self(file);
        clock.set(0);
        clock
    }

    /// Sets it to so many seconds beside the true time.
    fn set(&self, seconds: i64) {
        self.0.write_all_at(&seconds.to_ne_bytes(), 0).expect("it can be written");
    }

    /// Sets it to the first day that it knows.
    fn begin_of_time(&self) {
        self.set(HOUR - jiff::Timestamp::now().as_second());
    }
}

fn no_panic(daemon: &Daemon) {
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}

/// What an operator asks in a day.
fn all_is_answered(daemon: &Daemon) {
    for asked in [
        &["status"][..],
        &["usage"],
        &["usage", "--by", "model"],
        &["schedule", "list"],
        &["session", "list"],
        &["ext", "list"],
        &["approvals"],
        &["trace", "s"],
        &["why", "s"],
        &["bus", "dead"],
        &["token", "list"],
    ] {
        daemon.says(asked);
    }
    // It may find fault with the clock.
    let doctor = daemon.drupe(&["doctor", "--offline", "--json"]);
    assert!(doctor.status.code().is_some_and(|code| code < 2), "{doctor:?}");
}

#[test]
fn the_daemon_works_under_a_clock_of_1970_and_under_one_of_the_next_century() {
    for century in [0, 1] {
        let mut daemon = Daemon::home("");
        let clock = Clock::of(&mut daemon);
        match century {
            0 => clock.begin_of_time(),
            _ => clock.set(CENTURY),
        }
        daemon.run();
        let mut turns = Vec::new();
        let mut talk = |daemon: &Daemon| {
            turns.push(daemon.submit("s", "hello"));
            assert_eq!(daemon.wait(turns.last().expect("a turn"))["status"], "success");
        };
        talk(&daemon);
        all_is_answered(&daemon);
        daemon.says(&["backup"]);
        // It is set right while the daemon runs, and between two kernels.
        clock.set(0);
        talk(&daemon);
        all_is_answered(&daemon);
        daemon.kill_kernel();
        talk(&daemon);
        all_is_answered(&daemon);
        let shown = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("a session");
        let shown = shown["turns"].as_array().expect("turns").iter();
        let shown: Vec<&str> = shown.filter_map(|turn| turn["turn"].as_str()).collect();
        assert_eq!(shown, turns, "in the order in which they came");
        let seqs: Vec<u64> = daemon.events("s").iter().filter_map(|event| event["seq"].as_u64()).collect();
        assert!(seqs.is_sorted(), "{seqs:?}");
        no_panic(&daemon);
    }
}

/// A model that answers when it may, and what says that it was asked.
fn held() -> (ModelServer, Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (Mutex::new(told), Mutex::new(held));
    let server = ModelServer::start(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("done".into())
    });
    (server, asked, go)
}

#[test]
fn a_turn_does_not_notice_that_the_clock_is_set_in_the_middle_of_it() {
    for jump in [DAY, -HOUR, -20 * 365 * DAY] {
        let (server, asked, go) = held();
        let mut daemon = Daemon::home(&server.config());
        let clock = Clock::of(&mut daemon);
        daemon.run();
        let turn = daemon.submit("s", "hello");
        asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{}", daemon.log()));
        clock.set(jump);
        go.send(()).expect("the model waits");
        let ended = daemon.wait(&turn);
        assert_eq!((&ended["status"], &ended["content"]), (&json!("success"), &json!("done")), "{jump}");
        drop(go);
        all_is_answered(&daemon);
        no_panic(&daemon);
        // One that goes on after a kill, under another clock again.
        clock.set(-jump / 2);
        daemon.kill_kernel();
        all_is_answered(&daemon);
        no_panic(&daemon);
    }
}

/// All that is known of the schedule.
fn shown(daemon: &Daemon) -> String {
    let shown = daemon.client().ask("schedules.show", json!({"id": "daily"})).expect("a schedule");
    format!("{shown:#}\n{}", daemon.log())
}

/// Runs of a schedule in a state.
fn runs(daemon: &Daemon, state: &str) -> Vec<Value> {
    let shown = daemon.client().ask("schedules.show", json!({"id": "daily"})).expect("a schedule");
    let runs = shown["runs"].as_array().expect("a list").clone();
    runs.into_iter().filter(|run| run["state"] == state).collect()
}

/// Has the daemon look at its schedules, and so at the clock.
fn look(daemon: &Daemon, name: &str) {
    let far = json!({"name": name, "when": "2199-01-01 00:00", "task": "never"});
    daemon.client().ask("schedules.add", far).expect("it is added");
}

#[test]
fn no_slot_is_done_twice_however_often_the_clock_is_set_ahead_and_back() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    let clock = Clock::of(&mut daemon);
    daemon.run();
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let asked = |daemon: &Daemon| {
        let used = daemon.client().ask("schedules.show", json!({"id": "daily"})).expect("a schedule");
        used["runs"].as_array().map_or(0, Vec::len)
    };
    let grace = 3 * DAY * 1_000;
    let daily =
        json!({"name": "daily", "when": "17 3 * * *", "task": "hello", "grace_ms": grace, "session": "s"});
    daemon.client().ask("schedules.add", daily).expect("it is added");
    assert_eq!(asked(&daemon), 0, "nothing has come yet");
    clock.set(DAY + HOUR);
    look(&daemon, "one");
    let done = || Some(runs(&daemon, "done")).filter(|done| !done.is_empty());
    let first = until("it is done once", done).unwrap_or_else(|| panic!("{}", shown(&daemon)));
    assert_eq!(first.len(), 1, "{first:?}");
    for jump in [0, DAY + HOUR, -HOUR, DAY + HOUR] {
        clock.set(jump);
        look(&daemon, &format!("look-{jump}-{}", crate::harness::unique().split_at(6).0));
        daemon.kill_kernel();
        assert_eq!(runs(&daemon, "done"), first, "after {jump} s");
        assert_eq!(runs(&daemon, "running"), [] as [Value; 0], "after {jump} s");
    }
    clock.set(0);
    look(&daemon, "last");
    let told = || {
        daemon
            .events("s")
            .iter()
            .any(|event| event.to_string().contains("the clock was set back"))
            .then_some(())
    };
    until("its people are told", told)
        .unwrap_or_else(|| panic!("{:?}\n{}", daemon.events("s"), daemon.log()));
    no_panic(&daemon);
}

#[test]
fn a_clock_that_is_set_ahead_has_no_files_deleted_that_people_sent() {
    let mut daemon = Daemon::home("journal: {retention: {max_age_days: 10}}\n");
    let clock = Clock::of(&mut daemon);
    let inbox = daemon.path().join("workspace/inbox");
    // Its name says whose it is; the disk says how old it is.
    let write = |name: &str, days: i64| {
        let folder = inbox.join(format!("telegram+person.{name}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let file = File::create(folder.join("a.txt")).expect("a file");
        let age = std::time::Duration::from_secs((days * DAY).unsigned_abs());
        file.set_modified(std::time::SystemTime::now() - age).expect("it is old");
        folder.join("a.txt")
    };
    let goes = |daemon: &Daemon, what: &std::path::Path| {
        until("it goes", || (!what.exists()).then_some(())).unwrap_or_else(|| panic!("{}", daemon.log()));
    };
    let old = write("old", 11);
    daemon.run();
    // The first look is over.
    goes(&daemon, &old);
    let fresh: Vec<_> = (0..30).map(|n| write(&n.to_string(), 0)).collect();
    for jump in [CENTURY, 0] {
        let old = write("old", 12);
        clock.set(jump);
        daemon.kill_kernel();
        daemon.until_ready();
        goes(&daemon, &old);
        assert!(fresh.iter().all(|file| file.exists()), "{jump}: {}", daemon.log());
    }
    no_panic(&daemon);
}
