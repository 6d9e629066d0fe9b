//! Ways around the operator's agreement, each of which is closed.

use serde_json::json;

use crate::harness::{Daemon, built, model_server::ModelServer};

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
    let status = daemon.until_ready();
    assert!(status["notices"].to_string().contains("not taken as shipped"), "{status:#}");
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
