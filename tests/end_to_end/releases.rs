//! A kernel whose supervisor is of another release: what the two say to each other is written here as that one would.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
    process::{Child, Stdio},
};

use drupe_link::{ControlToken, Home, Received, SupervisorLink, Up, VERSION, pair};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    net::{SendFlags, send},
};

use crate::harness::{Daemon, until};

/// A kernel that has a test for its supervisor.
struct Kernel {
    daemon: Daemon,
    link: SupervisorLink,
    process: Child,
}

impl Kernel {
    fn start() -> Self {
        let daemon = Daemon::home("");
        let home = Home::create(daemon.path()).expect("a home");
        ControlToken::create(&home).expect("a token");
        let control = home.listen().expect("a socket");
        let (link, theirs) = pair().expect("a link");
        for fd in [theirs.as_fd(), control.as_fd()] {
            fcntl_setfd(fd, FdFlags::empty()).expect("it is inherited");
        }
        let mut command = daemon.command(&["kernel"]);
        command.arg("--link-fd").arg(theirs.as_raw_fd().to_string());
        command.arg("--control-fd").arg(control.as_raw_fd().to_string());
        let log = fs::File::create(daemon.path().join("log")).expect("a file");
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Self { daemon, link, process: process.expect("drupe starts") }
    }

    fn say(&self, frame: &str) {
        send(&self.link, frame.as_bytes(), SendFlags::NOSIGNAL).expect("the kernel listens");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.daemon.path().join("log")).expect("a log")
    }

    /// Waits until the kernel says that.
    fn until_said(&self, is: impl Fn(&Up) -> bool) {
        loop {
            match self.link.recv().expect("the link works") {
                Received::Frame(frame) if is(&frame) => return,
                Received::Closed => panic!("it ended: {}", self.log()),
                _ => {}
            }
        }
    }

    fn ended(&mut self) -> Option<i32> {
        let status = until("the kernel ends", || self.process.try_wait().expect("it is a child"));
        status.unwrap_or_else(|| panic!("{}", self.log())).code()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(link: u32, more: &str) -> String {
    format!(
        r#"{{"frame":"start","link":{link},"generation":1,"safe_mode":false,"supervisor_pid":1,"restarts":0{more}}}"#
    )
}

#[test]
fn a_kernel_whose_supervisor_speaks_another_version_ends_before_it_touches_anything_and_says_why() {
    for first in [&*start(VERSION + 1, ""), r#"{"frame":"begin","versions":[7]}"#] {
        let mut kernel = Kernel::start();
        kernel.say(first);
        assert_eq!(kernel.ended(), Some(76), "{}", kernel.log());
        let log = kernel.log();
        assert!(log.contains("another version of drupe") && log.contains("restart the service"), "{log}");
        assert!(!kernel.daemon.path().join("journal.db").exists());
    }
}

#[test]
fn a_kernel_passes_over_what_a_newer_supervisor_says_beyond_what_it_knows() {
    let mut kernel = Kernel::start();
    kernel.say(&start(VERSION, r#","weather":{"rain":true}"#));
    kernel.say(r#"{"frame":"levitate"}"#);
    kernel.until_said(|frame| matches!(frame, Up::Ready { .. }));
    kernel.say(r#"{"frame":"stop","gently":true}"#);
    kernel.until_said(|frame| matches!(frame, Up::Stopping));
    assert_eq!(kernel.ended(), Some(0), "{}", kernel.log());
    assert_eq!(kernel.log().matches("the supervisor is of another release").count(), 1, "{}", kernel.log());
}
