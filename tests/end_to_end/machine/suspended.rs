//! A machine that sleeps, as far as a test can have it: all processes of the daemon stand still for longer than the supervisor
//! bears silence, and go on.

use std::{thread, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use super::{kernel, starts};
use crate::{
    harness::{
        Daemon,
        model_server::{ModelServer, Say},
    },
    service::Systemd,
};

/// Longer than the supervisor bears a kernel without a beat, which is 10 s, and than systemd bears a daemon that does not prove that
/// it lives, which is 4 s in these tests.
const SLEEP: Duration = Duration::from_secs(13);

#[test]
fn a_daemon_that_slept_goes_on_with_its_turn_and_no_kernel_is_killed_for_it() {
    let server = ModelServer::start(|_| {
        // It answers while the daemon sleeps.
        thread::sleep(Duration::from_secs(2));
        Say::Text("good morning".into())
    });
    let mut daemon = Daemon::home(&server.config());
    let systemd = Systemd::of(&mut daemon);
    daemon.run();
    systemd.until("READY=1", &daemon);
    let (supervisor, pid) = (daemon.supervisor_pid(), kernel(&daemon));
    let turn = daemon.submit("s", "good night");
    for process in [pid, supervisor] {
        Daemon::signal(process, Signal::STOP);
    }
    thread::sleep(SLEEP);
    // The supervisor first: what it judges is a kernel that has said nothing for all that time.
    Daemon::signal(supervisor, Signal::CONT);
    thread::sleep(Duration::from_millis(500));
    Daemon::signal(pid, Signal::CONT);
    let ended = daemon.wait(&turn);
    assert_eq!(
        (&ended["status"], &ended["content"]),
        (&json!("success"), &json!("good morning")),
        "{}",
        daemon.log()
    );
    // As long as it would take to find that the control socket is not answered.
    thread::sleep(Duration::from_secs(5));
    assert_eq!(kernel(&daemon), pid, "{}", daemon.log());
    assert_eq!(starts(&daemon), 1, "{}", daemon.log());
    // One each two seconds; half of them may be late on a busy machine.
    assert!(systemd.signs(Duration::from_secs(12)) >= 3, "{}", daemon.log());
    assert!(!daemon.log().contains("has not answered"), "systemd is told nothing false: {}", daemon.log());
}
