//! What the process of an extension cannot reach, by the system's own errors. Each attempt is made in the kernel's
//! process as well, where it must succeed: else its failure would prove nothing.

use std::{
    fs,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use drupe_link::Home;
use serde_json::{Value, json};

use crate::harness::{
    Daemon, model_server::ModelServer, plugins::switch, unique, without_landlock::without_landlock,
};

/// Bytes that no process of an extension may have by default.
const MUCH: u64 = 2 << 30;

/// What is tried: what, with what, and what the process of an extension is told.
type Attempt = (&'static str, String, &'static str);

/// A daemon, and things around it that an extension has no business with.
struct Surroundings {
    daemon: Daemon,
    isolation: &'static str,
    victim: Victim,
    socket: PathBuf,
    name: String,
    udp: UdpSocket,
    tcp: TcpListener,
    _unix: (UnixListener, UnixListener),
    _server: ModelServer,
}

/// A process outside.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It is ours, and it sleeps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Surroundings {
    fn new(isolation: &'static str, config: &str) -> Self {
        Self::with(isolation, config, "")
    }

    fn with(isolation: &'static str, config: &str, manifest: &str) -> Self {
        let server = ModelServer::obedient();
        let mut daemon = Daemon::home(&(server.config() + config));
        daemon.write(".env", "A_KEY=secret\n");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(daemon.path().join(".env"), private).expect("it was written");
        daemon.write("data/other/note", "another's");
        daemon.write("data/other/list/note", "another's");
        daemon.write("extensions/other.txt", "not an extension");
        daemon.plugin_in(isolation, "torture", "torture", manifest);
        daemon.run();
        let socket = daemon.path().join("outside.sock");
        let name = format!("drupe-test-{}", unique());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let unix = (
            UnixListener::bind(&socket).expect("a socket"),
            UnixListener::bind_addr(&address).expect("a socket"),
        );
        let sleeping = Command::new("/bin/sleep").arg("600").stdin(Stdio::null()).spawn();
        Self {
            daemon,
            isolation,
            victim: Victim(sleeping.expect("sleep runs")),
            socket,
            name,
            udp: UdpSocket::bind("127.0.0.1:0").expect("a port"),
            tcp: TcpListener::bind("127.0.0.1:0").expect("a port"),
            _unix: unix,
            _server: server,
        }
    }

    fn home(&self, path: &str) -> String {
        self.daemon.path().join(path).display().to_string()
    }

    fn kernel(&self) -> u64 {
        self.daemon.until_ready()["kernel_pid"].as_u64().expect("a pid")
    }

    /// The journal's files.
    fn journal(&self) -> Vec<String> {
        let entries = fs::read_dir(self.daemon.path()).expect("a folder").flatten();
        let names = entries.map(|e| e.path().display().to_string());
        let journal: Vec<String> = names.filter(|name| name.contains("/journal.db")).collect();
        assert!(journal.len() > 1, "there is a journal with its log in {}", self.home(""));
        journal
    }

    fn tries(&self, what: &str, argument: &str) -> Value {
        let attempt = json!({"what": what, "argument": argument});
        let turn = self.daemon.turn(&format!("try-{}", unique()), &format!("torture_try {attempt}"));
        turn["content"].clone()
    }

    /// Makes an attempt that must end as said in a process of its own, and well in the kernel's.
    fn check(&self, (what, argument, denied): &Attempt) {
        let expected = if self.isolation == "process" { denied } else { "ok" };
        let found = self.tries(what, argument);
        let shown = argument.replace(&self.home(""), "HOME/");
        println!("| {what} {shown} | {} | {} |", self.isolation, found.as_str().unwrap_or_default());
        assert_eq!(found, expected, "{what} {argument}, {}", self.isolation);
    }

    fn check_all(&self, attempts: &[Attempt]) {
        for attempt in attempts {
            self.check(attempt);
        }
    }
}

/// Both places.
fn everywhere(check: impl Fn(&Surroundings)) {
    println!("| attempt | isolation | answer of the system |\n|---|---|---|");
    for isolation in ["inproc", "process"] {
        check(&Surroundings::new(isolation, ""));
    }
}

#[test]
fn files_of_the_home_are_out_of_reach_but_for_its_own() {
    everywhere(|s| {
        let mut attempts = Vec::new();
        for file in [
            "run/token",
            ".env",
            "drupe.yaml",
            "state/supervisor.log",
            "state/drupe.good.yaml",
            "data/other/note",
        ] {
            attempts.push(("read", s.home(file), "EACCES"));
            attempts.push(("write", s.home(file), "EACCES"));
        }
        for file in s.journal() {
            attempts.push(("read", file.clone(), "EACCES"));
            attempts.push(("write", file, "EACCES"));
        }
        for folder in ["", "state", "run", "data", "data/other", "extensions"] {
            attempts.push(("list", s.home(folder), "EACCES"));
        }
        attempts.push(("write", s.home("state/new"), "EACCES"));
        attempts.push(("write", s.home("extensions/torture/manifest.yaml"), "EACCES"));
        attempts.push(("write", s.home("extensions/torture/libtorture.so"), "EACCES"));
        attempts.push(("write", s.home("extensions/new.txt"), "EACCES"));
        attempts.push(("remove", s.home("extensions/other.txt"), "EACCES"));
        attempts.push(("write", s.home("drupe.sh"), "EACCES"));
        s.check_all(&attempts);
        // Its own, wherever it runs.
        for (what, file) in [
            ("read", "extensions/torture/manifest.yaml"),
            ("list", "extensions/torture"),
            ("write", "data/torture/mine"),
            ("read", "data/torture/mine"),
            ("list", "data/torture"),
        ] {
            s.check(&(what, s.home(file), "ok"));
        }
    });
}

