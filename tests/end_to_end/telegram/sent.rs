//! Files that an agent sends: as they were when it did so, once, and with the truth about what became of them.

use std::fs;

use serde_json::{Value, json};

use super::{ANN, BEN, Scene};
use crate::{
    chat::sending,
    harness::until,
    telegram::bot_api::{Document, Trouble},
};

fn scene() -> Scene {
    Scene::new("    allowed: [7, 8]\n", sending)
}

impl Scene {
    fn write(&self, path: &str, content: &[u8]) {
        fs::write(self.daemon.path().join("workspace").join(path), content).expect("it is written");
    }

    fn sends(&self, path: &str) {
        self.bot.says(ANN, &format!("files_send {}", json!({"path": path, "text": "as you wished"})));
    }

    fn until_sent(&self) -> Vec<Document> {
        let sent = || Some(self.bot.documents(ANN)).filter(|sent| !sent.is_empty());
        until("a file came", sent).unwrap_or_else(|| self.fail(ANN, "a file"))
    }

    /// How many copies wait to be sent.
    fn kept(&self) -> usize {
        fs::read_dir(self.daemon.path().join("data/.outgoing")).map_or(0, Iterator::count)
    }

    fn until_nothing_is_kept(&self) {
        let none = || (self.kept() == 0).then_some(());
        assert!(until("nothing is kept", none).is_some(), "{} copies", self.kept());
    }

    fn told(&self, code: &str) -> Vec<Value> {
        let events = self.daemon.events("telegram:person.7");
        events.into_iter().filter(|event| event["data"]["code"] == code).collect()
    }
}

#[test]
fn an_agent_sends_a_file_and_the_chat_gets_its_bytes() {
    let scene = scene();
    let content: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::create_dir(scene.daemon.path().join("workspace/out")).expect("a folder");
    scene.write("out/report \"1\".bin", &content);
    scene.sends("out/report \"1\".bin");
    scene.until_there(ANN, "(200000 bytes) is on its way through `telegram` as a file");
    let sent = scene.until_sent();
    let expected = Document {
        chat: ANN,
        name: "report %221%22.bin".to_owned(),
        caption: "as you wished".to_owned(),
        bytes: content,
    };
    assert!(sent == [expected], "{} {:?} {:?}", sent.len(), sent[0].name, sent[0].caption);
    scene.until_nothing_is_kept();
    // Nothing else goes out.
    for (path, why) in [("../drupe.yaml", "workspace"), ("nothing", "nothing"), ("out", "out")] {
        scene.sends(path);
        let said = || {
            scene
                .bot
                .texts(ANN)
                .into_iter()
                .rfind(|text| text.starts_with("done: "))
                .filter(|text| text.contains(why))
        };
        assert!(until("it is refused", said).is_some(), "{path}: {:?}", scene.bot.texts(ANN));
        scene.settle(ANN);
    }
    assert_eq!((scene.bot.documents(ANN).len(), scene.kept()), (1, 0));
    assert!(!scene.daemon.log().contains(super::TOKEN));
}

#[test]
fn what_waits_is_sent_once_as_it_was_by_the_kernel_that_goes_on() {
    let scene = scene();
    scene.write("a.txt", b"as it was");
    scene.bot.trouble("sendDocument", Trouble::TooMany(600));
    scene.sends("a.txt");
    let tried = || (!scene.bot.calls("sendDocument").is_empty()).then_some(());
    assert!(until("it was tried", tried).is_some(), "{}", scene.daemon.log());
    // The channel was given the next message when it was recorded that this one waits.
    scene.settle(BEN);
    assert_eq!(scene.kept(), 1);
    scene.write("a.txt", b"as it is by now");
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    assert_eq!(scene.until_sent()[0].bytes, b"as it was");
    scene.until_nothing_is_kept();
    scene.settle(ANN);
    assert_eq!(scene.bot.documents(ANN).len(), 1);
}

#[test]
fn a_file_that_the_daemon_cannot_send_is_given_up_the_first_time() {
    let scene = scene();
    scene.write("a.txt", b"as it was");
    scene.bot.trouble("sendDocument", Trouble::TooMany(600));
    scene.sends("a.txt");
    let tried = || (!scene.bot.calls("sendDocument").is_empty()).then_some(());
    assert!(until("it was tried", tried).is_some(), "{}", scene.daemon.log());
    scene.settle(BEN);
    let kept = fs::read_dir(scene.daemon.path().join("data/.outgoing")).expect("it is kept").flatten();
    kept.for_each(|copy| fs::remove_file(copy.path()).expect("it is removed"));
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.until_there(ANN, "nothing was sent to Telegram: the file that was kept to be sent cannot be read");
    scene.settle(ANN);
    assert_eq!((scene.told("delivery.failed").len(), scene.bot.calls("sendDocument").len()), (1, 1));
}

