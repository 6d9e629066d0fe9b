//! Memory of the daemon, which holds keys, is for nobody else: not in files of crashes, not for other processes.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
    process::{Child, Command, Stdio},
};

use rustix::process::geteuid;

use crate::harness::{DRUPE, Daemon};

/// A user who is nobody in particular.
const PLAIN: u32 = 65_534;

/// A supervisor that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn give(path: &Path) {
    chown(path, Some(PLAIN), Some(PLAIN)).expect("it is given away");
    if path.is_dir() {
        fs::read_dir(path).expect("a folder").for_each(|entry| give(&entry.expect("an entry").path()));
    }
}

/// Starts the daemon as a plain user, whoever runs the test.
fn as_plain_user(daemon: &Daemon) -> Running {
    let mut command = match geteuid().is_root() {
        false => Command::new(DRUPE),
        true => {
            give(daemon.path());
            let mut command = Command::new("setpriv");
            let (user, group) = (format!("--reuid={PLAIN}"), format!("--regid={PLAIN}"));
            command.args([&user, &group, "--clear-groups", DRUPE]);
            command
        }
    };
    command.args(["run", "--home"]).arg(daemon.path()).current_dir(daemon.path()).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("HOME", daemon.path());
    let log = fs::File::create(daemon.path().join("test.log")).expect("a log file");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Running(command.spawn().expect("it starts"))
}

/// Processes of the program below one, by what they are.
fn roles(process: u32, found: &mut BTreeMap<String, u32>) {
    let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut arguments =
        command.split(|byte| *byte == 0).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if arguments.next().is_some_and(|program| program.ends_with("drupe")) {
        found.insert(arguments.next().unwrap_or_default(), process);
    }
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for thread in threads {
        let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        list.split_whitespace().filter_map(|child| child.parse().ok()).for_each(|child| roles(child, found));
    }
}

#[test]
fn no_role_of_the_program_can_be_dumped_and_a_plain_user_is_served_all_the_same() {
    let daemon = Daemon::home("");
    daemon.plugin_in("process", "torture", "torture", "");
    let running = as_plain_user(&daemon);
    daemon.until_ready();
    daemon.until_extension("torture", "active");
    let mut found = BTreeMap::new();
    roles(running.0.id(), &mut found);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["confined", "ext-host", "kernel", "run"]);
    for (role, process) in found {
        let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("it runs");
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
        assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{role}");
        // What may not be dumped belongs to the administrator.
        let owner = fs::metadata(format!("/proc/{process}/environ")).expect("it runs").uid();
        assert_eq!(owner, 0, "{role}");
    }
}
