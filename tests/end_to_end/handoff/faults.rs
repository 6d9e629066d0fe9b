//! Handoffs while something is in the way: messages that wait, kills, stops, limits, what is chosen or gone meanwhile.

use std::sync::atomic::AtomicUsize;

use super::*;

/// A model that says nothing to a message that holds `slow` before it is let go.
fn held() -> (ModelServer, Arc<AtomicBool>) {
    let goes = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&goes);
    let server = ModelServer::start(move |request| {
        while task(request).contains("slow") && !go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(2));
        }
        model(request)
    });
    (server, goes)
}

fn asked(server: &ModelServer, text: &str, of_poet: bool) -> usize {
    server.requests().iter().filter(|one| is_poet(one) == of_poet && task(one) == text).count()
}

fn until_asked(server: &ModelServer, text: &str, of_poet: bool) {
    until("the model is asked", || (asked(server, text, of_poet) > 0).then_some(())).expect("it is asked");
}

fn submit(daemon: &Daemon, session: &str, text: &str, more: Value) -> String {
    let mut ask = json!({"external_id": crate::harness::unique(), "session": session, "text": text});
    ask.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    daemon.client().ask("turn.submit", ask).expect("it is taken")["turn"].as_str().expect("an id").to_owned()
}

fn kinds(daemon: &Daemon, session: &str) -> Vec<String> {
    let all =
        daemon.events(session).into_iter().filter_map(|event| event["kind"].as_str().map(str::to_owned));
    all.filter(|kind| kind.starts_with("interaction.handoff.")).collect()
}

#[test]
fn a_message_that_waited_goes_to_who_has_the_conversation_when_its_turn_comes() {
    let (server, goes) = held();
    let daemon = daemon(&server, "", "");
    let one = daemon.submit("s", "verse slow");
    let two = daemon.submit("s", "more");
    assert_eq!(says(&daemon, "t", "verse"), "poet: verse");
    let three = daemon.submit("t", "bye slow");
    let four = daemon.submit("t", "hello");
    goes.store(true, Ordering::SeqCst);
    assert_eq!(daemon.wait(&one)["content"], "poet: verse slow");
    assert_eq!(daemon.wait(&two)["content"], "poet: more");
    assert_eq!(daemon.wait(&three)["content"], "farewell");
    assert_eq!(daemon.wait(&four)["content"], "main: hello");
    assert_eq!(handoff(&daemon, "t"), Value::Null);
    assert_eq!(kinds(&daemon, "t"), ["interaction.handoff.started", "interaction.handoff.ended"]);
}

#[test]
fn an_agent_sees_nothing_of_before_and_nothing_that_was_for_others() {
    let (server, goes) = held();
    let daemon = daemon(&server, "", "");
    assert_eq!(says(&daemon, "s", "secret"), "main: secret");
    let one = daemon.submit("s", "verse slow");
    until_asked(&server, "verse slow", false);
    // One that was stopped while it waited is no turn of anybody.
    let two = daemon.submit("s", "waits");
    daemon.client().ask("turn.stop", json!({"turn": two})).expect("it is stopped");
    goes.store(true, Ordering::SeqCst);
    daemon.wait(&one);
    daemon.wait(&two);
    daemon.turn("s", "@code_reviewer look at canary");
    assert_eq!(says(&daemon, "s", "more"), "poet: more");
    let seen = last_request(&server);
    assert!(seen.contains("verse slow") && !seen.contains("secret") && !seen.contains("canary"), "{seen}");
    // Nor of the history that a client brings along.
    let history =
        json!([{"role": "user", "content": "secret plan"}, {"role": "assistant", "content": "noted"}]);
    let turn = submit(&daemon, "c", "verse one", json!({"carried": {"history": history}}));
    assert_eq!(daemon.wait(&turn)["content"], "poet: verse one");
    let seen = last_request(&server);
    assert!(seen.contains("they like crabs") && !seen.contains("secret plan"), "{seen}");
}

