//! Several conversations at the same time: what is slow in one of them is no matter of the others, on the way in and on the way out.

use serde_json::json;

use super::{BEN, Scene};
use crate::{
    harness::{
        model_server::{Say, latest},
        until,
    },
    telegram::bot_api::Trouble,
};

/// People whose messages the service takes its time with, and what the first answer to each says.
const SLOW: [(i64, &str); 5] = [
    (11, "you said s11"),
    (12, "you said s12"),
    (13, "you said s13"),
    (14, "you said s14"),
    (15, "you said s15"),
];

impl Scene {
    fn of_slow_people() -> Self {
        let allowed = "    allowed: [8, 11, 12, 13, 14, 15]\n";
        let scene = Self::new(allowed, |request| Say::Text(format!("you said {}", latest(request).1)));
        scene.bot.refuse_previews();
        scene.bot.hold_files(true);
        scene
    }

    /// Somebody writes two messages, and the service takes its time with the answer to the first.
    fn is_slow(&self, (who, answer): (i64, &'static str)) {
        self.bot.trouble_with("sendMessage", answer, Trouble::Held);
        self.bot.says(who, answer.trim_start_matches("you said "));
        self.bot.says(who, "after that");
    }

    /// Answers that were given to the service, of these people.
    fn asked(&self, people: &[(i64, &str)]) -> Vec<usize> {
        let calls = self.bot.calls("sendMessage");
        let whole =
            |params: &serde_json::Value| !params["text"].as_str().is_some_and(|text| text.ends_with('…'));
        let of =
            |who: i64| calls.iter().filter(|(_, params)| params["chat_id"] == who && whole(params)).count();
        people.iter().map(|(who, _)| of(*who)).collect()
    }

    fn until_asked(&self, people: &[(i64, &str)]) {
        let asked = || self.asked(people).iter().all(|count| *count > 0).then_some(());
        assert!(
            until("they are being sent", asked).is_some(),
            "{:?}\n{}",
            self.asked(&SLOW),
            self.daemon.log()
        );
    }
}

#[test]
fn a_text_that_takes_its_time_holds_up_those_to_its_address_and_no_others() {
    let scene = Scene::of_slow_people();
    SLOW[..3].iter().for_each(|slow| scene.is_slow(*slow));
    scene.until_asked(&SLOW[..3]);
    scene.settle(BEN);
    scene.settle(BEN);
    assert_eq!(scene.asked(&SLOW[..3]), [1; 3], "what is behind a text waits for it");
    scene.bot.hold_files(false);
    for (who, answer) in &SLOW[..3] {
        scene.until_there(*who, "after that");
        assert_eq!(scene.bot.texts(*who), [*answer, "you said after that"]);
    }
}

#[test]
fn only_so_many_are_on_the_way_and_none_of_them_is_sent_twice_over_a_kill() {
    let scene = Scene::of_slow_people();
    SLOW[..4].iter().for_each(|slow| scene.is_slow(*slow));
    scene.until_asked(&SLOW[..4]);
    // The fifth has an answer, and others of that time are sent through another channel.
    scene.is_slow(SLOW[4]);
    let finished = || {
        let told = scene.daemon.events("telegram:person.15");
        (told.iter().filter(|event| event["kind"] == "interaction.turn.completed").count() == 2).then_some(())
    };
    assert!(
        until("both have an answer", finished).is_some(),
        "{:?}",
        scene.daemon.events("telegram:person.15")
    );
    assert_eq!(scene.asked(&SLOW), [1, 1, 1, 1, 0]);
    scene.daemon.kill_kernel();
    scene.bot.hold_files(false);
    scene.daemon.until_ready();
    for (who, answer) in &SLOW {
        scene.until_there(*who, "after that");
        scene.settle(BEN);
        assert_eq!(scene.count(*who, answer), 1, "{:?}", scene.bot.texts(*who));
        assert_eq!(scene.count(*who, "you said after that"), 1, "{:?}", scene.bot.texts(*who));
    }
    assert_eq!(scene.asked(&SLOW), [2; 5]);
    let doubts = |who: &i64| {
        let told = scene.daemon.events(&format!("telegram:person.{who}"));
        told.iter().filter(|event| event["data"]["code"] == "delivery.uncertain").count()
    };
    assert_eq!(SLOW.map(|(who, _)| doubts(&who)), [1, 1, 1, 1, 0]);
}

#[test]
fn what_comes_in_slowly_holds_up_its_conversation_alone_and_is_told_again_until_it_is_taken_in() {
    let scene = Scene::of_slow_people();
    scene.bot.keep("d", b"slow words");
    scene.bot.push([
        scene.bot.message_with(11, json!({"document": {"file_id": "d", "file_name": "a.txt"}})),
        scene.bot.message(11, "behind it"),
        scene.bot.message(BEN, "hello"),
    ]);
    scene.until_there(BEN, "you said hello");
    scene.settle(BEN);
    // Nothing of what came since is confirmed: the service would forget the file with it.
    assert!(scene.bot.unconfirmed() >= 4 && scene.bot.texts(11).is_empty(), "{}", scene.daemon.log());
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.settle(BEN);
    scene.bot.hold_files(false);
    scene.until_there(11, "you said behind it");
    let texts = scene.bot.texts(11);
    assert!(texts.len() == 2 && texts[0].contains("a.txt"), "{texts:?}");
    assert_eq!(scene.count(BEN, "you said hello"), 1);
    scene.until_confirmed();
}
