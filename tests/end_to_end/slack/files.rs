//! Pictures and documents that people send to the app: in the workspace before the message is acknowledged, and once; and words where one cannot be
//! had.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{ANN, BEN, BOT_TOKEN, BOTH, ROOM, Scene, chat_of, workspace::Trouble};
use crate::harness::{
    model_server::{Say, latest},
    until,
};

/// Reads the first file of which a message tells, and says what it was told of it.
fn reading(request: &Value) -> Say {
    let (role, text) = latest(request);
    match text.split('`').find(|part| part.starts_with("inbox/")).filter(|_| role == "user") {
        Some(path) => Say::Call(vec![("files_read".to_owned(), json!({"path": path}))]),
        None => Say::Text(format!("read {text}")),
    }
}

fn scene() -> Scene {
    Scene::new(BOTH, reading)
}

fn files(scene: &Scene) -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => below(&path, found),
                false => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    below(&scene.daemon.path().join("workspace"), &mut found);
    found
}

impl Scene {
    fn sends_file(&self, who: &str, text: &str, id: &str) {
        self.slack.push([self.slack.with_files(self.slack.direct(who, text), &[id])]);
    }
}

#[test]
fn a_file_lies_in_the_workspace_with_its_bytes_and_is_read() {
    let scene = scene();
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    scene.slack.keep("F1", "../notes.txt", "text/plain", b"the words of a document");
    scene.slack.keep("F2", "bytes.bin", "application/octet-stream", &bytes);
    scene.slack.keep("F3", "page.html", "text/html", b"<html>the words of a page</html>");
    scene.slack.push([scene.slack.with_files(scene.slack.direct(ANN, "look at these"), &["F1", "F2"])]);
    let chat = chat_of(ANN);
    scene.until_there(&chat, "read the words of a document");
    let asked = scene.server.requests().iter().map(|request| latest(request).1).collect::<Vec<_>>();
    let told = asked.iter().find(|text| text.starts_with("look at these")).expect("the words are there");
    assert!(
        told.matches("[A file came with this message: `inbox/slack+person.U0ANN/").count() == 2,
        "{told}"
    );
    let found = files(&scene);
    assert!(found.iter().any(|path| fs::read(path).is_ok_and(|read| read == bytes)), "{found:?}");
    // A page that somebody sends is a file like others, and without words it is heard as well.
    scene.sends_file(ANN, "", "F3");
    scene.until_there(&chat, "the words of a page");
    // In a channel it is told as a mention, as a message or as both, and is one turn; the answer is in its thread.
    scene.slack.keep("F4", "a.txt", "text/plain", b"words for a room");
    let mention = scene.slack.with_files(scene.slack.mention(ANN, ROOM, None, "and this?"), &["F4"]);
    let mut message = mention.clone();
    (message["type"], message["channel_type"], message["subtype"]) =
        (json!("message"), json!("channel"), json!("file_share"));
    scene.slack.push([message, mention.clone()]);
    let answer = scene.until_there(ROOM, "read words for a room");
    let thread = mention["ts"].as_str().expect("a time");
    assert_eq!(scene.posted(ROOM, &answer).thread.as_deref(), Some(thread));
    // In that thread a file needs neither words nor a name. Where workspaces share the channel, an event has its id alone.
    scene.slack.keep("F5", "b.txt", "text/plain", b"words without a name");
    scene.slack.push([scene.slack.with_ids(scene.slack.aside(BEN, ROOM, thread, ""), &["F5"])]);
    scene.until_there(ROOM, "read words without a name");
    scene.until_acknowledged();
    assert_eq!(scene.slack.texts(ROOM).len(), 2, "{:?}", scene.slack.texts(ROOM));
    assert!(scene.slack.calls("file").iter().all(|(_, call)| call["token"] == format!("Bearer {BOT_TOKEN}")));
    assert!(!scene.daemon.log().contains(BOT_TOKEN), "{}", scene.daemon.log());
}

