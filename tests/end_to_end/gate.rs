//! Ways around the operator's agreement, each of which is closed.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Daemon, built, model_server::ModelServer, until};

/// Nothing is agreed to beforehand.
const ASK: &str = "approvals: {preauthorized: []}\n";

/// A folder of the home with code that would like to run in the kernel. The library comes first: a manifest is what
/// makes a folder an extension.
fn drop_in(daemon: &Daemon, id: &str) {
    let folder = daemon.path().join("extensions").join(id);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(built("torture"), folder.join(format!("lib{id}.so")))
        .expect("the plugin is built with the tests");
    let manifest =
        format!("id: {id}\nname: {id}\nentrypoint: lib{id}\nrights: [control, restart, processes, submit]\n");
    daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
}

#[test]
fn what_lies_in_the_home_waits_also_where_the_program_lies_in_local_bin() {
    let mut daemon = Daemon::installed(ASK);
    drop_in(&daemon, "before");
    daemon.run();
    let reason = daemon.until_extension("before", "awaiting_approval");
    assert!(reason.contains("native code"), "{reason}");
    drop_in(&daemon, "while");
    daemon.until_extension("while", "awaiting_approval");
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    let states: Vec<_> =
        list.as_array().expect("a list").iter().map(|one| (&one["id"], &one["state"])).collect();
    assert_eq!(states.len(), 2, "each folder is there once: {states:?}");
    Daemon::signal(daemon.supervisor_pid(), Signal::TERM);
    assert_eq!(daemon.ended(), Some(0));
    daemon.another_home(ASK);
    daemon.run();
    let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
    assert_eq!(list, json!([]), "what lies in the usual home does not ship with the program");
}

/// What the extension is told when it asks the control API.
fn asked_by_extension(daemon: &Daemon, method: &str, path: &std::path::Path) -> String {
    let ask = json!({"method": method, "params": {"path": path, "id": "made"}});
    daemon.turn("s", &format!("torture_control {ask}"))["content"].to_string()
}

fn with_control() -> (ModelServer, Daemon) {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin_in("process", "torture", "torture", "rights: [control]\n");
    daemon.write(".env", "A_KEY=canary-of-the-keys\n");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(daemon.path().join(".env"), private).expect("it was written");
    daemon.write("other/manifest.yaml", "id: other\ncanary-of-a-file\n");
    daemon.run();
    (server, daemon)
}

const DRAFT: &str =
    "id: draft\nname: Draft\ndescription: Works.\nagent: {model: default, instructions: \"\"}\n";

#[test]
fn an_extension_with_control_names_nothing_beyond_its_own_folder() {
    let (_server, daemon) = with_control();
    daemon.until_extension("torture", "active");
    let home = daemon.path().canonicalize().expect("it is there");
    let data = home.join("data/torture");
    daemon.write("data/torture/draft/manifest.yaml", DRAFT);
    std::os::unix::fs::symlink(&home, data.join("link")).expect("a link");
    std::os::unix::fs::symlink(home.join(".env"), data.join("draft.md")).expect("a link");
    let strange = [
        home.join(".env"),
        home.join("run/token"),
        home.join("other"),
        home.join("extensions/torture"),
        data.join("link/other"),
        data.join("link/.env"),
        data.join("draft.md"),
        data.join("../../other"),
        data.clone(),
        "/etc/passwd".into(),
    ];
    let token = std::fs::read_to_string(home.join("run/token")).expect("a token");
    for path in strange {
        for method in ["extensions.check", "extensions.add", "extensions.scaffold"] {
            let told = asked_by_extension(&daemon, method, &path);
            assert!(told.contains("cannot be"), "{method} {}: {told}", path.display());
            assert!(!told.contains("canary") && !told.contains(token.trim()), "{told}");
        }
    }
    assert!(!home.join("other/Cargo.toml").exists() && !home.join("Cargo.toml").exists());
    // Its own draft is checked and told under its own name, added, and begun.
    daemon.write("data/torture/bad/manifest.yaml", "id: bad\nnome: x\n");
    let told = asked_by_extension(&daemon, "extensions.check", &data.join("bad"));
    assert!(told.contains("nome") && told.contains("data/torture/bad/manifest.yaml"), "{told}");
    assert!(!told.contains(".adding"), "{told}");
    asked_by_extension(&daemon, "extensions.add", &data.join("draft"));
    assert_eq!(daemon.extension("draft").0, "active");
    asked_by_extension(&daemon, "extensions.scaffold", &data.join("made"));
    assert!(data.join("made/Cargo.toml").is_file());
    let left = |folder: &str| {
        std::fs::read_dir(home.join(folder))
            .expect("a folder")
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(".adding"))
    };
    assert!(!left("extensions") && !left("data"));
}

