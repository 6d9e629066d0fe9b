//! Real processes that die in the code of a library, and what the page tells of them.

#![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]
#![expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::LazyLock,
    time::Duration,
};

use drupe_blame::{Cause, Operation, Page, Reading, Running};
use rustix::process::Signal;

/// The example of this crate, which `cargo test` builds beside the test.
fn victim() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("examples/victim")
}

/// The library that dies, compiled once and kept while the tests run.
static LIBRARY: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libplugin.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plugin.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-fno-optimize-sibling-calls", "-pthread", "-o"])
        .args([&library, &source])
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    (folder, library)
});

fn command(page: &Page, scene: &str, what: &str) -> Command {
    let mut command = Command::new(victim());
    let page = page.fd().try_clone_to_owned().expect("a descriptor");
    command.arg(&LIBRARY.1).args([scene, what]).stdin(page).stderr(Stdio::null());
    command
}

/// Lets a victim die and reads what it left.
fn die(scene: &str, what: &str) -> (ExitStatus, Reading) {
    let page = Page::create().expect("a page");
    let status = command(&page, scene, what).status().expect("it starts");
    (status, page.read().expect("it reads"))
}

/// Who ran, as `extension operation`, with `own` for an extension's own thread.
fn shown(running: &Running) -> String {
    assert_eq!(running.hash, format!("hash of {}", running.extension));
    assert!(running.since < Duration::from_secs(600), "{running:?}");
    let own = if running.own_thread { " own" } else { "" };
    format!("{} {}{own}", running.extension, running.operation.name())
}

/// Lets a victim die, once and again, by this signal, and asserts that the note blames `whom`.
fn check(scene: &str, what: &str, by: Signal, whom: Option<&str>) {
    for _ in 0..3 {
        let (status, reading) = die(scene, what);
        assert_eq!(status.signal(), Some(by.as_raw()), "{scene}, {what}: {status}");
        let last = reading.last.unwrap_or_else(|| panic!("{scene}, {what}: no note"));
        assert_eq!(last.cause, Cause::Signal(by.as_raw()), "{scene}, {what}");
        assert_eq!(last.running.as_ref().map(shown).as_deref(), whom, "{scene}, {what}");
    }
}

fn check_exit(scene: &str, what: &str, whom: Option<&str>) {
    let (status, reading) = die(scene, what);
    assert_eq!(status.code(), Some(0), "{scene}, {what}: {status}");
    let last = reading.last.unwrap_or_else(|| panic!("{scene}, {what}: no note"));
    assert_eq!(last.cause, Cause::Exit, "{scene}, {what}");
    assert_eq!(last.running.as_ref().map(shown).as_deref(), whom, "{scene}, {what}");
}

fn check_nothing(scene: &str, what: &str) {
    let (status, reading) = die(scene, what);
    assert_eq!(status.code(), Some(0), "{scene}, {what}: {status}");
    assert_eq!(reading, Reading::default(), "{scene}, {what}");
}

#[test]
fn every_deadly_signal_is_blamed_on_whose_code_it_was_and_kills() {
    for (what, signal) in [
        ("segv", Signal::SEGV),
        ("bus", Signal::BUS),
        ("abort", Signal::ABORT),
        ("ill", Signal::ILL),
        ("fpe", Signal::FPE),
        ("sys", Signal::SYS),
        ("trap", Signal::TRAP),
    ] {
        check("in a", what, signal, Some("a tool.call"));
        check("in a on a thread of the kernel", what, signal, Some("a tool.call"));
        check("in nobody", what, signal, None);
    }
}

#[test]
fn a_stack_overflow_is_noted_on_every_kind_of_thread() {
    check("in a", "overflow", Signal::SEGV, Some("a tool.call"));
    check("in a on a thread of the kernel", "overflow", Signal::SEGV, Some("a tool.call"));
    check("on a thread of a", "overflow", Signal::SEGV, Some("a thread own"));
}

#[test]
fn a_thread_that_an_extension_started_is_its_own_and_so_are_the_threads_of_that() {
    for scene in ["on a thread of a", "on a thread of a thread of a"] {
        check(scene, "segv", Signal::SEGV, Some("a thread own"));
        check(scene, "abort", Signal::ABORT, Some("a thread own"));
        check_exit(scene, "exit", Some("a thread own"));
    }
}

#[test]
fn a_thread_stays_its_extensions_own_while_another_extension_runs() {
    let (status, reading) = die("in b while a thread of a lives", "let it crash");
    assert_eq!(status.signal(), Some(Signal::SEGV.as_raw()));
    let last = reading.last.expect("a note");
    assert_eq!(last.running.as_ref().map(shown).as_deref(), Some("a thread own"));
    assert_eq!(reading.running.iter().map(shown).collect::<Vec<_>>(), ["b tool.call"]);
}

#[test]
fn exit_is_blamed_on_its_caller() {
    check_exit("in a", "exit", Some("a tool.call"));
    check_exit("in a on a thread of the kernel", "exit", Some("a tool.call"));
    check_exit("in the kernel that a called", "exit", None);
    check_exit("in nobody", "exit", None);
    check_exit("in nobody", "return", None);
}

