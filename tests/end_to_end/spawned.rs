//! Agents that work beside others: several at once, told more, stopped, over a crash, and beyond the turn that spawned them.

mod measured;
mod models;

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
    text, until,
};

const WORKER: &str = "You are the worker.";

fn manifest(more: &str) -> String {
    format!(
        "id: worker\nname: Worker\ndescription: Works.\nagent:\n  model: default\n  instructions: {WORKER}\n{more}"
    )
}

fn is_worker(request: &Value) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(WORKER))
}

/// What the user said last, as the model is told it.
fn task(request: &Value) -> String {
    let (_, text) = latest(request);
    text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned()
}

/// The handles that the calls of a request's conversation gave.
fn handles(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    let given = messages.iter().filter(|message| message["role"] == "tool");
    let given = given.filter_map(|message| serde_json::from_str::<Value>(message["content"].as_str()?).ok());
    given.filter_map(|given| given["handle"].as_str().map(str::to_owned)).collect()
}

fn spawn(task: &str, detach: bool) -> (String, Value) {
    ("spawn_agent".into(), json!({"agent": "worker", "task": task, "detach": detach}))
}

/// The orchestrator spawns what the message says, waits for all of it and says what came; a worker says what it was asked, once
/// it may.
fn model(goes: &AtomicBool) -> impl Fn(&Value) -> Say + use<'_> {
    |request| {
        let (role, text) = latest(request);
        if is_worker(request) {
            while !goes.load(Ordering::SeqCst) && task(request).contains("slow") && role == "user" {
                std::thread::sleep(Duration::from_millis(2));
            }
            return match role.as_str() {
                "user" if task(request).contains("tool") => {
                    Say::Call(vec![("kv_set".into(), json!({"key": "a", "value": "b"}))])
                }
                _ => Say::Text(format!("worked on {}", task(request))),
            };
        }
        let said = task(request);
        match role.as_str() {
            "user" if said.starts_with("(This is no message") => Say::Text(format!("heard: {said}")),
            "user" => {
                let (how, tasks) = said.split_once(' ').unwrap_or((said.as_str(), ""));
                match how {
                    "spawn" => Say::Call(tasks.split(',').map(|task| spawn(task, false)).collect()),
                    "detach" => Say::Call(vec![spawn(tasks, true)]),
                    _ => Say::Text(format!("main: {said}")),
                }
            }
            _ if text.contains(r#""agents""#) => Say::Text(format!("all: {text}")),
            _ if !handles(request).is_empty() => {
                let wait = json!({"handles": handles(request), "timeout_ms": 60000});
                Say::Call(vec![("wait_agent".into(), wait)])
            }
            _ => Say::Text(format!("told: {text}")),
        }
    }
}

struct House {
    daemon: Daemon,
    server: ModelServer,
    goes: Arc<AtomicBool>,
}

fn house(more: &str, settings: &str) -> House {
    let goes = Arc::new(AtomicBool::new(false));
    let go = Arc::clone(&goes);
    let server = ModelServer::start(move |request| model(&go)(request));
    let mut daemon = Daemon::home(&(server.config() + settings));
    daemon.write("extensions/worker/manifest.yaml", &manifest(more));
    daemon.run();
    House { daemon, server, goes }
}

impl House {
    fn go(&self) {
        self.goes.store(true, Ordering::SeqCst);
    }

    /// Requests of the worker's model with that task.
    fn asked(&self, text: &str) -> usize {
        self.server.requests().iter().filter(|one| is_worker(one) && task(one) == text).count()
    }

    fn until_asked(&self, text: &str) {
        until("the worker's model is asked", || (self.asked(text) > 0).then_some(())).expect("it is asked");
    }

    fn beside(&self, session: &str) -> Vec<Value> {
        let list = self.daemon.client().ask("spawned.list", json!({"session": session})).expect("a list");
        list.as_array().expect("a list").clone()
    }
}