#[test]
fn a_mention_that_comes_before_its_files_has_those_that_were_shared_with_it_and_no_others() {
    let scene = scene();
    scene.slack.keep("F1", "a.txt", "text/plain", b"words that came later");
    let mention = scene.slack.with_named(scene.slack.mention(ANN, ROOM, None, "look"), "F1");
    scene.slack.tell_of("F1", "shares", json!({"public": {ROOM: [{"ts": mention["ts"]}]}}));
    let mut message = scene.slack.with_files(mention.clone(), &["F1"]);
    (message["type"], message["channel_type"], message["subtype"]) =
        (json!("message"), json!("channel"), json!("file_share"));
    scene.slack.push([mention, message]);
    scene.until_there(ROOM, "read words that came later");
    scene.until_acknowledged();
    assert_eq!(scene.slack.texts(ROOM).len(), 1, "it is one message: {:?}", scene.slack.texts(ROOM));
    // Whoever writes can name a file that others shared elsewhere.
    scene.slack.keep("F2", "b.txt", "text/plain", b"words of others");
    scene.slack.tell_of("F2", "shares", json!({"private": {"C0OTHER": [{"ts": "1.1"}]}}));
    scene.slack.push([scene.slack.with_named(scene.slack.mention(ANN, ROOM, None, "and that"), "F2")]);
    scene.until_there(ROOM, "Slack does not say that it was sent with this message");
    assert_eq!(scene.slack.calls("file").len(), 1, "it is not fetched");
}

#[test]
fn what_cannot_be_had_is_told_in_place_of_the_file_and_no_page_is_taken_for_one() {
    let scene = scene();
    let chat = chat_of(ANN);
    let keep = |id: &str| scene.slack.keep(id, "a.txt", "text/plain", b"words");
    for (id, key, what, why) in [
        ("F1", "size", json!(20_000_001), "it has 21 MB, and 20 MB at most are taken"),
        ("F2", "is_external", json!(true), "it lies elsewhere, and Slack does not have it"),
        ("F3", "mode", json!("tombstone"), "it was deleted"),
        ("F4", "url_private_download", json!("https://evil.example/a"), "Slack names no address for it"),
    ] {
        keep(id);
        scene.slack.tell_of(id, key, what);
        scene.sends_file(ANN, id, id);
        scene.until_there(&chat, why);
    }
    scene.slack.push([scene.slack.with_ids(scene.slack.direct(ANN, "gone"), &["F0NONE"])]);
    scene.until_there(&chat, "Slack refused it: file_not_found");
    assert!(scene.slack.calls("file").is_empty(), "nothing of these is fetched");
    // Whoever says nothing of its size has it stopped when it is too long.
    scene.slack.keep("F5", "long.txt", "text/plain", &vec![b'x'; 20_000_001]);
    scene.slack.tell_of("F5", "size", json!(null));
    scene.sends_file(ANN, "", "F5");
    scene.until_there(&chat, "long.txt`, and was not taken: it has more than 20 MB");
    // The page on which people sign in comes with status 200.
    keep("F6");
    scene.slack.sign_in(true);
    scene.sends_file(ANN, "", "F6");
    scene.until_there(&chat, "was not taken: it came as `text/html`, which was not asked for");
    scene.slack.sign_in(false);
    scene.slack.trouble("file", Trouble::Refused(403, "Forbidden"));
    keep("F7");
    scene.sends_file(ANN, "", "F7");
    scene.until_there(&chat, "answered with status 403");
    scene.slack.take_scope("files:read");
    keep("F8");
    scene.sends_file(ANN, "and my words?", "F8");
    scene.until_there(
        &chat,
        "missing_scope (the bot lacks `files:read`); add the scope to the app, and install it again",
    );
    scene.until_acknowledged();
    assert!(
        scene.slack.texts(&chat).iter().any(|text| text.starts_with("read and my words?")),
        "{:?}",
        scene.slack.texts(&chat)
    );
    assert_eq!(files(&scene), Vec::<PathBuf>::new());
}

