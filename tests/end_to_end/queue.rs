//! Messages that arrive while a turn of their session runs: they wait, are taken in, or end it.

mod cut_off;

use std::sync::{
    Mutex,
    mpsc::{Receiver, Sender, channel},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{
    Daemon, PATIENCE,
    model_server::{ModelServer, Say},
    unique, until,
};

/// A message upon which the model looks at something first, so that its turn has a further step.
const LOOK: &str = "hold and look";

/// A message upon which the model calls a tool that ends its process.
const CRASH: &str = "crash";

/// A model that says what it heard, and lets the test decide when it answers a message that begins with `hold`.
struct Scene {
    server: ModelServer,
    daemon: Daemon,
    asked: Receiver<()>,
    go: Option<Sender<()>>,
}

/// What the user said, by a request.
fn heard(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages").iter();
    messages.filter(|m| m["role"] == "user").filter_map(|m| Some(m["content"].as_str()?.to_owned())).collect()
}

fn last(request: &Value) -> String {
    heard(request).pop().unwrap_or_default()
}

fn scene(config: &str, prepare: impl FnOnce(&Daemon)) -> Scene {
    let (told, asked) = channel();
    let (go, held) = channel::<()>();
    let (told, held) = (Mutex::new(told), Mutex::new(held));
    let server = ModelServer::start(move |request| {
        if last(request).contains("hold") {
            let _ = told.lock().expect("one at a time").send(());
            // Ends when the test lets it, or lets everything.
            let _ = held.lock().expect("one at a time").recv();
        }
        let looked =
            request["messages"].as_array().is_some_and(|all| all.iter().any(|m| m["role"] == "tool"));
        match last(request).as_str() {
            LOOK if !looked => Say::Call(vec![("kv_list".into(), json!({}))]),
            CRASH if !looked => Say::Call(vec![("serving_abort".into(), json!({}))]),
            heard => Say::Text(format!("heard: {heard}")),
        }
    });
    let mut daemon = Daemon::home(&(server.config() + config));
    prepare(&daemon);
    daemon.run();
    Scene { server, daemon, asked, go: Some(go) }
}

impl Scene {
    /// Waits until the model is asked something that it holds back.
    fn held(&self) {
        self.asked
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("the model is asked\n{}", self.daemon.log()));
    }

    /// Lets it answer once.
    fn let_one(&self) {
        self.go.as_ref().expect("not everything was let").send(()).expect("the model listens");
    }

    /// Lets it answer everything from now on.
    fn let_all(&mut self) {
        self.go = None;
    }

    /// Hands a message in; with `more` beside its text.
    fn submit(&self, text: &str, more: Value) -> String {
        let mut submit = json!({"external_id": unique(), "session": "s", "text": text});
        submit.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let reply = self.daemon.client().ask("turn.submit", submit).expect("it is taken in");
        reply["turn"].as_str().expect("a turn").to_owned()
    }

    fn turns(&self) -> Vec<Value> {
        let session = self.daemon.client().ask("sessions.show", json!({"id": "s"})).expect("the session");
        session["turns"].as_array().expect("turns").clone()
    }

    /// Turns that a running one says that it took in.
    fn steered(&self, by: &str) -> Vec<Value> {
        let events = self.daemon.events("s");
        let of = events.iter().filter(|e| e["kind"] == "interaction.turn.steered" && e["turn"] == by);
        of.map(|e| e["data"]["from"].clone()).collect()
    }
}

fn nothing(_: &Daemon) {}

fn content(turn: &Value) -> &str {
    turn["content"].as_str().expect("text")
}

#[test]
fn followups_are_answered_one_after_another_in_their_order() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let others: Vec<String> =
        ["a", "b", "c"].iter().map(|text| scene.submit(text, json!({"queue": "followup"}))).collect();
    assert!(scene.turns().iter().all(|t| t["status"].is_null()), "nothing of it has ended");
    assert_eq!(scene.server.requests().len(), 1, "a message that waits is not worked at");
    scene.let_all();
    for (turn, text) in [&first].into_iter().chain(&others).zip(["hold this", "a", "b", "c"]) {
        assert_eq!(content(&scene.daemon.wait(turn)), format!("heard: {text}"));
    }
    let order: Vec<String> = scene.server.requests().iter().map(last).collect();
    assert_eq!(order, ["hold this", "a", "b", "c"]);
}

#[test]
fn a_steering_message_is_in_the_next_request_of_the_running_turn_and_its_own_turn_ends_at_once() {
    let mut scene = scene("", nothing);
    let first = scene.submit(LOOK, json!({}));
    scene.held();
    let second = scene.submit("hold that, too", json!({"queue": "steer"}));
    scene.let_one();
    scene.held();
    // The first goes on, and the second has ended already.
    let taken = scene.daemon.wait(&second);
    assert_eq!(taken["status"], "success", "{taken}");
    assert!(content(&taken).contains(&first), "it names the turn that took it in: {taken}");
    assert_eq!(taken["spend"]["turns"], 0, "{taken}");
    assert!(scene.turns()[0]["status"].is_null(), "the first runs");
    scene.let_all();
    let answered = scene.daemon.wait(&first);
    assert_eq!(content(&answered), "heard: hold that, too", "{answered}");
    let requests = scene.server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(heard(&requests[1]), [LOOK, "hold that, too"]);
    assert_eq!(scene.steered(&first), [json!(second)]);
    let why = scene.daemon.says(&["why", &first]);
    assert!(why.contains("took in a further message") && why.contains(&second), "{why}");
}