#[test]
fn several_work_at_once_and_a_kill_in_their_middle_asks_no_model_twice_that_had_answered() {
    let house = house("", "");
    let turn = house.daemon.submit("s", "spawn quick,slow one,slow two");
    for text in ["quick", "slow one", "slow two"] {
        house.until_asked(text);
    }
    // Two of them wait for their models at the same time, and one has answered.
    until("one has answered", || {
        let states: Vec<Value> = house.beside("s").iter().map(|one| one["state"].clone()).collect();
        (states.iter().filter(|state| **state == "done").count() == 1 && states.len() == 3).then_some(())
    })
    .expect("it has");
    house.daemon.kill_kernel();
    house.daemon.until_ready();
    house.go();
    let answer = house.daemon.wait(&turn);
    let content = answer["content"].as_str().expect("text");
    for text in ["worked on quick", "worked on slow one", "worked on slow two"] {
        assert_eq!(content.matches(text).count(), 1, "{content}");
    }
    assert_eq!(house.asked("quick"), 1, "who had answered is not asked again");
    assert_eq!((house.asked("slow one"), house.asked("slow two")), (2, 2));
    let runs = answer["invocations"].as_array().expect("a list");
    assert_eq!(runs.iter().filter(|run| run["agent"] == "worker").count(), 3, "{answer}");
    assert!(house.beside("s").is_empty(), "with the turn they are gone");
    let replayed = house.daemon.drupe(&["replay", "s"]);
    assert!(replayed.status.success(), "{}{}", text(&replayed.stdout), text(&replayed.stderr));
}

