//! Sessions that the operator deletes.

use std::{
    fs,
    sync::{Mutex, mpsc::channel},
};

use drupe_extension_api::SessionId;
use drupe_journal::archive_file;
use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say},
    text, until,
};

#[test]
fn a_deleted_session_is_gone_for_good_and_it_is_said_wherever_it_is_asked_for() {
    let daemon = Daemon::start("");
    for n in 0..3 {
        assert_eq!(daemon.turn("private", &format!("my secret {n}"))["status"], "success");
    }
    let other = daemon.turn("other", "hello");
    let turn = daemon.json(&["session", "show", "private", "--json"])["turns"][0]["turn"].clone();
    let used = daemon.json(&["usage", "--json"]);

    let asked = daemon.drupe(&["session", "delete", "private"]);
    assert!(!asked.status.success() && text(&asked.stderr).contains("--yes"), "{asked:?}");
    let deleted = daemon.json(&["session", "delete", "private", "--yes", "--json"]);
    assert_eq!((&deleted["turns"], &deleted["sessions"]), (&json!(3), &json!(["private"])), "{deleted}");

    for args in
        [&["session", "show", "private"][..], &["why", "private"], &["session", "delete", "private", "--yes"]]
    {
        let refused = daemon.drupe(args);
        assert!(text(&refused.stderr).contains("session `private` was deleted at 20"), "{refused:?}");
        assert_eq!(refused.status.code(), Some(1));
    }
    let refused = daemon.drupe(&["why", turn.as_str().expect("an id")]);
    assert!(text(&refused.stderr).contains("it went with a session that was deleted"), "{refused:?}");
    let never = daemon.drupe(&["session", "delete", "never", "--yes"]);
    assert!(text(&never.stderr).contains("there is no session `never`"), "{never:?}");
    assert!(!daemon.says(&["session", "list"]).contains("private"));
    assert_eq!(daemon.json(&["usage", "--json"]), used);
    assert_eq!(daemon.wait(other["turn"].as_str().expect("an id"))["status"], "success");

    // What lies in the file is gone as well, once the steps are done.
    daemon.says(&["stop"]);
    let journal = fs::read(daemon.path().join("journal.db")).expect("a journal");
    assert!(!String::from_utf8_lossy(&journal).contains("my secret"));
}

#[test]
fn a_session_with_a_running_turn_is_refused_and_stays() {
    let (go, held) = channel::<()>();
    let held = Mutex::new(held);
    let server = ModelServer::start(move |_| {
        let _ = held.lock().expect("one at a time").recv();
        Say::Text("done".into())
    });
    let daemon = Daemon::start(&server.config());
    let turn = daemon.submit("busy", "hello");
    until("it runs", || daemon.json(&["status", "--json"])["running_turns"].as_u64().filter(|n| *n == 1));
    let refused = daemon.drupe(&["session", "delete", "busy", "--yes"]);
    assert!(text(&refused.stderr).contains("drupe session stop busy"), "{refused:?}");
    go.send(()).expect("it waits");
    assert_eq!(daemon.wait(&turn)["status"], "success");
    daemon.says(&["session", "delete", "busy", "--yes"]);
}

#[test]
fn only_who_may_operate_deletes() {
    let daemon = Daemon::start("");
    daemon.turn("token.ci", "hello");
    let token = |name: &str, may: &str| -> String {
        let made = daemon.json(&["token", "new", name, "--may", may, "--sessions", "*", "--json"]);
        made["token"].as_str().expect("a token").to_owned()
    };
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let ask = |token: &str| -> Result<Value, String> {
        let mut client = crate::harness::Client::with_token(&home, token)?;
        client.ask("sessions.delete", json!({"id": "token.ci"}))
    };
    let refused = ask(&token("reader", "read,direct,submit")).expect_err("it may not");
    assert!(refused.contains("operate"), "{refused}");
    assert_eq!(ask(&token("keeper", "read,operate")).expect("it may")["turns"], 1);
}

#[test]
fn its_archive_goes_with_it() {
    let daemon = Daemon::start("journal: {retention: {max_age_days: 30, archive: true}}\n");
    daemon.turn("s", "hello");
    let file = archive_file(&daemon.path().join("archive"), &SessionId::new("s").expect("an id"));
    fs::create_dir(daemon.path().join("archive")).expect("a folder");
    fs::write(&file, "{}\n").expect("a file");
    let shown = daemon.drupe(&["session", "show", "s"]);
    assert!(text(&shown.stderr).contains("1 line of"), "{shown:?}");
    daemon.says(&["session", "delete", "s", "--yes"]);
    assert!(!file.exists());
}
