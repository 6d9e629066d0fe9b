//! People who write through a channel: unknown ones get a code and nothing else, and those whom the operator lets in are somebody.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    unique, until,
};

const KNOWN: &str = "senders: known\nrights: [submit]\n";

struct Chat {
    server: ModelServer,
    daemon: Daemon,
}

impl Chat {
    fn run(settings: &str, config: &str) -> Self {
        let effects = std::env::temp_dir().join(format!("people-{}", unique()));
        let call = json!({"path": effects, "nonce": "n"});
        let server = ModelServer::start(move |request| match latest(request) {
            (role, text) if role == "tool" => Say::Text(text),
            (_, text) if text == "go" => Say::Call(vec![("careful_effect_append".to_owned(), call.clone())]),
            (_, text) => Say::Text(format!("you said {text}")),
        });
        let mut daemon = Daemon::home(&(server.config() + settings));
        daemon.write("effects", effects.to_str().expect("a path"));
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.plugin("quick", "serving", &format!("config: {{prefix: quick{config}}}\n{KNOWN}"));
        daemon.run();
        Self { server, daemon }
    }

    fn ask(&self, ask: &str, params: Value) -> Result<Value, String> {
        self.daemon.client().ask("extensions.ask", json!({"id": "quick", "ask": ask, "params": params}))
    }

    /// Somebody writes in their own conversation.
    fn hears(&self, who: &str, text: &str) -> Value {
        self.hears_in(who, &format!("quick:person.{who}"), text).expect("it is heard")
    }

    fn hears_in(&self, who: &str, session: &str, text: &str) -> Result<Value, String> {
        let sender = json!({"id": who, "name": format!("Name of {who}")});
        self.ask("hear", json!({"session": session, "id": unique(), "text": text, "sender": sender}))
    }

    fn code(&self, who: &str) -> String {
        let shown = self.hears(who, "open sesame");
        assert_eq!(shown["is"], "waiting", "{shown}");
        let code = shown["code"].as_str().expect("a code").to_owned();
        assert!(shown["text"].as_str().is_some_and(|text| text.contains(&code)), "{shown}");
        code
    }

    fn lets_in(&self, who: &str, more: &[&str]) {
        let code = self.code(who);
        let said = self.daemon.drupe(&[&["pair", "allow", &code], more].concat());
        assert!(said.status.success(), "{said:?}");
    }

    fn answered(&self, heard: &Value) -> Value {
        let turn = heard["turn"].as_str().unwrap_or_else(|| panic!("{heard}"));
        self.daemon.wait(turn)
    }

    fn sent(&self) -> Vec<String> {
        let all = fs::read_to_string(self.daemon.path().join("data/quick/all")).unwrap_or_default();
        all.lines().map(|line| serde_json::from_str(line).expect("a text")).collect()
    }

    fn until_sent(&self, part: &str) -> String {
        let found = || self.sent().into_iter().find(|text| text.contains(part));
        until("it is sent", found)
            .unwrap_or_else(|| panic!("{part}: {:?}\n{}", self.sent(), self.daemon.log()))
    }

    fn ran(&self) -> usize {
        let file = fs::read_to_string(self.daemon.path().join("effects")).expect("it is noted");
        fs::read_to_string(file).unwrap_or_default().lines().count()
    }
}

