//! A file system that takes nothing more, as one does on which the system found an error.

use std::process::Command;

use crate::{
    full_disk::on_its_own,
    harness::{Daemon, text},
};

#[test]
fn a_start_on_a_file_system_that_is_read_only_says_so_and_is_worth_another_attempt() {
    on_its_own("machine::read_only::on_one_of_its_own");
}

fn remount(how: &str) -> bool {
    let folder = std::env::temp_dir();
    let options = format!("remount,{how}");
    Command::new("mount").args(["-o", &options]).arg(&folder).status().is_ok_and(|status| status.success())
}

#[test]
#[ignore = "it changes the file system of the temporary folder; the test above gives it one of its own"]
fn on_one_of_its_own() {
    let mut daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    if remount("ro") {
        panic!("a file system was taken away beneath files that are written to");
    }
    daemon.says(&["stop"]);
    daemon.ended();
    assert!(remount("ro"), "nothing is open on it");
    // Its log lies on the same file system.
    let started = daemon.drupe(&["run"]);
    assert_eq!(started.status.code(), Some(75), "{started:?}");
    let said = text(&started.stderr);
    assert!(said.contains("read-only") && said.contains(&*daemon.path().to_string_lossy()), "{said}");
    let looked = daemon.drupe(&["doctor", "--offline"]);
    assert!(text(&looked.stdout).contains("read-only"), "{looked:?}");
    assert!(remount("rw"));
    daemon.run();
    assert_eq!(daemon.turn("s", "hello again")["status"], "success");
    let shown = daemon.client().ask("sessions.show", serde_json::json!({"id": "s"})).expect("a session");
    assert_eq!(shown["turns"].as_array().map(Vec::len), Some(2));
}
