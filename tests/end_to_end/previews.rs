//! What a call would change is told with the question about it, and what was changed is taken back.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::harness::{Daemon, model_server::ModelServer, until};

/// The question that waits.
pub fn question(daemon: &Daemon) -> Value {
    let asked = || {
        let list = daemon.client().ask("approvals.list", json!({})).ok()?;
        list.as_array()?.iter().find(|one| one["state"] == "pending").cloned()
    };
    until("a question waits", asked).unwrap_or_else(|| panic!("{}", daemon.log()))
}

fn allow(daemon: &Daemon, question: &Value) {
    let answer = json!({"id": question["id"], "allow": true, "hash": question["hash"]});
    daemon.client().ask("approvals.answer", answer).expect("it is answered");
}

#[test]
fn a_person_sees_what_a_call_would_change_and_no_call_does_anything_else_over_a_crash() {
    let server = ModelServer::obedient();
    let rules = "approvals: {rules: [{tool: files_edit, then: ask}, {tool: files_undo, then: ask}]}\n";
    let mut daemon = Daemon::home(&(server.config() + rules));
    daemon.write("workspace/poem.txt", "one\ntwo\nthree\n");
    daemon.run();
    let poem = daemon.path().join("workspace/poem.txt");
    let edit = format!("files_edit {}", json!({"path": "poem.txt", "old": "two", "new": "zwei\u{1b}[2K"}));
    let diff = "--- poem.txt\n+++ poem.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\u{1b}[2K\n three\n";

    // Somebody else changes the file while the question waits, and a kernel dies: the call is allowed, and fails.
    let turn = daemon.submit("s", &edit);
    let asked = question(&daemon);
    assert_eq!(asked["call"]["preview"], json!({"text": diff, "failed": false}));
    fs::write(&poem, "one\ntwo\nthree and more\n").expect("a file");
    daemon.kill_kernel();
    let asked = question(&daemon);
    assert_eq!(asked["call"]["preview"]["text"], diff, "it is what was shown before");
    let shown = daemon.says(&["approvals"]);
    assert!(shown.contains("\n-two\n+zwei\\u001b[2K\n three\n") && !shown.contains('\u{1b}'), "{shown}");
    allow(&daemon, &asked);
    let said = daemon.wait(&turn)["content"].to_string();
    assert!(said.contains("was changed after a person was shown"), "{said}");
    assert_eq!(fs::read_to_string(&poem).expect("a file"), "one\ntwo\nthree and more\n");

    // What cannot be done is asked about all the same, with why.
    let turn = daemon.submit("s", &format!("files_edit {}", json!({"path": "none", "old": "a", "new": "b"})));
    let asked = question(&daemon);
    assert_eq!(asked["call"]["preview"]["failed"], true);
    daemon
        .client()
        .ask("approvals.answer", json!({"id": asked["id"], "allow": false}))
        .expect("it is answered");
    daemon.wait(&turn);

    // Asked again it runs, and the chat shows it to whoever waits there.
    let mut chat = daemon.command(&["chat", "--session", "s"]);
    let mut chat =
        chat.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut typed = chat.stdin.take().expect("a pipe");
    writeln!(typed, "{edit}").expect("it is read");
    drop(typed);
    let mut lines = BufReader::new(chat.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let shown = lines.find(|line| line.contains("+zwei")).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(shown.contains("+zwei\\u001b[2K") && !shown.contains('\u{1b}'), "{shown}");
    allow(&daemon, &question(&daemon));
    drop(lines.last());
    assert!(chat.wait().expect("it ends").success());
    assert_eq!(fs::read_to_string(&poem).expect("a file"), "one\nzwei\u{1b}[2K\nthree and more\n");
    // Whoever may follow the session alone does not get to know what is in the file.
    let events = daemon.events("s");
    let mut told = events.iter().filter(|event| event["kind"] == "interaction.approval.requested");
    assert!(told.all(|event| !event.to_string().contains("three")), "{events:#?}");
    // After another crash it is taken back, and that is shown, too.
    daemon.kill_kernel();
    let turn = daemon.submit("s", "files_undo {}");
    let asked = question(&daemon);
    let text = asked["call"]["preview"]["text"].as_str().expect("a diff").to_owned();
    assert!(text.contains("-zwei\u{1b}[2K\n+two\n"), "{text}");
    allow(&daemon, &asked);
    assert!(daemon.wait(&turn)["content"].to_string().contains("took back change"));
    assert_eq!(fs::read_to_string(&poem).expect("a file"), "one\ntwo\nthree and more\n");
    let list = daemon.turn("s", "files_changes {}")["content"].to_string();
    assert!(list.contains("taken back"), "{list}");
}
