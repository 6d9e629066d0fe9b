//! People who write in Slack, whose service tells of it by requests over HTTP: signed, acknowledged when it is on the disk, and one turn however
//! often it is told.

use std::{fs, net::SocketAddr};

use serde_json::{Value, json};

use super::{
    ANN, BEN, BOTH, ROOM, SETTINGS, Scene, buttons, chat_of,
    workspace::{BOT_TOKEN, SIGNING_SECRET, Workspace, request},
};
use crate::{
    chat::{Gate, WIDE_LIMITS, effects, obedient},
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
        until,
    },
};

const JSON: &str = "application/json";

impl Scene {
    /// One that is told by requests, and has no token of the app.
    fn by_requests(model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        let (slack, server) = (Workspace::start(), ModelServer::start(model));
        let more = format!("{BOTH}    events: 127.0.0.1:0\n    signing_secret: ${{SLACK_SIGNING_SECRET}}\n");
        let config = server.config() + WIDE_LIMITS + SETTINGS + &slack.config(&more);
        let mut daemon = Daemon::home(&config);
        daemon.variable("SLACK_BOT_TOKEN", BOT_TOKEN);
        daemon.variable("SLACK_SIGNING_SECRET", SIGNING_SECRET);
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.run();
        let scene = Self { slack, daemon, server };
        scene.tell_here();
        scene
    }

    fn door(&self) -> SocketAddr {
        let listening = || {
            let shown = self.daemon.client().ask("extensions.show", json!({"id": "slack"})).ok()?;
            shown["listening"][0].as_str()?.parse().ok()
        };
        until("the door is open", listening).unwrap_or_else(|| panic!("{}", self.daemon.log()))
    }

    /// What happens is told where the daemon listens by now.
    fn tell_here(&self) {
        self.slack.tell_at(self.door());
    }
}

#[test]
fn what_is_told_by_requests_is_one_turn_each_and_buttons_work() {
    let file = effects();
    let mut scene = Scene::by_requests(obedient(&file));
    let verify = json!({"type": "url_verification", "token": "x", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"});
    let said = request(scene.door(), JSON, &verify.to_string(), SIGNING_SECRET, &[]).expect("it answers");
    assert_eq!(said, (200, "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P".to_owned()));
    let events: Vec<Value> = (0..6).map(|n| scene.slack.direct(ANN, &format!("number {n}"))).collect();
    scene.slack.push(events.iter().chain(&events).cloned());
    scene.slack.tell_again();
    scene.settle(ANN);
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "go")]);
    let card = scene.until_there(ROOM, "may call `careful_effect_append`");
    scene.slack.presses(ANN, &card, "Allow");
    scene.until_there(ROOM, "Answers are not taken here");
    scene.slack.presses(BEN, &card, "Allow");
    scene.until_there(ROOM, "done: ");
    let settled = || Some(scene.posted(ROOM, &card)).filter(|card| card.text.ends_with("` runs."));
    assert_eq!(until("the card is settled", settled).as_ref().map(buttons), Some(vec![]));
    scene.until_acknowledged();
    // Where the extension has forgotten all that it kept, the daemon knows their ids.
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    fs::remove_file(scene.daemon.path().join("data/slack/slack.json")).expect("it was kept");
    scene.daemon.run();
    scene.tell_here();
    scene.slack.push(events);
    scene.settle(BEN);
    scene.until_acknowledged();
    let chat = chat_of(ANN);
    let answers: Vec<_> = (0..6).map(|n| scene.count(&chat, &format!("you said number {n}"))).collect();
    assert_eq!(answers, [1; 6], "{:?}", scene.slack.texts(&chat));
    assert_eq!(fs::read_to_string(&file).unwrap_or_default().lines().count(), 1);
    assert!(scene.slack.calls("apps.connections.open").is_empty(), "no socket is asked for");
    let shown = scene.daemon.says(&["config", "show"]);
    assert!(!shown.contains(SIGNING_SECRET) && !scene.daemon.log().contains(SIGNING_SECRET), "{shown}");
}

