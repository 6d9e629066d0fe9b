//! Push: the real extension in a process of its own, against a stand-in of an ntfy server. Forms as in <https://docs.ntfy.sh/publish/>
//! and <https://docs.ntfy.sh/subscribe/api/>, read on 2026-11-27.

use std::sync::{Arc, Mutex};

use serde_json::json;

use super::receiver::{Asked, Receiver, Reply};
use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    until,
};

const TOPIC: &str = "plum-0123456789abcdef";

/// A server that publishes, with `trouble` in place of the answers to some requests.
fn server(
    knows_sequences: bool,
    trouble: impl Fn(&Asked, usize) -> Option<Reply> + Send + Sync + 'static,
) -> Receiver {
    let kept: Arc<Mutex<Vec<String>>> = Arc::default();
    Receiver::start(move |asked, before| {
        let mut kept = kept.lock().expect("nobody panics");
        let ok = |body| Reply::Says(200, &[("content-type", "application/json")], body);
        if asked.method == "GET" {
            return ok(kept.join("\n"));
        }
        let mut message = json!({"id": format!("m{before}"), "time": 1_795_000_000, "event": "message",
            "topic": asked.path.trim_start_matches('/'), "message": asked.body});
        if knows_sequences {
            message["sequence_id"] = asked.header("x-sequence-id").into();
        }
        match trouble(asked, before) {
            Some(Reply::Cut) | None => kept.push(message.to_string()),
            _ => {}
        }
        trouble(asked, before).unwrap_or_else(|| ok(message.to_string()))
    })
}

fn daemon(server: &Receiver, model: &ModelServer, more: &str) -> Daemon {
    let copies = "copies:\n  - { session: 'schedule:briefing:*', channel: notify }\n  - { session: main, channel: notify }\n  - { session: other, channel: notify, address: alerts }\n";
    let settings =
        format!("extensions:\n  notify:\n    enabled: true\n    server: \"{}\"\n{more}", server.address);
    let mut daemon = Daemon::home(&(model.config() + copies + &settings));
    daemon.variable("NTFY_TOPIC", TOPIC);
    if more.contains("token: true") {
        daemon.variable("NTFY_TOKEN", "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2");
    }
    daemon.run();
    daemon
}

fn repeats() -> ModelServer {
    ModelServer::start(|request| {
        let (_, text) = latest(request);
        Say::Text(text.lines().next().unwrap_or_default().to_owned())
    })
}

fn until_published(server: &Receiver, daemon: &Daemon, count: usize) -> Vec<Asked> {
    until("it is published", || Some(server.asked("POST")).filter(|all| all.len() >= count))
        .unwrap_or_else(|| panic!("{:?}\n{}", server.asked("POST"), daemon.log()))
}

/// What the session is told of deliveries.
fn until_told(daemon: &Daemon, session: &str, code: &str) -> String {
    let told = || {
        let events = daemon.events(session);
        let found = events.iter().find(|event| event["data"]["code"] == code)?;
        found["data"]["message"].as_str().map(str::to_owned)
    };
    until("the session is told", told)
        .unwrap_or_else(|| panic!("{:?}\n{}", daemon.events(session), daemon.log()))
}