#[test]
fn a_message_that_was_taken_in_is_neither_lost_nor_answered_twice_when_the_kernel_is_killed() {
    let mut scene = scene("", nothing);
    let first = scene.submit(LOOK, json!({}));
    scene.held();
    let second = scene.submit("hold that, too", json!({"queue": "steer"}));
    scene.let_one();
    scene.held();
    scene.daemon.kill_kernel();
    scene.let_all();
    let answered = scene.daemon.wait(&first);
    assert_eq!(content(&answered), "heard: hold that, too", "{answered}");
    assert!(content(&scene.daemon.wait(&second)).contains(&first));
    let requests = scene.server.requests();
    assert_eq!(heard(requests.last().expect("one")), [LOOK, "hold that, too"]);
    assert_eq!((scene.turns().len(), scene.steered(&first)), (2, vec![json!(second)]));
}

#[test]
fn a_message_that_was_not_taken_in_yet_is_answered_once_when_the_kernel_is_killed() {
    let mut scene = scene("", nothing);
    let first = scene.submit(LOOK, json!({}));
    scene.held();
    let second = scene.submit("and that", json!({"queue": "steer"}));
    scene.daemon.kill_kernel();
    scene.let_all();
    let (one, two) = (scene.daemon.wait(&first), scene.daemon.wait(&second));
    // The next kernel may have it taken in, or answered by itself.
    let steered = scene.steered(&first);
    match steered.is_empty() {
        true => assert_eq!((content(&one), content(&two)), ("heard: hold and look", "heard: and that")),
        false => {
            assert_eq!((content(&one), steered), ("heard: and that", vec![json!(second)]));
            assert!(content(&two).contains(&first), "{two}");
        }
    }
    let times = scene.server.requests().iter().filter(|r| last(r) == "and that").count();
    assert_eq!((scene.turns().len(), times), (2, 1));
}

#[test]
fn a_steering_message_that_comes_when_the_answer_is_made_is_answered_after_it() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let second = scene.submit("and that", json!({"queue": "steer"}));
    scene.let_all();
    assert_eq!(content(&scene.daemon.wait(&first)), "heard: hold this", "the answer is not lost");
    assert_eq!(content(&scene.daemon.wait(&second)), "heard: and that");
    assert!(scene.steered(&first).is_empty());
}

#[test]
fn an_interrupting_message_stops_the_running_turn_within_a_second_and_is_answered() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let waits = scene.submit("later", json!({"queue": "followup"}));
    let second = scene.submit("at once", json!({"queue": "interrupt"}));
    let stopped = scene.daemon.wait(&first);
    assert_eq!((&stopped["status"], &stopped["class"]), (&json!("error"), &json!("cancelled")), "{stopped}");
    assert_eq!(content(&scene.daemon.wait(&second)), "heard: at once");
    assert_eq!(content(&scene.daemon.wait(&waits)), "heard: later");
    let order: Vec<String> = scene.server.requests().iter().map(last).collect();
    assert_eq!(order, ["hold this", "later", "at once"], "what waited before goes on waiting before it");
    let time = |value: &Value| value.as_str().and_then(|t| t.parse::<Timestamp>().ok()).expect("a time");
    let trace = scene.daemon.client().ask("trace.show", json!({"id": second})).expect("a trace");
    let events = scene.daemon.events("s");
    let ended = events.iter().find(|e| e["kind"] == "interaction.turn.completed" && e["turn"] == first);
    let took = time(&ended.expect("it ended")["time"]).duration_since(time(&trace[0]["accepted"]));
    println!("stopped {} ms after the message was taken in", took.as_millis());
    assert!(took.as_millis() < 1_000, "{took:?}");
    scene.let_all();
}

#[test]
fn a_steering_message_whose_turn_ends_before_it_is_taken_in_is_answered_by_itself() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let waits = scene.submit("later", json!({"queue": "followup"}));
    let second = scene.submit("and that", json!({"queue": "steer"}));
    scene.daemon.client().ask("turn.stop", json!({"turn": first})).expect("it is stopped");
    assert_eq!(scene.daemon.wait(&first)["class"], "cancelled");
    assert_eq!(content(&scene.daemon.wait(&second)), "heard: and that");
    assert_eq!(content(&scene.daemon.wait(&waits)), "heard: later");
    assert!(scene.steered(&first).is_empty());
    scene.let_all();
}

