//! `drupe replay`: what was recorded gives the same again, what was altered is found, and two models stand side by side.

mod recordings;
mod scenes;
mod spawned;

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
    wire::Wire,
};

fn task(request: &Value) -> String {
    let (_, text) = latest(request);
    text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned()
}

fn agent(daemon: &Daemon, id: &str, prompt: &str, more: &str) {
    daemon.write(
        &format!("extensions/{id}/manifest.yaml"),
        &format!(
            "id: {id}\nname: {id}\ndescription: Works.\nagent:\n  model: default\n  instructions: {prompt}\n{more}"
        ),
    );
}

fn call(calls: &[(&str, Value)]) -> Say {
    Say::Call(calls.iter().map(|(name, params)| ((*name).to_owned(), params.clone())).collect())
}

/// The orchestrator does as it is told; agents write and keep.
fn model(request: &Value) -> Say {
    let system = request["messages"][0]["content"].as_str().unwrap_or_default();
    let (role, said) = latest(request);
    let task = task(request);
    let first = task.split(' ').next().unwrap_or_default();
    if system.contains("You are the poet.") {
        return match first {
            "weather" => call(&[("return_control", json!({"summary": "verses were made"}))]),
            _ => Say::Text(format!("poet: {task}")),
        };
    }
    if system.contains("You keep.") {
        return match role.as_str() {
            "user" => call(&[("kv_set", json!({"key": task, "value": "b"}))]),
            _ => Say::Text(format!("kept {said}")),
        };
    }
    match (role.as_str(), first) {
        ("user", "fan") => call(&[
            ("agent_keeper", json!({"task": "one"})),
            ("kv_set", json!({"key": "two", "value": "2"})),
            ("agent_keeper", json!({"task": "three"})),
        ]),
        ("user", "keep") => call(&[("kv_set", json!({"key": "a", "value": task}))]),
        ("user", "plan") => call(&[
            ("update_plan", json!({"items": [{"step": "look", "status": "done"}]})),
            ("kv_list", json!({})),
        ]),
        ("user", "verse") => call(&[("handoff_poet", json!({"summary": "they like crabs"}))]),
        ("user", "skill") => call(&[("load_skill", json!({"name": "tidy"}))]),
        _ => Say::Text(format!("main: {said}")),
    }
}

fn scene(settings: &str) -> (ModelServer, Daemon) {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&(server.config() + settings));
    agent(&daemon, "keeper", "You keep.", "  uses_tools: [kv]\n");
    agent(&daemon, "poet", "You are the poet.", "  integration_mode: handoff\n");
    daemon.write("skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Keeps things tidy.\n---\nTidy up.\n");
    daemon.run();
    (server, daemon)
}