#[test]
fn sockets_of_the_machine_are_out_of_reach() {
    everywhere(|s| {
        let control = Home::new(s.daemon.path()).expect("a home").socket().display().to_string();
        s.check_all(&[
            ("connect", control, "EACCES"),
            ("connect", s.socket.display().to_string(), "EACCES"),
            ("abstract", s.name.clone(), "EACCES"),
            ("udp", s.udp.local_addr().expect("an address").to_string(), "EACCES"),
            ("tcp", s.tcp.local_addr().expect("an address").to_string(), "EACCES"),
        ]);
    });
}

#[test]
fn the_network_is_reached_by_tcp_alone_and_only_where_the_operator_says_so() {
    let s = Surroundings::new("process", "sandbox: {hosts: {network: [torture]}}\n");
    s.check(&("tcp", s.tcp.local_addr().expect("an address").to_string(), "ok"));
    s.check(&("udp", s.udp.local_addr().expect("an address").to_string(), "EACCES"));
    s.check(&("abstract", s.name.clone(), "EACCES"));
    let s = Surroundings::new("process", "sandbox: {hosts: {network: [another]}}\n");
    s.check(&("tcp", s.tcp.local_addr().expect("an address").to_string(), "EACCES"));
    let s = Surroundings::with("process", "", "rights: [network]\n");
    s.check(&("tcp", s.tcp.local_addr().expect("an address").to_string(), "ok"));
    s.check(&("udp", s.udp.local_addr().expect("an address").to_string(), "EACCES"));
}

#[test]
fn other_processes_are_out_of_reach() {
    everywhere(|s| {
        let (victim, kernel) = (s.victim.0.id(), s.kernel());
        s.check_all(&[
            ("kill", victim.to_string(), "EPERM"),
            ("read", format!("/proc/{victim}/environ"), "EACCES"),
            ("read", format!("/proc/{victim}/maps"), "EACCES"),
            ("list", format!("/proc/{kernel}/fd"), "EACCES"),
            ("read", format!("/proc/{kernel}/cmdline"), "EACCES"),
        ]);
        // A machine may forbid this to everybody who is not the parent.
        if s.isolation == "process" || rustix::process::geteuid().is_root() {
            s.check(&("ptrace", victim.to_string(), "EPERM"));
        }
        let supervisor = s.daemon.supervisor_pid();
        s.check_all(&[("kill", supervisor.to_string(), "EPERM"), ("kill", kernel.to_string(), "EPERM")]);
    });
}

#[test]
fn memory_that_no_limit_counts_watches_and_changes_of_limits_are_refused() {
    everywhere(|s| {
        s.check_all(&[
            ("share", "4096".into(), "EPERM"),
            ("nameless", "name".into(), "EPERM"),
            ("watch", s.home(""), "EPERM"),
            ("watch", s.home("run"), "EPERM"),
            ("limit", String::new(), "EPERM"),
        ]);
    });
}

#[test]
fn memory_is_bounded_as_the_operator_says() {
    everywhere(|s| s.check(&("allocate", MUCH.to_string(), "ENOMEM")));
    let s = Surroundings::new("process", "sandbox: {hosts: {memory_mb: 4096}}\n");
    s.check(&("allocate", MUCH.to_string(), "ok"));
    let s = Surroundings::new("process", "sandbox: {hosts: {memory_mb: 64}}\n");
    s.check(&("allocate", (256_u64 << 20).to_string(), "ENOMEM"));
    s.check(&("allocate", (1_u64 << 20).to_string(), "ok"));
}

#[test]
fn the_environment_of_the_daemon_is_not_in_the_process_of_an_extension() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.variable("A_CANARY", "canary-value");
    daemon.plugin_in("process", "torture", "torture", "");
    daemon.run();
    let kernel = daemon.until_ready()["kernel_pid"].as_u64().expect("a pid");
    let mut hosts = Vec::new();
    let mut left = vec![kernel];
    while let Some(process) = left.pop() {
        let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let mut children: Vec<u64> = list.split_whitespace().filter_map(|p| p.parse().ok()).collect();
        for thread in threads {
            let list = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            children.extend(list.split_whitespace().filter_map(|p| p.parse::<u64>().ok()));
        }
        for child in children {
            let command = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&command).contains("ext-host") && !hosts.contains(&child) {
                hosts.push(child);
            }
            left.push(child);
        }
    }
    assert!(!hosts.is_empty(), "the extension has a process");
    for host in hosts {
        let environment = fs::read(format!("/proc/{host}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environment).contains("canary-value"));
    }
}

#[test]
fn where_the_system_cannot_confine_no_code_runs_apart_unless_the_operator_says_so() {
    // A constructor that ran would end the look at the library, and the reason would tell of that.
    for (sandbox, state, told) in [
        ("", "failed", "Landlock is missing"),
        ("sandbox: {allow_unconfined: true}\n", "failed", "opening it ended the process with status 0"),
    ] {
        let server = ModelServer::obedient();
        let mut daemon = Daemon::home(&(server.config() + sandbox));
        daemon.plugin_in("process", "torture", "torture", "");
        switch(&daemon.library("torture"), "exit", "any", "0");
        let daemon = without_landlock(move || {
            daemon.run();
            daemon
        });
        let (found, reason) = daemon.extension("torture");
        assert_eq!(found, state, "{sandbox}: {reason}");
        assert!(reason.contains(told), "{sandbox}: {reason}");
        assert_eq!(reason.contains("sandbox.allow_unconfined"), sandbox.is_empty(), "{reason}");
        assert_eq!(daemon.extension("kv").0, "active", "what ships runs in the kernel");
    }
}
