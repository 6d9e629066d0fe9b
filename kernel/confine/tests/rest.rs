//! What a reaper does while its program rests, and when it does not any more.

use std::{
    fs,
    io::Write,
    process::Stdio,
    time::{Duration, Instant},
};

use drupe_confine::{Child, Confined, Limits, Profile, Stopped};
use start::example;

#[expect(dead_code, reason = "other tests ask more of what they start")]
mod start;

/// Longer than any look that would be made time and again.
const LONG: Duration = Duration::from_millis(2_500);

/// A shell that waits for a line, alone and at rest, and then does this.
fn waits(limits: Limits, then: &str) -> Child {
    let profile = Profile { limits, ..Profile::read_only() };
    let shell = Confined::new(example("confined"), profile, "/bin/sh").env("PATH", "/usr/bin:/bin");
    let script = format!("read line; {then}");
    shell.args(["-c", &script]).stdin(Stdio::piped()).spawn().expect("it starts")
}

/// How often a process has slept and was woken.
fn wakes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).expect("the system counts them")
}

/// Waits until it has slept for long.
fn until_it_sleeps(process: u32) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let before = wakes(process);
        std::thread::sleep(LONG);
        if wakes(process) == before {
            return;
        }
        assert!(Instant::now() < end, "it wakes time and again: {} times so far", wakes(process));
    }
}

fn go_on(child: &mut Child) {
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
}

fn tasks(most: u64) -> Limits {
    Limits { tree_tasks: Some(most), tree_memory: Some(64 << 20), ..Limits::default() }
}

#[test]
fn a_reaper_sleeps_while_its_program_is_alone_and_at_rest_and_sees_what_it_takes_then() {
    // The second one takes so little time that its clock tells of nothing: the parent does.
    let attempt = example("attempt").display().to_string();
    for (then, found) in [
        (format!("exec {attempt} hoard 268435456"), "held more than 64 MiB of memory together"),
        (format!("exec {attempt} threads 48"), "had more than 40 processes and threads"),
    ] {
        let mut child = waits(tasks(40), &then);
        until_it_sleeps(child.id());
        go_on(&mut child);
        let (_, stopped) = child.wait().expect("it is ours");
        assert_eq!(stopped, Some(Stopped::Exceeded(found.into())));
    }
}

#[test]
fn what_rests_beside_others_is_looked_at_all_the_same() {
    // What the shell starts goes on by itself, and is no child of it any more. The shell runs no more from here on.
    let attempt = example("attempt").display().to_string();
    let mut child = waits(tasks(40), &format!("(sleep 2; exec {attempt} threads 48) & wait"));
    until_it_sleeps(child.id());
    go_on(&mut child);
    let (_, stopped) = child.wait().expect("it is ours");
    assert_eq!(stopped, Some(Stopped::Exceeded("had more than 40 processes and threads".into())));
}

#[test]
fn without_a_bound_on_the_tree_there_is_nothing_to_look_at() {
    let child = waits(Limits::default(), "exec sleep 1000");
    until_it_sleeps(child.id());
}
