//! What a call needs of a person: a secret goes to where secrets are kept, and nowhere else.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, process::Stdio};

use serde_json::{Value, json};

use crate::{
    harness::{Daemon, model_server::ModelServer, text},
    previews::question,
};

const VALUE: &str = "sk-live-Zq83hV0pLw71";

/// `drupe approvals allow`, with something on its standard input: whether it ended well, and what it said.
fn allow(daemon: &Daemon, args: &[&str], typed: &str) -> (bool, String) {
    let mut allow = daemon.command(&[&["approvals", "allow"], args].concat());
    allow.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut allow = allow.spawn().expect("it starts");
    // It may have ended without reading.
    let _ = allow.stdin.take().expect("a pipe").write_all(typed.as_bytes());
    let ended = allow.wait_with_output().expect("it ends");
    (ended.status.success(), text(&ended.stdout) + &text(&ended.stderr))
}

#[test]
fn a_secret_that_is_asked_for_is_kept_and_neither_a_model_nor_a_row_nor_a_log_gets_it() {
    let server = ModelServer::obedient();
    // No rule lets such a call run without its question.
    let rules = "approvals: {mode: full-access, rules: [{tool: request_secure_input, then: allow}]}\n";
    let mut daemon = Daemon::home(&(server.config() + rules));
    daemon.run();
    let ask = |name: &str| {
        let params = json!({"name": name, "purpose": "to \u{1b}[2Kread the weather"});
        daemon.submit("s", &format!("request_secure_input {params}"))
    };
    let answer = |values: Value| {
        let asked = question(&daemon);
        let answer = json!({"id": asked["id"], "hash": asked["hash"], "allow": true, "values": values});
        daemon.client().ask("approvals.answer", answer)
    };
    let turn = ask("WEATHER_KEY");
    assert_eq!(
        question(&daemon)["call"]["preview"]["input"]["properties"],
        json!({"WEATHER_KEY": {"type": "string", "writeOnly": true, "minLength": 1}})
    );
    daemon.kill_kernel();
    let asked = question(&daemon);
    let shown = daemon.says(&["approvals"]);
    assert!(shown.contains("asks you for it") && !shown.contains('\u{1b}'), "{shown}");
    // Neither an answer without it, nor one of another form, nor one with more, is taken.
    for values in [
        Value::Null,
        json!({}),
        json!({"WEATHER_KEY": ""}),
        json!({"WEATHER_KEY": 5}),
        json!({"OTHER": VALUE}),
    ] {
        let refused = answer(values.clone()).expect_err("it is refused");
        assert!(!refused.contains(VALUE), "{values}: {refused}");
    }
    let id = asked["id"].as_str().expect("an id");
    // Nor one that names it by the beginning of its id: nothing is kept for a question that may be another.
    for beginning in ["", "e", &id[..8]] {
        let answer = json!({"id": beginning, "allow": true, "values": {"WEATHER_KEY": VALUE}});
        let refused = daemon.client().ask("approvals.answer", answer).expect_err("it is refused");
        assert!(refused.contains("no question with the whole id"), "{beginning}: {refused}");
    }
    assert!(!daemon.path().join(".env").exists());
    let (taken, said) = allow(&daemon, &[id, "--value", &format!("WEATHER_KEY={VALUE}")], "");
    assert!(!taken && said.contains("is a secret, which is no argument"), "{said}");
    let (taken, said) = allow(&daemon, &[id], "");
    assert!(!taken && said.contains("needs a value"), "{said}");
    let (taken, said) = allow(&daemon, &[&id[..8]], &format!("{VALUE}\n"));
    assert!(taken, "{said}");
    let told = daemon.wait(&turn)["content"].to_string();
    assert!(told.contains("`WEATHER_KEY` is kept"), "{told}");
    let file = daemon.path().join(".env");
    assert_eq!(fs::read_to_string(&file).expect("a file"), format!("WEATHER_KEY={VALUE}\n"));
    assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);

    // One that has a value keeps it, whoever asks for another.
    let turn = ask("WEATHER_KEY");
    let refused = answer(json!({"WEATHER_KEY": "another-value-altogether"})).expect_err("it is refused");
    assert!(refused.contains("has a value already"), "{refused}");
    daemon.says(&["approvals", "deny", question(&daemon)["id"].as_str().expect("an id")]);
    daemon.wait(&turn);
    assert_eq!(fs::read_to_string(&file).expect("a file"), format!("WEATHER_KEY={VALUE}\n"));

    // It is masked from now on, in this kernel and in the next.
    assert!(!daemon.turn("s", &format!("I think it is {VALUE}"))["content"].to_string().contains(VALUE));
    daemon.says(&["restart"]);
    let everything = [
        json!(server.requests()).to_string(),
        json!(daemon.events("s")).to_string(),
        daemon.log(),
        daemon.json(&["approvals", "--json"]).to_string(),
        daemon.json(&["session", "show", "s", "--json"]).to_string(),
    ];
    assert!(everything.iter().all(|text| !text.contains(VALUE)));
    for entry in fs::read_dir(daemon.path()).expect("a home").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("journal") {
            let bytes = fs::read(entry.path()).expect("a file");
            assert!(!bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()), "{name:?}");
        }
    }
}

#[test]
fn an_extension_asks_people_where_it_has_the_right_to_and_nobody_is_asked_for_one_that_has_not() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("curious", "serving", "config: {prefix: curious}\nrights: [secure_input]\n");
    daemon.plugin("nosy", "serving", "config: {prefix: nosy}\n");
    daemon.run();
    let refused = daemon.turn("s", "nosy_wonder {}")["content"].to_string();
    assert!(refused.contains("request_input"), "{refused}");
    let list = daemon.client().ask("approvals.list", json!({})).expect("a list");
    assert!(list.as_array().expect("a list").iter().all(|one| one["call"].is_null()), "{list}");
    let turn = daemon.submit("s", "curious_wonder {}");
    let asked = question(&daemon);
    let answer =
        json!({"id": asked["id"], "hash": asked["hash"], "allow": true, "values": {"color": "green"}});
    daemon.client().ask("approvals.answer", answer).expect("it is taken");
    let told = daemon.wait(&turn)["content"].to_string();
    assert!(told.contains("green"), "{told}");
}
