//! What lies where the shipped extensions do, and who may write there.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use crate::harness::{Daemon, built};

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
}

fn isolation(daemon: &Daemon) -> String {
    let shown = daemon.client().ask("extensions.show", json!({"id": "inside"})).expect("it is shown");
    shown["isolation"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn what_others_may_change_does_not_ship_wherever_it_lies() {
    let mut daemon = Daemon::installed("approvals: {preauthorized: []}\n");
    let shipped = daemon.path().ancestors().nth(2).expect("a user's folder").join("lib/drupe/extensions");
    let folder = shipped.join("inside");
    let (library, manifest) = (folder.join("libinside.so"), folder.join("manifest.yaml"));
    fs::create_dir_all(&folder).expect("a folder");
    fs::copy(built("torture"), &library).expect("the plugin is built with the tests");
    fs::write(&manifest, "id: inside\nname: Inside\nentrypoint: libinside\n").expect("a manifest");
    for path in [&shipped, &folder, &library] {
        mode(path, 0o755);
    }
    mode(&manifest, 0o644);
    daemon.run();
    let begun = |daemon: &Daemon| (daemon.extension("inside").0, isolation(daemon));
    assert_eq!(begun(&daemon), ("active".into(), "inproc".into()), "nobody is asked about what ships");
    for (path, usual) in [(&shipped, 0o755), (&manifest, 0o644), (&library, 0o755)] {
        mode(path, 0o666 | usual);
        daemon.kill_kernel();
        let reason = daemon.until_extension("inside", "awaiting_approval");
        let said = format!("everybody may write `{}`", path.display());
        assert!(reason.contains("do not count as shipped") && reason.contains(&said), "{reason}");
        let checked = daemon.says(&["ext", "check"]);
        assert!(
            checked.contains("awaiting approval") && checked.contains("everybody may write"),
            "{checked}"
        );
        mode(path, usual);
    }
    mode(&manifest, 0o666);
    daemon.kill_kernel();
    daemon.says(&["approvals", "allow", "inside"]);
    daemon.until_extension("inside", "active");
    assert_eq!(isolation(&daemon), "process", "it is trusted with no more than any other");
    mode(&manifest, 0o644);
    daemon.kill_kernel();
    assert_eq!(begun(&daemon), ("active".into(), "inproc".into()));
}