#[test]
fn whoever_is_not_known_gets_a_code_and_nothing_else_until_the_operator_lets_them_in() {
    let chat = Chat::run("", "");
    chat.daemon.turn("main", "hello");
    let code = chat.code("7");
    // Neither a turn, nor a session, nor anything for the model came of it.
    let sessions = chat.daemon.json(&["session", "list", "--json"]).to_string();
    assert!(!sessions.contains("quick:"), "{sessions}");
    assert!(!chat.server.requests().iter().any(|request| request.to_string().contains("sesame")));
    // The operator hears of it: where they wrote last, in the status, and in the list.
    let told = chat.daemon.events("main").iter().any(|event| event.to_string().contains(&code));
    assert!(told, "{}", chat.daemon.log());
    assert!(chat.daemon.says(&["status"]).contains("drupe pair"));
    let list = chat.daemon.says(&["pair"]);
    assert!(list.contains("quick/7") && list.contains(&code) && list.contains("Name of 7"), "{list}");
    // The same code for whoever writes again, so many times.
    assert_eq!(chat.code("7"), code);
    assert_eq!(chat.code("7"), code);
    assert_eq!(chat.hears("7", "hello")["is"], "unknown");
    let wrong = chat.daemon.drupe(&["pair", "allow", "AAAA-AAAA"]);
    assert!(!wrong.status.success());
    assert_eq!(chat.hears("7", "hello")["is"], "unknown");
    // It holds in the next kernel as well, and however it is written.
    chat.daemon.kill_kernel();
    chat.daemon.until_ready();
    let said = chat.daemon.says(&["pair", "allow", &code.to_lowercase().replace('-', "")]);
    assert!(!said.contains("error"), "{said}");
    let heard = chat.hears("7", "good morning");
    assert_eq!(chat.answered(&heard)["status"], "success");
    chat.until_sent("you said good morning");
    let why = chat.daemon.says(&["why", heard["turn"].as_str().expect("a turn")]);
    assert!(why.contains("`quick/7` wrote the message"), "{why}");
    chat.daemon.kill_kernel();
    chat.daemon.until_ready();
    assert_eq!(chat.answered(&chat.hears("7", "still there"))["status"], "success");
    assert!(!chat.daemon.drupe(&["pair", "allow", &code]).status.success(), "a code is used once");
}

#[test]
fn so_many_wait_in_a_channel_and_whoever_is_kept_out_hears_nothing() {
    let chat = Chat::run("", "");
    let codes: Vec<_> = ["1", "2", "3"].map(|who| chat.code(who)).into();
    for who in 4..40 {
        assert_eq!(chat.hears(&who.to_string(), "let me in")["is"], "unknown");
    }
    let list = chat.daemon.json(&["pair", "list", "--json"]);
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    chat.daemon.says(&["pair", "deny", &codes[0]]);
    assert_eq!(chat.hears("1", "please")["is"], "unknown");
    chat.code("4");
    // What was said of somebody is forgotten, and they begin anew.
    assert!(!chat.daemon.drupe(&["pair", "revoke", "quick/9"]).status.success());
    chat.daemon.says(&["pair", "deny", &codes[1]]);
    chat.daemon.says(&["pair", "revoke", "quick/1"]);
    chat.code("1");
}

#[test]
fn a_message_says_who_wrote_it_and_stays_in_conversations_of_theirs() {
    let chat = Chat::run("", "");
    chat.lets_in("7", &[]);
    chat.lets_in("8", &[]);
    let without = json!({"session": "quick:person.7", "id": unique(), "text": "hello"});
    let refused = chat.ask("hear", without).expect_err("nobody wrote it");
    assert!(refused.contains("does not say who wrote it"), "{refused}");
    for (session, good) in [
        ("quick:person.7", true),
        ("quick:person.7:2", true),
        ("quick:group.-100", true),
        ("quick:person.8", false),
        ("quick:person.77", false),
        ("quick:7", false),
        ("quick:personal", false),
    ] {
        let heard = chat.hears_in("7", session, "hello");
        assert_eq!(heard.is_ok(), good, "{session}: {heard:?}");
        let stopped = chat.ask("stop", json!({"session": session, "sender": {"id": "7"}}));
        assert_eq!(stopped.is_ok(), good, "{session}: {stopped:?}");
    }
    for wrong in ["", "a:b", "a/b", "ä", &"1".repeat(49)] {
        let refused = chat.hears_in(wrong, "quick:group.1", "hello").expect_err("it is no id");
        assert!(refused.contains("cannot be the id of a sender"), "{refused}");
    }
    let stranger = chat.ask("stop", json!({"session": "quick:group.-100", "sender": {"id": "9"}}));
    assert!(stranger.is_err(), "{stranger:?}");
    let nobody = json!({"external_id": unique(), "session": "s", "text": "hi", "sender": {"id": "7"}});
    assert!(chat.daemon.client().ask("turn.submit", nobody).is_err(), "only a channel says who wrote");
    let file = json!({"name": "a", "fetch": {"method": "GET", "url": "http://127.0.0.1:1/"}});
    let files = json!({"external_id": unique(), "session": "s", "text": "hi", "files": [file]});
    let refused =
        chat.daemon.client().ask("turn.submit", files).expect_err("only a channel has files fetched");
    assert!(refused.to_string().contains("hands no files in"), "{refused}");
}

