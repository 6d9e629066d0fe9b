//! Pictures and documents that people send to the bot: in the workspace before the message is taken in, whatever they are called, and once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{ANN, BEN, Scene};
use crate::{
    harness::{
        model_server::{Say, latest},
        until,
    },
    telegram::bot_api::Trouble,
};

/// A PNG of one red pixel, whole, and the same as an address.
const PIXEL: &[u8] = &[
    137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 1, 0, 0, 0, 1, 8, 2, 0, 0, 0, 144,
    119, 83, 222, 0, 0, 0, 12, 73, 68, 65, 84, 120, 156, 99, 248, 207, 192, 0, 0, 3, 1, 1, 0, 201, 254, 146,
    239, 0, 0, 0, 0, 73, 69, 78, 68, 174, 66, 96, 130,
];
const PIXEL_URL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// Reads the first file of which a message tells, and says what it was told of it.
fn reading(request: &Value) -> Say {
    let last = request["messages"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let (role, text) = latest(request);
    if let Some(path) = text.split('`').find(|part| part.starts_with("inbox/")).filter(|_| role == "user") {
        return Say::Call(vec![("files_read".to_owned(), json!({"path": path}))]);
    }
    match last["content"][1]["image_url"]["url"].as_str() {
        Some(url) => Say::Text(format!("saw {}", url == PIXEL_URL)),
        None => Say::Text(format!("read {text}")),
    }
}

fn scene() -> Scene {
    Scene::new("    allowed: [7, 8]\n", reading)
}

fn document(id: &str, name: &str) -> Value {
    json!({"document": {"file_id": id, "file_name": name}})
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

#[test]
fn a_picture_reaches_the_model_and_a_document_is_read() {
    let scene = scene();
    scene.bot.keep("p", PIXEL);
    scene.bot.keep("d", b"the words of a document");
    let sizes =
        json!([{"file_id": "none", "width": 9, "height": 9}, {"file_id": "p", "width": 90, "height": 90}]);
    scene.bot.push([scene.bot.message_with(ANN, json!({"photo": sizes, "caption": "what is it?"}))]);
    scene.until_there(ANN, "saw true");
    scene.bot.push([scene.bot.message_with(ANN, document("d", "notes.txt"))]);
    scene.until_there(ANN, "read the words of a document");
    let asked = scene.server.requests().iter().map(|request| latest(request).1).collect::<Vec<_>>();
    let told = asked.iter().find(|text| text.starts_with("what is it?")).expect("the caption is there");
    assert!(
        told.contains("-photo.jpg` of the workspace, a picture, image/png, 1x1 pixels, 69 bytes]"),
        "{told}"
    );
    // They go with their conversation.
    scene.settle(ANN);
    assert_eq!(files(&scene).len(), 2);
    let idle = || {
        scene
            .daemon
            .drupe(&["session", "delete", "telegram:person.7", "--yes"])
            .status
            .success()
            .then_some(())
    };
    assert!(until("the session is deleted", idle).is_some(), "{}", scene.daemon.log());
    assert_eq!(files(&scene), Vec::<PathBuf>::new());
    // The address of a file holds the token, and stands nowhere.
    assert!(!scene.daemon.log().contains(super::TOKEN), "{}", scene.daemon.log());
}

#[test]
fn whatever_a_file_is_called_it_lies_in_the_inbox_of_its_conversation() {
    let scene = scene();
    let names = ["../../x", "/etc/passwd", "a\0b", &"x".repeat(300), ".bashrc", "", "`rm`", "-rf"];
    for (n, name) in names.iter().enumerate() {
        scene.bot.keep(&format!("d{n}"), format!("words {n}.").as_bytes());
        scene.bot.push([scene.bot.message_with(ANN, document(&format!("d{n}"), name))]);
        scene.until_there(ANN, &format!("read words {n}."));
    }
    let (found, inbox) = (files(&scene), scene.daemon.path().join("workspace/inbox/telegram+person.7"));
    assert_eq!(found.len(), names.len(), "{found:?}");
    assert!(found.iter().all(|path| path.parent() == Some(&inbox)), "{found:?}");
    assert!(!scene.daemon.path().join("x").exists());
    assert!(found.iter().all(|path| path.file_name().is_some_and(|name| name.len() <= 120)), "{found:?}");
}

#[test]
fn what_is_too_large_or_gone_is_told_in_place_of_the_file() {
    let scene = scene();
    let large = json!({"video": {"file_id": "v", "file_size": 21_000_000}, "caption": "watch"});
    scene.bot.push([scene.bot.message_with(ANN, large)]);
    scene.until_there(ANN, "it has 21 MB, and Telegram gives a bot 20 MB at most");
    assert!(scene.bot.calls("getFile").is_empty(), "nothing is asked for");
    // Whoever says nothing of its size has it stopped when it is too long.
    scene.bot.keep("long", &vec![b'x'; 20_000_001]);
    scene.bot.push([scene.bot.message_with(ANN, document("long", "long.txt"))]);
    scene.until_there(ANN, "`long.txt`, and was not taken: it has more than 20 MB");
    scene.bot.push([scene.bot.message_with(ANN, document("nobody knows", "a"))]);
    scene.until_there(ANN, "Telegram says Bad Request: invalid file_id");
    scene.bot.keep("gone", b"gone");
    scene.bot.trouble("file", Trouble::Refused(404, "Not Found"));
    scene.bot.push([scene.bot.message_with(ANN, document("gone", "a"))]);
    scene.until_there(ANN, "answered with status 404");
    assert_eq!(files(&scene), Vec::<PathBuf>::new());
    scene.until_confirmed();
}

#[test]
fn a_file_that_does_not_come_whole_is_asked_for_again_and_then_given_up() {
    let scene = scene();
    scene.bot.keep("d", b"whole words");
    scene.bot.trouble("file", Trouble::Cut);
    scene.bot.trouble("getFile", Trouble::Gateway);
    scene.bot.push([scene.bot.message_with(ANN, document("d", "a.txt"))]);
    scene.until_there(ANN, "read whole words");
    assert_eq!((files(&scene).len(), scene.bot.calls("file").len()), (1, 2), "{:?}", files(&scene));
    for _ in 0..5 {
        scene.bot.trouble("file", Trouble::Refused(502, "Bad Gateway"));
    }
    scene.bot.keep("e", b"never comes");
    scene.bot.push([scene.bot.message_with(ANN, document("e", "b.txt")), scene.bot.message(BEN, "hello")]);
    scene.until_there(ANN, "\"b.txt\", and was not taken: a file came with status 502");
    scene.until_there(BEN, "read hello");
    assert_eq!(files(&scene).len(), 1, "{:?}", files(&scene));
}

#[test]
fn a_file_that_takes_a_minute_is_told_then() {
    let scene = scene();
    scene.bot.keep("d", b"never whole");
    scene.bot.hold_files(true);
    scene.bot.push([scene.bot.message_with(ANN, document("d", "a.txt")), scene.bot.message(BEN, "hello")]);
    scene.until_there(BEN, "read hello");
    // As many looks as it takes.
    for _ in 0..4 {
        let there = || scene.bot.texts(ANN).iter().any(|text| text.contains("not taken")).then_some(());
        if until("it is given up", there).is_some() {
            break;
        }
    }
    scene.until_there(ANN, "`a.txt`, and was not taken: it was not there within 60 seconds");
    assert_eq!((files(&scene), scene.bot.calls("file").len()), (Vec::new(), 1));
    scene.until_confirmed();
}

#[test]
fn the_same_message_again_is_one_file_and_nothing_is_fetched_for_strangers() {
    let mut scene = scene();
    scene.bot.keep("d", b"once");
    let update = scene.bot.message_with(ANN, document("d", "a.txt"));
    let stranger = scene.bot.message_with(9, document("d", "b.txt"));
    scene.bot.push([update.clone(), update.clone(), stranger]);
    scene.until_there(ANN, "read once");
    scene.settle(BEN);
    scene.until_confirmed();
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    fs::remove_file(scene.daemon.path().join("data/telegram/telegram.json")).expect("it was kept");
    // Whoever tidies up has it elsewhere by now.
    let found = files(&scene);
    fs::rename(&found[0], scene.daemon.path().join("workspace/tidy.txt")).expect("it was there");
    scene.daemon.run();
    scene.bot.push([update]);
    scene.settle(BEN);
    assert_eq!((found.len(), files(&scene).len(), scene.bot.calls("file").len()), (1, 1, 1));
    assert_eq!(scene.count(ANN, "read once"), 1, "{:?}", scene.bot.texts(ANN));
    assert!(scene.bot.texts(9).is_empty(), "{:?}", scene.bot.texts(9));
}

#[test]
fn a_kernel_that_dies_while_a_file_comes_leaves_nothing_half() {
    let scene = scene();
    scene.bot.keep("d", b"after all");
    scene.bot.hold_files(true);
    scene.bot.push([scene.bot.message_with(ANN, document("d", "a.txt"))]);
    let asked = || (!scene.bot.calls("file").is_empty()).then_some(());
    assert!(until("it is asked for", asked).is_some(), "{}", scene.daemon.log());
    assert_eq!(files(&scene).len(), 1, "it is being written");
    scene.daemon.kill_kernel();
    scene.bot.hold_files(false);
    scene.daemon.until_ready();
    scene.until_there(ANN, "read after all");
    let found = files(&scene);
    assert!(
        found.len() == 1 && found[0].ends_with("") && !found[0].display().to_string().contains("receiving"),
        "{found:?}"
    );
}