/// The replay of a session, which must find nothing.
fn the_same(daemon: &Daemon, session: &str) -> Value {
    let output = daemon.drupe(&["replay", session, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    for turn in report["turns"].as_array().expect("a list") {
        assert_eq!(turn["verdict"], "same", "{turn:#}");
    }
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    report
}

#[test]
fn what_was_recorded_gives_the_same_again_without_a_model() {
    let (server, daemon) = scene("");
    for text in [
        "hello",
        "fan out",
        "keep this",
        "plan it",
        "skill please",
        "verse one",
        "more",
        "weather now",
        "bye",
    ] {
        let turn = daemon.turn("s", text);
        assert_eq!(turn["status"], "success", "{text}: {turn}");
    }
    let turn = daemon.turn("s", "@keeper four");
    assert_eq!(turn["status"], "success", "{turn}");
    let asked = server.requests().len();
    let report = the_same(&daemon, "s");
    assert_eq!(server.requests().len(), asked, "no model is asked");
    let turns = report["turns"].as_array().expect("a list");
    assert_eq!(turns.len(), 10);
    let fan = &turns[1];
    assert_eq!((&fan["runs"], &fan["steps"], &fan["tool_calls"]), (&json!(3), &json!(6), &json!(5)), "{fan}");
    assert_eq!(turns[5]["runs"], 2, "both roots: {}", turns[5]);
    let shown = daemon.says(&["replay", "s", "--turn", "-1"]);
    assert!(
        shown.contains("the same, 1 run, 2 steps, 1 tool call") && shown.contains("1 the same, 0 with"),
        "{shown}"
    );
}

#[test]
fn a_call_that_was_agreed_to_one_that_was_not_and_a_restart_in_the_middle_give_the_same_again() {
    let stalls = Arc::new(AtomicBool::new(true));
    let stall = Arc::clone(&stalls);
    let server = ModelServer::start(move |request| {
        let (role, _) = latest(request);
        match role == "tool"
            && request.to_string().contains("keep slowly")
            && stall.swap(false, Ordering::SeqCst)
        {
            true => Say::Fail(Wire::Stall("a half")),
            false => model(request),
        }
    });
    let rules = "approvals:\n  rules:\n    - {tool: kv_set, then: ask}\n";
    let mut daemon = Daemon::home(&(server.config() + rules));
    daemon.run();
    for (text, verb) in [("keep one", "allow"), ("keep two", "deny")] {
        let turn = daemon.submit("s", text);
        answer(&daemon, verb);
        assert_eq!(daemon.wait(&turn)["status"], "success");
    }
    let turn = daemon.submit("s", "keep slowly");
    answer(&daemon, "allow");
    until("the model is asked again", || (!stalls.load(Ordering::SeqCst)).then_some(()));
    daemon.kill_kernel();
    daemon.until_ready();
    assert_eq!(daemon.wait(&turn)["status"], "success");
    let report = the_same(&daemon, "s");
    let remarks = report["turns"][2]["remarks"].to_string();
    assert!(remarks.contains("a restart cut one model call off"), "{report:#}");
    daemon.kill_all();
    the_same(&daemon, "s");
}

/// Answers the question that waits.
fn answer(daemon: &Daemon, verb: &str) {
    let id = until("a question waits", || {
        let all = daemon.client().ask("approvals.list", json!({})).expect("a list");
        let waits = all.as_array()?.iter().find(|one| one["state"] == "pending")?;
        waits["id"].as_str().map(str::to_owned)
    });
    daemon.says(&["approvals", verb, &id.expect("it waits")]);
}

#[test]
fn an_altered_result_is_the_first_difference() {
    let (_server, mut daemon) = scene("");
    for text in ["keep this", "hello", "fan out"] {
        assert_eq!(daemon.turn("s", text)["status"], "success");
    }
    daemon.says(&["stop"]);
    daemon.ended();
    alter(daemon.path(), |entry| {
        let is_it = entry["entry"] == "result" && entry["tool"] == "kv_set";
        if is_it {
            entry["content"] = json!("something else");
        }
        is_it
    });
    daemon.run();
    let output = daemon.drupe(&["replay", "s", "--turn", "1"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", text(&output.stderr));
    assert!(
        shown.contains("differs, 1 run")
            && shown.contains("of `orchestrator`, step 2: the request to the model"),
        "{shown}"
    );
    // All turns: the others are as they were.
    let output = daemon.drupe(&["replay", "s", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let verdicts: Vec<&str> = report["turns"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|turn| turn["verdict"].as_str())
        .collect();
    assert_eq!((verdicts, output.status.code()), (vec!["differs", "same", "same"], Some(1)), "{report:#}");
    let difference = &report["turns"][0]["difference"];
    assert_eq!(
        (&difference["agent"], &difference["step"]),
        (&json!("orchestrator"), &json!(2)),
        "{difference}"
    );
    // What is not there is said.
    for (args, part) in [
        (&["replay", "nobody"][..], "nothing here is called `nobody`"),
        (&["replay", "s", "--turn", "9"], "there is no turn 9"),
        (&["replay", "s", "--turn", "0"], "there is no turn 0"),
        (&["replay", "s", "--turn", "nothing"], "nothing here is called `nothing`"),
        (&["replay", "s", "--against", "nobody/none"], "nobody"),
    ] {
        let output = daemon.drupe(args);
        assert!(
            !output.status.success() && text(&output.stderr).contains(part),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
}

/// Changes the first record of a home that no daemon serves for which `change` says that it did.
fn alter(home: &Path, change: impl Fn(&mut Value) -> bool) {
    let db = rusqlite::Connection::open(home.join("journal.db")).expect("a journal");
    let mut rows =
        db.prepare("SELECT id, entries FROM log WHERE entries IS NOT NULL ORDER BY id").expect("a log");
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    let rows: Vec<(i64, String)> = rows.map(|row| row.expect("a row")).collect();
    for (id, entries) in rows {
        let mut entries: Value = serde_json::from_str(&entries).expect("entries");
        if entries.as_array_mut().expect("a list").iter_mut().any(&change) {
            let entries = entries.to_string();
            db.execute("UPDATE log SET entries = ?1 WHERE id = ?2", (entries, id)).expect("it is written");
            return;
        }
    }
    panic!("no record was changed");
}

#[test]
fn two_models_stand_side_by_side_and_nothing_is_done_a_second_time() {
    let server = ModelServer::start(|request| {
        let (role, _) = latest(request);
        let other = request["model"].as_str().is_some_and(|model| model.contains("other"));
        match (other, role.as_str(), task(request).as_str()) {
            // Another model keeps something else, and says more.
            (true, "user", "keep this") => call(&[
                ("kv_set", json!({"value": "keep this", "key": "a"})),
                ("kv_set", json!({"key": "new", "value": "1"})),
            ]),
            _ => model(request),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    agent(&daemon, "keeper", "You keep.", "  uses_tools: [kv]\n");
    agent(&daemon, "poet", "You are the poet.", "  integration_mode: handoff\n");
    daemon.run();
    for text in ["hello", "keep this", "fan out", "verse one"] {
        assert_eq!(daemon.turn("s", text)["status"], "success");
    }
    let output = daemon.drupe(&["replay", "s", "--against", "local/other", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    let turns = report["compared"].as_array().expect("a list");
    assert_eq!((turns.len(), output.status.code()), (4, Some(0)), "{report:#}");
    for turn in turns {
        assert_eq!(turn["recorded"]["models"], json!(["local/test"]), "{turn:#}");
        assert_eq!(turn["now"]["models"], json!(["local/other"]), "{turn:#}");
        assert_eq!(turn["now"]["status"], "success", "{turn:#}");
    }
    let keep = &turns[1];
    assert_eq!(keep["now"]["tools"], json!(["kv_set", "kv_set"]), "{keep:#}");
    assert_eq!((&keep["recorded"]["unknown_calls"], &keep["now"]["unknown_calls"]), (&json!(0), &json!(1)));
    assert_eq!(turns[3]["now"]["content"], "poet: verse one", "{:#}", turns[3]);
    // What the model wanted to keep was not kept.
    let kept = daemon.turn("look", "plan it").to_string();
    assert!(kept.contains("two") && !kept.contains("new"), "{kept}");
    // It was asked for real, and counts.
    let usage = daemon.json(&["usage", "--by", "model", "--json"]);
    let used = usage.as_array().expect("a list").iter().find(|row| row["key"] == "local/other");
    assert!(used.is_some_and(|row| row["calls"].as_u64() > Some(4)), "{usage}");
    let turn = keep["now"]["turn"].as_str().expect("a turn");
    assert!(daemon.says(&["trace", turn]).contains("local/other"));
    let shown = daemon.says(&["replay", "s", "--turn", "2", "--against", "local/other"]);
    for part in ["recorded", "now", "local/other", "sum", "1 call had no result in the recording"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    the_same(&daemon, "s");
    let output = daemon.drupe(&["replay", turn]);
    let said = text(&output.stdout);
    assert!(output.status.code() == Some(1) && said.contains("it is a comparison itself"), "{said}");
}

#[test]
fn a_comparison_that_a_crash_cuts_off_ends_and_is_not_gone_on_with() {
    let is_other = |request: &Value| request["model"].as_str().is_some_and(|model| model.contains("other"));
    let server = ModelServer::start(move |request| match is_other(request) {
        true => Say::Fail(Wire::Stall("a half")),
        false => model(request),
    });
    let daemon = Daemon::start(&server.config());
    assert_eq!(daemon.turn("s", "keep this")["status"], "success");
    let mut command = daemon.command(&["replay", "s", "--against", "local/other"]);
    let mut client = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("drupe starts");
    let asked = || server.requests().iter().filter(|request| is_other(request)).count();
    until("the other model is asked", || (asked() == 1).then_some(()));
    daemon.kill_kernel();
    client.wait().expect("the client ends");
    daemon.until_ready();
    let ended = until("it has its end", || {
        let sessions = daemon.client().ask("sessions.list", json!({})).ok()?;
        let mut ids = sessions.as_array()?.iter().filter_map(|session| session["id"].as_str());
        let id = ids.find(|id| id.starts_with("replay-"))?.to_owned();
        let shown = daemon.client().ask("sessions.show", json!({"id": id})).ok()?;
        let turn = shown["turns"].as_array()?.first()?.clone();
        turn["status"].is_string().then_some(turn)
    });
    let ended = ended.expect("it ends");
    assert_eq!((&ended["class"], asked()), (&json!("cancelled"), 1), "{ended:#}");
    the_same(&daemon, "s");
}
