//! What is done at set times: each slot once, whatever ends the kernel; who is told; and what failures come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

/// A model that does what the first line of its message names, and fails where that says `fail`.
fn model() -> ModelServer {
    ModelServer::start(|request| {
        let (role, text) = latest(request);
        let task = text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task);
        let line = task.lines().next().unwrap_or_default();
        let call = line.split_once(' ').and_then(|(tool, parameters)| {
            let parameters: Value = serde_json::from_str(parameters).ok()?;
            (role == "user" && parameters.is_object()).then(|| (tool.to_owned(), parameters))
        });
        match call {
            Some(call) => Say::Call(vec![call]),
            None if line.is_empty() => Say::Text("nothing".into()),
            None => Say::Text(format!("I did: {line}")),
        }
    })
}

/// What is known of a schedule's slots, the oldest first.
fn runs(daemon: &Daemon, id: &str) -> Vec<Value> {
    let detail = daemon.client().ask("schedules.show", json!({"id": id})).expect("a schedule");
    let mut runs = detail["runs"].as_array().expect("a list").clone();
    runs.reverse();
    runs
}

fn second(run: &Value, field: &str) -> i64 {
    let text = run[field].as_str().expect("a time");
    text.parse::<jiff::Timestamp>().expect("a time").as_second()
}

/// Waits for a run of that number in that state.
fn until_run(daemon: &Daemon, id: &str, count: usize, state: &str) -> Vec<Value> {
    let seen = || {
        Some(runs(daemon, id)).filter(|runs| runs.iter().filter(|run| run["state"] == state).count() >= count)
    };
    until("runs", seen).unwrap_or_else(|| panic!("{:?}\n{}", runs(daemon, id), daemon.log()))
}

/// An agent that adds a line to a file each second, and makes up for each second that was missed.
fn ticks_each_second(daemon: &Daemon, file: &Path) {
    daemon.plugin("tick", "faulty", "config: {prefix: tick, labels: {effect_append: [folder]}}\n");
    let task = format!("tick_effect_append {}", json!({"path": file, "nonce": "x"}));
    let manifest = json!({
        "id": "ticker", "name": "Ticker", "description": "Ticks.",
        "agent": {"model": "default", "instructions": "Do it.", "uses_tools": ["tick"]},
        "schedules": [{"name": "second", "cron": "@every 1s", "task": task, "notify": false, "misfire": "all", "max": 100}],
    });
    daemon.write("extensions/ticker/manifest.yaml", &manifest.to_string());
}

#[test]
fn each_slot_is_done_once_or_said_to_be_missed_over_kernels_that_are_killed() {
    let server = model();
    let effects = std::env::temp_dir().join(format!("schedules-{}", crate::harness::unique()));
    fs::create_dir_all(&effects).expect("a folder");
    let file = effects.join("ticks");
    let mut daemon = Daemon::home(&server.config());
    ticks_each_second(&daemon, &file);
    daemon.plugin("code", "watcher", "config: {schedules: [{name: beat, cron: '@every 1s'}]}\n");
    daemon.run();
    for kill in 1..=4 {
        until_run(&daemon, "ticker/second", kill, "done");
        daemon.kill_kernel();
    }
    until_run(&daemon, "ticker/second", 6, "done");
    until_run(&daemon, "code/beat", 3, "done");
    let mut client = daemon.client();
    for id in ["ticker/second", "code/beat"] {
        let paused = client.ask("schedules.pause", json!({"id": id, "pause": true})).expect("it is paused");
        assert_eq!((&paused["paused"], &paused["next"]), (&json!("operator paused it"), &Value::Null));
    }
    let open = |runs: &[Value]| runs.iter().any(|run| run["state"] == "waiting" || run["state"] == "running");
    for id in ["ticker/second", "code/beat"] {
        let over = until("what had begun ends", || {
            Some(runs(&daemon, id)).filter(|runs| {
                // What waits is not begun while it is paused.
                !runs.iter().any(|run| run["state"] == "running")
            })
        })
        .expect("runs");
        assert!(over.len() > 5 && (open(&over) || !over.is_empty()));
        for two in over.windows(2) {
            let end = if two[0]["last_slot"].is_null() { "slot" } else { "last_slot" };
            assert_eq!(second(&two[0], end) + 1, second(&two[1], "slot"), "no slot is passed over: {two:?}");
        }
        let turns: Vec<_> = over.iter().filter_map(|run| run["turn"].as_str()).collect();
        assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), turns.len(), "each has a turn of its own");
        let count = |state: &str| over.iter().filter(|run| run["state"] == state).count();
        let (ran, lines) = match id {
            "ticker/second" => (turns.len(), fs::read_to_string(&file).expect("a file").lines().count()),
            _ => {
                let told = daemon.path().join("data/code/schedules.jsonl");
                (count("done") + count("unknown"), fs::read_to_string(told).expect("a file").lines().count())
            }
        };
        assert!(
            lines >= count("done") && lines <= ran,
            "{lines} lines of {ran} runs, {} done",
            count("done")
        );
    }
    // What came meanwhile is said to be left out, and what comes is done.
    let last = second(runs(&daemon, "ticker/second").last().expect("a run"), "slot");
    until("a slot passes", || (jiff::Timestamp::now().as_second() > last + 2).then_some(()))
        .expect("time passes");
    daemon.says(&["schedule", "resume", "ticker/second"]);
    until_run(&daemon, "ticker/second", 8, "done");
    let paused =
        |run: &Value| run["state"] == "skipped" && run["detail"] == "it was paused" && run["slots"] != 0;
    assert!(runs(&daemon, "ticker/second").iter().any(paused), "{:?}", runs(&daemon, "ticker/second"));
    fs::remove_dir_all(effects).expect("it was made");
}

