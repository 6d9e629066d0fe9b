//! Webhooks: the real extension in a process of its own, against a receiver that checks signatures by itself, as Standard Webhooks has them
//! (<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>, read on 2026-11-27).

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::receiver::{Asked, Receiver, Reply};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

const KEY: &[u8] = b"twenty-four bytes or more of a key";
const OLD_KEY: &[u8] = b"another key of as many bytes as it";

fn secret(key: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(key))
}

/// Whether one of the signatures of a message was made with that key, over what came.
fn is_signed(asked: &Asked, key: &[u8]) -> bool {
    let (id, time) = (asked.header("webhook-id"), asked.header("webhook-timestamp"));
    let now = jiff::Timestamp::now().as_second();
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
    mac.update(format!("{id}.{time}.{}", asked.body).as_bytes());
    let made = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let signatures = asked.header("webhook-signature");
    now.abs_diff(time.parse().expect("seconds")) < 300 && signatures.split(' ').any(|one| one == made)
}

struct Scene {
    daemon: Daemon,
    builds: Receiver,
    other: Receiver,
    _model: ModelServer,
}

impl Scene {
    fn new(answers: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let copies = "  - { session: main, channel: webhook, address: builds }\n  - { session: other, channel: webhook, address: other }\n";
        Self::with(copies, answers)
    }

    fn with(copies: &str, answers: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let model = ModelServer::start(|request| Say::Text(format!("you said {}", latest(request).1)));
        let (builds, other) = (Receiver::start(answers), Receiver::start(|_, _| taken()));
        let copies = format!("copies:\n{copies}");
        let settings = format!(
            "extensions:\n  webhook:\n    enabled: true\n    endpoints:\n      builds: {{ url: \"{}/in?from=drupe\", secret: \"${{BUILDS_KEY}}\", previous_secret: \"${{OLD_KEY}}\" }}\n      other: {{ url: \"{}/\", secret: \"${{OLD_KEY}}\" }}\n",
            builds.address, other.address
        );
        let mut daemon = Daemon::home(&(model.config() + &copies + &settings));
        daemon.variable("BUILDS_KEY", &secret(KEY));
        daemon.variable("OLD_KEY", &secret(OLD_KEY));
        daemon.run();
        Self { daemon, builds, other, _model: model }
    }

    fn until_asked(&self, receiver: &Receiver, count: usize) -> Vec<Asked> {
        until("it is told", || Some(receiver.asked("POST")).filter(|all| all.len() >= count))
            .unwrap_or_else(|| panic!("{:?}\n{}", receiver.asked("POST"), self.daemon.log()))
    }

    fn until_told(&self, code: &str) -> String {
        let told = || {
            let events = self.daemon.events("main");
            let found = events.iter().rfind(|event| event["data"]["code"] == code)?;
            found["data"]["message"].as_str().map(str::to_owned)
        };
        until("the session is told", told)
            .unwrap_or_else(|| panic!("{:?}\n{}", self.daemon.events("main"), self.daemon.log()))
    }
}

fn taken() -> Reply {
    Reply::Says(204, &[], String::new())
}

fn text(asked: &Asked) -> String {
    let body: Value = serde_json::from_str(&asked.body).expect("JSON");
    body["data"]["text"].as_str().expect("a text").to_owned()
}

#[test]
fn a_program_hears_of_each_finished_turn_signed_with_both_secrets_while_they_change() {
    let scene = Scene::new(|_, _| taken());
    let turn = scene.daemon.submit("main", "hello");
    scene.daemon.wait(&turn);
    let one = scene.until_asked(&scene.builds, 1).remove(0);
    assert_eq!((one.path.as_str(), one.header("content-type")), ("/in?from=drupe", "application/json"));
    let id = one.header("webhook-id");
    let body: Value = serde_json::from_str(&one.body).expect("JSON");
    let data = json!({"id": id, "session": "main", "text": "you said hello", "turn": turn});
    assert_eq!(body, json!({"type": "message.answer", "data": data}));
    assert!(id.starts_with("msg_") && !id.contains('.'), "{id}");
    assert!(is_signed(&one, KEY) && is_signed(&one, OLD_KEY) && !is_signed(&one, b"another"));
    scene.daemon.turn("other", "good day");
    let other = scene.until_asked(&scene.other, 1).remove(0);
    assert!(is_signed(&other, OLD_KEY) && !is_signed(&other, KEY), "each endpoint has its own");
    assert_eq!((scene.builds.asked("POST").len(), scene.other.asked("POST").len()), (1, 1));
    let log = scene.daemon.log();
    assert!(!log.contains(&secret(KEY)) && !log.contains(&secret(OLD_KEY)));
}

