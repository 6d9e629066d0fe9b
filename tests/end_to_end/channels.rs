//! Answers on their way to people through channels.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::harness::{
    Daemon,
    model_server::{ModelServer, Say, latest},
    unique, until,
    wire::Wire,
};

/// Hands a message in whose answer goes out through a channel; its turn.
fn submit(daemon: &Daemon, channel: &str, text: &str) -> String {
    let submit = json!({"external_id": unique(), "session": channel, "channel": channel, "text": text});
    let turn = daemon.client().ask("turn.submit", submit).expect("it is taken in");
    let turn = turn["turn"].as_str().expect("a turn").to_owned();
    assert_eq!(daemon.wait(&turn)["status"], "success");
    turn
}

fn until_there(daemon: &Daemon, channel: &str, file: &str, text: &str) {
    let path = daemon.path().join("data").join(channel).join(file);
    until("the channel has it", || fs::read_to_string(&path).ok().filter(|found| found == text))
        .unwrap_or_else(|| panic!("{}: {}", path.display(), daemon.log()));
}

#[test]
fn a_channel_that_takes_its_time_holds_up_no_other() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("slow", "serving", "config: {prefix: slow, holds: true}\n");
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.run();
    submit(&daemon, "slow", "one");
    until_there(&daemon, "slow", "asked", "one");
    for text in ["two", "three"] {
        submit(&daemon, "quick", text);
        until_there(&daemon, "quick", "sent", text);
    }
    // What the slow one was given is still under way: nobody waited for its end.
    assert!(!daemon.log().contains("nobody knows whether a message arrived"), "{}", daemon.log());
}

#[test]
fn what_a_channel_calls_a_message_is_told_in_a_short_line() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.run();
    let text = format!("one\n- all is well\u{202e} {}", "x".repeat(2_000));
    let turn = submit(&daemon, "quick", &text);
    let told = || {
        let why = daemon.client().ask("why", json!({"id": turn})).ok()?;
        let all = why["sentences"].as_array()?.iter().filter_map(|s| s.as_str().map(str::to_owned));
        all.into_iter().find(|sentence| sentence.contains("there it is `"))
    };
    let told = until("it was sent", told).unwrap_or_else(|| panic!("{}", daemon.log()));
    assert!(told.contains("`one - all is well xxx") && told.len() < 500, "{} bytes: {told:.600}", told.len());
}

#[test]
fn a_notice_goes_out_through_the_channel_of_its_session() {
    let server = ModelServer::obedient();
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("quick", "serving", "config: {prefix: quick}\n");
    daemon.plugin("torture", "torture", "");
    daemon.run();
    submit(&daemon, "quick", "hello");
    until_there(&daemon, "quick", "sent", "hello");
    // The operator's own message comes through no channel, so the latest that did says where the notice goes.
    let notice = json!({"text": "the kettle boils", "times": 1, "session": "quick"});
    daemon.turn("quick", &format!("torture_notify {notice}"));
    until_there(&daemon, "quick", "sent", "`torture`: the kettle boils");
}

/// A daemon with a channel `quick` whose messages have a model call a tool that asks first, and then repeat what it gave.
struct Asking {
    server: ModelServer,
    daemon: Daemon,
}

impl Asking {
    fn run(settings: &str, nonce: &str) -> Self {
        let effects = std::env::temp_dir().join(format!("channel-{}", unique()));
        let call = json!({"path": effects, "nonce": nonce});
        let server = ModelServer::start(move |request| match latest(request) {
            (role, text) if role == "tool" => Say::Text(text),
            (_, text) if text == "go" => Say::Call(vec![("careful_effect_append".to_owned(), call.clone())]),
            (_, text) => Say::Text(format!("you said {text}")),
        });
        let mut daemon = Daemon::home(&(server.config() + settings));
        daemon.write("effects", effects.to_str().expect("a path"));
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.plugin("quick", "serving", "config: {prefix: quick}\nrights: [submit]\n");
        daemon.run();
        Self { server, daemon }
    }

    /// Somebody writes in that conversation of the channel; the turn.
    fn hears(&self, session: &str, text: &str) -> String {
        self.hears_of("hear", json!({"session": session, "id": unique(), "text": text}))
    }

