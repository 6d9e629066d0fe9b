//! Real processes, confined.

#![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use drupe_confine::{ConfineError, Confined, Limits, Outcome, Profile};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

#[path = "../../../tests/harness/copied.rs"]
mod copied;

/// The example of this crate, which `cargo test` builds beside the test.
fn exe() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("examples/confined")
}

fn script(profile: Profile, script: &str) -> Confined {
    Confined::new(exe(), profile, "/bin/sh").arg("-c").arg(script).env("PATH", "/usr/bin:/bin")
}

fn run(profile: Profile, text: &str) -> Outcome {
    script(profile, text).deadline(Duration::from_secs(20)).run(64 * 1024).expect("it starts")
}

/// Waits until something is so, because another process must get there.
fn eventually(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn pid(file: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(file).ok()?.trim().parse().ok()?)
}

fn alive(pid: Pid) -> bool {
    // A dead process that nobody has buried yet still answers a signal.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !stat.contains(") Z ")
}

/// The pids that the script of `parent` wrote, once all are there.
fn descendants(folder: &Path) -> Vec<Pid> {
    let files = ["a", "b", "c"].map(|name| folder.join(name));
    eventually("the script starts its processes", || files.iter().all(|file| pid(file).is_some()));
    files.iter().filter_map(|file| pid(file)).collect()
}

#[test]
fn output_status_and_environment_are_the_programs_own() {
    let outcome = run(Profile::read_only(), "echo out; echo err >&2; env; exit 7");
    let stdout = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(outcome.status.code(), Some(7));
    assert!(stdout.starts_with("out\n") && stdout.contains("PATH=/usr/bin:/bin"));
    assert!(!stdout.contains("CARGO") && !stdout.contains("HOME="), "{stdout}");
    assert_eq!(outcome.stderr, b"err\n");
    assert!(!outcome.timed_out);
}

#[test]
fn a_programs_signal_is_passed_on() {
    let outcome = run(Profile::read_only(), "kill -TERM $$");
    assert_eq!(outcome.status.signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn files_are_changed_only_where_the_profile_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
    fs::create_dir_all(&inside).expect("a folder");
    fs::create_dir_all(&outside).expect("a folder");
    fs::write(outside.join("old"), "old").expect("a file");
    let profile = Profile { write: vec![inside.clone()], ..Profile::read_only() };
    let attempts =
        "echo x > in/new; echo x > out/new; rm out/old; mv out/old in/; echo x >> out/old; mkdir out/d";
    let outcome = script(profile, attempts).directory(folder.path()).run(4096).expect("it starts");
    assert!(outcome.enforcement.files, "this kernel has no Landlock");
    assert!(inside.join("new").exists());
    let left: Vec<_> = fs::read_dir(&outside).expect("it is there").filter_map(Result::ok).collect();
    assert_eq!(left.len(), 1);
    assert_eq!(fs::read(outside.join("old")).expect("it is there"), b"old");
}

#[test]
fn files_outside_the_profile_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret").expect("a file");
    let read = ["/bin", "/usr", "/lib", "/lib64"].map(PathBuf::from).to_vec();
    let outcome = run(Profile { read, ..Profile::default() }, &format!("cat {}", secret.display()));
    assert!(!outcome.status.success());
    assert!(outcome.stdout.is_empty());
}

#[test]
fn tcp_is_denied_unless_the_profile_allows_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let connect = |network| {
        let profile = Profile { network, ..Profile::read_only() };
        let outcome =
            Confined::new(exe(), profile, exe()).arg("connect").arg(&port).run(4096).expect("it starts");
        outcome.status.code()
    };
    assert_eq!(connect(true), Some(0));
    assert_eq!(connect(false), Some(1));
}

#[test]
fn limits_hold_and_no_core_is_written() {
    let (file_size, processes) = (Some(123_456), Some(4321));
    let limits =
        Limits { open_files: Some(64), cpu_seconds: Some(1), file_size, processes, ..Limits::default() };
    let profile = Profile { limits, ..Profile::read_only() };
    let outcome = run(profile.clone(), "ulimit -n; ulimit -c; ulimit -t");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "64\n0\n1\n");
    let outcome = run(profile.clone(), "cat /proc/self/limits");
    let list = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(list.contains(" 123456 ") && list.contains(" 4321 "), "{list}");
    let outcome = run(profile, "while :; do :; done");
    assert_eq!(outcome.status.signal(), Some(Signal::KILL.as_raw()));
    assert!(!outcome.timed_out);
}

#[test]
fn a_leaked_descriptor_does_not_reach_the_program() {
    let file = fs::File::open("/etc/passwd").expect("it exists");
    let leaked = rustix::io::dup(&file).expect("a copy that stays open on exec");
    let outcome = run(Profile::read_only(), "ls -l /proc/$$/fd");
    drop(leaked);
    let list = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(list.contains("pipe:") && !list.contains("passwd") && !list.contains("socket:"), "{list}");
}

#[test]
fn a_deadline_ends_the_whole_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = Profile { write: vec![folder.path().into()], ..Profile::read_only() };
    let hang = "setsid sh -c 'echo $$ > b; exec sleep 1000' & exec sleep 1000";
    let started = script(profile, hang).directory(folder.path()).deadline(Duration::from_millis(500));
    let outcome = started.run(4096).expect("it starts");
    assert!(outcome.timed_out);
    assert!(pid(&folder.path().join("b")).is_none_or(|pid| !alive(pid)));
}

