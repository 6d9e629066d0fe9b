//! Notes of projects: files of the workspace that the orchestrator is given with each message.

use serde_json::Value;

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
};

fn last(server: &ModelServer) -> String {
    server.requests().last().expect("one was made")["messages"].to_string()
}

#[test]
fn they_are_given_with_each_message_as_they_are_then_and_count_as_text_of_strangers() {
    let server = ModelServer::start(|_| Say::Text("done".into()));
    let settings = "orchestrator: {project_notes: [AGENTS.md, docs/NOTES.md, long.md, out.md]}\n";
    let mut daemon = Daemon::home(&(server.config() + settings));
    daemon.write("secret.txt", "a secret of the home");
    daemon.write("workspace/docs/NOTES.md", "Write tests first.");
    daemon.write("workspace/long.md", &"x".repeat(20_000));
    std::os::unix::fs::symlink("../secret.txt", daemon.path().join("workspace/out.md")).expect("a link");
    daemon.run();
    let turn = daemon.turn("s", "hello");
    let seen = last(&server);
    assert!(seen.contains("(`docs/NOTES.md`)") && seen.contains("Write tests first."), "{seen}");
    assert!(!seen.contains("AGENTS.md") && !seen.contains("a secret of the home"), "{seen}");
    let remarks: Vec<&str> =
        turn["diagnostics"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let of = |part: &str| remarks.iter().filter(|remark| remark.contains(part)).count();
    assert_eq!(of("project_notes: `long.md` of the workspace is longer than 16 KiB"), 1, "{remarks:?}");
    assert_eq!(of("project_notes: `out.md` of the workspace cannot be opened"), 1, "{remarks:?}");
    assert_eq!(of("tainted: `docs/NOTES.md`"), 1, "{remarks:?}");
    // What is written there now, and once.
    daemon.write("workspace/AGENTS.md", "Commit often.");
    daemon.write("workspace/docs/NOTES.md", "Write tests last.");
    daemon.turn("s", "hello again");
    let seen = last(&server);
    assert!(seen.contains("Commit often.") && seen.contains("Write tests last."), "{seen}");
    assert!(!seen.contains("Write tests first."), "{seen}");
    // An agent that is asked by itself has none of it.
    daemon.turn("t", "@code_reviewer look");
    assert!(!last(&server).contains("Commit often."));
}