#[test]
fn what_was_not_taken_or_not_heard_of_comes_again_with_the_same_id_and_in_its_order() {
    let scene = Scene::new(|_, before| match before {
        0 => Reply::Says(503, &[("retry-after", "1")], String::new()),
        1 => Reply::Cut,
        2 => Reply::Says(500, &[], "broken".to_owned()),
        _ => taken(),
    });
    scene.daemon.turn("main", "one");
    // Messages of another conversation are not held up by what waits.
    scene.daemon.turn("other", "good day");
    scene.until_asked(&scene.other, 1);
    assert_eq!(scene.builds.asked("POST").len(), 1);
    // Each attempt comes some 15 seconds after the one before.
    for attempts in 2..=4 {
        scene.until_asked(&scene.builds, attempts);
    }
    let all = scene.builds.asked("POST");
    let first = &all[0];
    for one in &all {
        assert!(is_signed(one, KEY), "each attempt is signed with its own time");
        assert_eq!((one.header("webhook-id"), &one.body), (first.header("webhook-id"), &first.body));
    }
    scene.daemon.turn("main", "two");
    let all = scene.until_asked(&scene.builds, 5);
    assert_eq!(text(&all[4]), "you said two");
    assert_ne!(all[4].header("webhook-id"), first.header("webhook-id"));
    assert_eq!(scene.builds.asked("POST").len(), 5);
    let told =
        |event: &Value| event["data"]["code"].as_str().is_some_and(|code| code.starts_with("delivery."));
    assert!(!scene.daemon.events("main").iter().any(told), "{:?}", scene.daemon.events("main"));
}

#[test]
fn who_refuses_or_leads_elsewhere_is_told_of_and_who_is_gone_is_asked_no_more() {
    let elsewhere = Receiver::start(|_, _| taken());
    let away: &'static str = Box::leak(format!("{}/", elsewhere.address).into_boxed_str());
    let leads: &'static [(&str, &str)] = Box::leak(Box::new([("location", away)]));
    let scene = Scene::new(move |_, before| match before {
        0 => Reply::Says(307, leads, String::new()),
        1 => Reply::Says(401, &[], String::new()),
        _ => Reply::Says(410, &[], String::new()),
    });
    for (text, says) in [
        ("one", "says 307"),
        ("two", "says 401"),
        ("three", "says 410"),
        ("four", "wants no messages any more"),
    ] {
        scene.daemon.turn("main", text);
        let told = || Some(scene.until_told("delivery.failed")).filter(|told| told.contains(says));
        until("the session is told", told)
            .unwrap_or_else(|| panic!("{says}: {:?}\n{}", scene.daemon.events("main"), scene.daemon.log()));
    }
    assert_eq!(scene.builds.asked("POST").len(), 3, "who is gone is left alone");
    assert!(elsewhere.asked("POST").is_empty() && elsewhere.asked("GET").is_empty());
}

/// Some conversations, each of which goes to some endpoints; `builds` has its connections cut, and says when.
fn cut_off(copies: &[(&str, &str)]) -> (Scene, Arc<Mutex<Vec<Instant>>>) {
    let copies = copies
        .iter()
        .map(|(session, to)| format!("  - {{ session: {session}, channel: webhook, address: {to} }}\n"));
    let times = Arc::<Mutex<Vec<Instant>>>::default();
    let told = Arc::clone(&times);
    let scene = Scene::with(&copies.collect::<String>(), move |_, _| {
        told.lock().expect("nobody panics").push(Instant::now());
        Reply::Cut
    });
    (scene, times)
}

#[test]
fn what_waits_for_one_endpoint_holds_nothing_up_that_its_conversation_tells_another() {
    let (scene, _) = cut_off(&[("main", "builds"), ("main", "other")]);
    for round in 1..=3 {
        scene.daemon.turn("main", &round.to_string());
        let other = scene.until_asked(&scene.other, round);
        assert_eq!(text(&other[round - 1]), format!("you said {round}"));
    }
    // The first of them is tried again and again, and none behind it before.
    let all = scene.until_asked(&scene.builds, 2);
    assert!(all.iter().all(|asked| text(asked) == "you said 1"), "{all:?}");
}

#[test]
fn an_endpoint_that_does_not_answer_is_asked_once_for_all_conversations_that_wait_for_it() {
    let (scene, times) = cut_off(&[("main", "builds"), ("talk", "builds"), ("other", "other")]);
    scene.daemon.turn("main", "one");
    scene.until_asked(&scene.builds, 1);
    scene.daemon.turn("talk", "two");
    scene.daemon.turn("other", "three");
    scene.until_asked(&scene.other, 1);
    scene.until_asked(&scene.builds, 2);
    for two in times.lock().expect("nobody panics").windows(2) {
        let between = two[1] - two[0];
        assert!(between.as_millis() >= 9_900, "it is left alone for ten seconds, and was for {between:?}");
    }
}
