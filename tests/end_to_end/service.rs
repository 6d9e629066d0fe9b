//! The daemon as a service: whether it is ready, what systemd is told of it, and the unit that starts it.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, net::UnixDatagram},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rusqlite::Connection;

use crate::harness::{DRUPE, Daemon, PATIENCE, text};

#[test]
fn a_script_waits_for_the_kernel_and_for_the_end_of_the_daemon() {
    let mut daemon = Daemon::home("");
    let absent = daemon.drupe(&["wait", "ready", "--timeout", "0"]);
    assert_eq!(absent.status.code(), Some(69), "{absent:?}");
    assert!(daemon.drupe(&["wait", "stopped", "--timeout", "0"]).status.success(), "nobody has the home");

    // Before there is a daemon, and up to its kernel.
    let waits =
        daemon.command(&["wait", "ready", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let waits = waits.expect("it starts");
    daemon.spawn();
    let told = waits.wait_with_output().expect("it ends");
    assert!(told.status.success(), "{}", daemon.log());
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!((&told["reached"], &told["state"]), (&true.into(), &"ready".into()), "{told}");
    let status = daemon.json(&["status", "--json"]);
    assert_eq!(status["state"], "ready");

    let held = daemon.drupe(&["wait", "stopped", "--timeout", "0"]);
    assert_eq!(held.status.code(), Some(75), "{held:?}");
    assert!(text(&held.stderr).contains(&format!("process {}", daemon.supervisor_pid())), "{held:?}");
    Daemon::signal(daemon.supervisor_pid(), rustix::process::Signal::TERM);
    assert!(daemon.drupe(&["wait", "stopped"]).status.success());
    assert_eq!(daemon.ended(), Some(0));
}

/// The socket on which systemd hears a daemon.
pub struct Systemd(UnixDatagram);

impl Systemd {
    /// As it is for one that is to give a sign of life every four seconds, and is not started yet.
    pub fn of(daemon: &mut Daemon) -> Self {
        let path = daemon.path().join("notify");
        let systemd = UnixDatagram::bind(&path).expect("a socket");
        daemon.variable("NOTIFY_SOCKET", path.to_str().expect("a path"));
        daemon.variable("WATCHDOG_USEC", "4000000");
        Self(systemd)
    }

    /// The next message within a time.
    fn heard(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).expect("a timeout");
        let mut buffer = [0; 1024];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(text(&buffer[..length]))
    }

    /// Waits for a message that says this.
    pub fn until(&self, wanted: &str, daemon: &Daemon) {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.heard(PATIENCE).is_some_and(|message| message.contains(wanted)) {
                return;
            }
        }
        panic!("systemd never heard `{wanted}`\n{}", daemon.log());
    }

    /// How many signs of life come within a time.
    pub fn signs(&self, within: Duration) -> usize {
        let end = Instant::now() + within;
        let mut signs = 0;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            signs += usize::from(self.heard(left).is_some_and(|message| message.contains("WATCHDOG=1")));
        }
        signs
    }
}

#[test]
fn systemd_hears_no_sign_of_life_while_the_journal_is_stuck_and_again_after_that() {
    let mut daemon = Daemon::home("");
    let systemd = Systemd::of(&mut daemon);
    daemon.run();
    systemd.until("READY=1", &daemon);
    systemd.until("WATCHDOG=1", &daemon);
    // Another process holds the journal, as a copy of it that never ends would.
    let other = Connection::open(daemon.path().join("journal.db")).expect("the journal");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it");
    systemd.until("the journal has not answered", &daemon);
    assert_eq!(systemd.signs(Duration::from_secs(5)), 0);
    assert!(daemon.log().contains("systemd is not told that the daemon lives"), "the operator is told");
    other.execute_batch("ROLLBACK").expect("it was ours");
    systemd.until("the journal answers again", &daemon);
    systemd.until("WATCHDOG=1", &daemon);
}