#[test]
fn each_run_and_each_item_of_a_turn_that_goes_from_one_to_another_ends_and_all_of_it_counts() {
    let server = ModelServer::start(|request| match is_poet(request) && task(request) == "empty" {
        true => Say::Text(String::new()),
        false => model(request),
    });
    let daemon = daemon(&server, "", "");
    for (text, answer) in [
        ("verse one", "poet: verse one"),
        ("fail", "main: fail"),
        ("verse", "poet: verse"),
        ("empty", "main: empty"),
    ] {
        let turn = daemon.turn("s", text);
        assert_eq!(turn["content"], answer, "{turn}");
        for run in turn["invocations"].as_array().expect("a list") {
            assert!(!run["status"].is_null(), "{run}");
        }
    }
    let events = daemon.events("s");
    let of = |kind: &str| {
        let mut ids: Vec<_> = events
            .iter()
            .filter(|event| event["kind"] == kind)
            .map(|event| event["data"]["item"]["id"].as_str().expect("an id").to_owned())
            .collect();
        ids.sort();
        ids
    };
    assert_eq!(of("interaction.item.started"), of("interaction.item.completed"));
    let usage = daemon.json(&["usage", "--by", "agent", "--json"]);
    let poet =
        usage.as_array().expect("a list").iter().find(|row| row["key"] == "poet").expect("it was used");
    let made = server.requests().iter().filter(|request| is_poet(request)).count();
    // The one that failed reports no tokens; each other one reports 50.
    assert_eq!(poet["usage"]["input_tokens"], 50 * (made - 1), "{usage}");
}

#[test]
fn what_an_agent_did_before_a_kill_is_not_done_again_by_who_answers_after_it() {
    let (refuses, stalls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let (refuse, stall) = (Arc::clone(&refuses), Arc::clone(&stalls));
    let server = ModelServer::start(move |request| match (task(request).as_str(), is_poet(request)) {
        ("flaky", true) if refuse.swap(false, Ordering::SeqCst) => Say::Fail(Wire::Status(400, "not now")),
        ("flaky", false) if stall.swap(false, Ordering::SeqCst) => Say::Fail(Wire::Stall("a half")),
        _ => model(request),
    });
    let daemon = daemon(&server, "", "");
    assert_eq!(says(&daemon, "s", "verse"), "poet: verse");
    let turn = daemon.submit("s", "flaky");
    until_asked(&server, "flaky", false);
    daemon.kill_kernel();
    daemon.until_ready();
    let ended = daemon.wait(&turn);
    assert_eq!(ended["content"], "main: flaky", "{ended}");
    assert_eq!(asked(&server, "flaky", true), 1, "it had failed, and is not asked again");
    assert_eq!(handoff(&daemon, "s"), Value::Null);
    assert_eq!(kinds(&daemon, "s"), ["interaction.handoff.started", "interaction.handoff.ended"]);
}

#[test]
fn an_agent_that_is_gone_after_a_kill_leaves_its_run_ended_and_the_message_to_the_orchestrator() {
    let server = ModelServer::start(|request| match is_poet(request) && task(request) == "stall" {
        true => Say::Fail(Wire::Stall("a half")),
        false => model(request),
    });
    let daemon = daemon(&server, "", "");
    assert_eq!(says(&daemon, "s", "verse"), "poet: verse");
    let turn = daemon.submit("s", "stall");
    until_asked(&server, "stall", true);
    daemon.client().ask("extensions.disable", json!({"id": "poet"})).expect("it is turned off");
    daemon.kill_kernel();
    daemon.until_ready();
    let ended = daemon.wait(&turn);
    assert_eq!(ended["content"], "main: stall", "{ended}");
    let runs: Vec<_> = ended["invocations"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| (&run["agent"], &run["status"]))
        .collect();
    assert_eq!(runs, [(&json!("poet"), &json!("error")), (&json!("orchestrator"), &json!("success"))]);
    assert_eq!(kinds(&daemon, "s"), ["interaction.handoff.started", "interaction.handoff.ended"]);
}

#[test]
fn an_agent_whose_time_is_over_or_that_cannot_be_asked_leaves_the_message_to_the_orchestrator() {
    let server = ModelServer::start(|request| match is_poet(request) && task(request) == "stall" {
        true => Say::Fail(Wire::Stall("a half")),
        false => model(request),
    });
    let daemon = daemon(&server, "  limits: {time_budget_ms: 3000}\n", "");
    assert_eq!(says(&daemon, "s", "verse"), "poet: verse");
    assert_eq!(says(&daemon, "s", "stall"), "main: stall");
    // Code takes no model of its client: whoever wants one is answered by the orchestrator.
    let server = ModelServer::start(|request| match task(request).as_str() {
        "stay" if !request["tools"].to_string().contains("handoff_companion") => {
            Say::Text("main: stay".into())
        }
        "stay" => Say::Call(vec![("handoff_companion".into(), json!({"summary": "they are bored"}))]),
        said => Say::Text(format!("main: {said}")),
    });
    let mut daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: all}\n"));
    let section = "description: Keeps people company.\nagent: {integration_mode: handoff, model: default, instructions: You think.}\n";
    daemon.plugin("companion", "companion", section);
    daemon.run();
    daemon.until_extension("companion", "active");
    for text in ["stay", "hello"] {
        let turn = daemon.wait(&submit(&daemon, "s", text, json!({"model": "default"})));
        assert_eq!(turn["content"], format!("main: {text}"), "{turn}");
    }
}

