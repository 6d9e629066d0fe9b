//! `drupe doctor` on homes that are broken on purpose: what is wrong is named, and what it says to do about it helps.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    text, until,
    without_landlock::without_landlock,
};

/// A home that had a daemon, which answered one message and was stopped.
static USED: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let kept = tempfile::tempdir().expect("a folder");
    let mut daemon = Daemon::start("");
    daemon.turn("main", "hello");
    daemon.says(&["stop"]);
    assert_eq!(daemon.ended(), Some(0));
    copy(daemon.path(), kept.path());
    kept
});

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").args(["-a", &format!("{}/.", from.display())]).arg(to).status();
    assert!(done.expect("cp runs").success());
}

fn used() -> Daemon {
    let daemon = Daemon::home("");
    copy(USED.path(), daemon.path());
    daemon
}

/// What is done to a journal, what is said of it, and what the fix says.
type Damage = (fn(&Daemon), &'static str, &'static str);

/// A file and its content, what is said of it (level, subject, words), and what the fix says.
type FaultOfFile = (&'static str, &'static str, (&'static str, &'static str, &'static str), &'static str);

/// What it finds, and how it ends. No provider is asked.
fn findings(daemon: &Daemon, more: &[&str]) -> (Vec<Value>, Option<i32>) {
    let output = daemon.drupe(&[&["doctor", "--json", "--offline"], more].concat());
    let out = text(&output.stdout);
    let found: Value =
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{}", text(&output.stderr)));
    assert_eq!(found["ok"], output.status.success(), "{found:#}");
    (found["findings"].as_array().expect("a list").clone(), output.status.code())
}

fn named<'a>(findings: &'a [Value], level: &str, subject: &str, says: &str) -> Option<&'a Value> {
    findings.iter().find(|finding| {
        finding["level"] == level
            && finding["subject"] == subject
            && finding["message"].as_str().is_some_and(|message| message.contains(says))
    })
}

/// That it is named, with a fix that says `fix`; and no more once `mend` has done what that says.
#[track_caller]
fn is_named(
    daemon: &mut Daemon,
    (level, subject, says): (&str, &str, &str),
    fix: &str,
    mend: impl FnOnce(&mut Daemon),
) {
    let (found, ended) = findings(daemon, &[]);
    let one = named(&found, level, subject, says).unwrap_or_else(|| panic!("no `{says}` in {found:#?}"));
    let told = one["fix"].as_str().unwrap_or_default();
    assert!(told.contains(fix), "{told}");
    assert_eq!(
        ended == Some(1),
        found.iter().any(|finding| finding["level"] == "fault"),
        "{ended:?}: {found:#?}"
    );
    mend(daemon);
    let (after, _) = findings(daemon, &[]);
    assert!(named(&after, level, subject, says).is_none(), "it is there still: {after:#?}");
}

fn set_mode(path: PathBuf, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
}

fn sql(daemon: &Daemon, statements: &str) {
    let journal = rusqlite::Connection::open(daemon.path().join("journal.db")).expect("the journal");
    journal.execute_batch(statements).expect("it is carried out");
}

/// Runs a verb that helps.
fn does(verb: &'static [&'static str]) -> impl FnOnce(&mut Daemon) {
    move |daemon| drop(daemon.says(verb))
}

fn removes(name: &'static str) -> impl FnOnce(&mut Daemon) {
    move |daemon| fs::remove_file(daemon.path().join(name)).expect("the file is removed")
}

fn restores(name: &'static str) -> impl FnOnce(&mut Daemon) {
    move |daemon| {
        fs::copy(USED.path().join(name), daemon.path().join(name)).expect("it is put back");
    }
}

fn starts(daemon: &mut Daemon) {
    daemon.run();
}

