//! What drupe is for: somebody asks for a new agent, and after a restart it is there.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest, offered},
    text,
};

const WISH: &str = "create an agent called haiku that writes haikus";

/// Asks for the agent, waits for the restart that the builder requests, and uses what was made.
fn check(daemon: &Daemon) -> Value {
    let before = daemon.until_ready();
    let made = daemon.turn("wish", WISH);
    assert_eq!(made["status"], "success", "{made}\n{}", daemon.log());
    let after = daemon.until_status("a new kernel with the agent", |s| {
        s["state"] == "ready"
            && s["generation"] != before["generation"]
            && s["extensions"]
                .as_array()
                .is_some_and(|e| e.iter().any(|e| e["id"] == "haiku" && e["state"] == "active"))
    });
    assert_eq!(after["supervisor_pid"], before["supervisor_pid"]);
    assert!(after["exits"].as_array().is_some_and(|e| e.iter().all(|e| e["crash"] == false)), "{after}");
    let told = daemon.events("wish");
    let restarted =
        told.iter().find(|e| e["kind"] == "kernel.lifecycle" && e["data"]["state"] == "restarted");
    assert!(
        restarted.is_some_and(|e| e["data"]["reason"].as_str().is_some_and(|r| r.contains("haiku"))),
        "{told:?}"
    );
    made
}

fn agents_of(turn: &Value) -> Vec<&str> {
    let invocations = turn["invocations"].as_array().expect("a list");
    invocations.iter().map(|i| i["agent"].as_str().expect("an id")).collect()
}

/// What the builder's tools gave in a turn, with their names.
fn results(turn: &Value) -> Vec<(&str, &str)> {
    let entries = turn["transcript"].as_array().expect("a list").iter();
    let own = entries.filter(|e| e["agent"] == "builder_agent" && e["role"] == "tool");
    own.map(|e| (e["name"].as_str().expect("a name"), e["content"].as_str().expect("a text"))).collect()
}

#[test]
fn with_the_offline_model_the_builder_makes_an_agent_that_answers_after_the_restart() {
    let daemon = Daemon::start("");
    let made = check(&daemon);
    let agents = agents_of(&made);
    assert_eq!(agents[..3], ["orchestrator", "builder_agent", "builder_agent"], "{made}");
    assert!(agents.len() == 4 && agents[3].starts_with("haiku-trial-"), "{made}");
    assert!(
        made.to_string().contains("The agent `haiku` is made: it writes haikus. drupe restarts now"),
        "{made}"
    );
    assert!(
        results(&made).iter().any(|(_, said)| said.contains("1 of 1 cases passed with the offline model"))
    );
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!((&direct["status"], agents_of(&direct)), (&json!("success"), vec!["haiku"]), "{direct}");
    assert!(
        direct["content"].as_str().is_some_and(|c| c.contains("rust") && c.contains("language model")),
        "{direct}"
    );
    let routed = daemon.turn("routed", "please write some haikus about autumn");
    assert_eq!(agents_of(&routed), ["orchestrator", "haiku"], "{routed}");
    // Its cases came along with it, and `drupe eval` finds them by its id or by their file.
    for named in ["haiku", "extensions/haiku/cases.yaml"] {
        let output = daemon.drupe(&["eval", named]);
        let shown = text(&output.stdout);
        assert!(
            output.status.success() && shown.contains("1 passed, 0 failed"),
            "{shown}\n{}",
            text(&output.stderr)
        );
    }
}

const CASES: &str = "\
agent: haiku
cases:
  - {name: syllables, message: rust, expect: {contains: five seven five, no_tools: kv_set}}
  - {name: keeps, message: keep this one, expect: {tools: kv_set, judge: Was it kept?}}
  - {name: other work, message: delete all, expect: {status: refused}}
";