#[test]
fn a_stop_leaves_the_conversation_with_the_agent_and_a_choice_meanwhile_holds() {
    let stalls = Arc::new(AtomicUsize::new(0));
    let stall = Arc::clone(&stalls);
    let server =
        ModelServer::start(move |request| match is_poet(request) && task(request).contains("stall") {
            true => {
                stall.fetch_add(1, Ordering::SeqCst);
                Say::Fail(Wire::Stall("a half"))
            }
            false => model(request),
        });
    let daemon = daemon(&server, "", "");
    let turn = daemon.submit("s", "verse stall");
    until("the poet is asked", || (stalls.load(Ordering::SeqCst) > 0).then_some(())).expect("it is");
    daemon.client().ask("turn.stop", json!({"turn": turn})).expect("it is stopped");
    assert_eq!(daemon.wait(&turn)["class"], "cancelled");
    assert_eq!(handoff(&daemon, "s")["agent"], "poet");
    assert_eq!(says(&daemon, "s", "more"), "poet: more");
    daemon.client().ask("extensions.disable", json!({"id": "poet"})).expect("it is turned off");
    assert_eq!(says(&daemon, "s", "hello"), "main: hello");
    daemon.client().ask("extensions.enable", json!({"id": "poet"})).expect("it is turned on");
    daemon.until_extension("poet", "active");
    let (server, goes) = held();
    let daemon = self::daemon(&server, "", "");
    assert_eq!(says(&daemon, "t", "verse"), "poet: verse");
    let turn = daemon.submit("t", "slow");
    until_asked(&server, "slow", true);
    daemon.client().ask("session.select", json!({"session": "t"})).expect("it is given back");
    goes.store(true, Ordering::SeqCst);
    assert_eq!(daemon.wait(&turn)["content"], "poet: slow");
    assert_eq!(handoff(&daemon, "t"), Value::Null);
    assert_eq!(says(&daemon, "t", "hello"), "main: hello");
}

#[test]
fn taking_it_back_is_no_part_of_another_answer_and_what_is_refused_at_the_door_is_told() {
    let (server, goes) = held();
    let daemon = daemon(&server, "", "");
    assert_eq!(says(&daemon, "s", "verse"), "poet: verse");
    let turn = daemon.submit("s", "slow");
    until_asked(&server, "slow", true);
    let back = submit(&daemon, "s", "/back", json!({"queue": "steer"}));
    goes.store(true, Ordering::SeqCst);
    daemon.wait(&turn);
    assert!(daemon.wait(&back)["content"].as_str().is_some_and(|text| text.starts_with("You talk with")));
    assert_eq!(handoff(&daemon, "s"), Value::Null);
    let server = ModelServer::start(model);
    let daemon = self::daemon(&server, "", "orchestrator: {limits: {max_invocations: 1}}\n");
    let turn = daemon.turn("s", "verse one");
    assert_eq!(turn["class"], "budget", "{turn}");
    assert_eq!(kinds(&daemon, "s"), ["interaction.handoff.started", "interaction.handoff.ended"]);
}

#[test]
fn no_more_agents_stand_below_one_than_below_who_handed_over() {
    let server = ModelServer::start(|request| {
        if request["messages"][0]["content"].as_str().is_some_and(|text| text.contains("You are the helper."))
        {
            return Say::Text("helped".into());
        }
        match (is_poet(request), latest(request).0.as_str(), task(request).as_str()) {
            (true, "user", "deep") => Say::Call(vec![("agent_helper".into(), json!({"task": "x"}))]),
            _ => model(request),
        }
    });
    let mut daemon = Daemon::home(
        &(server.config() + "approvals: {preauthorized: all}\norchestrator: {limits: {max_depth: 0}}\n"),
    );
    let helper = "id: helper\nname: H\ndescription: Helps.\nagent: {model: default, instructions: You are the helper.}\n";
    daemon.write("extensions/helper/manifest.yaml", helper);
    daemon.write("extensions/poet/manifest.yaml", &manifest("  uses_agents: [helper]\n"));
    daemon.run();
    assert_eq!(says(&daemon, "s", "verse"), "poet: verse");
    let answer = says(&daemon, "s", "deep");
    assert!(!answer.contains("helped"), "{answer}");
}