#[test]
fn answers_do_not_wait_for_a_file_that_is_on_its_way_and_files_keep_their_order() {
    let scene = scene();
    scene.write("a.txt", b"slow");
    scene.write("b.txt", b"next");
    scene.bot.hold_files(true);
    scene.bot.trouble("sendDocument", Trouble::Held);
    scene.sends("a.txt");
    let tried = || (!scene.bot.calls("sendDocument").is_empty()).then_some(());
    assert!(until("it is being sent", tried).is_some(), "{}", scene.daemon.log());
    scene.until_there(ANN, "`a.txt` (4 bytes) is on its way");
    scene.sends("b.txt");
    scene.until_there(ANN, "`b.txt` (4 bytes) is on its way");
    scene.settle(ANN);
    scene.settle(BEN);
    assert_eq!((scene.bot.documents(ANN).len(), scene.bot.calls("sendDocument").len()), (0, 1));
    scene.bot.hold_files(false);
    let both = || Some(scene.bot.documents(ANN)).filter(|sent| sent.len() == 2);
    let both = until("both came", both).unwrap_or_else(|| scene.fail(ANN, "two files"));
    assert_eq!(both.iter().map(|sent| sent.name.as_str()).collect::<Vec<_>>(), ["a.txt", "b.txt"]);
}

#[test]
fn what_waits_to_be_sent_goes_with_its_session() {
    let scene = scene();
    scene.write("a.txt", b"never sent");
    scene.bot.trouble("sendDocument", Trouble::TooMany(600));
    scene.sends("a.txt");
    let tried = || (!scene.bot.calls("sendDocument").is_empty()).then_some(());
    assert!(until("it was tried", tried).is_some(), "{}", scene.daemon.log());
    assert_eq!(scene.kept(), 1);
    let deleted = || {
        let delete = ["session", "delete", "telegram:person.7", "--yes"];
        scene.daemon.drupe(&delete).status.success().then_some(())
    };
    assert!(until("the session is deleted", deleted).is_some(), "{}", scene.daemon.log());
    scene.until_nothing_is_kept();
}

#[test]
fn a_file_that_may_have_arrived_is_not_sent_again() {
    let scene = scene();
    scene.write("a.txt", b"once");
    scene.bot.trouble("sendDocument", Trouble::DoneAndCut);
    scene.sends("a.txt");
    let told = || scene.told("delivery.uncertain").pop();
    let told = until("the session is told", told).unwrap_or_else(|| scene.fail(ANN, "a doubt"));
    assert!(told["data"]["message"].as_str().is_some_and(|said| said.contains("the file `a.txt`")), "{told}");
    scene.until_nothing_is_kept();
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.settle(ANN);
    assert_eq!((scene.bot.documents(ANN).len(), scene.bot.calls("sendDocument").len()), (1, 1));
}

#[test]
fn a_file_that_the_service_does_not_take_is_told_where_it_was_awaited() {
    let scene = scene();
    scene.write("a.txt", b"too large for them");
    scene.bot.trouble("sendDocument", Trouble::Refused(413, "Request Entity Too Large"));
    scene.sends("a.txt");
    scene.until_there(
        ANN,
        "the file `a.txt` could not be sent: Telegram refused it: 413 Request Entity Too Large",
    );
    assert_eq!(scene.told("delivery.failed").len(), 1);
    scene.until_nothing_is_kept();
    let large = fs::File::create(scene.daemon.path().join("workspace/large")).expect("a file");
    large.set_len(50_000_001).expect("it has that length");
    scene.sends("large");
    scene.until_there(ANN, "has more than 50 MB, the most that is sent");
}

#[test]
fn where_strangers_were_read_a_person_sees_what_goes_out_and_gets_nothing_else() {
    let scene = scene();
    scene.bot.keep("d", b"words of a stranger");
    scene
        .bot
        .push([scene.bot.message_with(ANN, json!({"document": {"file_id": "d", "file_name": "a.txt"}}))]);
    scene.until_there(ANN, "done: words of a stranger");
    let pending = || {
        let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
        list.as_array()?.iter().find(|one| one["state"] == "pending").map(|one| one["id"].clone())
    };
    let answer = |id: Value| scene.daemon.client().ask("approvals.answer", json!({"id": id, "allow": true}));
    scene.write("b.txt", b"what is shown");
    scene.sends("b.txt");
    scene.until_there(ANN, "sends `b.txt`, 13 bytes, SHA-256");
    let first = until("it is asked", pending).unwrap_or_else(|| scene.fail(ANN, "a question"));
    assert!(scene.bot.documents(ANN).is_empty());
    scene.write("b.txt", b"something else");
    answer(first).expect("it is answered");
    scene.until_there(ANN, "is another one than the person was shown");
    scene.sends("b.txt");
    let second = until("it is asked again", pending).unwrap_or_else(|| scene.fail(ANN, "a question"));
    answer(second).expect("it is answered");
    assert_eq!(scene.until_sent()[0].bytes, b"something else");
}

#[test]
fn where_no_channel_takes_files_whoever_reads_is_told_where_it_is() {
    let scene = scene();
    scene.write("a.txt", b"here");
    let done = scene.daemon.turn("main", r#"files_send {"path": "a.txt", "text": "the list"}"#);
    let said = done["content"].as_str().unwrap_or_default();
    assert!(
        said.contains("takes no files: the person was told that `a.txt` is in the workspace"),
        "{done:#}"
    );
    let told = scene.daemon.events("main").into_iter().any(|event| {
        event["data"]["message"] == "a file for you: `a.txt` in the workspace, 4 bytes. the list"
    });
    assert!(told, "{:?}", scene.daemon.events("main"));
    assert_eq!(scene.kept(), 0);
}
