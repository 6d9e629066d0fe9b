//! The program that the tests of this crate start: it re-executes itself for the `confined` verb, as drupe does, and
//! misbehaves on request.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Read},
    net::TcpStream,
    os::fd::{FromRawFd, OwnedFd},
    path::PathBuf,
    process::exit,
};

use drupe_confine::{ConfineError, Confined, Profile, VERB};

fn main() {
    let mut args = env::args_os().skip(1);
    let verb = args.next().and_then(|verb| verb.into_string().ok()).unwrap_or_default();
    match verb.as_str() {
        VERB => drupe_confine::main(args),
        "connect" => exit(connect(args.next())),
        "parent" => parent(args.next()),
        "standard" => exit(standard()),
        "upgraded" => exit(upgraded()),
        "hello" => exit(7),
        _ => exit(2),
    }
}

/// Connects to a port of this machine: 0 if it may.
fn connect(port: Option<OsString>) -> i32 {
    let port = port.and_then(|port| port.to_str()?.parse::<u16>().ok()).unwrap_or_default();
    i32::from(TcpStream::connect(("127.0.0.1", port)).is_err())
}

/// Passes its own standard input by number: 0 if that is refused.
fn standard() -> i32 {
    // SAFETY: nothing else in this process uses the standard input, and it ends after this.
    let input = unsafe { OwnedFd::from_raw_fd(0) };
    let exe = env::current_exe().unwrap_or_default();
    let (start, _) = Confined::new(&exe, Profile::read_only(), &exe).pass(input);
    i32::from(!matches!(start.spawn(), Err(ConfineError::Refused(reason)) if reason.contains("descriptor 0")))
}

/// Starts its own program after its file was exchanged, as an upgrade does: with 7 it is still the same.
fn upgraded() -> i32 {
    let path = env::current_exe().unwrap_or_default();
    if fs::remove_file(&path).and_then(|()| fs::write(&path, "another release")).is_err() {
        return 1;
    }
    let own = drupe_confine::own_program(&path);
    let start = Confined::new(&own, Profile::program().read(&own), &own).arg("hello").run(0);
    start.ok().and_then(|outcome| outcome.status.code()).unwrap_or(2)
}

/// Starts a script that leaves processes behind everywhere, then waits to be killed. Should the test end before it
/// does that, the end of the input ends this process as well.
fn parent(folder: Option<OsString>) {
    let folder = PathBuf::from(folder.unwrap_or_default());
    let script =
        "echo $$ > a; (setsid sh -c 'echo $$ > b; exec sleep 1000' &); sleep 1000 & echo $! > c; wait";
    let profile = Profile { write: vec![folder.clone(), "/dev/null".into()], ..Profile::read_only() };
    let exe = env::current_exe().unwrap_or_default();
    let child = Confined::new(exe, profile, "/bin/sh").arg("-c").arg(script).directory(folder);
    let child = child.env("PATH", "/usr/bin:/bin").spawn();
    if child.is_ok() {
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
}
