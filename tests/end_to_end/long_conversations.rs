//! Conversations that are longer than what a model is told of them whole.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    unique, until,
    wire::Wire,
};

/// What a model is asked for that sums a conversation up.
pub fn is_for_a_summary(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|text| text.starts_with("You sum up the history"))
}

fn summaries(server: &ModelServer) -> Vec<String> {
    server.requests().iter().filter(|request| is_for_a_summary(request)).map(Value::to_string).collect()
}

/// Repeats what it is told, and sums up what it knows of a boat.
fn model(request: &Value) -> Say {
    let text = request.to_string();
    match is_for_a_summary(request) {
        true if text.contains("called Grün") => Say::Text("There is a boat, called Grün.".into()),
        true => Say::Text("Nothing but weather.".into()),
        false => {
            let (_, text) = latest(request);
            Say::Text(text.rsplit_once("\n\nTask:\n").map_or(text.clone(), |(_, task)| task.to_owned()))
        }
    }
}

fn day(nth: u32) -> String {
    match nth {
        7 => "Anna's boat is called Grün".to_owned(),
        _ => format!("the weather of day {nth} is fine"),
    }
}

#[test]
fn what_is_older_than_twenty_turns_is_summed_up_once_and_told_in_short() {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&server.config());
    daemon.write("extensions/haiku.md", "---\ndescription: Writes haikus.\n---\nYou write haikus.\n");
    daemon.run();
    let tokens = |turn: &Value| turn["spend"]["usage"]["input_tokens"].clone();
    for nth in 1..=45 {
        let turn = daemon.turn("s", &day(nth));
        assert_eq!(turn["content"], day(nth));
        let calls = if [31, 41].contains(&nth) { 2 } else { 1 };
        assert_eq!(
            (tokens(&turn), &turn["spend"]["turns"]),
            (json!(50 * calls), &json!(1)),
            "turn {nth}: {turn}"
        );
    }
    let asked = summaries(&server);
    assert_eq!(asked.len(), 2, "once for ten turns");
    for (request, from, to) in [(&asked[0], 1, 10), (&asked[1], 11, 20)] {
        let holds = |nth: u32| request.contains(&day(nth));
        assert!((from..=to).all(holds) && !holds(to + 1), "{request}");
    }
    assert!(
        asked[1].contains("There is a boat, called Grün."),
        "what was summed up before goes on: {}",
        asked[1]
    );
    let told = server.requests().last().expect("one").to_string();
    assert!(
        told.contains("Summary of what came before") && told.contains("There is a boat, called Grün."),
        "{told}"
    );
    assert!((21..=45).all(|nth| told.contains(&day(nth))) && !told.contains(&day(20)), "{told}");
    assert_eq!(shown(&daemon)["summary"], "There is a boat, called Grün.");
    assert!(daemon.says(&["session", "show", "s"]).contains("There is a boat, called Grün."));
    // The summary is none of what two models are compared by: the other one makes none.
    let report = daemon.json(&["replay", "s", "--turn", "41", "--against", "local/other", "--json"]);
    let compared = &report["compared"][0];
    assert!(compared["recorded"]["tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{report:#}");
    assert_eq!(compared["recorded"]["tokens"], compared["now"]["tokens"], "{report:#}");
    daemon.turn("s", "@haiku a boat");
    let told = server.requests().last().expect("one").to_string();
    assert!(told.contains("called Grün.") && told.contains(&day(45)) && !told.contains(&day(30)), "{told}");
    is_the_same(&daemon);
}

#[test]
fn nothing_is_summed_up_where_that_is_turned_off_or_no_model_answers() {
    let server = ModelServer::start(model);
    let off = "orchestrator: {summarise_history: false}\n";
    for config in [server.config() + off, String::new()] {
        let mut daemon = Daemon::home(&config);
        daemon.run();
        (1..=34).for_each(|nth| drop(daemon.turn("s", &day(nth))));
        let shown =
            daemon.client().ask("sessions.show", json!({"id": "s", "brief": true})).expect("a session");
        assert!(shown["summary"].is_null() && shown["turns"][33]["spend"]["turns"] == 1, "{shown}");
    }
    assert_eq!(summaries(&server), [""; 0]);
}

fn shown(daemon: &Daemon) -> Value {
    daemon.client().ask("sessions.show", json!({"id": "s", "brief": true})).expect("a session")
}

fn is_the_same(daemon: &Daemon) {
    let report = daemon.json(&["replay", "s", "--json"]);
    let turns = report["turns"].as_array().expect("a list");
    assert!(turns.iter().all(|turn| turn["verdict"] == "same"), "{report:#}");
}

