//! A program whose file is exchanged, wholly or half, while its daemon runs.

use std::{os::unix::fs::MetadataExt, path::Path};

use super::*;

/// Copies a program by a process: were it open for writing in this one, processes that other tests make at the same time
/// would hold it open for a moment, too, and nobody could start it.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").args([from, to]).status().expect("it starts").success());
}

/// A daemon that was started from a file of its own.
fn copied() -> (Daemon, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("drupe");
    copy(&example(), &program);
    let process = command_of(&program, &folder, "serve").spawn().expect("it starts");
    let home = Home::new(folder.path().join("home")).expect("a path");
    let daemon = Daemon { folder, home, process };
    daemon.kernel();
    (daemon, program)
}

/// Puts another file where the program was.
fn put(program: &Path, content: &[u8], mode: u32) {
    let content_file = program.with_extension("new");
    fs::write(&content_file, content).expect("its place is free");
    fs::remove_file(program).expect("it was there");
    copy(&content_file, program);
    fs::set_permissions(program, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Restarts the kernel by a request and, after that, by a crash. A kernel serves after each, no crash is counted but that
/// one, and it is said what became of the program.
fn goes_on(daemon: &Daemon, told: &str) {
    let first = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    let second = daemon.kernel_after(first);
    kill_process(second, Signal::KILL).expect("it runs");
    daemon.kernel_after(second);
    let ends = daemon.ends();
    let crashes: Vec<_> = ends.iter().filter(|(_, crash)| *crash).collect();
    assert!(crashes.len() == 1 && crashes[0].0.starts_with("signal 9 (SIGKILL)"), "{ends:?}");
    let notes = daemon.log("note");
    let texts: Vec<_> = notes.iter().filter_map(|note| note["text"].as_str()).collect();
    assert!(texts.len() == 2 && texts.iter().all(|text| text.contains(told)), "{texts:?}");
    assert!(texts.iter().all(|text| text.contains("`drupe restart`")), "{texts:?}");
    let told = daemon.client().ask("told").expect("an answer");
    assert_eq!(told["notices"][0], texts[1], "the next kernel knows it");
    assert!(daemon.log("start").iter().all(|start| start["safe_mode"] == false));
}

#[test]
fn a_kernel_is_started_again_while_the_file_of_the_program_is_gone() {
    let (daemon, program) = copied();
    fs::remove_file(&program).expect("it was there");
    goes_on(&daemon, "No such file");
}

#[test]
fn a_kernel_is_started_again_while_the_new_program_is_being_written() {
    let (daemon, program) = copied();
    put(&program, b"\x7fELF", 0o755);
    let writer = fs::OpenOptions::new().append(true).open(&program).expect("it is ours");
    goes_on(&daemon, "busy");
    drop(writer);
}

#[test]
fn a_kernel_is_started_again_while_nobody_may_execute_the_new_program() {
    let (daemon, program) = copied();
    let whole = fs::read(example()).expect("a program");
    put(&program, &whole, 0o644);
    goes_on(&daemon, "Permission denied");
}

#[test]
fn a_kernel_is_started_again_where_the_new_program_ends_before_its_first_word() {
    let whole = fs::read(example()).expect("a program");
    let scripts: [&[u8]; 3] =
        [b"#!/bin/sh\nkill -SEGV $$\n", b"#!/bin/sh\nexit 0\n", b"#!/bin/sh\nexit 78\n"];
    for content in scripts.into_iter().chain([&whole[..4096]]) {
        let (daemon, program) = copied();
        put(&program, content, 0o755);
        let text = if content[0] == b'#' {
            "ended before its first word"
        } else {
            "the program that the supervisor runs"
        };
        goes_on(&daemon, text);
    }
}

#[test]
fn where_the_new_program_speaks_another_version_the_daemon_goes_on_with_the_old_one_and_says_what_to_do() {
    let (daemon, program) = copied();
    let newer = format!("#!/bin/sh\nexec '{}' \"$@\" --newer\n", example().display());
    put(&program, newer.as_bytes(), 0o755);
    let mut kernel = daemon.kernel();
    for _ in 0..3 {
        daemon.client().ask(method::RESTART).expect("it agrees");
        kernel = daemon.kernel_after(kernel);
    }
    let ends = daemon.ends();
    assert_eq!(ends.len(), 6, "each time once: {ends:?}");
    assert!(ends.iter().all(|(_, crash)| !crash), "{ends:?}");
    assert_eq!(ends[5].0, "exit status 76, of another version");
    assert!(daemon.log("start").iter().all(|start| start["safe_mode"] == false));
    let told = daemon.client().ask("told").expect("an answer");
    assert!(told["notices"][0].as_str().is_some_and(|note| note.contains("`drupe stop`")), "{told}");
    // It speaks as this one does once the service is restarted: here, once the file is the old one again.
    put(&program, &fs::read(example()).expect("a program"), 0o755);
    daemon.client().ask(method::RESTART).expect("it agrees");
    daemon.kernel_after(kernel);
    assert_eq!(daemon.ends().len(), 7);
}

#[test]
fn what_a_newer_kernel_says_beyond_what_is_known_is_passed_over_and_told_once() {
    let daemon = Daemon::serving("newer");
    daemon.kernel();
    let notes = daemon.log("note");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0]["text"].as_str().is_some_and(|text| text.contains("another release")), "{notes:?}");
    assert!(daemon.log("exit").is_empty());
}

#[test]
fn a_new_program_that_is_whole_is_started_at_the_next_restart() {
    let (daemon, program) = copied();
    put(&program, b"", 0o755);
    goes_on(&daemon, "the program that the supervisor runs");
    let whole = fs::read(example()).expect("a program");
    put(&program, &whole, 0o755);
    let last = daemon.kernel();
    daemon.client().ask(method::RESTART).expect("it agrees");
    let next = daemon.kernel_after(last);
    let runs = fs::metadata(format!("/proc/{}/exe", next.as_raw_nonzero())).expect("it runs");
    assert_eq!(runs.ino(), fs::metadata(&program).expect("it is there").ino());
    assert_eq!(daemon.log("note").len(), 2, "nothing more is to be said");
}