/// `cargo test -p drupe --test end_to_end schedules::two_hundred -- --ignored --nocapture`
#[test]
#[ignore = "it takes minutes"]
fn two_hundred_kills_at_any_moment_around_a_slot_make_none_fire_twice_and_pass_none_over() {
    let server = model();
    let mut daemon = Daemon::home(&server.config());
    let file = daemon.path().join("data/tick/ticks");
    ticks_each_second(&daemon, &file);
    daemon.run();
    until_run(&daemon, "ticker/second", 1, "done");
    let mut seen = BTreeMap::new();
    for kill in 0..200_u64 {
        // Anywhere in the second from one slot to the next.
        let into = kill * 37 % 1_000;
        until("that part of a second", || {
            let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("after 1970");
            (now % 1_000).abs_diff(into).lt(&30).then_some(())
        });
        daemon.kill_all();
        for run in runs(&daemon, "ticker/second") {
            seen.insert(second(&run, "slot"), run);
        }
    }
    until("what had begun ends", || {
        let all = runs(&daemon, "ticker/second");
        all.iter().all(|run| run["state"] != "running").then_some(())
    });
    for run in runs(&daemon, "ticker/second") {
        seen.insert(second(&run, "slot"), run);
    }
    let mut passed_over = 0;
    for two in seen.values().collect::<Vec<_>>().windows(2) {
        let end = if two[0]["last_slot"].is_null() { "slot" } else { "last_slot" };
        passed_over += i64::abs(second(two[0], end) + 1 - second(two[1], "slot"));
    }
    let lines = fs::read_to_string(&file).expect("a file");
    let effects: Vec<_> = lines.lines().filter_map(|line| line.split(' ').next()).collect();
    let different = effects.iter().collect::<BTreeSet<_>>().len();
    let turns: Vec<_> = seen.values().filter_map(|run| run["turn"].as_str()).collect();
    let different_turns = turns.iter().collect::<BTreeSet<_>>().len();
    println!(
        "200 kills: {} runs of slots, {passed_over} seconds passed over in silence; {} turns, {different_turns} different; \
         {} effects, {different} different",
        seen.len(),
        turns.len(),
        effects.len(),
    );
    assert_eq!((passed_over, different, different_turns), (0, effects.len(), turns.len()));
    assert!(effects.len() <= turns.len());
}