#[test]
fn a_briefing_is_published_once_with_its_title_and_the_topic_is_nowhere_but_on_the_way() {
    let (server, model) = (server(true, |_, _| None), repeats());
    let more = "    token: true\n    tags: [newspaper]\n    markdown: true\n    click: 'https://home.example/#/sessions/{session}'\n";
    let daemon = daemon(&server, &model, more);
    daemon.says(&["schedule", "add", "briefing", "in 1s", "Grüße: rain"]);
    let all = until_published(&server, &daemon, 1);
    let one = &all[0];
    assert_eq!((one.path.as_str(), one.body.as_str()), (format!("/{TOPIC}").as_str(), "Grüße: rain"));
    assert_eq!(
        (one.header("x-title"), one.header("x-priority"), one.header("x-tags")),
        ("briefing", "3", "newspaper")
    );
    assert_eq!(
        (one.header("x-markdown"), one.header("authorization")),
        ("yes", "Bearer tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2")
    );
    let opens = one.header("x-click");
    assert!(opens.starts_with("https://home.example/#/sessions/schedule%3Abriefing%3A2"), "{opens}");
    daemon.kill_kernel();
    // A text that names the placeholder names nothing, and is longer than a message.
    let long = format!("${{NTFY_TOPIC}} {}", "word ".repeat(1_500));
    daemon.turn("main", &long);
    daemon.turn("other", "elsewhere");
    let all = until_published(&server, &daemon, 3);
    let long = all.iter().find(|one| one.header("x-title") == "main").expect("it is there");
    assert!(long.body.starts_with("${NTFY_TOPIC} word") && long.body.len() <= 4096, "{}", long.body.len());
    assert!(long.body.ends_with("… The whole text is in the session `main`."), "{}", long.body);
    assert!(all.iter().any(|one| one.path == "/alerts" && one.body == "elsewhere"), "{all:?}");
    assert_eq!(server.asked("POST").len(), 3);
    assert!(!daemon.log().contains(TOPIC) && !daemon.log().contains("tk_AgQ"));
}

#[test]
fn what_may_be_there_is_looked_up_and_never_published_again() {
    let (known, model) = (server(true, |_, _| Some(Reply::Cut)), repeats());
    let daemon_of_new = daemon(&known, &model, "");
    daemon_of_new.turn("main", "hello");
    until_published(&known, &daemon_of_new, 1);
    until("it is looked up", || (!known.asked("GET").is_empty()).then_some(())).expect("it asks");
    assert_eq!(known.asked("GET")[0].path, format!("/{TOPIC}/json?poll=1&since=2m"));
    // A server before 2.16 does not say sequence ids again.
    let old = server(false, |_, before| (before == 0).then_some(Reply::Cut));
    let daemon = daemon(&old, &model, "");
    daemon.turn("main", "hello");
    let told = until_told(&daemon, "main", "delivery.uncertain");
    assert!(told.contains("may not have reached `notify`, and is not sent again"), "{told}");
    daemon.turn("main", "good day");
    until_published(&old, &daemon, 2);
    let texts: Vec<_> = old.asked("POST").into_iter().map(|one| one.body).collect();
    assert_eq!(texts, ["hello", "good day"]);
    assert!(!daemon_of_new.events("main").iter().any(|event| event["data"]["code"] == "delivery.uncertain"));
    assert_eq!(known.asked("POST").len(), 1);
}

#[test]
fn a_server_that_takes_no_more_is_left_alone_and_one_that_refuses_is_told_of() {
    let limits = |asked: &Asked, before: usize| {
        let many =
            json!({"code": 42901, "http": 429, "error": "limit reached: too many requests"}).to_string();
        let closed = json!({"code": 40301, "http": 403, "error": "forbidden"}).to_string();
        match (before, asked.path.as_str()) {
            (0, _) => Some(Reply::Says(429, &[("retry-after", "2")], many)),
            (_, "/alerts") => Some(Reply::Says(403, &[], closed)),
            _ => None,
        }
    };
    let (server, model) = (server(true, limits), repeats());
    let daemon = daemon(&server, &model, "");
    daemon.turn("main", "one");
    until_published(&server, &daemon, 1);
    daemon.turn("main", "two");
    let all = until_published(&server, &daemon, 3);
    let texts: Vec<_> = all.iter().map(|one| one.body.as_str()).collect();
    assert_eq!(texts, ["one", "one", "two"], "in their order, and only what was not taken twice");
    daemon.turn("other", "three");
    let told = until_told(&daemon, "other", "delivery.failed");
    assert!(told.contains("the server says 403: forbidden"), "{told}");
    assert_eq!(server.asked("POST").len(), 4);
}
