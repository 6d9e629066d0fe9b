//! Conversations that the orchestrator hands to an agent: who answers, what each of them is told, and how it comes back.

mod faults;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
    wire::Wire,
};

const POET: &str = "You are the poet.";

fn manifest(more: &str) -> String {
    format!(
        "id: poet\nname: Poet\ndescription: Writes verses with people.\nagent:\n  model: default\n  integration_mode: handoff\n  \
         instructions: {POET}\n{more}"
    )
}

fn is_poet(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(POET))
}

/// What the user said last, as the model is told it.
fn task(request: &Value) -> String {
    let (_, text) = latest(request);
    text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned()
}

/// The orchestrator hands verses over; the poet gives back what is none of its business, and fails where it is told to.
fn model(request: &Value) -> Say {
    let (role, _) = latest(request);
    let said = task(request);
    let call = |name: &str, params: Value| Say::Call(vec![(name.to_owned(), params)]);
    match (is_poet(request), role.as_str(), said.split(' ').next().unwrap_or_default()) {
        (false, "user", "verse") => call("handoff_poet", json!({"summary": "they like crabs"})),
        (true, "user", "weather") => call("return_control", json!({"summary": "two verses were made"})),
        (true, "user", "bye") => {
            call("return_control", json!({"summary": "all is done", "answer": "farewell"}))
        }
        (true, "user", "fail") => Say::Fail(Wire::Status(400, "no verse today")),
        (true, "user", "kv") => call("kv_set", json!({"key": "a", "value": "b"})),
        (true, ..) => Say::Text(format!("poet: {said}")),
        (false, ..) => Say::Text(format!("main: {said}")),
    }
}

fn daemon(server: &ModelServer, more: &str, settings: &str) -> Daemon {
    let mut daemon = Daemon::home(&(server.config() + settings));
    daemon.write("extensions/poet/manifest.yaml", &manifest(more));
    daemon.run();
    daemon
}

fn says(daemon: &Daemon, session: &str, text: &str) -> String {
    let turn = daemon.turn(session, text);
    assert_eq!(turn["status"], "success", "{turn}");
    turn["content"].as_str().expect("text").to_owned()
}

fn handoff(daemon: &Daemon, session: &str) -> Value {
    daemon.client().ask("sessions.show", json!({"id": session})).expect("it is there")["handoff"].clone()
}

/// The whole of the last request, as text.
fn last_request(server: &ModelServer) -> String {
    server.requests().last().expect("one was made").to_string()
}

#[test]
fn a_conversation_goes_to_an_agent_which_has_it_over_a_restart_until_it_gives_it_back() {
    let server = ModelServer::start(model);
    let daemon = daemon(&server, "", "");
    assert_eq!(says(&daemon, "s", "before"), "main: before");
    let turn = daemon.turn("s", "verse one");
    assert_eq!(turn["content"], "poet: verse one", "{turn}");
    let runs = turn["invocations"].as_array().expect("a list");
    let of = |run: &Value| (run["agent"].as_str().map(str::to_owned), run["depth"].as_u64());
    let runs: Vec<_> = runs.iter().map(of).collect();
    assert_eq!(runs, [(Some("orchestrator".into()), Some(0)), (Some("poet".into()), Some(0))]);
    let seen = last_request(&server);
    assert!(seen.contains("they like crabs") && !seen.contains("before"), "{seen}");
    assert_eq!(says(&daemon, "s", "more"), "poet: more");
    assert!(last_request(&server).contains("poet: verse one"), "it knows its part");
    daemon.kill_kernel();
    daemon.until_ready();
    assert_eq!(says(&daemon, "s", "still"), "poet: still");
    let has = handoff(&daemon, "s");
    assert_eq!((&has["agent"], &has["turns"]), (&json!("poet"), &json!(3)), "{has}");
    // What is none of its business the orchestrator answers, with the same message.
    assert_eq!(says(&daemon, "s", "weather"), "main: weather");
    let seen = last_request(&server);
    assert!(
        seen.contains("it gave the conversation back") && seen.contains("two verses were made"),
        "{seen}"
    );
    assert!(!seen.contains("handoff_poet"), "it is not handed over again at once: {seen}");
    assert_eq!(handoff(&daemon, "s"), Value::Null);
    assert_eq!(says(&daemon, "s", "plain"), "main: plain");
    assert!(!last_request(&server).contains("two verses were made"), "it was told once");
    let events = daemon.events("s");
    let kinds = ["interaction.handoff.started", "interaction.handoff.ended"];
    let counted = kinds.map(|kind| events.iter().filter(|event| event["kind"] == kind).count());
    assert_eq!(counted, [1, 1]);
    // The others are not touched by it.
    assert_eq!(says(&daemon, "other", "hello"), "main: hello");
    let shown = daemon.says(&["session", "show", "s"]);
    assert!(shown.contains("@poet") && shown.contains("poet: verse one"), "{shown}");
    let turn = daemon.submit("s", "verse again");
    daemon.wait(&turn);
    let why = daemon.says(&["why", &turn]);
    assert!(why.contains("The conversation was handed to `poet`"), "{why}");
    let trace = daemon.says(&["trace", "s"]);
    assert!(trace.contains("poet") && trace.contains("orchestrator"), "{trace}");
}