#[test]
fn a_home_that_is_well_is_told_to_be() {
    let mut daemon = used();
    let (found, ended) = findings(&daemon, &[]);
    assert_eq!(ended, Some(0), "{found:#?}");
    assert!(named(&found, "remark", "daemon", "none runs").is_some(), "{found:#?}");
    assert!(named(&found, "fine", "journal", "whole").is_some(), "{found:#?}");
    assert!(!found.iter().any(|finding| finding["level"] == "warning"), "{found:#?}");
    daemon.run();
    let (found, ended) = findings(&daemon, &[]);
    assert_eq!(ended, Some(0), "{found:#?}");
    // What the daemon says of its model is told once, in the words of both.
    let offline = found.iter().filter(|finding| finding["message"].to_string().contains("offline model"));
    assert_eq!(offline.count(), 1, "{found:#?}");
    let shown = daemon.says(&["doctor", "--offline"]);
    assert!(shown.ends_with("nothing is wrong\n"), "{shown}");
}

#[test]
fn what_others_may_reach_is_named_and_closed() {
    let journal = |daemon: &Daemon| daemon.path().join("journal.db");
    for (break_it, says) in [
        (
            Box::new(|daemon: &Daemon| set_mode(daemon.path().into(), 0o755)) as Box<dyn Fn(&Daemon)>,
            "mode 755",
        ),
        (
            Box::new(|daemon| {
                daemon.write(".env", "KEY=value-of-a-key\n");
                set_mode(daemon.path().join(".env"), 0o644);
            }),
            ".env",
        ),
        (Box::new(move |daemon| set_mode(journal(daemon), 0o640)), "journal.db"),
        (
            Box::new(|daemon| {
                daemon.write("run/token", "x\n");
                set_mode(daemon.path().join("run/token"), 0o604);
            }),
            "run/token",
        ),
    ] {
        let mut daemon = used();
        break_it(&daemon);
        is_named(&mut daemon, ("warning", "home", says), "--fix", |daemon| {
            let (fixed, _) = findings(daemon, &["--fix"]);
            assert!(fixed.iter().any(|finding| finding["mended"].is_string()), "{fixed:#?}");
        });
    }
    // Nothing is changed without being asked for.
    let daemon = used();
    set_mode(daemon.path().into(), 0o750);
    findings(&daemon, &[]);
    assert_eq!(fs::metadata(daemon.path()).expect("it is there").mode() & 0o777, 0o750);
}