#[test]
fn a_file_that_is_no_manifest_is_not_quoted_to_the_operator_either() {
    let (_server, daemon) = with_control();
    for file in [".env", "run/token"] {
        let path = daemon.path().join(file);
        let told = daemon.client().ask("extensions.check", json!({"path": path})).expect("a report");
        assert_eq!(told["ok"], false);
        let token = std::fs::read_to_string(daemon.path().join("run/token")).expect("a token");
        for told in [
            told.to_string(),
            daemon.client().ask("extensions.add", json!({"path": path})).expect_err("no agent"),
        ] {
            assert!(!told.contains("canary") && !told.contains(token.trim()), "{told}");
            assert!(told.contains("`.md`"), "{told}");
        }
    }
}

#[test]
fn a_namesake_lifts_no_quarantine_and_what_takes_the_place_of_the_content_does() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    let failing = "config: {initialize: abort}\n";
    daemon.plugin_in("process", "kv", "torture", &format!("overrides: true\n{failing}"));
    daemon.run();
    let own = |daemon: &Daemon| {
        let list = daemon.client().ask("extensions.list", json!({})).expect("a list");
        let source = daemon.path().join("extensions/kv").canonicalize().expect("it is there");
        let mut all = list.as_array().expect("a list").iter().filter(|one| one["id"] == "kv");
        let one = all.find(|one| one["source"] == json!(source)).map(|one| one["state"].to_string());
        one.unwrap_or_else(|| panic!("{list:#}"))
    };
    let state = until("the content is quarantined", || (own(&daemon) == "\"quarantined\"").then_some(()));
    state.unwrap_or_else(|| panic!("{}\n{}", own(&daemon), daemon.log()));
    // The shipped one, whose content is another, is looked at with each change, and at the next start.
    for id in ["one", "two"] {
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &DRAFT.replace("draft", id));
        daemon.until_extension(id, "active");
    }
    daemon.kill_kernel();
    assert_eq!(own(&daemon), "\"quarantined\"");
    let held = || {
        let ledger = std::fs::read(daemon.path().join("state/quarantine.json")).ok()?;
        let ledger: serde_json::Value = serde_json::from_slice(&ledger).ok()?;
        Some(ledger["quarantined"].as_array()?.len())
    };
    assert_eq!(held(), Some(1), "it is held against it");
    let manifest = daemon.path().join("extensions/kv/manifest.yaml");
    let text = std::fs::read_to_string(&manifest).expect("a manifest");
    std::fs::write(&manifest, text.replace(failing, "")).expect("a manifest");
    until("it works", || (own(&daemon) == "\"active\"").then_some(())).expect("it is mended");
    until("nothing is held against it", || (held() == Some(0)).then_some(()))
        .expect("its place has other content");
}

#[test]
fn only_the_operator_adds_what_runs_inside_the_kernel_and_is_told_so() {
    let (_server, daemon) = with_control();
    daemon.until_extension("torture", "active");
    let manifest = "id: inside\nname: Inside\nentrypoint: libinside\nisolation: inproc\n";
    let draft = daemon.path().canonicalize().expect("it is there").join("data/torture/inside");
    daemon.write("data/torture/inside/manifest.yaml", manifest);
    let told = asked_by_extension(&daemon, "extensions.add", &draft);
    assert!(told.contains("the operator's alone to add"), "{told}");
    assert!(!daemon.path().join("extensions/inside").exists());

    let mut daemon = Daemon::home(ASK);
    daemon.plugin_in("inproc", "inside", "torture", "");
    daemon.plugin_in("process", "outside", "torture", "");
    daemon.run();
    let inside = daemon.until_extension("inside", "awaiting_approval");
    assert!(inside.contains("inside the kernel's process, unconfined"), "{inside}");
    let outside = daemon.until_extension("outside", "awaiting_approval");
    assert!(outside.contains("native code;") && !outside.contains("unconfined"), "{outside}");
    for told in [inside, outside] {
        assert!(told.contains("not the sources beside it"), "{told}");
    }
}