#[test]
fn it_comes_back_by_each_way_there_is_and_the_orchestrator_is_told_which() {
    let server = ModelServer::start(model);
    let daemon = daemon(&server, "  handoff: {max_turns: 3}\n", "");
    let told = |says: &str| {
        let seen = last_request(&server);
        assert!(seen.contains(says), "{says}: {seen}");
    };
    // The user asks for it, alone and with a message.
    assert_eq!(says(&daemon, "a", "verse"), "poet: verse");
    let back = says(&daemon, "a", "/back");
    assert!(back.starts_with("You talk with ") && back.ends_with(" again."), "{back}");
    assert_eq!(says(&daemon, "a", "hello"), "main: hello");
    told("the user asked for the conversation back");
    assert_eq!(says(&daemon, "a", "verse"), "poet: verse");
    assert_eq!(says(&daemon, "a", "/back hello"), "main: hello");
    // Whoever has it already is asked like for anything else.
    assert_eq!(says(&daemon, "a", "/back hello"), "main: /back hello");
    // The agent has the last word.
    assert_eq!(says(&daemon, "b", "verse"), "poet: verse");
    assert_eq!(says(&daemon, "b", "bye"), "farewell");
    assert_eq!(says(&daemon, "b", "hello"), "main: hello");
    told("all is done");
    // It fails, and the message is answered all the same.
    assert_eq!(says(&daemon, "c", "verse"), "poet: verse");
    assert_eq!(says(&daemon, "c", "fail"), "main: fail");
    told("it failed: ");
    // It has answered as often as it may.
    for text in ["verse", "two", "three"] {
        assert_eq!(says(&daemon, "d", text), format!("poet: {text}"));
    }
    assert_eq!(says(&daemon, "d", "four"), "main: four");
    told("it has answered 3 messages");
    // The operator chooses who answers.
    assert_eq!(says(&daemon, "e", "verse"), "poet: verse");
    daemon.client().ask("session.select", json!({"session": "e"})).expect("it is given back");
    assert_eq!(handoff(&daemon, "e"), Value::Null);
    assert!(daemon.events("e").iter().any(|event| event["kind"] == "interaction.handoff.ended"));
    assert_eq!(says(&daemon, "e", "hello"), "main: hello");
    told("it was chosen from outside who answers");
    // A message to somebody in particular leaves it where it is.
    assert_eq!(says(&daemon, "f", "verse"), "poet: verse");
    assert_eq!(says(&daemon, "f", "@poet aside"), "poet: aside");
    assert_eq!(handoff(&daemon, "f")["turns"], 1);
    // It is gone.
    daemon.client().ask("extensions.disable", json!({"id": "poet"})).expect("it is turned off");
    assert_eq!(says(&daemon, "f", "hello"), "main: hello");
    told("it is not there any more");
}

#[test]
fn a_turn_that_is_cut_off_while_the_agent_takes_over_goes_on_there() {
    let stalls = Arc::new(AtomicBool::new(true));
    let stall = Arc::clone(&stalls);
    let server = ModelServer::start(move |request| match is_poet(request) {
        true if stall.swap(false, Ordering::SeqCst) => Say::Fail(Wire::Stall("a half")),
        _ => model(request),
    });
    let daemon = daemon(&server, "", "");
    let turn = daemon.submit("s", "verse one");
    until("the poet is asked", || server.requests().iter().any(is_poet).then_some(()));
    daemon.kill_kernel();
    daemon.until_ready();
    let ended = daemon.wait(&turn);
    assert_eq!(ended["content"], "poet: verse one", "{ended}");
    let asked = server.requests();
    assert_eq!(asked.iter().filter(|request| !is_poet(request)).count(), 1, "the orchestrator decided once");
    assert_eq!(asked.iter().filter(|request| is_poet(request)).count(), 2);
    assert_eq!(says(&daemon, "s", "more"), "poet: more");
}

