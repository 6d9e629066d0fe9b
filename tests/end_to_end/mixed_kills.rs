//! Kills at any moment of turns of every kind: tools that must not run twice, agents that work beside, a handoff, questions to the
//! operator, and answers on their way through a channel.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::harness::{
    Client, Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

const WORKER: &str = "You are the worker.";
const POET: &str = "You are the poet.";

/// What is written in a conversation, one after another; `N` is the message's own number.
const SAID: [&str; 5] = ["tool N", "children N", "verse N", "bye N", "ask N"];

fn is(request: &Value, who: &str) -> bool {
    request["messages"][0]["content"].as_str().is_some_and(|system| system.contains(who))
}

/// What the user said last, as the model is told it.
fn asked(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("messages");
    let said = messages.iter().rev().find(|message| message["role"] == "user");
    let said = said.and_then(|message| message["content"].as_str()).unwrap_or_default();
    said.rsplit_once("\n\nTask:\n").map_or(said, |(_, task)| task).to_owned()
}

/// The handles of what was spawned for this message.
fn handles(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().expect("messages");
    let given = messages.iter().rev().take_while(|message| message["role"] != "user");
    let given = given.filter_map(|message| serde_json::from_str::<Value>(message["content"].as_str()?).ok());
    given.filter_map(|given| given["handle"].as_str().map(str::to_owned)).collect()
}

fn model(effects: &str, request: &Value) -> Say {
    let ((role, text), said) = (latest(request), asked(request));
    let (what, number) = said.split_once(' ').unwrap_or((&said, ""));
    let call = |name: &str, params: Value| (name.to_owned(), params);
    if is(request, WORKER) {
        return Say::Text(format!("worked on {said}"));
    }
    match (is(request, POET), role.as_str(), what) {
        (true, "user", "bye") => {
            let params = json!({"summary": "it is done", "answer": format!("farewell {number}")});
            Say::Call(vec![call("return_control", params)])
        }
        (true, ..) => Say::Text(format!("poet: {said}")),
        (_, "user", "tool" | "ask") => {
            let prefix = if what == "ask" { "careful" } else { "plain" };
            let params = json!({"path": effects, "nonce": format!("{what}-{number}.")});
            Say::Call(vec![call(&format!("{prefix}_effect_append"), params)])
        }
        (_, "user", "children") => {
            let spawn =
                |part| call("spawn_agent", json!({"agent": "worker", "task": format!("{part} {number}")}));
            Say::Call(vec![spawn("one"), spawn("two")])
        }
        (_, "user", "verse") => Say::Call(vec![call("handoff_poet", json!({"summary": "they like verses"}))]),
        (_, "tool", "children") if !text.contains(r#""agents""#) => {
            Say::Call(vec![call("wait_agent", json!({"handles": handles(request), "timeout_ms": 60_000}))])
        }
        _ => Say::Text(format!("{said}: {text}")),
    }
}

struct House {
    daemon: Daemon,
    effects: PathBuf,
    _server: ModelServer,
    _folder: tempfile::TempDir,
}

fn house() -> House {
    let folder = tempfile::tempdir().expect("a folder");
    let effects = folder.path().join("effects");
    let path = effects.display().to_string();
    let server = ModelServer::start(move |request| {
        // As long as a small model takes, so that there is a moment in which to be killed.
        std::thread::sleep(Duration::from_millis(6));
        model(&path, request)
    });
    let mut daemon = Daemon::home(&(server.config() + "approvals: {preauthorized: all}\n"));
    daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
    daemon.plugin("plain", "faulty", "config: {prefix: plain}\n");
    daemon.plugin("quick", "serving", "config: {prefix: quick}\nrights: [submit]\n");
    for (id, instructions, mode) in [("worker", WORKER, "tool"), ("poet", POET, "handoff")] {
        let manifest = format!(
            "id: {id}\nname: {id}\ndescription: Does what a {id} does.\nagent:\n  model: default\n  integration_mode: {mode}\n  \
             instructions: {instructions}\n"
        );
        daemon.write(&format!("extensions/{id}/manifest.yaml"), &manifest);
    }
    daemon.run();
    House { daemon, effects, _server: server, _folder: folder }
}

impl House {
    /// Somebody writes through the channel; the turn.
    fn hears(&self, session: &str, id: &str, text: &str) -> String {
        let heard = json!({"session": session, "id": id, "text": text});
        let ask = json!({"id": "quick", "ask": "hear", "params": heard});
        let turn = until("the message is taken in", || {
            Client::connect(self.daemon.path()).ok()?.ask("extensions.ask", ask.clone()).ok()
        });
        let turn = turn.unwrap_or_else(|| panic!("{}", self.daemon.log()));
        turn["turn"].as_str().expect("a turn").to_owned()
    }