#[test]
fn those_whom_the_configuration_names_are_known_and_nobody_else_is_asked_about() {
    let chat = Chat::run("", ", allowed: [7, \"U8\"]");
    for who in ["7", "U8"] {
        assert_eq!(chat.answered(&chat.hears(who, "hello"))["status"], "success");
    }
    assert_eq!(chat.hears("9", "hello")["is"], "unknown");
    assert_eq!(chat.daemon.json(&["pair", "list", "--json"]), json!([]));
}

#[test]
fn whoever_is_revoked_has_no_turn_left() {
    let chat = Chat::run("", "");
    chat.lets_in("7", &[]);
    let waits = chat.hears("7", "go");
    chat.until_sent("may call `careful_effect_append`");
    let behind = chat.hears("7", "and then");
    chat.daemon.says(&["pair", "revoke", "quick/7"]);
    for heard in [waits, behind] {
        let ended = chat.answered(&heard);
        assert_eq!((&ended["status"], &ended["class"]), (&json!("error"), &json!("cancelled")), "{ended}");
    }
    assert_eq!(chat.ran(), 0);
    assert_eq!(chat.hears("7", "hello")["is"], "waiting");
}

#[test]
fn what_somebody_uses_in_a_day_is_bounded_for_them_alone_also_in_the_next_kernel() {
    let chat = Chat::run("", "");
    chat.lets_in("7", &["--per-day", "1runs"]);
    chat.lets_in("8", &[]);
    assert_eq!(chat.answered(&chat.hears("7", "one"))["status"], "success");
    chat.daemon.kill_kernel();
    chat.daemon.until_ready();
    let over = chat.answered(&chat.hears("7", "two"));
    assert_eq!(over["class"], "budget", "{over}");
    assert_eq!(chat.answered(&chat.hears("8", "two"))["status"], "success");
}

#[test]
fn the_operator_names_whose_answers_to_questions_count() {
    let chat = Chat::run("approvals: {preauthorized: all, people: [quick/9]}\n", "");
    chat.lets_in("7", &[]);
    chat.lets_in("8", &["--may-approve"]);
    chat.lets_in("9", &[]);
    let room = "quick:group.1";
    let turn = chat.hears_in("7", room, "go").expect("it is heard")["turn"].clone();
    let question = chat.until_sent("may call `careful_effect_append`");
    let (_, id) = question.split_once("Answer `allow ").expect("somebody there may answer");
    let id = id.split('`').next().expect("an id");
    // It is the answer of somebody who may not, and no message for the model.
    assert_eq!(chat.hears_in("7", room, &format!("allow {id}")).expect("it is heard")["turn"], turn);
    chat.until_sent("Answers are not taken here");
    assert_eq!(chat.hears_in("11", room, &format!("allow {id}")).expect("it is heard")["is"], "waiting");
    assert_eq!(chat.ran(), 0);
    assert_eq!(chat.hears_in("8", room, &format!("allow {id}")).expect("it is heard")["turn"], turn);
    assert_eq!(chat.daemon.wait(turn.as_str().expect("a turn"))["status"], "success");
    assert_eq!(chat.ran(), 1);
    let list = chat.daemon.client().ask("approvals.list", json!({})).expect("a list");
    let by = list.as_array().expect("a list").iter().find_map(|one| one["call"]["by"].as_str());
    assert_eq!(by, Some("person `quick/8`"));
    // Whom the configuration names may answer as well, and is told how in their own conversation.
    let own = chat.hears("9", "go");
    let asked = || chat.sent().into_iter().filter(|text| text.contains("Answer `allow ")).nth(1);
    let question = until("they are asked", asked).unwrap_or_else(|| panic!("{:?}", chat.sent()));
    let (_, id) = question.split_once("Answer `allow ").expect("they may answer");
    chat.hears("9", &format!("allow {}", id.split('`').next().expect("an id")));
    assert_eq!(chat.answered(&own)["status"], "success");
    assert_eq!(chat.ran(), 2);
}
