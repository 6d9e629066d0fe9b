//! A home that is deleted, moved or wanted by two while its daemon runs.

use std::path::Path;

use serde_json::json;

use super::*;

/// What a second daemon of the home says; it must not begin.
fn refused(daemon: &Daemon) -> String {
    let second = command(&daemon.folder, "serve").stderr(Stdio::piped()).output().expect("it starts");
    assert_eq!(second.status.code(), Some(69));
    String::from_utf8_lossy(&second.stderr).into_owned()
}

impl Daemon {
    /// The kernel after `first`, reached through the control socket.
    pub(super) fn kernel_after(&self, first: Pid) -> Pid {
        eventually("another kernel serves", || Some(self.kernel()).filter(|kernel| *kernel != first))
    }

    /// How each kernel that ended did so, and whether that was a crash.
    pub(super) fn ends(&self) -> Vec<(String, bool)> {
        let end = |exit: &Value| Some((exit["how"].as_str()?.to_owned(), exit["crash"].as_bool()?));
        self.log("exit").iter().map(|exit| end(exit).expect("a record")).collect()
    }
}

fn remove(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.expect("it was there");
}

const RENEWED: &str = "restart: clients did not find the control socket, and there is a new one";

#[test]
fn a_second_daemon_refuses_and_names_the_first_whatever_was_deleted() {
    let daemon = Daemon::serving("serve");
    let first = format!("process {}", daemon.process.id());
    assert!(refused(&daemon).contains(&first));
    for lost in [daemon.home.pid_file(), daemon.home.run(), daemon.home.state()] {
        remove(&lost);
        let message = refused(&daemon);
        assert!(message.contains(&first), "without {}: {message}", lost.display());
    }
    daemon.kernel();
}

#[test]
fn a_socket_that_is_deleted_or_replaced_is_made_again_and_no_kernel_is_killed() {
    let daemon = Daemon::serving("serve");
    let token = fs::read(daemon.home.token()).expect("a token");
    let mut kernel = daemon.kernel();
    for lost in [daemon.home.socket(), daemon.home.run()] {
        let mut connected = daemon.client();
        remove(&lost);
        kernel = daemon.kernel_after(kernel);
        assert!(connected.request(method::STATUS, Value::Null).is_none(), "its kernel is gone");
    }
    fs::rename(daemon.home.socket(), daemon.home.run().join("elsewhere")).expect("it was there");
    drop(daemon.home.listen().expect("its place is free"));
    daemon.kernel_after(kernel);
    assert_eq!(daemon.ends(), vec![(RENEWED.to_owned(), false); 3]);
    assert_eq!(fs::read(daemon.home.token()).expect("a token"), token, "clients that have it may use it");
    assert_eq!(daemon.home.holder(), Some(daemon.process.id()));
}

#[test]
fn a_token_that_is_deleted_is_written_again_while_the_kernel_goes_on() {
    let daemon = Daemon::serving("serve");
    let kernel = daemon.kernel();
    remove(&daemon.home.token());
    eventually("the token is back", || daemon.home.token().exists().then_some(()));
    assert_eq!(daemon.kernel(), kernel);
    assert!(daemon.ends().is_empty());
}

#[test]
fn a_socket_that_is_deleted_before_the_kernel_is_ready_is_made_again() {
    let mut daemon = Daemon::start("hold");
    daemon.status();
    remove(&daemon.home.run());
    eventually("the supervisor answers", || {
        Client::connect(&daemon.home, "supervisor")?.ask(method::STOP).ok()
    });
    assert_eq!(daemon.end().code(), Some(0));
}

#[test]
fn while_the_socket_cannot_be_made_the_kernel_goes_on() {
    let daemon = Daemon::serving("serve");
    let kernel = daemon.kernel();
    remove(&daemon.home.run());
    fs::write(daemon.home.run(), "no folder").expect("its place is free");
    eventually("it is said", || {
        daemon
            .log("note")
            .iter()
            .any(|note| note["text"].as_str().is_some_and(|text| text.contains("cannot be mended")))
            .then_some(())
    });
    gone(kernel).ok_or(()).expect_err("it runs");
    remove(&daemon.home.run());
    daemon.kernel_after(kernel);
    assert_eq!(daemon.ends(), [(RENEWED.to_owned(), false)]);
}

#[test]
fn a_listener_that_the_kernels_own_code_shut_down_is_replaced_and_counted() {
    let daemon = Daemon::serving("serve");
    let kernel = daemon.kernel();
    daemon.client().ask("shut").expect("it agrees");
    daemon.kernel_after(kernel);
    assert_eq!(daemon.ends(), [(RENEWED.to_owned(), true)]);
}

#[test]
fn a_daemon_whose_home_was_moved_ends_with_its_kernel_and_the_home_can_be_served_where_it_is() {
    let mut daemon = Daemon::serving("serve");
    let kernel = daemon.kernel();
    let moved = daemon.folder.path().join("moved");
    fs::rename(daemon.home.path(), &moved).expect("a new place");
    assert_eq!(daemon.end().code(), Some(73));
    gone(kernel).expect("the kernel ended first");
    let said = fs::read_to_string(daemon.folder.path().join("stderr")).expect("a log");
    assert!(said.contains("was moved or deleted"), "{said}");
    fs::rename(&moved, daemon.home.path()).expect("its old place");
    assert_eq!(daemon.ends(), [], "it wrote nothing where its home is not");
    daemon.process = command(&daemon.folder, "serve").spawn().expect("it starts");
    daemon.kernel();
}

#[test]
fn whatever_status_an_extension_gives_a_kernel_that_serves_the_daemon_goes_on() {
    let daemon = Daemon::serving("serve");
    for (number, status) in [0, 1, 69, 70, 74, 78].into_iter().enumerate() {
        // Each another one, so that none is quarantined; the last of them is not noted at all.
        let running = format!("ext-{number} tool.call");
        let running = if status == 78 { vec![] } else { vec![running.as_str()] };
        daemon.die(&running, json!({ "exit": status }));
        let exit = daemon.log("exit").pop().expect("an exit");
        assert_eq!(
            (exit["how"].as_str(), exit["crash"].as_bool()),
            (Some(&*format!("exit status {status}")), Some(true))
        );
        assert_eq!(exit.get("blamed").is_some(), status != 78);
    }
}