#[test]
fn who_has_the_conversation_may_do_no_more_than_who_handed_it_over() {
    let server = ModelServer::start(model);
    let rules = "approvals: {rules: [{tool: kv_set, agent: orchestrator, then: deny}]}\n";
    let daemon = daemon(&server, "  uses_tools: [kv]\n", rules);
    // Chosen by the user it may.
    let direct = daemon.turn("a", "@poet kv");
    assert!(!direct["content"].as_str().expect("text").contains("is refused"), "{direct}");
    assert_eq!(says(&daemon, "b", "verse"), "poet: verse");
    let handed = daemon.turn("b", "kv");
    assert!(handed["content"].as_str().expect("text").contains("`kv_set` is refused"), "{handed}");
}

#[test]
fn an_agent_that_is_code_has_each_message_with_its_part_and_gives_it_back_by_its_response() {
    let server = ModelServer::start(|request| {
        let said = task(request);
        let thinks =
            request["messages"][0]["content"].as_str().is_some_and(|text| text.contains("You think."));
        let call = |name: &str, params: Value| Say::Call(vec![(name.to_owned(), params)]);
        match (thinks, said.as_str()) {
            (false, "stay") => call("handoff_companion", json!({"summary": "they are bored"})),
            (true, "think") => call("return_control", json!({"summary": "it was thought about"})),
            (_, said) => Say::Text(format!("main: {said}")),
        }
    });
    let mut daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: all}\n"));
    let section = "description: Keeps people company.\nagent: {integration_mode: handoff, model: default, instructions: You think.}\n";
    daemon.plugin("companion", "companion", section);
    daemon.run();
    daemon.until_extension("companion", "active");
    assert_eq!(says(&daemon, "s", "stay"), "companion: stay, having been told: they are bored");
    let second = says(&daemon, "s", "more");
    let parts =
        ["companion: more", "they are bored", "the user said: stay", "the answer was: companion: stay"];
    assert!(parts.iter().all(|part| second.contains(part)), "{second}");
    assert_eq!(says(&daemon, "s", "bye"), "farewell");
    assert_eq!(says(&daemon, "s", "hello"), "main: hello");
    assert!(last_request(&server).contains("all is done"));
    says(&daemon, "s", "stay");
    assert_eq!(says(&daemon, "s", "weather"), "main: weather");
    assert!(last_request(&server).contains("they want to know the weather"));
    // The loop that its code runs gives it back in the same way.
    says(&daemon, "s", "stay");
    assert_eq!(says(&daemon, "s", "think"), "main: think");
    assert!(last_request(&server).contains("it was thought about"));
}

/// `cargo test -p drupe --test end_to_end handoff::two_hundred -- --ignored --nocapture`
#[test]
#[ignore = "it takes minutes"]
fn two_hundred_kills_at_any_moment_lose_no_message_answer_none_twice_and_leave_who_has_the_conversation() {
    // What is said, what is answered, and who has the conversation then.
    let said = [
        ("before", "main: before", false),
        ("verse one", "poet: verse one", true),
        ("more", "poet: more", true),
        ("weather", "main: weather", false),
        ("verse two", "poet: verse two", true),
        ("bye", "farewell", false),
        ("verse three", "poet: verse three", true),
        ("/back", "You talk with drupe again.", false),
        ("verse four", "poet: verse four", true),
        ("fail", "main: fail", false),
    ];
    let server = ModelServer::start(|request| {
        // As long as a small model takes, so that there is a moment in which to be killed.
        std::thread::sleep(Duration::from_millis(8));
        model(request)
    });
    let mut daemon = daemon(&server, "", "");
    let (mut lost, mut others, mut strayed) = (0, 0, 0);
    for kill in 0..200_u64 {
        let (text, expected, is_held) = said[usize::try_from(kill).expect("small") % said.len()];
        let session = format!("s{}", kill / said.len() as u64);
        let turn = daemon.submit(&session, text);
        std::thread::sleep(Duration::from_millis(kill * 7 % 60));
        daemon.kill_all();
        let ended = daemon.wait(&turn);
        lost += u32::from(ended["status"].is_null());
        others += u32::from(ended["content"] != expected);
        strayed += u32::from(handoff(&daemon, &session).is_object() != is_held);
        if ended["content"] != expected {
            println!("{session} {text}: {}", ended["content"]);
        }
    }
    let mut counted = 0;
    for session in 0..20 {
        let show = json!({"id": format!("s{session}")});
        let detail = daemon.client().ask("sessions.show", show).expect("it is there");
        counted += detail["turns"].as_array().expect("a list").len();
        let events = daemon.events(&format!("s{session}"));
        let of = |kind: &str| events.iter().filter(|event| event["kind"] == kind).count();
        assert_eq!((of("interaction.handoff.started"), of("interaction.handoff.ended")), (4, 4));
    }
    println!(
        "200 kills: {counted} messages answered, {lost} lost, {others} answered otherwise, {strayed} times another had the \
         conversation; {} requests",
        server.requests().len()
    );
    assert_eq!((counted, lost, others, strayed), (200, 0, 0, 0));
}