/// A builder that makes an agent whose first instructions do not do, and who tries to activate it all the same.
fn maker(step: usize) -> Say {
    let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
    let id = json!({"id": "haiku"});
    match step {
        0 => call("builder_draft", json!({"id": "haiku", "purpose": "writes haikus", "uses_tools": ["kv"]})),
        1 => call("builder_activate", id),
        2 => call("builder_write", json!({"id": "haiku", "file": "cases.yaml", "content": CASES})),
        3 | 7 => call("builder_eval", id),
        4 | 6 | 8 => call("builder_activate", id),
        5 => call(
            "builder_patch",
            json!({"id": "haiku", "file": "prompt.md", "find": "Do the task", "replace": "Do your task"}),
        ),
        9 => call("builder_restart", json!({"reason": "haiku was made"})),
        _ => Say::Text("I made haiku.".into()),
    }
}

/// The agent that was made, as its instructions have it.
fn made_haiku(system: &str, role: &str, said: &str) -> Say {
    let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
    match said {
        _ if role == "tool" => Say::Text("five seven five: kept".into()),
        "keep this one" => call("kv_set", json!({"key": "haiku", "value": "kept"})),
        "delete all" => call("refuse", json!({"reason": "that is no haiku"})),
        _ if system.contains("Do your task") => Say::Text(format!("five seven five: {said}")),
        _ => Say::Text("some words".into()),
    }
}