#[test]
fn a_person_ends_one_and_tells_another_more() {
    let house = house("  uses_tools: [kv]\n", "");
    let turn = house.daemon.submit("s", "spawn slow one,slow tool");
    house.until_asked("slow one");
    house.until_asked("slow tool");
    let handle = |task: &str| {
        let events = house.daemon.events("s");
        let call = events.iter().find(|event| {
            event["kind"] == "interaction.item.started"
                && event["data"]["item"]["name"] == "agent_worker"
                && event["data"]["item"]["input"]["text"].as_str().is_some_and(|input| input.contains(task))
        });
        let id = call.expect("it is told of")["data"]["item"]["id"].as_str().expect("an id");
        format!("a-{}", &id[2..12])
    };
    let known: Vec<_> =
        house.beside("s").iter().map(|one| one["handle"].as_str().expect("one").to_owned()).collect();
    let (one, tool) = (handle("slow one"), handle("slow tool"));
    assert!(known.contains(&one) && known.contains(&tool), "{known:?}");
    let listed = house.daemon.says(&["session", "agents", "s"]);
    assert!(listed.contains(&one) && listed.contains("@worker") && listed.contains("working"), "{listed}");
    let refused = house.daemon.drupe(&["session", "tell", "s", "a-none", "more"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no agent `a-none` works"), "{refused:?}");
    let stopped = house.daemon.drupe(&["session", "stop", "s", "--agent", &one]);
    assert!(stopped.status.success(), "{stopped:?}");
    // Its model is not waited for.
    let told =
        house.daemon.command(&["session", "tell", "s", &tool, "in French"]).spawn().expect("it starts");
    until("it waits to be read", || house.beside("s").iter().any(|one| one["unread"] == 1).then_some(()))
        .expect("it does");
    house.go();
    let told = told.wait_with_output().expect("it ends");
    assert!(told.status.success(), "{told:?}");
    let answer = house.daemon.wait(&turn);
    let content = answer["content"].as_str().expect("text");
    assert!(content.contains("closed") && content.contains("cancelled"), "{content}");
    let read =
        house.server.requests().iter().any(|one| is_worker(one) && one.to_string().contains("in French"));
    assert!(read, "{content}");
    let replayed = house.daemon.drupe(&["replay", "s"]);
    assert!(replayed.status.success(), "{}{}", text(&replayed.stdout), text(&replayed.stderr));
    let late = house.daemon.drupe(&["session", "tell", "s", &tool, "more"]);
    assert!(String::from_utf8_lossy(&late.stderr).contains("no turn runs in session `s`"), "{late:?}");
}

#[test]
fn one_that_is_detached_outlives_the_turn_and_a_kill_and_its_report_comes_once() {
    let house = house("", "");
    let answer = house.daemon.turn("s", "detach slow errand");
    let content = answer["content"].as_str().expect("text");
    assert!(content.contains("detached") && content.contains("s:a-"), "{content}");
    assert_eq!(house.daemon.turn("s", "hello")["content"], "main: hello", "the conversation goes on");
    house.until_asked("slow errand");
    house.daemon.kill_kernel();
    house.daemon.until_ready();
    house.go();
    let turns = || {
        let shown = house.daemon.client().ask("sessions.show", json!({"id": "s"})).expect("it is there");
        shown["turns"].as_array().expect("a list").clone()
    };
    let done = |turn: &Value| turn["status"] == "success";
    let turns = until("the report is answered", || {
        let turns = turns();
        (turns.len() == 3 && turns.iter().all(done)).then_some(turns)
    })
    .expect("it is");
    let heard = turns[2]["content"].as_str().expect("text");
    assert!(
        heard.contains("heard: ")
            && heard.contains("has done its task")
            && heard.contains("worked on slow errand"),
        "{heard}"
    );
    house.daemon.kill_kernel();
    house.daemon.until_ready();
    assert_eq!(house.daemon.turn("s", "again")["content"], "main: again");
    let shown = house.daemon.client().ask("sessions.show", json!({"id": "s"})).expect("it is there");
    assert_eq!(shown["turns"].as_array().expect("a list").len(), 4, "the report came once");
    let replayed = house.daemon.drupe(&["replay", "s"]);
    assert!(replayed.status.success(), "{}{}", text(&replayed.stdout), text(&replayed.stderr));
    let why = house.daemon.says(&["why", turns[2]["turn"].as_str().expect("an id")]);
    assert!(why.contains("It is the report of an agent that worked beside the conversation"), "{why}");
}

#[test]
fn what_is_denied_to_an_agent_is_denied_to_who_spawns_it_too() {
    let rules = "approvals:\n  rules:\n    - {tool: agent_worker, then: deny}\n";
    let house = house("", rules);
    house.go();
    let answer = house.daemon.turn("s", "spawn quick");
    let content = answer["content"].as_str().expect("text");
    assert!(content.contains("refused") && house.asked("quick") == 0, "{content}");
    let answer = house.daemon.turn("s", "detach quick");
    assert!(answer["content"].as_str().expect("text").starts_with("told: not run: "), "{answer}");
    assert_eq!(house.asked("quick"), 0);
}

#[test]
fn where_none_may_be_spawned_nobody_is_offered_the_tools() {
    let house = house("", "orchestrator:\n  limits: {max_active_children: 0}\n");
    house.daemon.turn("s", "hello");
    let request = house.server.requests().pop().expect("one was made").to_string();
    assert!(!request.contains("spawn_agent") && !request.contains("wait_agent"), "{request}");
    let shown = house.daemon.says(&["agent", "show", "orchestrator"]);
    assert!(shown.contains("`max_active_children` is 0"), "{shown}");
}

/// What calls of the worker gave, as its model was told.
fn results(house: &House) -> Vec<String> {
    let of_worker = house.server.requests().into_iter().filter(is_worker);
    let messages = of_worker.flat_map(|one| one["messages"].as_array().expect("messages").clone());
    let given = messages.filter(|message| message["role"] == "tool");
    given.filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
}

#[test]
fn what_holds_of_who_spawned_it_and_of_what_set_that_off_holds_of_one_that_is_detached() {
    for rule in
        ["{tool: kv_set, agent: orchestrator, then: deny}", "{tool: kv_set, origin: operator, then: deny}"]
    {
        let house = house("  uses_tools: [kv]\n", &format!("approvals:\n  rules:\n    - {rule}\n"));
        house.go();
        house.daemon.turn("s", "detach tool two");
        let given = until("its call has an end", || results(&house).pop()).expect("it has");
        assert!(given.contains("`approvals.rules[0]` forbids it"), "{rule}: {given}");
    }
}

#[test]
fn the_report_of_one_that_is_detached_comes_to_the_agent_that_was_asked() {
    const BOSS: &str = "You are the boss.";
    let server = ModelServer::start(move |request| {
        let system = request["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
        match latest(request).0.as_str() {
            _ if is_worker(request) => Say::Text("worked".into()),
            _ if !system.contains(BOSS) => Say::Text(format!("main: {}", task(request))),
            "user" if task(request).contains("(This is no message") => {
                Say::Text("the boss heard of it".into())
            }
            "user" => Say::Call(vec![spawn("errand", true)]),
            _ => Say::Text("it is begun".into()),
        }
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.write("extensions/worker/manifest.yaml", &manifest(""));
    daemon.write(
        "extensions/boss/manifest.yaml",
        &format!(
            "id: boss\nname: Boss\ndescription: Leads.\nagent:\n  model: default\n  instructions: {BOSS}\n  uses_agents: [worker]\n"
        ),
    );
    daemon.run();
    daemon.says(&["approvals", "allow", "a1"]);
    assert_eq!(daemon.turn("s", "@boss go")["content"], "it is begun");
    let turns = until("the report is answered", || {
        let shown = daemon.client().ask("sessions.show", json!({"id": "s"})).expect("it is there");
        let turns = shown["turns"].as_array().expect("a list").clone();
        (turns.len() == 2 && turns.iter().all(|turn| turn["status"] == "success")).then_some(turns)
    })
    .expect("it is");
    assert_eq!(turns[1]["content"], "the boss heard of it", "{}", turns[1]);
    assert_eq!(turns[1]["invocations"][0]["agent"], "boss");
}