/// A user's folder, and a `systemctl` that writes down what it was asked.
struct User {
    folder: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let user = Self { folder: tempfile::tempdir().expect("a folder") };
        fs::create_dir(user.at("bin")).expect("a folder");
        user
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// With a `systemctl` that ends so.
    fn with_systemd(status: u8) -> Self {
        let user = Self::new();
        let script = format!(
            "#!/bin/sh\necho \"$*\" >> '{}'\ncase \"$*\" in *show*) printf 'ActiveState=active\\nMainPID=7\\nUnitFileState=enabled\\n';; esac\n\
             [ {status} = 0 ] || echo 'it has not been booted' >&2\nexit {status}\n",
            user.at("asked").display()
        );
        let file = user.at("bin/systemctl");
        fs::write(&file, script).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
        user
    }

    fn unit(&self) -> PathBuf {
        self.at(".config/systemd/user/drupe.service")
    }

    fn drupe(&self, args: &[&str]) -> Output {
        let mut command = Command::new(DRUPE);
        command.arg("service").args(args).current_dir(self.folder.path()).env_clear();
        command.env("PATH", self.at("bin")).env("HOME", self.folder.path()).stdin(Stdio::null());
        command.output().expect("it runs")
    }

    /// What `systemctl` was asked, and forgets it.
    fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.at("asked")).unwrap_or_default();
        let _ = fs::remove_file(self.at("asked"));
        asked.lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_unit_is_written_started_shown_and_taken_away() {
    let user = User::with_systemd(0);
    let shown = user.drupe(&["install", "--now", "--dry-run"]);
    assert!(shown.status.success(), "{shown:?}");
    assert!(
        text(&shown.stderr).contains("would run `systemctl --user enable --now drupe.service`"),
        "{shown:?}"
    );
    assert!(!user.unit().exists() && user.asked().is_empty(), "nothing was done");

    let done = user.drupe(&["install", "--now"]);
    assert!(done.status.success(), "{done:?}");
    let unit = fs::read_to_string(user.unit()).expect("the unit");
    assert_eq!(unit.trim_end(), text(&shown.stdout).trim_end(), "it is what was shown");
    let home = user.at(".local/share/drupe");
    assert!(unit.contains(&format!("ExecStart=\"{DRUPE}\" run --home \"{}\"", home.display())), "{unit}");
    let enable = "--user --no-ask-password enable --now drupe.service";
    assert_eq!(user.asked(), ["--user --no-ask-password daemon-reload", enable]);

    let status = user.drupe(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(
        (&status["ours"], &status["state"], &status["pid"]),
        (&true.into(), &"active".into(), &7.into())
    );
    user.asked();
    assert!(user.drupe(&["remove"]).status.success());
    let disable = "--user --no-ask-password disable --now drupe.service";
    assert_eq!(user.asked(), [disable, "--user --no-ask-password daemon-reload"]);
    assert!(!user.unit().exists());
    assert_eq!(user.drupe(&["remove"]).status.code(), Some(1), "there is none");
    assert_eq!(user.drupe(&["status"]).status.code(), Some(1));
}

#[test]
fn a_unit_that_was_written_otherwise_is_neither_replaced_nor_removed_unless_that_is_said() {
    let user = User::with_systemd(0);
    fs::create_dir_all(user.unit().parent().expect("a folder")).expect("a folder");
    let own = "[Service]\nExecStart=/bin/true\n";
    fs::write(user.unit(), own).expect("a file");
    for verb in ["install", "remove"] {
        let refused = user.drupe(&[verb]);
        assert_eq!(refused.status.code(), Some(73), "{refused:?}");
        assert!(text(&refused.stderr).contains("--force"), "{refused:?}");
        assert_eq!(fs::read_to_string(user.unit()).expect("it is there"), own);
        assert!(user.asked().is_empty());
    }
    // That a unit is masked is somebody's decision, too.
    fs::remove_file(user.unit()).expect("it was there");
    std::os::unix::fs::symlink("/dev/null", user.unit()).expect("a link");
    assert_eq!(user.drupe(&["install"]).status.code(), Some(73));
    assert!(user.drupe(&["install", "--force"]).status.success());
    assert!(fs::symlink_metadata(user.unit()).expect("it is there").is_file());
    assert!(
        Path::new("/dev/null").metadata().is_ok_and(|null| !null.is_file()),
        "what it led to is untouched"
    );
    assert!(user.drupe(&["install"]).status.success(), "ours is replaced");
}

#[test]
fn where_systemd_is_not_there_or_does_not_run_that_is_said_with_what_to_do() {
    let user = User::new();
    let refused = user.drupe(&["install"]);
    assert_eq!(refused.status.code(), Some(71), "{refused:?}");
    assert!(text(&refused.stderr).contains("`drupe run`") && !user.unit().exists(), "{refused:?}");
    assert!(user.drupe(&["install", "--dry-run"]).status.success());

    let user = User::with_systemd(1);
    let refused = user.drupe(&["install"]);
    assert_eq!(refused.status.code(), Some(71), "{refused:?}");
    assert!(text(&refused.stderr).contains("it has not been booted"), "{refused:?}");
    // Nothing that runs is left without its unit.
    let kept = user.drupe(&["remove"]);
    assert_eq!(kept.status.code(), Some(71), "{kept:?}");
    assert!(user.unit().exists());
    assert!(user.drupe(&["remove", "--force"]).status.success());
    assert!(!user.unit().exists());
}

#[test]
fn what_would_be_another_line_of_a_unit_is_refused() {
    let user = User::with_systemd(0);
    let refused = |args: &[&str], why: &str| {
        let output = user.drupe(&[&["install", "--dry-run"], args].concat());
        assert!(!output.status.success() && text(&output.stderr).contains(why), "{args:?}: {output:?}");
    };
    refused(&["--home", "/h/a\nExecStartPre=/bin/sh"], "unit file");
    refused(&["--system"], "--user-name");
    refused(&["--system", "--user-name", "a\nUser=root"], "name of a user");
    refused(&["--credential", "KEY"], "has no `=`");
    refused(&["--credential", "NO-NAME=/etc/hostname"], "name of a variable");
    refused(&["--credential", "KEY=/nonexistent"], "no file");
    refused(&["--system", "--user-name", "root", "--home", "/nonexistent/home"], "install -d");
}

#[test]
fn a_service_of_the_machine_may_write_where_the_configuration_says_that_it_writes() {
    let user = User::with_systemd(0);
    let (home, backups) = (user.at("home"), user.at("backups"));
    fs::create_dir(&home).expect("a folder");
    fs::create_dir(&backups).expect("a folder");
    let missing = user.at("missing");
    let keys = format!(
        "journal: {{backup: {{every: daily, directory: {}}}, retention: {{max_age_days: 9, archive: {}}}}}\n",
        backups.display(),
        missing.display()
    );
    fs::write(home.join("drupe.yaml"), keys).expect("a file");
    let install =
        ["install", "--system", "--user-name", "root", "--dry-run", "--home", home.to_str().expect("text")];
    let shown = user.drupe(&install);
    let unit = text(&shown.stdout);
    assert!(unit.contains(&format!("ReadWritePaths=\"{}\"", backups.display())), "{shown:?}");
    let remark = text(&shown.stderr);
    assert!(
        !unit.contains("missing") && remark.contains(&format!("`{}` is not there", missing.display())),
        "{shown:?}"
    );
}

#[test]
fn systemd_finds_no_fault_in_either_unit() {
    let user = User::with_systemd(0);
    fs::write(user.at("key"), "x").expect("a file");
    let credential = format!("KEY={}", user.at("key").display());
    for (args, folder) in
        [(vec!["--credential", &credential], "user"), (vec!["--system", "--user-name", "root"], "system")]
    {
        let shown = user.drupe(&[vec!["install", "--dry-run"], args].concat());
        assert!(shown.status.success(), "{shown:?}");
        let file = user.at(folder).join("drupe.service");
        fs::create_dir(user.at(folder)).expect("a folder");
        fs::write(&file, &shown.stdout).expect("a file");
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output();
        let Ok(verified) = verified else {
            println!("skipped: there is no systemd-analyze");
            return;
        };
        let ours = |line: &&str| line.contains("drupe");
        let said = text(&verified.stderr);
        assert_eq!(said.lines().find(ours), None, "{said}");
        assert!(verified.status.success(), "{said}");
    }
}