#[test]
fn an_answer_stands_where_no_summary_comes_of_it_and_what_was_known_stays() {
    let said = Arc::new(Mutex::new("401"));
    let now = Arc::clone(&said);
    let server = ModelServer::start(move |request| {
        match (is_for_a_summary(request), *now.lock().expect("no panic")) {
            (false, _) => model(request),
            (true, "401") => Say::Fail(Wire::Status(401, "no")),
            (true, "cut off") => Say::Length("Nothing but".into()),
            (true, words) => Say::Text(words.into()),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    let asked = |from: u32, to: u32| {
        let before = summaries(&server).len();
        for nth in from..=to {
            let turn = daemon.turn("s", &day(nth));
            assert_eq!((&turn["content"], &turn["status"]), (&json!(day(nth)), &json!("success")));
            assert!(
                turn["invocations"][0]["turns_used"] == 1 && !turn.to_string().contains("answer_cut"),
                "{turn}"
            );
            let is_told = turn["diagnostics"].to_string().contains("conversation_not_summarised");
            assert_eq!(
                is_told,
                nth == to && *said.lock().expect("no panic") != "whole",
                "turn {nth}: {turn}"
            );
        }
        summaries(&server).len() - before
    };
    assert_eq!(asked(1, 31), 1);
    // Not again with each turn, whatever was wrong with it.
    for (words, to) in [("cut off", 40), (" ", 49)] {
        *said.lock().expect("no panic") = words;
        assert_eq!(asked(to - 8, to), 1, "{words}");
        assert!(shown(&daemon)["summary"].is_null());
    }
    *said.lock().expect("no panic") = "whole";
    assert_eq!(asked(50, 58), 1);
    assert_eq!(shown(&daemon)["summary"], "whole");
    let last = summaries(&server).pop().expect("one");
    assert!((1..=37).all(|nth| last.contains(&day(nth))) && !last.contains(&day(38)), "{last}");
    is_the_same(&daemon);
}

#[test]
fn long_turns_are_summed_up_too_and_what_one_client_bounds_is_no_bound_of_that() {
    let server = ModelServer::start(model);
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    for nth in 1..=13 {
        let text = format!("{} {}", day(nth), "x".repeat(5_900));
        let carried = json!({"parameters": {"max_output_tokens": 64}});
        let submit =
            json!({"external_id": unique(), "session": "s", "channel": "", "text": text, "carried": carried});
        let turn = daemon.client().ask("turn.submit", submit).expect("it is taken in");
        assert_eq!(daemon.wait(turn["turn"].as_str().expect("an id"))["status"], "success");
    }
    let asked = summaries(&server);
    assert_eq!(asked.len(), 3, "once for three of them");
    assert!(asked.iter().all(|request| request.contains(r#""max_tokens":4000"#)));
    assert!(asked[0].contains(&day(3)) && !asked[0].contains(&day(4)) && asked[1].contains(&day(4)));
    let told = server.requests().last().expect("one").to_string();
    assert!(
        told.contains("There is a boat") && told.contains(&day(12)) && told.len() < 70_000,
        "{}",
        told.len()
    );
}

#[test]
fn rules_do_not_stand_in_for_a_model_that_fails_to_sum_up() {
    let server = ModelServer::start(|request| match is_for_a_summary(request) {
        true => Say::Fail(Wire::Status(401, "no")),
        false => model(request),
    });
    let config = server.config().replace("default: local/test", "default: [local/test, offline]");
    let mut daemon = Daemon::home(&config);
    daemon.run();
    (1..=31).for_each(|nth| drop(daemon.turn("s", &day(nth))));
    assert_eq!(summaries(&server).len(), 1);
    assert!(shown(&daemon)["summary"].is_null(), "{}", shown(&daemon));
}

#[test]
fn a_restart_while_older_turns_are_summed_up_loses_and_repeats_no_answer() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = ModelServer::start(move |request| {
        if is_for_a_summary(request) && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            loop {
                std::thread::park();
            }
        }
        model(request)
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    (1..=30).for_each(|nth| drop(daemon.turn("s", &day(nth))));
    let turn = daemon.submit("s", &day(31));
    until("a summary is asked for", || (asked.load(Ordering::SeqCst) == 1).then_some(())).expect("it is");
    daemon.kill_kernel();
    daemon
        .until_status("the second kernel", |status| status["state"] == "ready" && status["generation"] == 2);
    let ended = daemon.wait(&turn);
    assert_eq!((&ended["content"], &ended["status"]), (&json!(day(31)), &json!("success")), "{ended}");
    let answers = server.requests().iter().filter(|request| latest(request).1.contains(&day(31))).count();
    assert_eq!((answers, asked.load(Ordering::SeqCst)), (1, 2), "the answer is asked for once");
    assert_eq!(shown(&daemon)["summary"], "There is a boat, called Grün.");
}

#[test]
fn a_drain_gives_up_a_summary_at_once_and_a_later_turn_makes_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = ModelServer::start(move |request| {
        if is_for_a_summary(request) && counted.fetch_add(1, Ordering::SeqCst) < 2 {
            loop {
                std::thread::park();
            }
        }
        model(request)
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.run();
    (1..=30).for_each(|nth| drop(daemon.turn("s", &day(nth))));
    for (nth, verb) in [(31, "restart"), (32, "stop")] {
        let turn = daemon.submit("s", &day(nth));
        daemon.until_status("a summary is being made", |status| status["summing_up"] == 1);
        let told = daemon.says(&["status"]);
        assert!(told.contains("1 turn has its answer and sums older ones up"), "{told}");
        let trace = daemon.json(&["trace", &turn, "--json"]);
        assert_eq!(trace[0]["spend"]["turns"], 1, "it is no step while it is made, too: {trace}");
        let began = Instant::now();
        daemon.says(&[verb]);
        if verb == "stop" {
            assert_eq!(daemon.ended(), Some(0));
            daemon.run();
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "nobody waits for a summary: {:?}",
            began.elapsed()
        );
        let ended = daemon.wait(&turn);
        assert_eq!((&ended["content"], &ended["status"]), (&json!(day(nth)), &json!("success")), "{ended}");
        assert!(ended["diagnostics"].to_string().contains("the daemon ends"), "{ended}");
        let again = server.requests().iter().filter(|request| latest(request).1.contains(&day(nth))).count();
        assert_eq!(again, 1, "the answer is asked for once");
    }
    daemon.turn("s", &day(33));
    assert_eq!(asked.load(Ordering::SeqCst), 3, "the next turn goes on with it");
    assert_eq!(shown(&daemon)["summary"], "There is a boat, called Grün.");
    is_the_same(&daemon);
}