#[test]
fn a_draft_is_activated_only_as_its_cases_have_passed_and_a_case_that_fails_is_mended() {
    let server = ModelServer::start(|request| {
        let tools = offered(request);
        let messages = request["messages"].as_array().expect("messages");
        let step = messages.iter().filter(|m| m["role"] == "assistant" && !m["tool_calls"].is_null()).count();
        let has = |name: &str| tools.iter().any(|t| t == name);
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        let system = messages[0]["content"].as_str().expect("a system prompt");
        let (role, text) = latest(request);
        if text.contains("Judge an answer.") {
            let pass = text.contains("The message: keep this one")
                && text.contains("The answer: five seven five: kept");
            return Say::Text(json!({"pass": pass, "reason": "one reads it"}).to_string());
        }
        if has("builder_draft") {
            return maker(step);
        }
        if system.starts_with("You are Haiku") {
            return made_haiku(system, &role, &text);
        }
        match role.as_str() {
            "tool" => Say::Text(format!("The agent said: {text}")),
            _ if has("agent_haiku") => call("agent_haiku", json!({"task": text})),
            _ => call("agent_builder_agent", json!({"task": text})),
        }
    });
    let daemon = Daemon::start(&server.config());
    let made = check(&daemon);
    let given = results(&made);
    for (at, tool, part) in [
        (1, "builder_activate", "its cases have not been run since its last change"),
        (
            3,
            "builder_eval",
            "1 of 3 cases failed:\n- syllables: the answer does not hold `five seven five`: some words",
        ),
        (4, "builder_activate", "its cases have failed"),
        (6, "builder_activate", "its cases have not been run since its last change"),
        (7, "builder_eval", "3 of 3 cases passed"),
        (8, "builder_activate", "`haiku` is an extension now, and active"),
    ] {
        let (named, said) = given[at];
        assert!(named == tool && said.contains(part), "{at}: {given:#?}");
    }
    // What the trials called was noted and not made, and the builder's budget has paid for them.
    let trial = made["transcript"].as_array().expect("a list").iter();
    let noted: Vec<&Value> = trial.filter(|e| e["role"] == "tool" && e["name"] == "kv_set").collect();
    assert!(noted.len() == 2 && noted.iter().all(|e| e["status"] == "refused"), "{noted:?}");
    let runs = made["invocations"].as_array().expect("a list");
    let tokens = |run: &&Value| run["tokens_used"].as_u64().expect("a number");
    let below: u64 = runs
        .iter()
        .filter(|r| r["agent"].as_str().is_some_and(|a| a.contains("-trial-")))
        .map(|r| tokens(&r))
        .sum();
    assert!(below > 0 && tokens(&&runs[1]) > below, "{made}");
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!(direct["content"], "five seven five: rust", "{direct}");
    let routed = daemon.turn("routed", "a haiku about autumn");
    assert_eq!(agents_of(&routed), ["orchestrator", "haiku"], "{routed}");
    assert!(routed["content"].as_str().is_some_and(|c| c.contains("five seven five")), "{routed}");
    let prompt =
        std::fs::read_to_string(daemon.path().join("extensions/haiku/prompt.md")).expect("the prompt");
    assert!(prompt.contains("Do your task"), "{prompt}");
    let output = daemon.drupe(&["eval", "haiku"]);
    assert!(
        text(&output.stdout).contains("3 passed, 0 failed"),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn with_a_script_the_builder_makes_an_agent_that_answers_after_the_restart() {
    let daemon = Daemon::home(
        "models:\n  aliases: {default: script}\n  providers:\n    script: {kind: scripted, file: flow.yaml}\n",
    );
    daemon.write("flow.yaml", include_str!("../fixtures/make_haiku.yaml"));
    let mut daemon = daemon;
    daemon.run();
    check(&daemon);
    let direct = daemon.turn("direct", "@haiku rust");
    assert_eq!(direct["content"], "Old crab, silent shell", "{direct}");
}

const SPY: &str = "agent: spy\ncases: [{name: a, message: look}]";

#[test]
fn what_the_builder_makes_does_not_work_before_the_operator_agrees_to_what_it_brings() {
    let server = ModelServer::start(|request| {
        let step = request["messages"]
            .as_array()
            .expect("messages")
            .iter()
            .filter(|m| m["role"] == "assistant")
            .count();
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        if !offered(request).iter().any(|t| t == "builder_draft") {
            return match step {
                0 => call("agent_builder_agent", json!({"task": "make a spy"})),
                _ => Say::Text(latest(request).1),
            };
        }
        let manifest = "id: spy\nname: Spy\ndescription: Spies.\nrights: [control]\nagent: {model: default, instructions: \"\"}\n";
        match step {
            0 => call("builder_write", json!({"id": "spy", "file": "manifest.yaml", "content": manifest})),
            1 => call("builder_write", json!({"id": "../kv", "file": "manifest.yaml", "content": manifest})),
            2 => call("builder_write", json!({"id": "spy", "file": "../../../drupe.yaml", "content": "x"})),
            3 => call("builder_activate", json!({"id": "spy"})),
            4 => call("builder_write", json!({"id": "spy", "file": "cases.yaml", "content": SPY})),
            5 => call("builder_eval", json!({"id": "spy"})),
            6 => call("builder_activate", json!({"id": "spy"})),
            _ => Say::Text("It waits.".into()),
        }
    });
    let daemon = Daemon::start(&server.config());
    daemon.turn("s", "make a spy");
    let (state, reason) = daemon.extension("spy");
    assert!(state == "awaiting_approval" && reason.contains("the rights"), "{state}: {reason}");
    let agents = daemon.client().ask("agents.list", json!({})).expect("a list").to_string();
    assert!(!agents.contains("spy"), "{agents}");
    assert!(!daemon.path().join("data/kv/manifest.yaml").exists());
    let last = server.requests().into_iter().rfind(|r| offered(r).iter().any(|t| t == "builder_draft"));
    let results: Vec<String> = last.expect("the builder ran")["messages"]
        .as_array()
        .expect("messages")
        .iter()
        .filter(|m| m["role"] == "tool")
        .map(|m| m["content"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(results[1].contains("not valid here"), "{results:?}");
    assert!(results[2].contains("no file that a draft can have"), "{results:?}");
    assert!(results[3].contains("its cases have not been run"), "{results:?}");
    assert!(results[5].contains("cannot be run") && results[5].contains("the rights control"), "{results:?}");
    for part in ["drupe approvals allow spy", "cases of `spy` were not run", "drupe eval spy"] {
        assert!(results[6].contains(part), "{part}: {results:?}");
        // Whatever the model makes of it, the user hears so.
        assert!(json!(daemon.events("s")).to_string().contains(part), "{part}");
    }
}

/// An agent that calls whatever tool its task names.
const CALLER: &str = "agent: caller\ncases:\n  - {name: reads, message: kv_get, expect: {tools: kv_get}}\n  \
    - {name: writes, message: kv_set, expect: {tools: kv_set}}\n  \
    - {name: asks, message: agent_code_reviewer, expect: {tools: agent_code_reviewer, agents: [code_reviewer]}}\n  \
    - {name: is slow, message: slow, timeout_s: 0.5, expect: {status: error}}\n";

fn caller(instructions: &str) -> String {
    format!(
        "id: caller\nname: Caller\ndescription: Calls tools.\nagent:\n  model: default\n  instructions: {instructions}\n  \
         uses_tools: [kv]\n  uses_agents: [code_reviewer]\n"
    )
}

/// What becomes of trials of [`CALLER`], under a configuration: the statuses of its calls of tools.
fn tries(config: &str) -> (Daemon, Vec<(String, String)>, Vec<String>) {
    let server = ModelServer::start(|request| {
        let messages = request["messages"].as_array().expect("messages");
        let step = messages.iter().filter(|m| m["role"] == "assistant").count();
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        let write = |file: &str, content: &str| {
            call("builder_write", json!({"id": "caller", "file": file, "content": content}))
        };
        let eval = || call("builder_eval", json!({"id": "caller"}));
        let (role, text) = latest(request);
        let system = messages[0]["content"].as_str().expect("a system prompt");
        if !offered(request).iter().any(|t| t == "builder_draft") {
            return match (system.contains("You call."), role.as_str(), text.as_str()) {
                (true, "user", "kv_set") => call("kv_set", json!({"key": "planted", "value": "planted"})),
                (true, "user", "kv_get") => call("kv_get", json!({"key": "planted"})),
                (true, "user", "slow") => {
                    std::thread::sleep(std::time::Duration::from_secs(5));
                    Say::Text("done".into())
                }
                (true, "user", agent) => call(agent, json!({"task": "look at it"})),
                (true, ..) => Say::Text("done".into()),
                (false, "user", _) => call("agent_builder_agent", json!({"task": "make a caller"})),
                _ => Say::Text("done".into()),
            };
        }
        match step {
            0 => write("manifest.yaml", &caller("You call.")),
            1 => write("cases.yaml", CALLER),
            2 | 4 => eval(),
            3 => write("manifest.yaml", &caller("../../../outside.txt")),
            5 => call("builder_draft", json!({"id": "kv", "purpose": "has another's values"})),
            6 => call("builder_eval", json!({"id": "kv"})),
            _ => Say::Text("It is tried.".into()),
        }
    });
    let daemon = Daemon::home(&format!("{}{config}", server.config()));
    daemon.write("outside.txt", "hidden-in-here");
    let mut daemon = daemon;
    daemon.run();
    let made = daemon.turn("s", "make a caller");
    let entries = made["transcript"].as_array().expect("a list").iter();
    let tools =
        entries.filter(|e| e["role"] == "tool" && e["agent"].as_str().is_some_and(|a| a.contains("-trial-")));
    let of = |e: &Value, key: &str| e[key].as_str().expect("a text").to_owned();
    let calls = tools.map(|e| (of(e, "name"), of(e, "status"))).collect();
    let said = results(&made).into_iter().filter(|(name, _)| *name == "builder_eval");
    let said = said.map(|(_, said)| said.to_owned()).collect();
    assert!(!json!(server.requests()).to_string().contains("hidden-in-here"), "a file of the home was read");
    (daemon, calls, said)
}

#[test]
fn a_trial_does_nothing_that_nobody_has_agreed_to() {
    let (daemon, calls, said) = tries("");
    let call = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    let noted = [call("kv_set", "refused"), call("agent_code_reviewer", "refused")];
    assert_eq!(calls[0].0, "kv_get");
    assert_ne!(calls[0].1, "refused", "it only reads, and agents have it without being asked about");
    assert_eq!(calls[1..], noted);
    assert!(said[0].contains("4 of 4 cases passed"), "{said:?}");
    assert!(said[1].contains("cannot be run") && said[1].contains("from outside its folder"), "{said:?}");
    assert!(said[2].contains("there is an extension `kv` already"), "{said:?}");
    let kept = daemon.says(&["ask", "kv_get key=planted"]);
    assert!(!kept.contains("planted\""), "{kept}");
    // Where no tool is open to all, none runs.
    let (_daemon, calls, _) = tries("orchestrator: {builder_may_use: []}\n");
    assert_eq!(calls[0], call("kv_get", "refused"));
}

#[test]
fn a_trial_that_a_crash_cuts_off_goes_on_and_what_was_answered_is_not_asked_again() {
    const TWO: &str = "agent: haiku\ncases:\n  - {name: a, message: first, expect: {contains: five}}\n  \
        - {name: b, message: second, expect: {contains: five}}\n";
    let mending =
        json!({"id": "haiku", "file": "prompt.md", "find": "Do the task", "replace": "Do your task"});
    let (begun, begins) = std::sync::mpsc::channel::<()>();
    let begun = std::sync::Mutex::new(Some(begun));
    let server = ModelServer::start(move |request| {
        let messages = request["messages"].as_array().expect("messages");
        let step = messages.iter().filter(|m| m["role"] == "assistant").count();
        let call = |name: &str, parameters: Value| Say::Call(vec![(name.to_owned(), parameters)]);
        let (role, text) = latest(request);
        let id = json!({"id": "haiku"});
        if offered(request).iter().any(|t| t == "builder_draft") {
            return match step {
                0 => call("builder_draft", json!({"id": "haiku", "purpose": "writes haikus"})),
                1 => call("builder_write", json!({"id": "haiku", "file": "cases.yaml", "content": TWO})),
                2 | 4 => call("builder_eval", id),
                3 => call("builder_patch", mending.clone()),
                5 => call("builder_activate", id),
                _ => Say::Text("I made haiku.".into()),
            };
        }
        let mended = messages[0]["content"].as_str().is_some_and(|system| system.contains("Do your task"));
        let first_time = || begun.lock().expect("one at a time").take();
        match (role.as_str(), text.as_str()) {
            ("user", "first" | "second") if !mended => Say::Text("some words".into()),
            ("user", "second") => {
                if let Some(begun) = first_time() {
                    begun.send(()).expect("the test waits");
                    // Longer than this kernel lives; the server's threads end with the test program.
                    std::thread::sleep(crate::harness::PATIENCE);
                }
                Say::Text("five seven five".into())
            }
            ("user", "make haiku") => call("agent_builder_agent", json!({"task": text})),
            _ => Say::Text("five seven five".into()),
        }
    });
    let daemon = Daemon::start(&server.config());
    let turn = daemon.submit("s", "make haiku");
    begins.recv_timeout(crate::harness::PATIENCE).expect("the second case is asked");
    daemon.kill_kernel();
    let made = daemon.wait(&turn);
    let said = results(&made);
    assert!(said.iter().any(|(_, said)| said.contains("2 of 2 cases passed")), "{said:?}");
    assert!(said.iter().any(|(_, said)| said.contains("is an extension now, and active")), "{said:?}");
    let asked = |of: &str| server.requests().iter().filter(|r| latest(r).1 == of).count();
    // Of the draft as it was before it was mended, nothing was taken over.
    assert_eq!((asked("first"), asked("second")), (2, 3));
}

#[test]
fn only_an_extension_tries_an_agent_on_behalf_of_a_call() {
    let daemon = Daemon::start("");
    let folder = daemon.path().join("tried");
    daemon.write("tried/manifest.yaml", "id: tried\nname: T\ndescription: D.\nagent: {instructions: x}\n");
    let ask = json!({"path": folder, "task": "x", "name": "n"});
    let refused = daemon.client().ask("extensions.try", ask).expect_err("nobody calls");
    assert!(refused.to_string().contains("by an extension alone"), "{refused}");
}
