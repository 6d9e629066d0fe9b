//! Backups and restores, as the operator of a daemon meets them.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::harness::{Daemon, text, until};

fn backup(daemon: &Daemon, folder: &Path, name: &str) -> String {
    let file = folder.join(name).display().to_string();
    assert_eq!(daemon.says(&["backup", &file]).trim(), file);
    file
}

fn stop(daemon: &mut Daemon) {
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
}

/// The answers of a session, in order.
fn answers(daemon: &Daemon, session: &str) -> Vec<(String, String)> {
    let shown = daemon.json(&["session", "show", session, "--json"]);
    let turns = shown["turns"].as_array().expect("turns").iter();
    let of = |turn: &Value, key: &str| turn[key].as_str().unwrap_or_default().to_owned();
    turns.map(|turn| (of(turn, "turn"), of(turn, "content"))).collect()
}

#[test]
fn a_daemon_at_work_is_backed_up_again_and_again_and_each_backup_is_what_was_committed_then() {
    let mut daemon = Daemon::start("");
    daemon.write("data/words/notes.txt", "kept");
    let outside = tempfile::tempdir().expect("a folder");
    let done = AtomicBool::new(false);
    let sessions = ["a", "b", "c"];
    for session in sessions {
        assert_eq!(daemon.turn(session, "hello")["status"], "success");
    }
    let daemon_ref = &daemon;
    let files = thread::scope(|scope| {
        for session in sessions {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let ended = daemon_ref.turn(session, &"hello ".repeat(50));
                    assert_eq!(ended["status"], "success", "{ended}");
                }
            });
        }
        until("there is something", || (answers(daemon_ref, "c").len() > 2).then_some(()));
        let files: Vec<_> =
            (0..4).map(|n| backup(daemon_ref, outside.path(), &format!("{n}.tar.gz"))).collect();
        done.store(true, Ordering::Relaxed);
        files
    });
    let whole = sessions.map(|session| answers(&daemon, session));
    stop(&mut daemon);

    for file in &files {
        assert!(daemon.says(&["restore", "--check", file]).contains("is whole"));
        daemon.says(&["restore", file]);
        daemon.run();
        let mut some = 0;
        for (session, whole) in sessions.iter().zip(&whole) {
            let restored = answers(&daemon, session);
            // The turn that was at work has no answer of its own; all before it are what they were.
            let ended = restored.iter().take_while(|(_, content)| !content.contains("was restored")).count();
            assert!(ended + 1 >= restored.len(), "one turn of a session is at work at a time: {restored:?}");
            assert_eq!(restored[..ended], whole[..ended]);
            some += ended;
        }
        assert!(some > 2, "{some}");
        assert_eq!(daemon.turn("a", "and on")["status"], "success");
        let told = daemon
            .until_status("it says so", |status| status["notices"].to_string().contains("was restored"));
        assert_eq!(told["safe_mode"], false);
        stop(&mut daemon);
    }
    assert_eq!(fs::read_to_string(daemon.path().join("data/words/notes.txt")).expect("a file"), "kept");
}