#[test]
fn what_is_no_home_is_named() {
    let mut daemon = used();
    fs::remove_dir_all(daemon.path().join("workspace")).expect("it is removed");
    daemon.write("workspace", "");
    is_named(&mut daemon, ("fault", "home", "is no folder"), "move it away", removes("workspace"));

    let mut daemon = used();
    symlink("/nowhere/at/all", daemon.path().join(".env")).expect("a link");
    is_named(&mut daemon, ("fault", "home", "leads nowhere"), "remove it", removes(".env"));

    let mut daemon = used();
    daemon.write("journal.db.new", "");
    is_named(&mut daemon, ("remark", "home", "cut off"), "--fix", |daemon| {
        drop(findings(daemon, &["--fix"]))
    });

    let daemon = Daemon::home("");
    let file = daemon.path().join("file");
    fs::write(&file, "").expect("a file");
    let output = daemon.drupe(&["doctor", "--home", &file.display().to_string()]);
    // Twice the same option is a usage fault; the variable names it as well.
    assert_eq!(output.status.code(), Some(2));
    let output =
        Command::new(crate::harness::DRUPE).args(["doctor", "--home"]).arg(&file).env_clear().output();
    let output = output.expect("drupe runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("is a file, and a home is a folder"), "{}", text(&output.stdout));
}

#[test]
fn a_journal_that_is_damaged_or_foreign_is_named_with_the_way_back() {
    let cases: [Damage; 6] = [
        (
            |daemon| fs::remove_file(daemon.path().join("journal.db")).expect("removed"),
            "is gone",
            "drupe restore FILE",
        ),
        (|daemon| daemon.write("journal.db", ""), "not a journal", "drupe restore FILE"),
        (
            |daemon| daemon.write("journal.db", &"garbage ".repeat(4096)),
            "journal is damaged",
            "drupe restore FILE",
        ),
        (tear_a_page, "is damaged", "drupe restore FILE"),
        (
            |daemon| sql(daemon, "PRAGMA user_version = 999"),
            "has version 999",
            "start the release that wrote it",
        ),
        (
            |daemon| {
                let known = drupe_journal::schema::version();
                fs::copy(
                    daemon.path().join("journal.db"),
                    daemon.path().join(format!("journal.db.v{known}")),
                )
                .expect("a copy");
                sql(daemon, "PRAGMA user_version = 999");
            },
            "has version 999",
            "which was kept before the upgrade",
        ),
    ];
    for (break_it, says, fix) in cases {
        let mut daemon = used();
        break_it(&daemon);
        is_named(&mut daemon, ("fault", "journal", says), fix, restores("journal.db"));
    }
    let mut daemon = used();
    sql(&daemon, "INSERT INTO meta (key, value) VALUES ('open', '1')");
    is_named(&mut daemon, ("remark", "journal", "not closed in order"), "", starts);
}

#[test]
fn a_home_without_a_backup_or_with_an_old_one_is_told() {
    let backs_up = does(&["backup"]);
    is_named(&mut used(), ("remark", "backups", "there is none in"), "journal.backup.every", backs_up);
    for (file, says) in [
        ("", "although `journal.backup.every` is set"),
        ("backups/scheduled-20260101T000000Z.tar.gz", "more than twice as long ago"),
        ("backups/drupe-20260101T000000.000Z.tar.gz.age", "more than twice as long ago"),
    ] {
        let mut daemon = used();
        daemon.write("drupe.yaml", "journal: {backup: {every: hourly}}\n");
        if !file.is_empty() {
            daemon.write(file, "");
        }
        is_named(&mut daemon, ("warning", "backups", says), "drupe backup", does(&["backup"]));
        let (found, _) = findings(&daemon, &[]);
        assert!(named(&found, "fine", "backups", "the newest is of").is_some(), "{found:#?}");
    }
    // A daemon that runs makes it by itself; and one that keeps nothing has nothing to lose.
    let mut daemon = used();
    daemon.write("drupe.yaml", "journal: {backup: {every: hourly}}\n");
    is_named(&mut daemon, ("warning", "backups", "although"), "drupe backup", |daemon| {
        daemon.run();
        daemon.until_status("one is made", |status| status["backup"]["last"]["file"].is_string());
    });
    let daemon = used();
    daemon.write("drupe.yaml", "journal: {durability: memory}\n");
    let (found, _) = findings(&daemon, &[]);
    assert!(!found.iter().any(|finding| finding["subject"] == "backups"), "{found:#?}");
}

/// Overwrites pages in the middle of the file, as a failing disk does.
fn tear_a_page(daemon: &Daemon) {
    let path = daemon.path().join("journal.db");
    let mut bytes = fs::read(&path).expect("the journal");
    bytes[4096 * 2..4096 * 12].fill(0xa5);
    fs::write(&path, bytes).expect("the journal");
}

#[test]
fn what_waits_for_the_operator_is_named() {
    const NOW: &str = "(SELECT max(accepted_ms) FROM turns)";
    let outbox = |state: &str| {
        format!(
            "INSERT INTO outbox (key, session, channel, text, state, why, created_ms, updated_ms, kind)
             SELECT 'k', min(number), 'mail', 'the text', '{state}', 'it hung up', {NOW}, {NOW}, 'notice' FROM sessions"
        )
    };
    for (state, says, fix) in [
        ("uncertain", "may or may not have arrived", "it is not sent again by itself"),
        ("failed", "did not arrive", "drupe ext show mail"),
    ] {
        let mut daemon = used();
        sql(&daemon, &outbox(state));
        is_named(&mut daemon, ("warning", "deliveries", says), fix, |daemon| {
            sql(daemon, "DELETE FROM outbox")
        });
    }
    let schedule = "INSERT INTO schedules (id, through_ms, failures, paused, timing) VALUES";
    for (values, says) in [
        ("('s', 0, 5, 'it failed five times', '')", "it is paused"),
        ("('s', 0, 2, NULL, '')", "last 2 runs failed"),
    ] {
        let mut daemon = used();
        sql(&daemon, &format!("{schedule} {values}"));
        let fix = "drupe schedule show s";
        is_named(&mut daemon, ("warning", "schedules", says), fix, |daemon| {
            sql(daemon, "DELETE FROM schedules")
        });
    }
    let mut daemon = used();
    sql(&daemon, "INSERT INTO deliveries (message, subscriber, dead, due_ms) VALUES (1, 'agent:x', 1, 0)");
    is_named(&mut daemon, ("warning", "deliveries", "given up"), "drupe bus dead", |daemon| {
        sql(daemon, "DELETE FROM deliveries");
    });
    let mut daemon = used();
    sql(&daemon, "UPDATE turns SET started_ms = NULL, finished_ms = NULL, starts = 0, response = NULL");
    is_named(&mut daemon, ("warning", "journal", "wait for an answer"), "drupe run", starts);
    let mut daemon = used();
    sql(&daemon, "UPDATE turns SET accepted_ms = accepted_ms + 86400000");
    is_named(&mut daemon, ("warning", "clock", "has a message of"), "set it", |daemon| {
        sql(daemon, "UPDATE turns SET accepted_ms = accepted_ms - 86400000");
    });
}

#[test]
fn faults_of_files_are_named_by_file_and_line() {
    let cases: [FaultOfFile; 8] = [
        ("drupe.yaml", "log: [\n", ("fault", "configuration", "drupe.yaml"), ""),
        ("drupe.yaml", "\norchestrater: {}\n", ("fault", "configuration", "line 2"), "orchestrator"),
        (
            "drupe.yaml",
            "orchestrator: {instructions: 'Hi {{ nosuch }}'}\n",
            ("fault", "configuration", "nosuch"),
            "drupe config path",
        ),
        (
            "drupe.yaml",
            "sandbox: {allow_unconfined: true}\n",
            ("warning", "configuration", "without bounds"),
            "remove it",
        ),
        (".env", "no assignment at all\n", ("fault", "configuration", ".env"), ""),
        (
            "extensions/broken/manifest.yaml",
            "id: broken\nagent: {limits: {max_turns: many}}\n",
            ("fault", "extensions", "`broken` is failed"),
            "drupe ext disable broken",
        ),
        ("extensions/empty/readme", "", ("warning", "extensions", "was passed over"), "drupe ext check"),
        (
            "extensions/kv/manifest.yaml",
            "id: kv\nversion: 1.0.0\nname: kv\ndescription: Another one.\nagent: {instructions: Hi.}\n",
            ("fault", "extensions", "`kv` is failed"),
            "",
        ),
    ];
    for (file, content, found, fix) in cases {
        let mut daemon = used();
        daemon.write(file, content);
        if file == ".env" {
            set_mode(daemon.path().join(file), 0o600);
        }
        is_named(&mut daemon, found, fix, |daemon| match Path::new(file).parent() {
            Some(folder) if folder != Path::new("") => {
                fs::remove_dir_all(daemon.path().join(folder)).expect("it is removed");
            }
            _ => fs::remove_file(daemon.path().join(file)).expect("it is removed"),
        });
    }
}

#[test]
fn what_a_running_daemon_says_is_told_with_what_to_do() {
    let mut daemon = used();
    daemon.write(
        "extensions/asks/manifest.yaml",
        "id: asks\nversion: 1.0.0\nname: Asks\ndescription: Needs a server.\nsubscribe: [{topic: kv.changed, task: Look at it.}]\nagent:\n  model: default\n  instructions: Hi.\n  usage: Ask.\n",
    );
    daemon.run();
    is_named(
        &mut daemon,
        ("warning", "extensions", "`asks` is awaiting approval"),
        "drupe approvals allow asks",
        does(&["approvals", "allow", "asks"]),
    );

    daemon.write("drupe.yaml", "orchestrater: {}\n");
    let told = until("the daemon has seen it", || {
        let (found, _) = findings(&daemon, &[]);
        named(&found, "fault", "daemon", "an earlier configuration is in force").cloned()
    });
    assert!(told.is_some());
    fs::remove_file(daemon.path().join("drupe.yaml")).expect("it is removed");
    daemon.says(&["stop"]);
    daemon.ended();

    daemon.run_with(&["--safe-mode"]);
    is_named(&mut daemon, ("fault", "daemon", "safe mode"), "drupe restart", |daemon| {
        daemon.says(&["stop"]);
        daemon.ended();
        daemon.run();
    });
    // A crash stays worth a look for a day.
    daemon.kill_kernel();
    let (found, ended) = findings(&daemon, &[]);
    assert!(named(&found, "warning", "daemon", "has crashed within a day").is_some(), "{found:#?}");
    assert_eq!(ended, Some(0));
}

#[test]
fn a_limit_that_is_near_or_reached_is_told() {
    let server = ModelServer::start(|_| Say::Text("yes".into()));
    let mut daemon = Daemon::start(&(server.config() + "limits: {day: {max_invocations: 1}}\n"));
    daemon.turn("main", "hello");
    is_named(
        &mut daemon,
        ("fault", "limits", "limits.day.max_invocations"),
        "drupe why limits.day.max_invocations",
        |daemon| {
            daemon.write("drupe.yaml", &(server.config() + "limits: {day: {max_invocations: 100}}\n"));
            daemon.says(&["restart"]);
        },
    );
}

#[test]
fn a_provider_that_does_not_answer_is_told_unless_nobody_is_to_be_asked() {
    // A port of this machine at which nobody listens any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port")
        .port();
    let daemon = Daemon::home(&format!(
        "models:\n  aliases: {{default: local/test}}\n  providers:\n    local: {{kind: openai_chat, base_url: 'http://127.0.0.1:{port}/v1', api_key: none}}\n"
    ));
    let output = daemon.drupe(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = found["findings"].as_array().expect("a list");
    let one = named(found, "fault", "models", "provider `local`").unwrap_or_else(|| panic!("{found:#?}"));
    assert!(one["fix"].to_string().contains("drupe models check"), "{one}");
    assert_eq!(output.status.code(), Some(1));
    let (found, ended) = findings(&daemon, &[]);
    assert!(named(&found, "fault", "models", "").is_none(), "{found:#?}");
    assert_eq!(ended, Some(0));
}

#[test]
fn a_system_that_confines_nothing_is_a_fault_and_a_few_open_files_a_warning() {
    let daemon = used();
    let (found, ended) = without_landlock(|| findings(&daemon, &[]));
    assert!(named(&found, "fault", "system", "Landlock is missing").is_some(), "{found:#?}");
    assert_eq!(ended, Some(1));
    let mut shell = Command::new("sh");
    let line = format!(
        "ulimit -n 256; exec {} doctor --json --offline --home {}",
        crate::harness::DRUPE,
        daemon.path().display()
    );
    let output =
        shell.args(["-c", &line]).env_clear().env("PATH", "/usr/bin:/bin").output().expect("sh runs");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let found = found["findings"].as_array().expect("a list");
    assert!(named(found, "warning", "system", "256 files").is_some(), "{found:#?}");
}

#[test]
fn a_report_has_no_secret_and_nothing_of_conversations() {
    let mut daemon = used();
    daemon.write(".env", "WEATHER_TOKEN=wetter-geheim-77\n");
    set_mode(daemon.path().join(".env"), 0o600);
    daemon.variable("SOME_API_KEY", "sk-schluessel-88");
    daemon.write(
        "drupe.yaml",
        "log: debug\norchestrator: {name: 'says wetter-geheim-77 and sk-schluessel-88'}\n",
    );
    daemon.run();
    daemon.turn("main", "the blue heron told me");
    let report = daemon.says(&["doctor", "--offline", "--report"]);
    for wanted in
        ["# Report of `drupe doctor`", "log = \"debug\"", "## Extensions", "kv", "## Last ends of kernels"]
    {
        assert!(report.contains(wanted), "no {wanted:?} in {report}");
    }
    for secret in ["wetter-geheim-77", "sk-schluessel-88", "blue heron"] {
        assert!(!report.contains(secret), "{secret:?} in {report}");
    }
    assert_eq!(daemon.drupe(&["doctor", "--report", "--json"]).status.code(), Some(2), "{}", json!(report));
}

#[test]
fn a_restore_that_is_not_finished_is_named_and_nothing_is_written_into_it() {
    let mut daemon = used();
    fs::write(daemon.path().join(".env"), "KEY=kept\n").expect("a file");
    set_mode(daemon.path().join(".env"), 0o600);
    daemon.write(".restore/list.json", r#"{"aside": "before-restore-1", "old": ["drupe.yaml"], "new": []}"#);
    for verb in [&["secret", "remove", "KEY"][..], &["init", "--provider", "offline", "--channel", "none"]] {
        let refused = daemon.drupe(verb);
        assert!(text(&refused.stderr).contains("is not finished"), "{refused:?}");
    }
    assert_eq!(fs::read_to_string(daemon.path().join(".env")).expect("a file"), "KEY=kept\n");
    is_named(&mut daemon, ("fault", "home", "is not finished"), "`drupe run` finishes it", starts);
}

#[test]
fn what_the_operator_has_turned_on_and_lacks_something_is_named() {
    let mut daemon = used();
    daemon.write("drupe.yaml", "extensions: {notify: {enabled: true}}\n");
    daemon.run();
    is_named(
        &mut daemon,
        ("warning", "extensions", "`notify` is turned on and does not work"),
        "`drupe ext disable notify`",
        does(&["ext", "disable", "notify"]),
    );
}

#[test]
fn what_is_made_right_is_no_fault_any_more() {
    let daemon = used();
    daemon.write(".env", "KEY=x\n");
    set_mode(daemon.path().join(".env"), 0o644);
    let (found, ended) = findings(&daemon, &[]);
    assert!(ended == Some(1) && named(&found, "fault", "configuration", ".env").is_some(), "{found:#?}");
    let (found, ended) = findings(&daemon, &["--fix"]);
    assert_eq!(ended, Some(0), "{found:#?}");
    let mended = found.iter().find(|finding| finding["mended"].to_string().contains("mode 600"));
    assert!(mended.is_some_and(|finding| finding["level"] == "fine"), "{found:#?}");
}

#[test]
fn a_private_key_that_stands_where_a_public_one_belongs_is_shown_to_nobody() {
    let mut daemon = used();
    let key = "AGE-SECRET-KEY-1QLQ6Z0JHFUGWKJGKT8868ZVZ8UMNKF3V2A402W4WP9MHQQQQQQ";
    daemon.write("drupe.yaml", &format!("journal: {{backup: {{every: daily, recipients: [\"{key}\"]}}}}\n"));
    daemon.spawn();
    assert_eq!(daemon.ended(), Some(78), "{}", daemon.log());
    let said = [
        daemon.log(),
        text(&daemon.drupe(&["doctor", "--offline"]).stdout),
        text(&daemon.drupe(&["doctor", "--offline", "--report"]).stdout),
        text(&daemon.drupe(&["backup"]).stderr),
        fs::read_to_string(daemon.path().join("state/supervisor.log")).unwrap_or_default(),
    ];
    assert!(said[..3].iter().all(|said| said.contains("which is public")), "{said:?}");
    for said in said {
        assert!(!said.contains(&key[..24]), "{said}");
    }
}
