//! What goes out, where the service does not take it, takes a part of it, or does not say whether it did.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    ANN, BEN, BOTH, ROOM, Scene,
    workspace::{Trouble, chat_of},
};
use crate::harness::{model_server::Say, until};

#[test]
fn what_the_service_does_not_take_yet_is_sent_when_it_does_and_once() {
    let scene = Scene::of_known();
    let chat = chat_of(ANN);
    scene.slack.trouble("chat.postMessage", Trouble::TooMany(2));
    scene.slack.trouble("chat.postMessage", Trouble::TooMany(1));
    scene.slack.says(ANN, "hello");
    scene.until_there(&chat, "you said hello");
    let calls = scene.slack.calls("chat.postMessage");
    assert!(calls[1].0 - calls[0].0 >= Duration::from_millis(1_900), "it waited as long as it was told");
    assert_eq!(scene.count(&chat, "you said hello"), 1);
    // One channel that is flooded holds up no other, and one that is gone is given up.
    scene.slack.trouble_with("chat.postMessage", "you said flood", Trouble::TooMany(30));
    scene.slack.refuse_previews();
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "flood")]);
    let tried = || {
        (scene.slack.calls("chat.postMessage").iter().any(|(_, p)| p["text"] == "you said flood"))
            .then_some(())
    };
    until("it was tried", tried);
    scene.slack.archive("C0GONE");
    let gone = scene.slack.mention(ANN, "C0GONE", None, "hello");
    let session = format!("slack:group.C0GONE:{}", gone["ts"].as_str().expect("a time"));
    scene.slack.push([gone]);
    scene.settle(BEN);
    let failed = || (scene.told(&session, "delivery.failed") == 1).then_some(());
    assert!(until("it is given up", failed).is_some(), "{}", scene.daemon.log());
    assert!(scene.slack.texts(ROOM).is_empty(), "that one still waits");
}

#[test]
fn previews_come_no_more_often_than_the_service_takes_them() {
    let scene = Scene::of_known();
    for n in 0..4 {
        scene.slack.says(ANN, &format!("long {n} {}", "word ".repeat(50)));
        scene.slack.says(BEN, &format!("long {n} {}", "word ".repeat(50)));
    }
    scene.until_there(&chat_of(ANN), "you said long 3");
    scene.until_there(&chat_of(BEN), "you said long 3");
    let is_preview =
        |(_, params): &(Instant, Value)| params["text"].as_str().is_some_and(|text| text.ends_with('…'));
    let edits: Vec<_> = scene.slack.calls("chat.update").into_iter().filter(is_preview).collect();
    for pair in edits.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(1_100), "{pair:?}");
    }
}

#[test]
fn a_message_that_may_have_arrived_is_looked_for_and_never_sent_again() {
    let scene = Scene::of_known();
    let chat = chat_of(ANN);
    scene.slack.refuse_previews();
    scene.slack.trouble_with("chat.postMessage", "you said one", Trouble::DoneAndCut);
    scene.slack.trouble_with("chat.postMessage", "you said two", Trouble::Gateway);
    scene.slack.trouble_with("chat.postMessage", "you said three", Trouble::Cut);
    scene.slack.trouble_with("chat.postMessage", "you said four", Trouble::Refused(200, "internal_error"));
    for text in ["one", "two", "three", "four"] {
        scene.slack.says(ANN, text);
    }
    scene.settle(ANN);
    let counts = ["one", "two", "three", "four"].map(|text| scene.count(&chat, &format!("you said {text}")));
    assert_eq!(counts, [1, 0, 0, 0], "{:?}", scene.slack.texts(&chat));
    // Of that which was found nobody is in doubt.
    assert_eq!(scene.told("slack:person.U0ANN", "delivery.uncertain"), 3, "{}", scene.daemon.log());
    // In a thread as well, and without a right to look it is in doubt.
    scene.slack.trouble_with("chat.postMessage", "you said five", Trouble::DoneAndCut);
    let five = scene.slack.mention(ANN, ROOM, None, "five");
    let session = format!("slack:group.C0ROOM:{}", five["ts"].as_str().expect("a time"));
    scene.slack.push([five]);
    scene.until_there(ROOM, "you said five");
    scene.slack.trouble_with("chat.postMessage", "you said six", Trouble::DoneAndCut);
    for _ in 0..2 {
        scene.slack.trouble("conversations.history", Trouble::Refused(200, "missing_scope"));
    }
    scene.slack.says(ANN, "six");
    scene.settle(ANN);
    assert_eq!((scene.count(ROOM, "you said five"), scene.count(&chat, "you said six")), (1, 1));
    assert_eq!(scene.told("slack:person.U0ANN", "delivery.uncertain"), 4);
    assert_eq!(scene.told(&session, "delivery.uncertain"), 0);
}

#[test]
fn a_long_answer_comes_in_parts_that_fit() {
    let scene = Scene::new(BOTH, |_| Say::Text(format!("{}the end", "some & words\n".repeat(1_000))));
    let chat = chat_of(ANN);
    scene.slack.says(ANN, "hello");
    scene.until_there(&chat, "the end");
    let parts = scene.slack.texts(&chat);
    assert_eq!(parts.join("\n").matches("some & words").count(), 1_000);
    assert!(
        (4..=6).contains(&parts.len()) && !parts.iter().any(|part| part.contains('…')),
        "{}",
        parts.len()
    );
}
