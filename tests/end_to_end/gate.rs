//! Ways around the operator's agreement, each of which is closed.

use serde_json::json;

use crate::harness::{Daemon, built};

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
