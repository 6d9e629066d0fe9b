//! What a client does where nobody answers, or not any more.

use std::{fs, net::Shutdown, os::unix::fs::symlink, path::Path, sync::mpsc};

use drupe_link::HomeLock;

use super::*;
use crate::cli::fake::Fake;

fn connect(path: &Path) -> ClientError {
    Client::connect(&Home::new(path).expect("a path")).expect_err("nobody serves it")
}

#[test]
fn a_path_that_can_be_no_home_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, around, odd] = ["file", "around", "odd"].map(|name| folder.path().join(name));
    fs::write(&file, "").expect("a file");
    symlink(&around, &around).expect("a link");
    fs::create_dir(&odd).expect("a folder");
    fs::write(odd.join("run"), "").expect("a file");
    let long = folder.path().join("x".repeat(256));
    for path in [&file, &file.join("home"), &file.join("a/b"), &around, &around.join("home"), &long, &odd] {
        let error = connect(path);
        assert!(!error.passes(), "{}: {error:?}", path.display());
        let failure = error.into_failure(&Home::new(path).expect("a path"));
        assert_eq!(failure.status, 73, "{failure}");
        assert!(failure.to_string().contains("cannot be a home"), "{failure}");
    }
    assert!(matches!(connect(&folder.path().join("none/home")), ClientError::Absent));
}

#[test]
fn a_daemon_that_makes_its_folder_anew_is_waited_for() {
    let fake = Fake::absent();
    let home = fake.context.home();
    let _lock = HomeLock::take(home).expect("nobody has it");
    assert!(connect(home.path()).passes());
    fs::remove_dir_all(home.run()).expect("it was there");
    fs::write(home.run(), "").expect("its place is free");
    assert!(connect(home.path()).passes());
}

/// Serves one connection for each of these, and counts it: welcomes the client in that name, and hangs up before it hears
/// a request, or after it.
fn hang_up(home: &Home, connections: Vec<(&'static str, bool)>) -> mpsc::Receiver<()> {
    ControlToken::create(home).expect("a token");
    let listener = home.listen().expect("a socket");
    let (count, counted) = mpsc::channel();
    thread::spawn(move || {
        for (from, hears) in connections {
            let (stream, _) = listener.accept().expect("a client");
            count.send(()).expect("the test goes on");
            let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
            let hello: Request =
                serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("a request");
            if !hears {
                stream.shutdown(Shutdown::Read).expect("it is open");
            }
            let welcome = Welcome { version: CONTROL_VERSION, from: from.into() };
            let welcome = ReplyBody::Result(serde_json::to_value(welcome).expect("JSON"));
            let reply = Reply { id: hello.id, body: welcome };
            writeln!(&stream, "{}", serde_json::to_string(&reply).expect("JSON")).expect("it is read");
            if hears {
                lines.next();
            }
        }
    });
    counted
}

#[test]
fn what_nobody_can_have_carried_out_is_asked_again_and_nothing_else() {
    let fake = Fake::absent();
    let home = fake.context.home();
    let _lock = HomeLock::take(home).expect("nobody has it");
    // The supervisor carries out nothing, and the first kernel did not hear it.
    let served =
        hang_up(home, vec![("supervisor", true), ("supervisor", false), ("kernel", false), ("kernel", true)]);
    let decided = Daemon::new(home, fake.context.console).decided::<Value>("extensions.add", &Value::Null);
    let failure = decided.expect_err("the second kernel hung up");
    assert!(failure.to_string().contains("the kernel ended while it did that"), "{failure}");
    assert_eq!(served.try_iter().count(), 4);
}