#[test]
fn an_agreement_binds_the_texts_that_an_agent_takes_from_elsewhere() {
    let agent = "id: reader\nname: Reader\ndescription: Reads.\n\
                 agent: {model: default, instructions: workspace/p.md, context: [notes.md]}\n";
    for file in ["workspace/p.md", "notes.md"] {
        let mut daemon = Daemon::home(ASK);
        daemon.write("workspace/p.md", "You read.");
        daemon.write("notes.md", "Notes.");
        daemon.write("extensions/reader/manifest.yaml", agent);
        daemon.run();
        let reason = daemon.until_extension("reader", "awaiting_approval");
        assert!(reason.contains(file), "{reason}");
        daemon.says(&["approvals", "allow", "reader"]);
        daemon.until_extension("reader", "active");
        daemon.kill_kernel();
        assert_eq!(daemon.extension("reader").0, "active", "{file}: an agreement lasts");
        daemon.write(file, "Another text.");
        // Whatever makes the daemon look again.
        daemon.write("extensions/other/manifest.yaml", &DRAFT.replace("draft", "other"));
        daemon.until_extension("other", "active");
        let (state, reason) = daemon.extension("reader");
        assert!(state == "active" && reason.contains("its change is not in use"), "{file}: {state} {reason}");
        daemon.kill_kernel();
        assert_eq!(daemon.extension("reader").0, "awaiting_approval", "{file}");
        daemon.write(file, if file == "notes.md" { "Notes." } else { "You read." });
        daemon.kill_kernel();
        assert_eq!(daemon.extension("reader").0, "active", "{file}: it is again what was agreed to");
    }
}

#[test]
fn what_an_extension_shows_by_itself_is_short_rare_named_and_in_sessions_that_it_knows() {
    let (_server, daemon) = with_control();
    daemon.until_extension("torture", "active");
    daemon.turn("strange", "hello");
    let notify = |session: &str, times: usize, to: Option<&str>| {
        let ask = json!({"text": "n", "times": times, "session": to});
        daemon.turn(session, &format!("torture_notify {ask}"))["content"].to_string()
    };
    let shown = |session: &str| {
        let events = daemon.events(session);
        events
            .iter()
            .filter(|event| event["data"]["message"].as_str().is_some_and(|m| m.starts_with("`torture`: n")))
            .count()
    };
    assert!(notify("s", 1, Some("strange")).contains("was not called in session"), "another conversation");
    assert!(notify("s", 4097, None).contains("at most 4096 bytes"));
    assert_eq!(shown("strange") + shown("s"), 0);
    notify("s", 4096, Some("s"));
    notify("s", 1, None);
    notify("t", 1, Some("s"));
    assert_eq!(shown("s"), 3, "{:#?}", daemon.events("s"));
    let refused = (0..10).filter(|_| notify("s", 1, Some("s")).contains("within a minute")).count();
    assert!(refused >= 1 && shown("s") <= 12, "{refused} {}", shown("s"));
}

#[test]
fn an_extension_that_hangs_while_it_begins_keeps_neither_the_daemon_nor_others_from_work() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin_in("process", "torture", "torture", "config: {initialize: deadlock}\n");
    daemon.write(
        "extensions/after/manifest.yaml",
        "id: after\nname: After\ndescription: Waits.\ndepends_on: [torture]\n\
         agent: {model: default, instructions: \"\"}\n",
    );
    daemon.run();
    assert_eq!(daemon.extension("torture").0, "loaded", "it still begins");
    assert_eq!(daemon.extension("after").0, "discovered", "it waits for that one");
    assert_eq!(daemon.extension("kv").0, "active");
    daemon.write("extensions/draft/manifest.yaml", DRAFT);
    daemon.until_extension("draft", "active");
    assert_eq!(daemon.extension("torture").0, "loaded", "a new one does not wait for it");
    let reason = daemon.until_extension("torture", "failed");
    assert!(reason.contains("initialize"), "{reason}");
    daemon.until_extension("after", "skipped");
}

#[test]
fn a_home_that_others_can_open_is_closed_and_that_is_said() {
    use std::os::unix::fs::PermissionsExt;
    for (mode, said) in [(0o755, "could be read by others"), (0o777, "could be changed by others")] {
        let mut daemon = Daemon::home("");
        std::fs::set_permissions(daemon.path(), PermissionsExt::from_mode(mode)).expect("it is ours");
        daemon.run();
        let now = std::fs::metadata(daemon.path()).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(now, 0o700);
        let status = daemon.until_ready();
        assert!(status["notices"].to_string().contains(said), "{status:#}");
    }
}

#[test]
fn a_file_that_a_manifest_calls_a_script_is_neither_read_nor_waited_for() {
    let daemon = Daemon::start(ASK);
    daemon.write("keys", "TOKEN=secret\n");
    let pipe = daemon.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a pipe");
    for (id, file) in [("leak", daemon.path().join("keys")), ("hang", pipe)] {
        let agent = format!("---\ndescription: x\nmodel: scripted:{}\n---\nYou write.\n", file.display());
        daemon.write(&format!("extensions/{id}.md"), &agent);
        let reason = daemon.until_extension(id, "failed");
        assert!(reason.contains("only `drupe.yaml`") && !reason.contains("secret"), "{reason}");
    }
}
