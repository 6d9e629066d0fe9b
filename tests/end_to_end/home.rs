//! A home whose files go away while its daemon runs, and one with a long path.

use std::{
    fs,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, mpsc::channel},
};

use serde_json::json;

use crate::harness::{
    DRUPE, Daemon, PATIENCE,
    model_server::{ModelServer, Say},
    text, until,
};

#[test]
fn a_turn_that_runs_while_the_control_socket_is_deleted_is_answered_and_clients_come_back() {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (Mutex::new(told), Mutex::new(held));
    let server = ModelServer::start(move |_| {
        let _ = told.lock().expect("one at a time").send(());
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("answered".into())
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    let ask = daemon.command(&["ask", "hello"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let ask = ask.expect("it starts");
    asked.recv_timeout(PATIENCE).expect("the model is asked");
    fs::remove_dir_all(daemon.path().join("run")).expect("it was there");
    let second = daemon.drupe(&["run"]);
    assert_eq!(second.status.code(), Some(69), "the home is still held");
    assert!(text(&second.stderr).contains(&format!("process {}", daemon.supervisor_pid())));
    // Clients find the supervisor until the turn has ended, and the next kernel after that.
    let found = until("it is said", || daemon.says(&["status"]).contains("is draining").then_some(()));
    found.expect("the kernel lets its turn end");
    drop(go);
    let answer = ask.wait_with_output().expect("it ends");
    assert_eq!((answer.status.success(), text(&answer.stdout).trim()), (true, "answered"));
    let status = daemon
        .until_status("the next kernel", |status| status["generation"] == 2 && status["state"] == "ready");
    assert_eq!(status["exits"][0]["crash"], false, "{status}");
}

#[test]
fn nothing_is_made_in_the_place_of_a_home_that_was_moved_while_its_daemon_ran() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home("");
    daemon.another_home(&server.config());
    daemon.write("extensions/one.md", "---\nname: One\ndescription: Works.\n---\nYou work.\n");
    daemon.run();
    assert_eq!(daemon.extension("one").0, "active");
    let home = daemon.path().to_owned();
    let moved = home.with_file_name("moved");
    let mut clients = [(); 3].map(|()| daemon.client());
    fs::rename(&home, &moved).expect("it is ours");
    // Whoever is connected may go on asking for what is written: an answer to each, and no matter which.
    let turn = json!({"external_id": "1", "session": "s", "text": r#"kv_set {"key": "a", "value": "1"}"#});
    let paths =
        [json!({"path": moved.join("extensions/one.md")}), json!({"path": home.join("new"), "id": "new"})];
    let asked =
        ["extensions.add", "extensions.scaffold"].into_iter().zip(paths).chain([("turn.submit", turn)]);
    for (client, (method, params)) in clients.iter_mut().zip(asked) {
        let _ = client.ask(method, params);
    }
    assert_eq!(daemon.ended(), Some(73), "{}", text(&fs::read(moved.join("test.log")).unwrap_or_default()));
    let left: Vec<_> = walk(&home);
    assert!(!home.exists(), "{left:?}");
}

/// What is in a folder, for whoever reads of a failure.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| [vec![path.clone()], walk(&path)].concat()).collect()
}

#[test]
fn a_home_with_a_path_that_is_too_long_for_an_address_is_served_like_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("a".repeat(100)).join("b".repeat(100));
    let drupe = |args: &[&str]| {
        let mut command = Command::new(DRUPE);
        command.args(args).arg("--home").arg(&home).current_dir(folder.path()).env_clear();
        command.env("PATH", "/usr/bin:/bin").env("HOME", folder.path()).stdin(Stdio::null());
        command.output().expect("it runs")
    };
    let output = drupe(&["ask", "what can you do?", "--keep"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::symlink_metadata(home.join("run/control.sock")).is_ok(), "the socket is in the home");
    assert!(text(&drupe(&["status"]).stdout).contains("is ready"));
    assert!(drupe(&["stop"]).status.success());
    until("its files are gone", || (!home.join("run/control.sock").exists()).then_some(()))
        .expect("it has ended");
}

/// A user that nobody is.
const STRANGER: u32 = 7878;

fn give(path: &Path, user: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(user)).expect("root may");
    if path.is_dir() {
        fs::read_dir(path).expect("a folder").flatten().for_each(|entry| give(&entry.path(), user));
    }
}

fn whose(path: &Path, found: &mut Vec<(PathBuf, u32)>) {
    let metadata = fs::symlink_metadata(path).expect("it is there");
    found.push((path.to_owned(), metadata.uid()));
    if metadata.is_dir() {
        fs::read_dir(path).expect("a folder").flatten().for_each(|entry| whose(&entry.path(), found));
    }
}

#[test]
fn root_goes_on_as_the_user_whose_home_it_is_and_a_daemon_says_what_it_may_not_use() {
    let runs = Command::new(DRUPE).uid(STRANGER).gid(STRANGER).arg("--version").output();
    if !rustix::process::geteuid().is_root() || !runs.is_ok_and(|output| output.status.success()) {
        return println!("skipped: this is not root, or others may not run what was built");
    }
    let mut daemon = Daemon::home("");
    give(daemon.path(), STRANGER);
    daemon.run();
    daemon.until_ready();
    daemon.says(&["ask", "--session", "main", "hello"]);
    let remark = text(&daemon.drupe(&["backup"]).stderr);
    assert!(remark.contains(&format!("is user {STRANGER}'s: this goes on as that user")), "{remark}");
    daemon.says(&["stop"]);
    assert_eq!(until("it ends", || daemon.ended()), Some(0), "{}", daemon.log());
    // Also where root's own link leads there.
    let links = tempfile::tempdir().expect("a folder");
    let link = links.path().join("home");
    std::os::unix::fs::symlink(daemon.path(), &link).expect("a link");
    let through = Command::new(DRUPE).arg("--home").arg(&link).arg("backup").output().expect("it runs");
    let remark = text(&through.stderr);
    assert!(through.status.success() && remark.contains("this goes on as that user"), "{remark}");
    let backups = fs::read_dir(daemon.path().join("backups")).expect("there is one");
    let backup = backups.flatten().next().expect("there is one").path();
    daemon.says(&["restore", &backup.to_string_lossy()]);
    let mut found = Vec::new();
    whose(daemon.path(), &mut found);
    // The harness has root write the log of the daemon.
    found.retain(|(path, user)| *user != STRANGER && path.extension().is_none_or(|kind| kind != "log"));
    assert_eq!(found, [], "what lies in the home is its owner's");
    daemon.run();
    daemon.until_ready();
    assert_eq!(
        daemon.json(&["session", "show", "main", "--json"])["turns"].as_array().map(Vec::len),
        Some(1)
    );
    daemon.says(&["stop"]);
    assert_eq!(until("it ends", || daemon.ended()), Some(0), "{}", daemon.log());

    give(&daemon.path().join("journal.db"), 0);
    let output = daemon.drupe(&["run"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(73), "{err}");
    assert!(
        err.contains("journal.db` cannot be read and written by user 7878: it is root's, of mode 600"),
        "{err}"
    );
    assert!(err.contains("`chown -R 7878 "), "{err}");
}