#[test]
fn calls_within_calls_are_told_apart() {
    check("in b inside of a", "segv", Signal::SEGV, Some("b tool.call"));
    check("in a after b inside of it", "segv", Signal::SEGV, Some("a tool.call"));
    check("in the kernel that a called", "segv", Signal::SEGV, None);
    check("in a after it called the kernel", "segv", Signal::SEGV, Some("a tool.call"));
    check("on a thread of the kernel that a called", "segv", Signal::SEGV, None);
    check("in the kernel that a thread of a called", "segv", Signal::SEGV, None);
}

#[test]
fn a_kill_from_outside_leaves_no_note_but_tells_who_ran() {
    let page = Page::create().expect("a page");
    let mut child =
        command(&page, "in a and in b until killed", "").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("it says so");
    assert_eq!(line, "ready\n");
    child.kill().expect("it is killed");
    child.wait().expect("it ends");
    let reading = page.read().expect("it reads");
    assert_eq!(reading.last, None);
    let mut running: Vec<String> = reading.running.iter().map(shown).collect();
    running.sort();
    assert_eq!(running, ["a tool.call", "b channel.send"]);
    assert!(reading.running.iter().all(|r| r.since > Duration::from_millis(20)), "{reading:?}");
    page.clear().expect("it is emptied");
    assert_eq!(page.read().expect("it reads"), Reading::default());
}

#[test]
fn an_end_in_order_leaves_nothing() {
    for what in ["return", "end thread", "be cancelled", "refused thread"] {
        check_nothing("in order", what);
    }
}

#[test]
fn nothing_is_noted_before_the_page_is_installed() {
    check_nothing("not installed", "return");
}

#[test]
fn an_end_without_a_hook_leaves_who_ran() {
    let (status, reading) = die("in a", "_exit");
    assert_eq!((status.code(), reading.last), (Some(0), None));
    assert_eq!(reading.running.iter().map(shown).collect::<Vec<_>>(), ["a tool.call"]);
}

#[test]
fn a_death_at_the_very_end_of_an_own_thread_is_its_extensions_still() {
    check("on a thread of a", "crash at thread end", Signal::SEGV, Some("a thread own"));
}

#[test]
fn what_a_forked_process_does_is_not_noted() {
    check_nothing("in order", "fork and crash");
    check_nothing("in order", "fork and exit");
    check_nothing("in order", "clone and crash");
    check("in a while a fork of it was elsewhere", "segv", Signal::SEGV, Some("a tool.call"));
    check_exit("in a", "fork and crash", None);
}

#[test]
fn of_threads_that_die_together_one_is_noted() {
    for _ in 0..10 {
        check("in a", "crash eightfold", Signal::SEGV, Some("a thread own"));
    }
}

#[test]
fn the_first_death_is_the_one_that_is_noted() {
    let (status, reading) = die("in a that crashes after exit", "exit");
    assert_eq!(status.signal(), Some(Signal::SEGV.as_raw()));
    let last = reading.last.expect("a note");
    assert_eq!((last.cause, last.running.as_ref().map(shown).as_deref()), (Cause::Exit, Some("a tool.call")));
}

#[test]
fn slots_of_threads_that_ended_are_used_again() {
    let (_, reading) = die("in a after thousands of threads", "_exit");
    assert_eq!(reading.running.iter().map(shown).collect::<Vec<_>>(), ["a tool.call"]);
    check("in a after thousands of threads", "segv", Signal::SEGV, Some("a tool.call"));
}

#[test]
fn very_many_own_threads_leave_slots_to_the_kernel_and_each_is_named_if_it_dies() {
    let (status, reading) = die("in b while a has a thousand threads", "_exit");
    assert_eq!((status.code(), reading.last), (Some(0), None));
    let (own, others): (Vec<_>, Vec<_>) = reading.running.iter().partition(|running| running.own_thread);
    assert!(own.len() == 768 && own.iter().all(|running| shown(running) == "a thread own"), "{}", own.len());
    assert_eq!(others.into_iter().map(shown).collect::<Vec<_>>(), ["b tool.call"]);
    check("on one more of a thousand threads of a", "segv", Signal::SEGV, Some("a thread own"));
}

#[test]
fn a_full_table_names_nobody_new_and_forgets_nobody() {
    check("in a with a full table", "segv", Signal::SEGV, Some("a tool.call"));
}

#[test]
fn a_poll_that_does_not_return_is_overdue_and_an_own_thread_is_not() {
    let page = Page::create().expect("a page");
    let output = command(&page, "a is overdue", "").output().expect("it starts");
    assert!(output.status.success(), "{}", output.status);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.starts_with("true [Running { extension: \"a\", hash: \"hash of a\""), "{told}");
    assert!(told.contains("operation: AgentInvoke") && told.matches("extension").count() == 1, "{told}");
    assert_eq!(Operation::named("agent.invoke"), Operation::AgentInvoke);
}

#[test]
fn a_descriptor_that_is_no_page_is_refused() {
    for size in [0, 540_736] {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(size).expect("a size");
        let error = drupe_blame::install(file.into()).expect_err("it could be cut short");
        assert!(error.to_string().contains("no blame page"), "{error}");
    }
}

#[test]
#[ignore = "prints a figure; run it with --release"]
fn the_price_of_noting_a_poll() {
    let output = Command::new(victim()).output().expect("it starts");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success());
}