#[test]
fn what_a_person_adds_is_done_in_a_session_of_its_own_asks_nobody_and_is_told_where_they_are() {
    let server = model();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin(
        "wipe",
        "faulty",
        "config: {prefix: wipe, labels: {effect_append: [destructive, folder]}}\n",
    );
    daemon.run();
    daemon.turn("desk", "hello");
    let effects = std::env::temp_dir().join(format!("schedules-{}", crate::harness::unique()));
    let wipe = format!("wipe_effect_append {}", json!({"path": effects, "nonce": "x"}));
    daemon.says(&["schedule", "add", "tea", "0 16 * * *", "drink tea", "--timezone", "Europe/Berlin"]);
    daemon.says(&["schedule", "add", "wipe", "@daily", &wipe]);
    let told = |text: &str| {
        daemon.events("desk").iter().any(|event| {
            event["data"]["code"] == "notice"
                && event["data"]["message"].as_str().is_some_and(|m| m.contains(text))
        })
    };
    daemon.says(&["schedule", "run", "tea"]);
    let tea = until_run(&daemon, "tea", 1, "done");
    until("the answer is shown", || told("`tea`: I did: drink tea").then_some(()))
        .unwrap_or_else(|| panic!("{:?}", daemon.events("desk")));
    let turn = tea[0]["turn"].as_str().expect("a turn");
    let result = daemon.wait(turn);
    assert!(
        result["session"].as_str().is_some_and(|session| session.starts_with("schedule:tea:")),
        "{result}"
    );
    assert!(
        result["input"]
            .as_str()
            .is_some_and(|text| text.starts_with("drink tea\n\n(The schedule `tea` asks for this"))
    );
    // Nobody is there who could be asked.
    daemon.says(&["schedule", "run", "wipe"]);
    let wiped = until_run(&daemon, "wipe", 1, "done");
    let result = daemon.wait(wiped[0]["turn"].as_str().expect("a turn"));
    assert!(result.to_string().contains("nobody"), "{result}");
    assert!(!effects.exists(), "it did not run");
    let list = daemon.says(&["schedule"]);
    assert!(list.contains("0 16 * * * (Europe/Berlin)") && list.contains("next "), "{list}");
    let shown = daemon.says(&["schedule", "show", "tea"]);
    assert!(shown.contains("made by operator") && shown.contains("done"), "{shown}");
    daemon.says(&["schedule", "pause", "tea"]);
    for (arguments, says) in [
        (&["schedule", "run", "tea"][..], "is paused: operator paused it"),
        (&["schedule", "add", "tea", "@daily", "x"], "there is a schedule `tea` already"),
        (&["schedule", "add", "Tea", "@daily", "x"], "no name of a schedule"),
        (&["schedule", "add", "past", "2020-01-01 08:00", "x"], "is past"),
        (&["schedule", "add", "odd", "whenever", "x"], "@every 30m"),
        (&["schedule", "remove", "nothing"], "there is no schedule `nothing`"),
    ] {
        let output = daemon.drupe(arguments);
        let error = crate::harness::text(&output.stderr);
        assert!(!output.status.success() && error.contains(says), "{arguments:?}: {error}");
    }
    daemon.says(&["schedule", "resume", "tea"]);
    daemon.says(&["schedule", "remove", "tea"]);
    assert!(!daemon.says(&["schedule"]).contains("tea"));
}