#[test]
fn a_program_that_cannot_start_is_an_error_with_its_name() {
    let missing = Confined::new(exe(), Profile::read_only(), "/no/such/program").spawn();
    assert!(matches!(missing, Err(ConfineError::Refused(reason)) if reason.contains("/no/such/program")));
    let closed = Confined::new(exe(), Profile::default(), "/bin/sh").spawn();
    assert!(matches!(closed, Err(ConfineError::Refused(_))));
    let long = Confined::new(exe(), Profile::read_only(), "/bin/sh").arg("x".repeat(1 << 20)).spawn();
    assert!(matches!(long, Err(ConfineError::TooLong(_))));
}

#[test]
fn dropping_the_child_kills_its_whole_tree() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = Profile { write: vec![folder.path().into(), "/dev/null".into()], ..Profile::read_only() };
    let text = "echo $$ > a; (setsid sh -c 'echo $$ > b; exec sleep 1000' &); sleep 1000 & echo $! > c; wait";
    let child = script(profile, text).directory(folder.path()).spawn().expect("it starts");
    let all = descendants(folder.path());
    assert!(all.iter().all(|pid| alive(*pid)));
    drop(child);
    assert!(!all.iter().any(|pid| alive(*pid)));
}

#[test]
fn the_tree_dies_with_a_killed_parent_double_forks_included() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut parent = Command::new(exe());
    let mut parent =
        parent.arg("parent").arg(folder.path()).stdin(Stdio::piped()).spawn().expect("it starts");
    let all = descendants(folder.path());
    assert!(all.iter().all(|pid| alive(*pid)));
    // Waiting closes its input; it must be dead by then, not end in order.
    parent.kill().expect("it runs");
    parent.wait().expect("it was killed");
    eventually("every descendant ends", || !all.iter().any(|pid| alive(*pid)));
}

#[test]
fn a_program_that_kills_its_reaper_dies_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = Profile { write: vec![folder.path().into()], ..Profile::read_only() };
    let text = "echo $$ > a; read line; exec sleep 1000";
    let child =
        script(profile, text).directory(folder.path()).stdin(Stdio::piped()).spawn().expect("it starts");
    let program = folder.path().join("a");
    eventually("the program starts", || pid(&program).is_some());
    let program = pid(&program).expect("it was written");
    let reaper = Pid::from_raw(child.id() as i32).expect("a process id");
    kill_process(reaper, Signal::KILL).expect("it runs");
    eventually("the program ends", || !alive(program));
}

#[test]
fn the_verb_called_by_hand_does_nothing() {
    for args in [&["confined"][..], &["confined", "--spec", "x"], &["confined", "--spec", "99"]] {
        let status = Command::new(exe()).args(args).status().expect("it starts");
        assert_eq!(status.code(), Some(126));
    }
}

#[test]
fn a_program_whose_file_was_exchanged_starts_what_it_is_and_not_what_lies_there_now() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("program");
    copied::copy_program(exe(), &program);
    let status = Command::new(&program).arg("upgraded").status().expect("it starts");
    assert_eq!(status.code(), Some(7));
    assert_eq!(fs::read(&program).expect("it is there"), b"another release");
}

#[test]
fn a_program_hears_the_signals_that_whoever_started_the_daemon_ignores() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let deaf = folder.path().join("deaf");
    let text = format!("#!/bin/sh\ntrap '' HUP INT USR1\nexec {} \"$@\"\n", exe().display());
    fs::write(&deaf, text).expect("a script");
    fs::set_permissions(&deaf, fs::Permissions::from_mode(0o755)).expect("it is mine");
    let hears = "for s in HUP INT USR1; do trap \"echo $s\" $s; kill -$s $$; done";
    let program = Confined::new(&deaf, Profile::read_only(), "/bin/sh").arg("-c").arg(hears);
    let outcome = program.deadline(Duration::from_secs(20)).run(1024).expect("it starts");
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), "HUP\nINT\nUSR1\n");
}

#[test]
fn a_standard_stream_is_not_passed_by_number() {
    let status = Command::new(exe()).arg("standard").stdin(Stdio::null()).status().expect("it starts");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn what_this_system_can_enforce_is_known_beforehand() {
    let support = drupe_confine::support();
    let outcome = run(Profile::read_only(), "true");
    assert_eq!(support.landlock, outcome.enforcement.landlock);
    assert_eq!(support.seccomp, outcome.enforcement.syscalls);
    assert_eq!(support.missing().is_none(), outcome.enforcement.complete());
}

#[test]
fn a_terminal_is_given_open_and_by_no_path_and_its_end_is_an_end() {
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size; (setsid sleep 1000 &); \
                  (: < /dev/tty) || (: < \"$(tty)\") || (: < /dev/ptmx) || echo none";
    let start = |script: &str| {
        let profile = Profile { strict: true, ..Profile::program() };
        let shell = Confined::new(exe(), profile, "/bin/sh").env("PATH", "/usr/bin:/bin");
        shell.args(["-c", script]).terminal(80, 24).deadline(Duration::from_secs(20))
    };
    let outcome = start(script).run(4096).expect("it starts");
    let said = String::from_utf8_lossy(&outcome.stdout);
    assert!(said.starts_with("24 80\r\n") && said.ends_with("none\r\n"), "{said}");
    assert_eq!((outcome.status.code(), said.matches("Permission denied").count()), (Some(0), 3), "{said}");
    let mut child = start("cat; exit 3").spawn().expect("it starts");
    assert!(child.stdin.is_none() && child.stdout.is_none() && child.stderr.is_none());
    let terminal = child.terminal.take().expect("it has one");
    let key = terminal.end_key().expect("it is open");
    assert_eq!((key.byte, key.ends), (4, true));
    terminal.write(&[key.byte]).expect("it is open");
    assert_eq!(child.wait().expect("it ends").0.code(), Some(3));
}