    /// Waits for the end of a turn, and allows what is asked about meanwhile.
    fn ended(&self, turn: &str) -> Value {
        let found = until("the turn ends", || {
            let mut client = Client::connect(self.daemon.path()).ok()?;
            for approval in client.ask("approvals.list", json!({})).ok()?.as_array()? {
                if approval["state"] == "pending" {
                    let answer = json!({"id": approval["id"], "allow": true});
                    // The one before may have been recorded, and its answer lost.
                    let _ = client.ask("approvals.answer", answer);
                }
            }
            let now = client.ask("turn.wait", json!({"turn": turn, "now": true})).ok()?;
            now["status"].is_string().then_some(now)
        });
        found.unwrap_or_else(|| panic!("{turn}\n{}", self.daemon.log()))
    }

    /// How often each text went out through the channel.
    fn sent(&self) -> BTreeMap<String, usize> {
        let all = fs::read_to_string(self.daemon.path().join("data/quick/all")).unwrap_or_default();
        let mut sent = BTreeMap::new();
        for line in all.lines() {
            *sent.entry(serde_json::from_str(line).expect("a text")).or_default() += 1;
        }
        sent
    }

    /// What became of the answers on their way out, by their turns.
    fn deliveries(&self) -> BTreeMap<String, String> {
        let journal = rusqlite::Connection::open(self.daemon.path().join("journal.db")).expect("the journal");
        let mut all =
            journal.prepare("SELECT key, state FROM outbox WHERE kind = 'answer'").expect("a query");
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
        rows.collect::<Result<_, _>>().expect("rows")
    }
}

/// What was seen after so many kills.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    lost: usize,
    answered_otherwise: usize,
    effects_twice: usize,
    /// An effect that the answer tells of, and that never happened; or the other way round, without a word.
    effects_untold: usize,
    delivered_twice: usize,
    /// Neither delivered nor told to be doubtful.
    deliveries_untold: usize,
}

/// Kills supervisor and kernel so often, each time in another turn.
fn kill(kills: usize) -> (Seen, [usize; 2]) {
    let mut house = house();
    let (mut seen, mut turns) = (Seen::default(), Vec::new());
    let mut unknown = 0;
    for kill in 0..kills {
        let text = SAID[kill % SAID.len()].replace('N', &kill.to_string());
        let session = format!("quick:s{}", kill / SAID.len());
        let turn = house.hears(&session, &format!("m{kill}"), &text);
        std::thread::sleep(Duration::from_millis(kill as u64 * 7 % 110));
        house.daemon.kill_all();
        // Whoever wrote does not know whether they were heard, and writes again.
        seen.lost += usize::from(house.hears(&session, &format!("m{kill}"), &text) != turn);
        let ended = house.ended(&turn);
        let content = ended["content"].as_str().unwrap_or_default().to_owned();
        let ran = fs::read_to_string(&house.effects).unwrap_or_default();
        let (what, number) = text.split_once(' ').expect("two words");
        let ran = ran.lines().filter(|line| line.ends_with(&format!(" {what}-{number}."))).count();
        let told = content.contains(&format!("appended {what}-{number}."));
        let doubtful = content.contains("outcome unknown");
        unknown += usize::from(doubtful);
        let good = match what {
            "tool" | "ask" => {
                seen.effects_twice += usize::from(ran > 1);
                seen.effects_untold += usize::from(told != (ran == 1) && !doubtful);
                told || doubtful
            }
            "children" => ["one", "two"]
                .iter()
                .all(|part| content.matches(&format!("worked on {part} {number}\"")).count() == 1),
            "verse" => content == format!("poet: {text}"),
            _ => content == format!("farewell {number}"),
        };
        if !good {
            println!("{session} {text}: {ended}");
        }
        seen.answered_otherwise += usize::from(!good);
        turns.push((turn, content));
    }
    let settled = || {
        let states = house.deliveries();
        (states.len() == turns.len()
            && states.values().all(|state| !["due", "sending"].contains(&state.as_str())))
        .then_some(states)
    };
    let states =
        until("all answers are on their way", settled).unwrap_or_else(|| panic!("{}", house.daemon.log()));
    let sent = house.sent();
    let mut uncertain = 0;
    for (turn, content) in &turns {
        let (times, state) = (sent.get(content).copied().unwrap_or(0), states[turn].as_str());
        uncertain += usize::from(state == "uncertain");
        seen.delivered_twice += usize::from(times > 1);
        seen.deliveries_untold += usize::from(times == 0 && state != "uncertain");
    }
    (seen, [unknown, uncertain])
}

#[test]
fn kills_in_turns_of_every_kind_lose_nothing_and_do_nothing_twice() {
    let (seen, _) = kill(15);
    assert_eq!(seen, Seen::default());
}

/// `cargo test -p drupe --test end_to_end mixed_kills::two_hundred -- --ignored --nocapture`
#[test]
#[ignore = "it takes minutes"]
fn two_hundred_kills_in_turns_of_every_kind() {
    let (seen, [unknown, uncertain]) = kill(200);
    println!(
        "200 kills: {seen:?}; {unknown} outcomes were told to be unknown, {uncertain} deliveries to be uncertain"
    );
    assert_eq!(seen, Seen::default());
}