#[test]
fn what_is_left_out_is_said_and_a_running_daemon_is_not_restored_over() {
    let mut daemon = Daemon::home("");
    daemon.write(".env", "KEY=x\n");
    fs::set_permissions(daemon.path().join(".env"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("its own");
    daemon.run();
    let made = daemon.json(&["backup", "--json"]);
    let file = made["file"].as_str().expect("a file").to_owned();
    assert!(
        Path::new(&file).starts_with(fs::canonicalize(daemon.path()).expect("it is there").join("backups"))
    );
    assert!(made["left_out"].to_string().contains(".env"), "{made}");
    assert_eq!(daemon.until_ready()["backup"]["last"]["file"], made["file"]);

    let refused = daemon.drupe(&["restore", &file]);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("drupe stop") && said.contains(&daemon.supervisor_pid().to_string()), "{said}");
    let again = daemon.drupe(&["backup", &file]);
    assert_eq!(again.status.code(), Some(73), "{again:?}");
    stop(&mut daemon);
    let without = daemon.json(&["backup", "--with-secrets", "--json"]);
    assert!(!without["left_out"].to_string().contains(".env"), "{without}");
}

#[test]
fn a_backup_and_a_restore_of_one_home_are_not_mixed() {
    let mut daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let file = daemon.says(&["backup"]).trim().to_owned();
    stop(&mut daemon);
    daemon.write("drupe.yaml", "log: warn\n");
    let folder = fs::File::open(daemon.path().join("run")).expect("it is there");
    // As somebody who makes a backup of a large home.
    folder.lock_shared().expect("nobody else has it");
    let refused = daemon.drupe(&["restore", &file]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    assert!(text(&refused.stderr).contains("is being made"), "{refused:?}");
    assert!(daemon.path().join("drupe.yaml").exists() && !daemon.path().join(".restore").exists());
    daemon.says(&["backup"]);
    // And as one who restores.
    folder.unlock().expect("it is ours");
    folder.lock().expect("nobody else has it");
    let refused = daemon.drupe(&["backup"]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    assert!(text(&refused.stderr).contains("is at work"), "{refused:?}");
    drop(folder);
    daemon.says(&["restore", &file]);
    assert!(!daemon.path().join("drupe.yaml").exists());
}

/// Kills a process some time after it began; whether it was still at work.
fn killed(mut command: Command, after: Duration) -> bool {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    thread::sleep(after);
    let alive = child.try_wait().expect("a child").is_none();
    let _ = child.kill();
    child.wait().expect("it ends");
    alive
}

#[test]
fn a_killed_backup_leaves_no_file_and_a_killed_restore_leaves_the_old_home_or_the_new_one() {
    let mut daemon = Daemon::home("log: info\n");
    for n in 0..40 {
        daemon.write(&format!("data/words/{n}"), &"old ".repeat(20_000));
    }
    daemon.run();
    assert_eq!(daemon.turn("s", "old")["status"], "success");
    stop(&mut daemon);
    let file = daemon.path().join("killed.tar.gz").display().to_string();
    let mut cut = 0;
    for after in (2..400).step_by(12) {
        if !killed(daemon.command(&["backup", &file]), Duration::from_millis(after)) {
            break;
        }
        cut += 1;
        if Path::new(&file).exists() {
            // It was killed between its last deed and its end.
            daemon.says(&["restore", "--check", &file]);
            break;
        }
    }
    assert!(cut > 2, "it was cut off {cut} times");
    let good = backup(&daemon, daemon.path(), "good.tar.gz");
    let left: Vec<_> =
        fs::read_dir(daemon.path()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("drupe-part")), "{left:?}");

    daemon.write("drupe.yaml", "log: warn\n");
    for n in 0..40 {
        daemon.write(&format!("data/words/{n}"), "new");
    }
    let (mut old, mut new) = (0, 0);
    for after in (2..1_000).step_by(17) {
        let cut = killed(daemon.command(&["restore", &good]), Duration::from_millis(after));
        // The start finishes what was decided.
        daemon.run();
        let config = fs::read_to_string(daemon.path().join("drupe.yaml")).expect("a configuration");
        let one = |n: u32| fs::read_to_string(daemon.path().join(format!("data/words/{n}"))).expect("a file");
        let is_new = config == "log: info\n";
        assert!(is_new || config == "log: warn\n", "{config}");
        assert!((0..40).all(|n| one(n).starts_with("old") == is_new), "a home of both: {config}");
        assert_eq!(answers(&daemon, "s").len(), 1);
        stop(&mut daemon);
        if is_new {
            new += 1;
            break;
        }
        old += 1;
        assert!(cut, "a restore that ended has restored");
    }
    assert!(old > 0 && new == 1, "{old} times the old one, {new} times the new one");
}

/// Runs a verb where no file may grow beyond so many blocks of 1 KiB.
fn within(daemon: &Daemon, blocks: u32, args: &[&str]) -> Output {
    let verb = daemon.command(args);
    let mut limited = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", blocks * 2);
    limited.arg("-c").arg(script).arg(verb.get_program()).args(verb.get_args()).env_clear();
    limited.envs(verb.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdin(Stdio::null()).output().expect("a shell")
}

#[test]
fn without_room_no_backup_is_made_and_nothing_is_restored() {
    let mut daemon = Daemon::start("");
    let noise: String =
        (0..400_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    daemon.write("data/words/noise", &noise);
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let file = daemon.path().join("small.tar.gz").display().to_string();
    let failed = within(&daemon, 1_024, &["backup", &file]);
    assert_eq!(failed.status.code(), Some(75), "{failed:?}");
    assert!(text(&failed.stderr).contains("no room"), "{failed:?}");
    assert!(!Path::new(&file).exists());
    let good = backup(&daemon, daemon.path(), "good.tar.gz");
    stop(&mut daemon);
    daemon.write("drupe.yaml", "log: warn\n");
    let failed = within(&daemon, 1_024, &["restore", &good]);
    assert_eq!(failed.status.code(), Some(75), "{failed:?}");
    assert!(daemon.path().join("drupe.yaml").exists() && !daemon.path().join(".restore").exists());
    daemon.says(&["restore", &good]);
    assert!(!daemon.path().join("drupe.yaml").exists());
    daemon.run();
    assert_eq!(answers(&daemon, "s").len(), 1);
}

#[test]
fn the_daemon_makes_backups_by_itself_and_keeps_the_newest() {
    let mut daemon = Daemon::home("journal: {backup: {every: hourly, keep: 2}}\n");
    let folder = daemon.path().join("backups");
    for name in ["scheduled-20250101T000000Z.tar.gz", "scheduled-20250102T000000Z.tar.gz", "mine.tar.gz"] {
        daemon.write(&format!("backups/{name}"), "old");
    }
    daemon.run();
    let status = daemon.until_status("one is made", |status| {
        status["backup"]["last"]["made"].as_str().is_some_and(|made| made > "2026")
    });
    let file = status["backup"]["last"]["file"].as_str().expect("a file");
    assert!(daemon.says(&["restore", "--check", file]).contains("is whole"));
    until("the oldest goes", || (!folder.join("scheduled-20250101T000000Z.tar.gz").exists()).then_some(()));
    let names =
        || -> Vec<_> { fs::read_dir(&folder).expect("a folder").flatten().map(|e| e.file_name()).collect() };
    assert_eq!(names().len(), 3, "{:?}", names());
    assert!(folder.join("mine.tar.gz").exists());
    assert!(status["backup"]["next"].as_str() > status["backup"]["last"]["made"].as_str(), "{status}");
    assert!(daemon.says(&["status"]).contains("last backup"));
    // It is not made once more by the next kernel.
    daemon.kill_kernel();
    daemon.until_ready();
    daemon.turn("s", "hello");
    assert_eq!(names().len(), 3, "{:?}", names());
}

#[test]
fn a_backup_that_fails_is_told_and_lets_nothing_go() {
    let mut daemon = Daemon::home("journal: {backup: {every: hourly, keep: 1}}\n");
    daemon.write("backups/scheduled-20250101T000000Z.tar.gz", "old");
    daemon.write("backups/scheduled-20250102T000000Z.tar.gz", "old");
    // As root one may write to every folder: so it is none.
    daemon.write("in the way", "a file");
    daemon.run();
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    daemon.until_status("one is made", |status| status["backup"]["last"]["made"].as_str() > Some("2026"));
    stop(&mut daemon);
    daemon.write("drupe.yaml", "journal: {backup: {every: hourly, keep: 1, directory: in the way}}\n");
    daemon.run();
    let status = daemon.until_status("it is told", |status| status["backup"]["failed"]["attempts"] == 1);
    assert!(status["backup"]["failed"]["why"].to_string().contains("in the way"), "{status}");
    assert!(daemon.says(&["status"]).contains("failed since"));
    until("the session is told", || {
        daemon.events("s").iter().any(|event| event.to_string().contains("No backup was made")).then_some(())
    });
    let logged = until("the log has it", || daemon.log().contains("no backup was made").then_some(()));
    logged.unwrap_or_else(|| panic!("{}", daemon.log()));
}

#[test]
fn a_damaged_journal_names_the_newest_backup_that_is_whole() {
    let mut daemon = Daemon::start("");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let file = daemon.says(&["backup"]).trim().to_owned();
    daemon.write("backups/scheduled-20990101T000000Z.tar.gz", "it was cut off");
    stop(&mut daemon);
    fs::write(daemon.path().join("journal.db"), "SQLite format 3\0 and then nothing".repeat(500))
        .expect("a file");
    daemon.spawn();
    let told = until("it is told", || daemon.log().contains("newest whole backup").then(|| daemon.log()));
    let log = told.unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(log.contains(&format!("drupe restore {file}")), "{log}");
    assert_eq!(daemon.ended(), Some(74), "another start finds the same");
    assert_eq!(daemon.log().matches(" starts (process").count(), 2, "{}", daemon.log());
    daemon.says(&["restore", &file]);
    daemon.run();
    assert_eq!(answers(&daemon, "s").len(), 1);
    let aside = fs::read_dir(daemon.path()).expect("a folder").flatten();
    let aside: Vec<_> =
        aside.filter(|e| e.file_name().to_string_lossy().starts_with("before-restore-")).collect();
    assert!(aside[0].path().join("journal.db").exists(), "the damaged one is kept");
}

/// Makes a key of age, and gives its recipient; none where age is not installed.
fn key_of_age(file: &Path) -> Option<String> {
    let made = Command::new("age-keygen").arg("-o").arg(file).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        println!("skipped: age is not installed");
        return None;
    };
    let said = text(&made.stderr);
    let recipient = said.split_whitespace().find(|word| word.starts_with("age1"));
    Some(recipient.expect("it says the recipient").to_owned())
}

#[test]
fn the_daemon_encrypts_its_own_backups_for_whom_it_is_told_and_nobody_else_reads_them() {
    let keys = tempfile::tempdir().expect("a folder");
    let (key, other) = (keys.path().join("key"), keys.path().join("other"));
    let Some(recipient) = key_of_age(&key) else { return };
    key_of_age(&other).expect("it is there");
    let mut daemon = Daemon::home(&format!(
        "journal: {{backup: {{every: hourly, keep: 1, recipients: [{recipient}]}}}}\n"
    ));
    daemon.variable("PATH", &std::env::var("PATH").unwrap_or_default());
    daemon.write(".env", "KEY=the secret\n");
    fs::set_permissions(daemon.path().join(".env"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("its own");
    for name in ["scheduled-20250101T000000Z.tar.gz.age", "scheduled-20250102T000000Z.tar.gz"] {
        daemon.write(&format!("backups/{name}"), "old");
    }
    daemon.run();
    let status = daemon.until_status("one is made", |status| {
        let file = status["backup"]["last"]["file"].as_str();
        file.is_some_and(|file| file.ends_with("Z.tar.gz.age") && !file.contains("2025"))
    });
    let file = status["backup"]["last"]["file"].as_str().expect("a file").to_owned();
    assert!(fs::read(&file).expect("a file").starts_with(b"age-encryption.org/v1"));
    let names =
        || fs::read_dir(daemon.path().join("backups")).expect("a folder").flatten().map(|e| e.file_name());
    until("the older ones go", || (names().count() == 1).then_some(()))
        .unwrap_or_else(|| panic!("{:?}", names().collect::<Vec<_>>()));
    let looked = text(&daemon.drupe(&["doctor"]).stdout);
    assert!(looked.contains(&format!("`{file}`")), "{looked}");
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    stop(&mut daemon);

    fs::remove_file(daemon.path().join(".env")).expect("it is there");
    fs::write(daemon.path().join("journal.db"), "SQLite format 3\0 and then nothing".repeat(500))
        .expect("a file");
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(74), "{}", daemon.log());
    let named = format!("`drupe restore {file} --identity KEY --home {}`", daemon.path().display());
    let looked = text(&daemon.drupe(&["doctor", "--offline"]).stdout);
    assert!(daemon.log().contains(&named) && looked.contains(&named), "{looked}\n{}", daemon.log());
    let key = key.display().to_string();
    for without in [vec![], vec!["--identity", other.to_str().expect("a path")]] {
        let refused = daemon.drupe(&[&["restore", file.as_str()], &*without].concat());
        assert!(!refused.status.success() && !daemon.path().join(".env").exists(), "{refused:?}");
    }
    assert!(daemon.says(&["restore", "--check", &file, "--identity", &key]).contains("is whole"));
    daemon.says(&["restore", &file, "--identity", &key]);
    assert_eq!(fs::read_to_string(daemon.path().join(".env")).expect("a file"), "KEY=the secret\n");
    daemon.run();
    daemon.until_ready();

    stop(&mut daemon);
    let wrong = recipient.replace("age1", "age1q");
    daemon.write("drupe.yaml", &format!("journal: {{backup: {{every: hourly, recipients: [{wrong}]}}}}\n"));
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(78), "{}", daemon.log());
    assert!(daemon.log().contains("journal.backup.recipients"), "{}", daemon.log());
}

#[test]
fn a_backup_is_encrypted_by_age_and_read_by_it() {
    let mut daemon = Daemon::home("");
    daemon.variable("PATH", &std::env::var("PATH").unwrap_or_default());
    let key = daemon.path().join("key");
    let Some(recipient) = key_of_age(&key) else { return };
    daemon.write(".env", "KEY=x\n");
    fs::set_permissions(daemon.path().join(".env"), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("its own");
    daemon.run();
    assert_eq!(daemon.turn("s", "hello")["status"], "success");
    let file = daemon.path().join("secret.tar.gz.age").display().to_string();
    daemon.says(&["backup", &file, "--encrypt", &recipient]);
    assert!(fs::read(&file).expect("a file").starts_with(b"age-encryption.org/v1"));
    stop(&mut daemon);
    fs::remove_file(daemon.path().join(".env")).expect("it is there");
    let refused = daemon.drupe(&["restore", &file]);
    assert!(text(&refused.stderr).contains("--identity"), "{refused:?}");
    let other = daemon.path().join("other");
    let made = Command::new("age-keygen").arg("-o").arg(&other).output().expect("it is there");
    assert!(made.status.success());
    let refused = daemon.drupe(&["restore", &file, "--identity", &other.display().to_string()]);
    assert!(text(&refused.stderr).contains("age"), "{refused:?}");
    assert!(!refused.status.success());
    daemon.says(&["restore", &file, "--identity", &key.display().to_string()]);
    assert_eq!(fs::read_to_string(daemon.path().join(".env")).expect("a file"), "KEY=x\n");
    daemon.run();
    assert_eq!(answers(&daemon, "s").len(), 1);
    let refused = daemon.drupe(&["backup", "--encrypt", "-"]);
    assert!(text(&refused.stderr).contains("neither a recipient"), "{refused:?}");
}

#[test]
fn a_backup_of_the_operator_is_encrypted_for_whom_the_configuration_names_unless_it_says_otherwise() {
    let keys = tempfile::tempdir().expect("a folder");
    let (key, other) = (keys.path().join("key"), keys.path().join("other"));
    let Some(recipient) = key_of_age(&key) else { return };
    let another = key_of_age(&other).expect("it is there");
    let mut daemon = Daemon::home(&format!("journal: {{backup: {{recipients: [{recipient}]}}}}\n"));
    daemon.variable("PATH", &std::env::var("PATH").unwrap_or_default());
    daemon.run();
    stop(&mut daemon);
    let made = |arguments: &[&str]| {
        let said = daemon.says(&[&["backup"], arguments].concat());
        said.lines().next().expect("the file").to_owned()
    };
    let opens = |file: &str, key: &Path| {
        let check = ["restore", "--check", file, "--identity", &key.display().to_string()];
        daemon.drupe(&check).status.success()
    };
    let by_default = made(&[]);
    assert!(by_default.ends_with(".tar.gz.age"), "{by_default}");
    assert!(opens(&by_default, &key) && !opens(&by_default, &other));
    let named = made(&["--encrypt", &another]);
    assert!(opens(&named, &other) && !opens(&named, &key));
    let plain = made(&["--plain"]);
    assert!(plain.ends_with(".tar.gz"), "{plain}");
    // Whatever its name says.
    let odd = keys.path().join("plain.age").display().to_string();
    let said = daemon.drupe(&["backup", "--plain", &odd]);
    assert!(text(&said.stderr).contains("; checked; not encrypted"), "{said:?}");
    let missing = daemon.drupe(&["restore", "--check", "/nonexistent/backup"]);
    assert_eq!(missing.status.code(), Some(66), "{missing:?}");
    let wrong = daemon.drupe(&["restore", "--check", "/etc/hostname"]);
    assert_eq!(wrong.status.code(), Some(65), "{wrong:?}");
    daemon.says(&["restore", "--check", &plain]);

    // Where it is not known for whom, nobody gets one that everybody can read.
    daemon.write("drupe.yaml", "journal: {backup: {recipients: nobody}}\n");
    let refused = daemon.drupe(&["backup"]);
    assert_eq!(refused.status.code(), Some(78), "{refused:?}");
    assert!(text(&refused.stderr).contains("--plain"), "{refused:?}");
    assert!(made(&["--plain"]).ends_with(".tar.gz"));
}