#[test]
fn a_file_that_is_cut_is_asked_for_again_and_then_given_up_and_nobody_else_waits() {
    let scene = scene();
    let chat = chat_of(ANN);
    scene.slack.keep("F1", "a.txt", "text/plain", b"whole words");
    scene.slack.trouble("file", Trouble::Cut);
    scene.slack.trouble("files.info", Trouble::Gateway);
    scene.slack.trouble("files.info", Trouble::TooMany(1));
    scene.sends_file(ANN, "", "F1");
    scene.until_there(&chat, "read whole words");
    assert_eq!((files(&scene).len(), scene.slack.calls("file").len()), (1, 2), "{:?}", files(&scene));
    for _ in 0..5 {
        scene.slack.trouble("file", Trouble::Refused(502, "Bad Gateway"));
    }
    scene.slack.keep("F2", "b.txt", "text/plain", b"never comes");
    scene.sends_file(ANN, "look", "F2");
    scene.settle(BEN);
    assert!(
        !scene.slack.texts(&chat).iter().any(|text| text.contains("b.txt")),
        "{:?}",
        scene.slack.texts(&chat)
    );
    scene.until_there(&chat, "\"b.txt\", and was not taken: a file came with status 502");
    scene.until_acknowledged();
    assert_eq!(scene.slack.texts(&chat).len(), 2, "{:?}", scene.slack.texts(&chat));
    assert_eq!(files(&scene).len(), 1, "{:?}", files(&scene));
}

#[test]
fn the_same_message_again_is_one_file_and_nothing_is_asked_for_strangers() {
    let mut scene = scene();
    let chat = chat_of(ANN);
    scene.slack.keep("F1", "a.txt", "text/plain", b"once");
    let event = scene.slack.with_files(scene.slack.direct(ANN, ""), &["F1"]);
    scene.slack.keep("F2", "b.txt", "text/plain", b"of a stranger");
    let stranger = scene.slack.with_files(scene.slack.direct("U0EVE", "take it"), &["F2"]);
    // While it comes it is told again, since nobody acknowledges it within three seconds.
    scene.slack.hold_files(true);
    scene.slack.push([event.clone(), stranger]);
    let asked = || (!scene.slack.calls("file").is_empty()).then_some(());
    assert!(until("it is asked for", asked).is_some(), "{}", scene.daemon.log());
    scene.slack.tell_again();
    scene.slack.hold_files(false);
    scene.until_there(&chat, "read once");
    scene.until_acknowledged();
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    fs::remove_file(scene.daemon.path().join("data/slack/slack.json")).expect("it was kept");
    scene.daemon.run();
    scene.slack.push([event]);
    scene.settle(ANN);
    scene.until_acknowledged();
    assert_eq!((files(&scene).len(), scene.slack.calls("file").len()), (1, 1));
    assert_eq!(scene.count(&chat, "read once"), 1, "{:?}", scene.slack.texts(&chat));
    assert!(scene.slack.texts(&chat_of("U0EVE")).is_empty(), "whom nobody allows is told nothing");
    assert!(scene.slack.calls("files.info").iter().all(|(_, call)| call["file"] == "F1"));
}

#[test]
fn a_kernel_that_dies_while_a_file_comes_leaves_nothing_half_and_the_message_comes_again() {
    let scene = scene();
    scene.slack.keep("F1", "a.txt", "text/plain", b"after all");
    scene.slack.hold_files(true);
    scene.sends_file(ANN, "", "F1");
    let asked = || (!scene.slack.calls("file").is_empty()).then_some(());
    assert!(until("it is asked for", asked).is_some(), "{}", scene.daemon.log());
    assert_eq!((files(&scene).len(), scene.slack.unacknowledged()), (1, 1), "it is being written");
    scene.daemon.kill_kernel();
    scene.slack.hold_files(false);
    scene.daemon.until_ready();
    scene.until_there(&chat_of(ANN), "read after all");
    scene.until_acknowledged();
    let found = files(&scene);
    assert!(found.len() == 1 && !found[0].display().to_string().contains("receiving"), "{found:?}");
    assert_eq!(fs::read(&found[0]).expect("it is there"), b"after all");
}
