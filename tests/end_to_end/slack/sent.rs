//! Files that an agent sends in Slack: in three steps of which people see the last, once, and with the truth about what became of them.

use std::fs;

use serde_json::{Value, json};

use super::{
    ANN, BOT_TOKEN, BOTH, ROOM, Scene, chat_of,
    workspace::{Shared, Trouble},
};
use crate::harness::{
    model_server::{Say, latest},
    until,
};

/// Calls the tool that a message names, and says what came of it.
fn sending(request: &Value) -> Say {
    let (role, text) = latest(request);
    let called = text.split_once(' ').filter(|(tool, _)| role == "user" && tool.starts_with("files_"));
    let call = called.and_then(|(tool, params)| Some((tool.to_owned(), serde_json::from_str(params).ok()?)));
    match call {
        Some(call) => Say::Call(vec![call]),
        None if role == "tool" => Say::Text(format!("done: {text}")),
        None => Say::Text(format!("you said {text}")),
    }
}

fn scene() -> Scene {
    Scene::new(BOTH, sending)
}

fn call(path: &str, text: &str) -> String {
    format!("files_send {}", json!({"path": path, "text": text}))
}

impl Scene {
    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.daemon.path().join("workspace").join(path), content).expect("it is written");
    }

    fn sends(&self, path: &str) {
        self.slack.says(ANN, &call(path, "as you wished"));
    }

    /// Files that were shared, once there are so many.
    fn until_shared(&self, count: usize) -> Vec<Shared> {
        let shared = || Some(self.slack.shared()).filter(|shared| shared.len() >= count);
        until("a file came", shared).unwrap_or_else(|| self.fail(&chat_of(ANN), "a file"))
    }

    fn until_nothing_is_kept(&self) {
        let kept = || fs::read_dir(self.daemon.path().join("data/.outgoing")).map_or(0, Iterator::count);
        let none = || (kept() == 0).then_some(());
        assert!(until("nothing is kept", none).is_some(), "{} copies", kept());
    }

    fn until_told(&self, code: &str) -> Value {
        let told = || {
            let events = self.daemon.events("slack:person.U0ANN");
            events.into_iter().find(|event| event["data"]["code"] == code)
        };
        until("the session is told", told).unwrap_or_else(|| self.fail(&chat_of(ANN), code))
    }
}

#[test]
fn an_agent_sends_a_file_and_the_channel_gets_its_bytes_in_the_thread() {
    let scene = scene();
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    scene.write("report ä&1.bin", &content);
    scene.slack.says(ANN, &call("report ä&1.bin", "for a &lt;b&gt; &amp; c"));
    let first = scene.until_shared(1).remove(0);
    let expected = Shared {
        id: first.id.clone(),
        channel: chat_of(ANN),
        thread: None,
        name: "report ä&1.bin".to_owned(),
        comment: "for a &lt;b&gt; &amp; c".to_owned(),
        bytes: content,
    };
    assert!(first == expected, "{} {:?} {:?}", first.channel, first.name, first.comment);
    scene.write("a.txt", b"for the room");
    let mention = scene.slack.mention(ANN, ROOM, None, &call("a.txt", ""));
    let thread = mention["ts"].as_str().expect("a time").to_owned();
    scene.slack.push([mention]);
    let second = scene.until_shared(2).remove(1);
    assert_eq!((second.channel.as_str(), second.thread), (ROOM, Some(thread)));
    assert_eq!((second.bytes.as_slice(), second.comment.as_str()), (b"for the room".as_slice(), ""));
    scene.until_nothing_is_kept();
    assert!(
        scene.slack.calls("upload").iter().all(|(_, call)| call["token"] == ""),
        "its address is all that it needs"
    );
    assert!(!scene.daemon.log().contains(BOT_TOKEN));
}