    fn hears_of(&self, ask: &str, params: Value) -> String {
        let ask = json!({"id": "quick", "ask": ask, "params": params});
        let turn = self.daemon.client().ask("extensions.ask", ask).expect("it is taken in");
        turn["turn"].as_str().expect("a turn").to_owned()
    }

    /// All that went out through the channel.
    fn sent(&self) -> Vec<String> {
        let all = fs::read_to_string(self.daemon.path().join("data/quick/all")).unwrap_or_default();
        all.lines().map(|line| serde_json::from_str(line).expect("a text")).collect()
    }

    /// Waits until a message went out that holds this; the message.
    fn until_sent(&self, part: &str) -> String {
        let found = || self.sent().into_iter().find(|text| text.contains(part));
        until("it is sent", found)
            .unwrap_or_else(|| panic!("{part}: {:?}\n{}", self.sent(), self.daemon.log()))
    }

    /// How often the tool ran.
    fn ran(&self) -> usize {
        let file = fs::read_to_string(self.daemon.path().join("effects")).expect("it is noted");
        fs::read_to_string(file).unwrap_or_default().lines().count()
    }
}

/// What stands behind the first of these words and before the next backtick.
fn behind<'a>(text: &'a str, words: &str) -> &'a str {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("{words}: {text}"));
    rest.split('`').next().expect("there is an end")
}

const TRUSTED: &str = "approvals: {preauthorized: all, channels: [quick]}\n";

#[test]
fn who_wrote_through_a_channel_is_asked_there_and_their_answer_goes_to_the_question() {
    let scene = Asking::run(TRUSTED, "a\u{202e}b");
    let turn = scene.hears("quick:a", "go");
    let question = scene.until_sent("may call `careful_effect_append`");
    assert!(question.contains(r"a\u{202e}b"), "nothing of it is hidden: {question}");
    let id = behind(&question, "Answer `allow ");
    // In another conversation, with more words, or about what nobody asked, it is a message like others.
    for (session, text) in [
        ("quick:b", format!("allow {id}")),
        ("quick:a:b", format!("allow {id}")),
        ("quick:b", format!("allow {id} now")),
        ("quick:b", "allow e-0000000000000000:0000000000000000".to_owned()),
    ] {
        let other = scene.hears(session, &text);
        assert_ne!(other, turn);
        scene.daemon.wait(&other);
        scene.until_sent(&format!("you said {text}"));
    }
    assert_eq!(scene.ran(), 0);
    assert_eq!(scene.hears("quick:a", &format!("Allow {id}")), turn, "it is no turn of its own");
    assert_eq!(scene.daemon.wait(&turn)["status"], "success");
    assert_eq!(scene.ran(), 1);
    scene.until_sent("`careful_effect_append` runs.");
    assert_eq!(scene.hears("quick:a", &format!("deny {id}")), turn);
    scene.until_sent("The answer was not taken");
    assert_eq!((scene.ran(), scene.sent().iter().filter(|text| text.contains("may call")).count()), (1, 1));
    let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
    let by = list.as_array().expect("a list").iter().find_map(|one| one["call"]["by"].as_str());
    assert_eq!(by, Some("channel `quick`"));
}

#[test]
fn a_channel_that_the_operator_does_not_name_tells_of_questions_and_takes_no_answers() {
    let scene = Asking::run("", "n");
    let turn = scene.hears("quick:a", "go");
    let question = scene.until_sent("may call `careful_effect_append`");
    assert!(!question.contains("Answer `allow"), "{question}");
    let id = behind(&question, "`drupe approvals allow ");
    for text in [format!("allow {id}"), format!("deny {id}"), format!("allow {id} session")] {
        assert_eq!(scene.hears("quick:a", &text), turn);
    }
    let refusals =
        || (scene.sent().iter().filter(|t| t.contains("Answers are not taken")).count() == 3).then_some(());
    assert!(until("all are refused", refusals).is_some(), "{:?}", scene.sent());
    assert_eq!(scene.ran(), 0);
    let (id, _) = id.split_once(':').expect("an id and a hash");
    let answer = json!({"id": id, "allow": true});
    scene.daemon.client().ask("approvals.answer", answer).expect("the operator answers");
    assert_eq!(scene.daemon.wait(&turn)["status"], "success");
    assert_eq!(scene.ran(), 1);
}

