//! Agents that their callers describe with a model: over a kill, in traces, in replays, and which are refused.

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
};

const INLINE: &str = "You are described.";

/// A daemon whose orchestrator has two models, and an agent with a third.
fn daemon(server: &ModelServer, settings: &str) -> Daemon {
    let config = server.config().replace("{default: local/test}", "{default: [local/test, local/second]}");
    let mut daemon = Daemon::home(&(config + settings));
    let manifest = "id: worker\nname: Worker\ndescription: Works.\nagent:\n  model: local/third\n  instructions: You work.\n";
    daemon.write("extensions/worker/manifest.yaml", manifest);
    daemon.run();
    daemon
}

fn is_inline(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(INLINE))
}

/// The orchestrator describes an agent for each model that the message names, and waits for all of them.
fn model(request: &Value) -> Say {
    let (role, said) = latest(request);
    if is_inline(request) {
        return Say::Text(format!("by {}", request["model"].as_str().expect("a name")));
    }
    let given = request["messages"].as_array().expect("messages").iter();
    let given = given.filter_map(|message| serde_json::from_str::<Value>(message["content"].as_str()?).ok());
    let handles: Vec<Value> = given.map(|given| given["handle"].clone()).filter(Value::is_string).collect();
    let spawn = |name: &str| {
        let asked = json!({"instructions": INLINE, "model": name, "task": "say who you are"});
        ("spawn_agent".to_owned(), asked)
    };
    match role.as_str() {
        "user" => {
            let (_, task) = said.rsplit_once("\n\nTask:\n").unwrap_or(("", &said));
            Say::Call(task.split(' ').map(spawn).collect())
        }
        _ if said.contains("\"agents\"") || handles.is_empty() => Say::Text(format!("told: {said}")),
        _ => Say::Call(vec![("wait_agent".to_owned(), json!({"handles": handles, "timeout_ms": 60_000}))]),
    }
}

fn asked(server: &ModelServer, name: &str) -> usize {
    server.requests().iter().filter(|one| is_inline(one) && one["model"] == name).count()
}

#[test]
fn each_has_the_model_that_was_named_over_a_kill_and_in_what_is_told_of_it() {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    let goes = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&goes);
    let server = ModelServer::start(move |request| {
        while is_inline(request) && request["model"] == "third" && !go.load(Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        model(request)
    });
    let daemon = daemon(&server, "");
    let turn = daemon.submit("s", "local/second local/third");
    until("both are asked, and one has answered", || {
        let list = daemon.client().ask("spawned.list", json!({"session": "s"})).expect("a list");
        let done = list.as_array().expect("a list").iter().filter(|one| one["state"] == "done").count();
        (done == 1 && asked(&server, "third") == 1).then_some(())
    })
    .unwrap_or_else(|| panic!("{}", daemon.log()));
    daemon.kill_kernel();
    daemon.until_ready();
    goes.store(true, Ordering::SeqCst);
    let answer = daemon.wait(&turn);
    let content = answer["content"].as_str().expect("text");
    assert!(content.contains("by second") && content.contains("by third"), "{answer}");
    assert_eq!((asked(&server, "test"), asked(&server, "second"), asked(&server, "third")), (0, 1, 2));
    let trace = daemon.says(&["trace", &turn]);
    for name in ["local/second", "local/third"] {
        assert!(trace.contains(name), "{trace}");
        let told =
            |event: &Value| event["agent"]["id"] == "orchestrator-inline" && event["data"]["model"] == name;
        assert!(daemon.events("s").iter().any(told), "{name}");
    }
    let before = server.requests().len();
    let replayed = daemon.drupe(&["replay", "s"]);
    assert!(replayed.status.success(), "{}{}", text(&replayed.stdout), text(&replayed.stderr));
    assert_eq!(server.requests().len(), before, "no model is asked");
}

#[test]
fn a_model_that_its_caller_does_not_reach_is_refused_and_nothing_is_asked() {
    let server = ModelServer::start(model);
    let daemon = daemon(&server, "");
    for name in ["local/fourth", "openai/gpt-4o", "default", "scripted:/etc/passwd"] {
        let told = daemon.turn(name.split(['/', ':']).next().expect("a word"), name);
        let expected = format!(
            "told: model_not_found: there is no model `{name}` for you; you can name local/test, local/second, local/third"
        );
        assert_eq!(told["content"], json!(expected), "{told}");
    }
    assert!(!server.requests().iter().any(is_inline));
}

#[test]
fn a_limit_of_cost_keeps_out_what_has_no_price() {
    let server = ModelServer::start(model);
    let prices = "  profiles: {local/test: {input_usd: 0, output_usd: 0}, local/second: {input_usd: 0, output_usd: 0}}\n";
    let limit = "orchestrator: {limits: {max_cost_usd: 1}}\n";
    let daemon = daemon(&server, &format!("{prices}{limit}"));
    let told = daemon.turn("s", "local/third");
    let content = told["content"].as_str().expect("text");
    let why = "told: model_unfit: `max_cost_usd` is set, but the price of model `local/third` is not known";
    assert!(content.starts_with(why), "{told}\n{}", daemon.log());
    let told = daemon.turn("s2", "local/second");
    assert!(told["content"].as_str().is_some_and(|content| content.contains("by second")), "{told}");
}

#[test]
fn a_model_that_cannot_do_what_the_callers_parameters_ask_for_is_refused() {
    let server = ModelServer::start(model);
    let profiles = "  profiles: {local/third: {sampling: false}}\n";
    let daemon = daemon(&server, &format!("{profiles}orchestrator: {{parameters: {{temperature: 0.5}}}}\n"));
    let told = daemon.turn("s", "local/third");
    let content = told["content"].as_str().expect("text");
    let why = "told: model_unfit: model `local/third` cannot do this: `temperature`: the model takes none";
    assert!(content.starts_with(why), "{told}\n{}", daemon.log());
    assert!(!server.requests().iter().any(is_inline));
}