#[test]
fn failures_are_told_once_hold_back_what_follows_and_pause_the_schedule_after_five() {
    let server = model();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin(
        "code",
        "watcher",
        "config: {schedules: [{name: beat, cron: '@yearly'}], fail_schedules: true}\n",
    );
    daemon.run();
    daemon.turn("desk", "hello");
    for failures in 1..=5 {
        daemon.says(&["schedule", "run", "code/beat"]);
        until_run(&daemon, "code/beat", failures, "failed");
    }
    let detail = daemon.json(&["schedule", "show", "code/beat", "--json"]);
    assert_eq!(detail["failures"], 5);
    assert!(
        detail["paused"].as_str().is_some_and(|why| why.starts_with("5 runs in a row failed")),
        "{detail}"
    );
    assert!(detail["held_until"].is_string());
    let notices = || {
        let events = daemon.events("desk");
        let notices = events.iter().filter(|event| event["data"]["code"] == "notice");
        notices
            .map(|event| event["data"]["message"].as_str().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let two =
        until("both are told", || Some(notices()).filter(|notices| notices.len() >= 2)).expect("notices");
    assert_eq!(two.len(), 2, "{two:?}");
    assert!(two[0].contains("it failed") && two[1].contains("it is paused"), "{two:?}");
    let resumed = daemon.json(&["schedule", "resume", "code/beat", "--json"]);
    assert_eq!((&resumed["failures"], &resumed["paused"]), (&json!(0), &Value::Null));
}

#[test]
fn a_schedule_looks_by_a_tool_before_a_model_is_asked() {
    let server = model();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("post", "faulty", "config: {prefix: post}\n");
    let clerk = |only_if: &[(&str, Value)]| {
        let schedules = only_if.iter().map(|(name, only_if)| {
            json!({"name": name, "cron": "@yearly", "task": "tell of it", "only_if": only_if})
        });
        json!({
            "id": "clerk", "name": "Clerk", "description": "Files.", "schedules": schedules.collect::<Vec<_>>(),
            "agent": {"model": "default", "instructions": "Do it.", "uses_tools": ["post"]},
        })
    };
    // It gives back its parameters.
    let echo = |params: Value| json!({"tool": "post_echo", "params": params});
    daemon.write(
        "extensions/clerk/manifest.yaml",
        &clerk(&[("idle", echo(json!({}))), ("busy", echo(json!({"letter": "from home"})))]).to_string(),
    );
    daemon.run();
    let shown = daemon.says(&["schedule", "show", "clerk/busy"]);
    assert!(
        shown.contains(r#"only where this gives something: post_echo {"letter":"from home"}"#),
        "{shown}"
    );
    daemon.says(&["schedule", "run", "clerk/idle"]);
    let idle = until_run(&daemon, "clerk/idle", 1, "done");
    assert_eq!(idle[0]["detail"], "there was nothing to do");
    assert_eq!(server.requests().len(), 0, "there was nothing to ask about");
    daemon.says(&["schedule", "run", "clerk/busy"]);
    until_run(&daemon, "clerk/busy", 1, "done");
    let asked = json!(server.requests()).to_string();
    assert!(server.requests().len() == 1 && asked.contains("from home"), "{asked}");
    for (only_if, why) in [
        (json!({"tool": "kv_get"}), "`kv_get` is none of its agent's tools"),
        (json!({"tool": "post_slow", "params": {"ms": "x"}}), "`only_if` of its schedule `bad` cannot be"),
    ] {
        daemon.write("extensions/clerk/manifest.yaml", &clerk(&[("bad", only_if)]).to_string());
        let told = until("it is refused", || {
            let (_, reason) = daemon.extension("clerk");
            reason.contains(why).then_some(())
        });
        assert!(told.is_some(), "{:?}\n{}", daemon.extension("clerk"), daemon.log());
    }
}

#[test]
fn a_model_schedules_for_people_of_the_daemon_alone_and_in_their_conversation() {
    let server = model();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("pages", "faulty", "config: {prefix: pages, labels: {echo: [reads_untrusted]}}\n");
    let clerk = json!({"id": "clerk", "name": "Clerk", "description": "Files.", "agent":
        {"model": "default", "instructions": "Do it.", "uses_tools": ["scheduler"]}});
    daemon.write("extensions/clerk/manifest.yaml", &clerk.to_string());
    daemon.run();
    let add = |name: &str, task: &str| {
        format!("scheduler_add {}", json!({"name": name, "when": "@daily", "task": task}))
    };
    let content = |result: &Value| result["content"].as_str().expect("text").to_owned();
    let added = content(&daemon.turn("desk", &add("tea", "drink tea")));
    assert!(added.contains("\"next\""), "{added}");
    assert!(content(&daemon.turn("desk", "scheduler_list {}")).contains("drink tea"));
    // What another conversation has is its own.
    assert_eq!(content(&daemon.turn("other", "scheduler_list {}")), "I did: []");
    let theirs = content(&daemon.turn("other", "scheduler_remove {\"name\": \"tea\"}"));
    assert!(theirs.contains("there is no schedule `tea`"), "{theirs}");
    let often = json!({"name": "often", "when": "@every 10s", "task": "x"});
    assert!(
        content(&daemon.turn("desk", &format!("scheduler_add {often}"))).contains("more than once a minute")
    );
    // What a schedule has set off adds none, and neither does the bearer of a token.
    daemon.says(&["schedule", "add", "breed", "@daily", &add("child", "x")]);
    daemon.says(&["schedule", "run", "breed"]);
    let bred = until_run(&daemon, "breed", 1, "done");
    let denied = content(&daemon.wait(bred[0]["turn"].as_str().expect("a turn")));
    assert!(denied.contains("are for people that the daemon belongs to"), "{denied}");
    let made = daemon.json(&["token", "new", "ci", "--may", "read,submit,direct,inspect", "--json"]);
    let home = drupe_link::Home::new(daemon.path()).expect("a home");
    let token = made["token"].as_str().expect("a token");
    let mut ci = crate::harness::Client::with_token(&home, token).expect("it is let in");
    let message = json!({"session": "token.ci:1", "external_id": "1", "text": add("sly", "x")});
    let turn = ci.ask("turn.submit", message).expect("it is taken in");
    let denied = content(&daemon.wait(turn["turn"].as_str().expect("a turn")));
    assert!(denied.contains("are for people that the daemon belongs to"), "{denied}");
    let mine = json!({"name": "mine", "when": "in 20m", "task": "x", "session": "token.ci:1"});
    let added = daemon.client().ask("schedules.add", mine).expect("the operator may");
    assert!(added["next"].is_string(), "{added}");
    for method in ["schedules.run", "schedules.remove"] {
        let denied = ci.ask(method, json!({"id": "mine"})).expect_err("it would be the operator's expense");
        assert!(denied.contains("operate"), "{denied}");
    }
    daemon.says(&["schedule", "remove", "mine"]);
    let sly = json!({"name": "sly", "when": "@daily", "task": "x", "session": "token.ci:1"});
    assert!(ci.ask("schedules.add", sly).expect_err("it may not").contains("operate"));
    assert_eq!(ci.ask("schedules.list", json!({})).expect("it may look"), json!([]), "nothing of others");
    // What an agent schedules is done by it, and by nobody who may do more.
    content(&daemon.turn("desk", &format!("@clerk {}", add("filing", "x"))));
    assert_eq!(daemon.json(&["schedule", "show", "filing", "--json"])["agent"], "clerk");
    // Once strangers were read, a person is asked first.
    daemon.turn("desk", "pages_echo {\"value\": \"what a page says\"}");
    let asked = daemon.submit("desk", &add("planted", "x"));
    let question = until("a question waits", || {
        let list = daemon.client().ask("approvals.list", json!({})).expect("a list");
        list.as_array()?.iter().find(|one| one["call"].is_object() && one["state"] == "pending").cloned()
    });
    let question = question.unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(question.to_string().contains("keeps what other conversations are given"), "{question}");
    daemon.says(&["approvals", "deny", question["id"].as_str().expect("an id")]);
    daemon.wait(&asked);
    let ids: Vec<_> = daemon
        .json(&["schedule", "--json"])
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(ids, ["breed", "filing", "tea"]);
}

#[test]
fn no_more_runs_go_on_at_a_time_than_the_configuration_says() {
    let server = model();
    let mut daemon = Daemon::home(&(server.config() + "schedules: {at_once: 1}\n"));
    daemon.plugin("hold", "watcher", "config: {prefix: hold}\n");
    daemon.run();
    let file = daemon.path().join("go-on");
    let hold = format!("hold_hold {}", json!({"until": file}));
    daemon.says(&["schedule", "add", "first", "@daily", &hold]);
    daemon.says(&["schedule", "add", "second", "@daily", "drink tea"]);
    daemon.says(&["schedule", "run", "first"]);
    until_run(&daemon, "first", 1, "running");
    daemon.says(&["schedule", "run", "second"]);
    daemon.turn("desk", "looked at meanwhile");
    assert_eq!(runs(&daemon, "second")[0]["state"], "waiting");
    let again = daemon.drupe(&["schedule", "run", "first"]);
    assert!(crate::harness::text(&again.stderr).contains("is at work already"));
    fs::write(&file, "").expect("a file");
    until_run(&daemon, "second", 1, "done");
    assert_eq!(runs(&daemon, "first")[0]["state"], "done");
}
