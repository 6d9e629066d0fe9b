//! A process that may open no more files: nobody is served meanwhile, no processor is burnt, and all goes on when files are back.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::json;

use super::kernel;
use crate::harness::{Client, Daemon};

/// A process to which the system gives no more files, until this is dropped.
struct Without {
    pid: Pid,
    before: Rlimit,
}

impl Without {
    fn files(pid: u32) -> Self {
        Self::files_but(pid, 0)
    }

    /// The same where it will let go of as many as that.
    fn files_but(pid: u32, freed: u64) -> Self {
        let most = fs::read_dir(format!("/proc/{pid}/fd")).expect("a process").count() as u64 - freed;
        let process = Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        // A new one gets the least number that is free.
        let few = Rlimit { current: Some(most), maximum: None };
        let before = rustix::process::getrlimit(Resource::Nofile);
        prlimit(Some(process), Resource::Nofile, Rlimit { maximum: before.maximum, ..few }).expect("a limit");
        Self { pid: process, before }
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        // One that has ended needs none.
        let _ = prlimit(Some(self.pid), Resource::Nofile, self.before);
    }
}

/// The time of a processor that a process had.
fn used(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("a number")).sum();
    // A tick is a hundredth of a second wherever Linux runs.
    Duration::from_millis(ticks * 10)
}

/// Nothing of a processor is burnt while somebody waits.
fn rests(pid: u32) {
    let (begin, before) = (Instant::now(), used(pid));
    thread::sleep(Duration::from_secs(3));
    let (time, used) = (begin.elapsed(), used(pid).saturating_sub(before));
    assert!(used < time / 8, "{used:?} of {time:?}");
}

#[test]
fn a_kernel_that_may_open_no_more_files_goes_on_with_what_it_has_and_serves_others_once_it_may() {
    let daemon = Daemon::start("");
    let pid = kernel(&daemon);
    let mut known = daemon.client();
    let without = Without::files(pid);
    // The system takes them in, and the kernel cannot.
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let waiting: Vec<_> = (0..8).map(|_| home.connect().expect("there is room in the queue")).collect();
    let message = json!({"external_id": "1", "session": "s", "text": "hello"});
    let taken = known.ask("turn.submit", message).expect("it is taken in");
    let ended = known.ask("turn.wait", json!({"turn": taken["turn"]})).expect("it ends");
    assert_eq!(ended["status"], "success", "the journal is open: {ended}");
    rests(pid);
    assert!(daemon.log().contains("a connection to the control socket failed"), "{}", daemon.log());
    drop(without);
    drop(waiting);
    assert_eq!(kernel(&daemon), pid, "it is the same kernel: {}", daemon.log());
    let mut later = Client::connect(daemon.path()).expect("it serves");
    assert_eq!(
        later.ask("sessions.show", json!({"id": "s"})).expect("a session")["turns"][0]["content"],
        ended["content"]
    );
    assert_eq!(daemon.until_ready()["exits"], json!([]), "nothing has ended");
}

#[test]
fn a_supervisor_that_may_open_no_more_files_starts_the_next_kernel_once_it_may() {
    let daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let (supervisor, before) = (daemon.supervisor_pid(), kernel(&daemon));
    // What it has of the kernel that ends would be enough for the next one.
    let without = Without::files_but(supervisor, 4);
    Daemon::signal(before, Signal::KILL);
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let waiting: Vec<_> = (0..4).map(|_| home.connect().expect("there is room in the queue")).collect();
    rests(supervisor);
    drop(without);
    drop(waiting);
    assert_ne!(kernel(&daemon), before);
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let status = daemon.until_ready();
    assert_eq!(
        (status["safe_mode"].as_bool(), status["supervisor_pid"].as_u64()),
        (Some(false), Some(supervisor.into()))
    );
}