#[test]
fn whoever_does_not_have_the_secret_is_not_heard_and_nothing_of_them_is_kept() {
    let scene = Scene::by_requests(obedient(&effects()));
    scene.settle(BEN);
    let event = |team: &str, text: &str| json!({"type": "event_callback", "team_id": team, "api_app_id": "A0APP", "event_id": "Ev1", "event": scene.slack.direct(ANN, text)});
    let send = |payload: Value, secret: &str| {
        request(scene.door(), JSON, &payload.to_string(), secret, &[]).expect("it answers").0
    };
    assert_eq!(send(event("T0HOME", "forged words"), "another secret that is long"), 401);
    assert_eq!(send(event("T0OTHER", "words from elsewhere"), SIGNING_SECRET), 200);
    assert_eq!(send(event("T0HOME", "true words"), SIGNING_SECRET), 200);
    scene.until_there(&chat_of(ANN), "you said true words");
    scene.settle(ANN);
    let asked = scene.server.requests().iter().map(ToString::to_string).collect::<String>();
    let texts = scene.slack.texts(&chat_of(ANN));
    for words in ["forged words", "words from elsewhere"] {
        assert!(
            !asked.contains(words)
                && !scene.daemon.log().contains(words)
                && !texts.iter().any(|text| text.contains(words)),
            "{words}"
        );
    }
}

#[test]
fn what_was_acknowledged_is_on_the_disk_and_what_was_not_is_told_again() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::by_requests(move |request| {
        let (_, text) = latest(request);
        if text == "slow" {
            held.wait();
        }
        Say::Text(format!("you said {text}"))
    });
    let chat = chat_of(ANN);
    scene.slack.says(ANN, "slow");
    scene.until_acknowledged();
    scene.daemon.kill_kernel();
    // What is told meanwhile finds nobody, and is told again.
    scene.slack.says(ANN, "meanwhile");
    scene.slack.says(BEN, "me too");
    gate.open();
    scene.daemon.until_ready();
    scene.tell_here();
    scene.until_there(&chat, "you said meanwhile");
    scene.until_there(&chat_of(BEN), "you said me too");
    scene.settle(ANN);
    for text in ["slow", "meanwhile"] {
        assert_eq!(
            scene.count(&chat, &format!("you said {text}")),
            1,
            "{text}: {:?}",
            scene.slack.texts(&chat)
        );
    }
    scene.until_acknowledged();
}

#[test]
fn a_file_that_comes_slower_than_the_service_waits_is_one_turn() {
    let scene = Scene::by_requests(|request| Say::Text(format!("read {}", latest(request).1)));
    scene.slack.keep("F1", "a.txt", "text/plain", b"words");
    scene.slack.hold_files(true);
    scene.slack.push([scene.slack.with_files(scene.slack.direct(ANN, "look"), &["F1"])]);
    let again = || (scene.slack.calls("request").iter().any(|(_, call)| call["status"] == 0)).then_some(());
    assert!(until("the service has waited", again).is_some(), "{}", scene.daemon.log());
    scene.slack.hold_files(false);
    scene.until_there(&chat_of(ANN), "A file came with this message: `inbox/");
    scene.until_acknowledged();
    scene.settle(ANN);
    let answers = scene.slack.texts(&chat_of(ANN)).iter().filter(|text| text.contains("inbox/")).count();
    assert_eq!((answers, scene.slack.calls("file").len()), (1, 1), "{:?}", scene.slack.texts(&chat_of(ANN)));
}

#[test]
fn where_it_may_not_listen_or_has_no_token_it_says_so() {
    let secret = format!("    signing_secret: {SIGNING_SECRET}\n");
    for (more, named) in [
        ("    events: 127.0.0.1:0\n".to_owned(), "signing_secret"),
        (secret.clone(), "events"),
        (format!("    events: 0.0.0.0:0\n{secret}"), "without TLS"),
        (format!("    events: here\n{secret}"), "that is no address and port"),
        ("    events: 127.0.0.1:0\n    signing_secret: short\n".to_owned(), "fewer than 16 characters"),
        // Without that, it goes to the service itself.
        (String::new(), "`SLACK_APP_TOKEN` is not defined"),
    ] {
        let slack = Workspace::start();
        let mut daemon =
            Daemon::home(&("approvals: {preauthorized: all}\n".to_owned() + &slack.config(&more)));
        daemon.variable("SLACK_BOT_TOKEN", BOT_TOKEN);
        daemon.run();
        let said = || {
            let (state, reason) = daemon.extension("slack");
            (state != "active" && reason.contains(named)).then_some(())
        };
        assert!(
            until("it says so", said).is_some(),
            "{named}: {:?}\n{}",
            daemon.extension("slack"),
            daemon.log()
        );
    }
}