#[test]
fn a_steering_message_with_nothing_to_steer_is_answered_like_any_other() {
    let scene = scene("", nothing);
    let turn = scene.submit("hello", json!({"queue": "steer"}));
    assert_eq!(content(&scene.daemon.wait(&turn)), "heard: hello");
    assert!(scene.steered(&turn).is_empty());
}

#[test]
fn a_steering_message_that_wants_an_answer_of_its_own_gets_one() {
    let keeper =
        "id: keeper\nname: Keeper\ndescription: Keeps.\nagent: {model: default, instructions: You keep.}\n";
    let mut scene = scene("", |d| d.write("extensions/keeper/manifest.yaml", keeper));
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let own = [
        scene.submit("by name", json!({"queue": "steer", "agent": "keeper"})),
        scene.submit("@keeper by address", json!({"queue": "steer"})),
        scene.submit("in another form", json!({"queue": "steer", "output": {"format": "text"}})),
        scene.submit("in time", json!({"queue": "steer", "time_budget_ms": 60_000})),
    ];
    scene.let_all();
    assert_eq!(content(&scene.daemon.wait(&first)), "heard: hold this");
    let answers: Vec<Value> = own.iter().map(|turn| scene.daemon.wait(turn)).collect();
    let by = |turn: &Value| turn["invocations"][0]["agent"].as_str().expect("an agent").to_owned();
    let by: Vec<String> = answers.iter().map(by).collect();
    assert_eq!(by, ["keeper", "keeper", "orchestrator", "orchestrator"]);
    assert!(answers.iter().all(|a| content(a).starts_with("heard: ")), "{answers:#?}");
    assert!(scene.steered(&first).is_empty());
}

#[test]
fn what_messages_do_by_default_is_set_in_the_configuration() {
    for (queue, ending) in [("followup", "heard: hold and look"), ("steer", "heard: more"), ("interrupt", "")]
    {
        let mut scene = scene(&format!("inbox: {{queue: {queue}}}\n"), nothing);
        let first = scene.submit(LOOK, json!({}));
        scene.held();
        let second = scene.submit("more", json!({}));
        match queue {
            // It ends while its request is held.
            "interrupt" => {}
            _ => scene.let_all(),
        }
        let ended = scene.daemon.wait(&first);
        match queue {
            "interrupt" => assert_eq!(ended["class"], "cancelled", "{ended}"),
            _ => assert_eq!(content(&ended), ending, "{queue}: {ended}"),
        }
        scene.let_all();
        let own = content(&scene.daemon.wait(&second)) == "heard: more";
        assert_eq!(own, queue != "steer", "{queue}");
        // A message that says what it wants goes before.
        let mut other = self::scene(&format!("inbox: {{queue: {queue}}}\n"), nothing);
        let first = other.submit("hold this", json!({}));
        other.held();
        other.submit("more", json!({"queue": "followup"}));
        other.let_all();
        assert_eq!(content(&other.daemon.wait(&first)), "heard: hold this", "{queue}");
    }
}

#[test]
fn a_message_that_a_running_turn_was_to_take_in_is_stopped_with_its_session() {
    let mut scene = scene("", nothing);
    let first = scene.submit("hold this", json!({}));
    scene.held();
    let second = scene.submit("b", json!({"queue": "steer"}));
    assert_eq!(scene.daemon.json(&["session", "stop", "s", "--json"])["stopped"], 2);
    for turn in [first, second] {
        let ended = scene.daemon.wait(&turn);
        assert_eq!((&ended["status"], &ended["class"]), (&json!("error"), &json!("cancelled")), "{ended}");
    }
    scene.let_all();
}

#[test]
fn a_session_that_is_stopped_ends_what_runs_and_what_waits_and_nothing_else() {
    let mut scene = scene("", nothing);
    let mut turns = vec![scene.submit("hold this", json!({}))];
    scene.held();
    turns.push(scene.submit("a", json!({"queue": "followup"})));
    turns.push(scene.submit("b", json!({"queue": "followup"})));
    let other = scene.daemon.submit("other", "hello");
    assert_eq!(scene.daemon.wait(&other)["content"], "heard: hello", "another session does not wait");
    let said = scene.daemon.json(&["session", "stop", "s", "--json"]);
    assert_eq!(said["stopped"], 3, "{said}");
    for turn in &turns {
        let ended = scene.daemon.wait(turn);
        assert_eq!((&ended["status"], &ended["class"]), (&json!("error"), &json!("cancelled")), "{ended}");
    }
    let asked = scene.server.requests().iter().map(last).collect::<Vec<_>>();
    assert_eq!(asked, ["hold this", "hello"], "what was stopped is not worked at");
    scene.let_all();
    assert_eq!(scene.daemon.json(&["session", "stop", "s", "--json"])["stopped"], 0);
    // The session goes on.
    until("it answers", || (scene.daemon.turn("s", "again")["content"] == "heard: again").then_some(()))
        .expect("it answers");
}