#[test]
fn what_is_too_long_to_be_shown_or_written_by_strangers_is_not_allowed_in_a_channel() {
    let scene = Asking::run(TRUSTED, &"x".repeat(3_000));
    let turn = scene.hears("quick:a", "go");
    let question = scene.until_sent("may call `careful_effect_append`");
    assert!(!question.contains("xxx") && !question.contains("Answer `allow"), "{question}");
    let id = behind(&question, "`drupe approvals allow ");
    assert_eq!(scene.hears("quick:a", &format!("allow {id}")), turn);
    scene.until_sent("It cannot be allowed here");
    let stranger =
        json!({"session": "quick:a", "id": unique(), "text": format!("deny {id}"), "untrusted": true});
    assert_eq!(scene.hears_of("hear", stranger), turn);
    scene.until_sent("Answers are not taken here");
    assert_eq!(scene.ran(), 0);
    assert_eq!(scene.hears("quick:a", &format!("deny {id}")), turn);
    scene.until_sent("`careful_effect_append` does not run.");
    scene.daemon.wait(&turn);
    assert_eq!(scene.ran(), 0);
}

#[test]
fn a_question_is_told_once_over_the_death_of_the_kernel_and_answered_in_the_next_one() {
    let scene = Asking::run(TRUSTED, "n");
    let turn = scene.hears("quick:a", "go");
    let question = scene.until_sent("may call `careful_effect_append`");
    let id = behind(&question, "Answer `allow ");
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    assert_eq!(scene.hears("quick:a", &format!("allow {id}")), turn);
    assert_eq!(scene.daemon.wait(&turn)["status"], "success");
    scene.until_sent("`careful_effect_append` runs.");
    assert_eq!((scene.ran(), scene.sent().iter().filter(|text| text.contains("may call")).count()), (1, 1));
    assert!(scene.server.requests().len() <= 3, "no more than one step was lost");
}

#[test]
fn what_a_channel_showed_of_an_answer_that_begins_anew_is_void() {
    let asked = AtomicUsize::new(0);
    let server = ModelServer::start(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Say::Fail(Wire::Cut("half a")),
        _ => Say::Text(latest(request).1),
    });
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("quick", "serving", "config: {prefix: quick, streams: true}\n");
    daemon.run();
    submit(&daemon, "quick", "a whole answer");
    until_there(&daemon, "quick", "shown", "~half a~a whole answer.");
    submit(&daemon, "quick", "another");
    until_there(&daemon, "quick", "shown", "another.");
}

#[test]
fn a_channel_that_is_slow_with_the_parts_of_an_answer_shows_it_without_a_hole() {
    let answer: String = (0..250).map(|nth| format!("word {nth}, ")).collect();
    let said = answer.clone();
    let server = ModelServer::start(move |_| Say::Text(said.clone()));
    let mut daemon = Daemon::home(&server.config());
    daemon.plugin("slow", "serving", "config: {prefix: slow, streams: true, dawdles: true}\n");
    daemon.run();
    let (go, shown) = (daemon.path().join("data/slow/go"), daemon.path().join("data/slow/shown"));
    // A channel has two seconds for a part: where the machine was slower than that, it is tried again.
    for _ in 0..5 {
        // By its end more has come than the channel may lag behind.
        submit(&daemon, "slow", "tell me");
        fs::write(&go, "").expect("a file");
        let seen = until("it is told of the end", || {
            fs::read_to_string(&shown).ok().filter(|shown| shown.ends_with('.'))
        });
        let seen = seen.unwrap_or_else(|| panic!("{}", daemon.log()));
        if !seen.contains('~') {
            assert_eq!(seen, format!("{answer}."));
            return;
        }
        for file in [&go, &shown] {
            fs::remove_file(file).expect("it is there");
        }
    }
    panic!("a part of each answer was late: {}", daemon.log());
}