#[test]
fn what_fails_before_the_last_step_is_begun_anew_and_the_channel_gets_it_once() {
    let scene = scene();
    scene.write("a.txt", b"as it was");
    scene.slack.trouble("files.getUploadURLExternal", Trouble::Gateway);
    scene.sends("a.txt");
    let tried = || (!scene.slack.calls("files.getUploadURLExternal").is_empty()).then_some(());
    assert!(until("it was tried", tried).is_some(), "{}", scene.daemon.log());
    scene.write("a.txt", b"as it is by now");
    scene.slack.trouble("upload", Trouble::Cut);
    let cut = || (scene.slack.calls("upload").len() == 1).then_some(());
    assert!(until("it was cut", cut).is_some(), "{}", scene.daemon.log());
    scene.slack.trouble("files.completeUploadExternal", Trouble::TooMany(1));
    let shared = scene.until_shared(1);
    assert_eq!((shared.len(), shared[0].bytes.as_slice()), (1, b"as it was".as_slice()));
    scene.until_nothing_is_kept();
    assert_eq!(scene.slack.calls("files.completeUploadExternal").len(), 2);
    assert_eq!(scene.told("slack:person.U0ANN", "delivery.uncertain"), 0);
}

#[test]
fn a_file_that_may_have_arrived_is_looked_for_and_never_shared_again() {
    let scene = scene();
    scene.write("a.txt", b"once");
    scene.slack.trouble("files.completeUploadExternal", Trouble::DoneAndCut);
    scene.sends("a.txt");
    scene.until_shared(1);
    scene.until_nothing_is_kept();
    scene.settle(ANN);
    assert_eq!(scene.told("slack:person.U0ANN", "delivery.uncertain"), 0, "it was found");
    // Where it is not found, nobody knows.
    scene.slack.trouble("files.completeUploadExternal", Trouble::Refused(200, "internal_error"));
    scene.sends("a.txt");
    let told = scene.until_told("delivery.uncertain");
    assert!(told["data"]["message"].as_str().is_some_and(|said| said.contains("the file `a.txt`")), "{told}");
    scene.until_nothing_is_kept();
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.settle(ANN);
    assert_eq!((scene.slack.shared().len(), scene.slack.calls("files.completeUploadExternal").len()), (1, 2));
}

#[test]
fn a_kernel_that_dies_while_a_file_goes_out_shares_nothing_twice() {
    let scene = scene();
    scene.write("a.txt", b"perhaps");
    scene.slack.hold_files(true);
    scene.sends("a.txt");
    let tried = || (!scene.slack.calls("upload").is_empty()).then_some(());
    assert!(until("it is being sent", tried).is_some(), "{}", scene.daemon.log());
    scene.daemon.kill_kernel();
    scene.slack.hold_files(false);
    scene.daemon.until_ready();
    scene.until_told("delivery.uncertain");
    scene.until_nothing_is_kept();
    scene.settle(ANN);
    assert_eq!((scene.slack.shared().len(), scene.slack.calls("upload").len()), (0, 1));
}

#[test]
fn what_the_service_does_not_take_is_told_where_it_was_awaited() {
    let scene = scene();
    let chat = chat_of(ANN);
    scene.write("a.txt", b"not taken");
    scene.slack.trouble("upload", Trouble::Refused(413, "Request Entity Too Large"));
    scene.sends("a.txt");
    scene.until_there(
        &chat,
        "the file `a.txt` could not be sent: Slack refused it: 413 it does not take the file",
    );
    scene.slack.trouble("files.getUploadURLExternal", Trouble::Refused(200, "file_type_not_allowed"));
    scene.sends("a.txt");
    scene.until_there(&chat, "Slack refused it: file_type_not_allowed");
    scene.slack.take_scope("files:write");
    scene.sends("a.txt");
    scene.until_there(&chat, "Slack refused it: missing_scope (the bot lacks `files:write`)");
    scene.until_nothing_is_kept();
    assert!(scene.slack.shared().is_empty());
}
