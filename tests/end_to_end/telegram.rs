//! People who write to a Telegram bot: the real extension in a process of its own, against a stand-in of the Bot API.

mod at_once;
mod bot_api;
mod crowd;
mod files;
mod sent;

use std::{fs, time::Duration};

use serde_json::{Value, json};

use self::bot_api::{BotServer, Posted, TOKEN, Trouble};
use crate::{
    chat::{Gate, WIDE_LIMITS, calls, effects, http, obedient},
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
        unique, until,
    },
};

const ANN: i64 = 7;
const BEN: i64 = 8;
/// A group.
const ROOM: i64 = -100;

struct Scene {
    bot: BotServer,
    daemon: Daemon,
    server: ModelServer,
}

impl Scene {
    fn new(allowed: &str, model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        Self::polling(20, allowed, model)
    }

    /// One whose requests for updates wait so many seconds.
    fn polling(seconds: u64, allowed: &str, model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        let (bot, server) = (BotServer::start(), ModelServer::start(model));
        let telegram = format!(
            "extensions:\n  telegram:\n    enabled: true\n    api: \"{}\"\n    poll_seconds: {seconds}\n{allowed}",
            bot.address
        );
        let approvals = "approvals: {preauthorized: all, people: [telegram/8]}\n";
        // The model reads pictures.
        let sees = "  profiles: {local/test: {images: true}}\n";
        let mut daemon = Daemon::home(&(server.config() + sees + WIDE_LIMITS + approvals + &telegram));
        daemon.variable("TELEGRAM_BOT_TOKEN", TOKEN);
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.run();
        Self { bot, daemon, server }
    }

    fn of_known() -> Self {
        Self::new("    allowed: [7, 8]\n", obedient(&effects()))
    }

    /// Waits until something stands in a chat that is whole; its number.
    fn until_there(&self, chat: i64, part: &str) -> i64 {
        let there = || {
            self.bot
                .chat(chat)
                .into_iter()
                .find(|(_, posted)| posted.text.contains(part) && !posted.text.ends_with('…'))
        };
        until("it is there", there).unwrap_or_else(|| self.fail(chat, part)).0
    }

    fn fail(&self, chat: i64, part: &str) -> ! {
        panic!("{part}: {:?}\n{}", self.bot.chat(chat), self.daemon.log())
    }

    /// How often something stands in a chat.
    fn count(&self, chat: i64, text: &str) -> usize {
        self.bot.count(chat, text)
    }

    /// Whatever was said before is answered by then.
    fn settle(&self, who: i64) {
        let mark = unique();
        self.bot.says(who, &mark);
        self.until_there(who, &mark);
    }

    fn until_confirmed(&self) {
        let confirmed = || (self.bot.unconfirmed() == 0).then_some(());
        assert!(until("all are confirmed", confirmed).is_some(), "{}", self.daemon.log());
    }
}

#[test]
fn a_stranger_gets_a_code_and_is_answered_once_they_are_let_in() {
    let scene = Scene::new("", obedient(&effects()));
    scene.bot.says(ANN, "hello");
    let shown = scene.until_there(ANN, "tell the code");
    let list = scene.daemon.json(&["pair", "--json"]);
    let code = list[0]["code"].as_str().expect("somebody waits").to_owned();
    assert!(scene.bot.chat(ANN)[0].1.text.contains(&code) && shown == 1);
    assert_eq!((&list[0]["id"], &list[0]["name"]), (&json!("telegram/7"), &json!("Name7")));
    // Commands and pictures of strangers are no way in, and in a group nobody is told anything.
    scene.bot.says(ANN, "/who");
    scene.bot.push([scene.bot.message_in(json!({"id": ROOM, "type": "supergroup"}), BEN, "@plum_bot hello")]);
    scene.until_confirmed();
    scene.daemon.says(&["pair", "allow", &code]);
    scene.bot.says(ANN, "good morning");
    scene.until_there(ANN, "you said good morning");
    let texts = scene.bot.texts(ANN);
    assert_eq!(texts.iter().filter(|text| text.contains("tell the code")).count(), 2, "{texts:?}");
    assert!(scene.bot.texts(ROOM).is_empty());
    assert_eq!(texts.len(), 3, "{texts:?}");
    let asked = scene.server.requests();
    assert!(
        !asked.iter().any(|request| request.to_string().contains("\"hello\"")),
        "nothing of strangers is read"
    );
    // The token is nowhere but on the way.
    assert!(!scene.daemon.log().contains(TOKEN));
    let kept = fs::read_to_string(scene.daemon.path().join("data/telegram/telegram.json"))
        .expect("it keeps something");
    assert!(!kept.contains(TOKEN) && !kept.contains("hello"), "{kept}");
}

#[test]
fn what_is_told_again_or_out_of_order_is_one_turn_each() {
    let mut scene = Scene::of_known();
    let mut updates: Vec<Value> = (0..6).map(|n| scene.bot.message(ANN, &format!("number {n}"))).collect();
    let again = updates.clone();
    updates.reverse();
    updates.extend(again.clone());
    scene.bot.push(updates);
    scene.settle(ANN);
    scene.bot.push(again.clone());
    scene.settle(BEN);
    // Also where the extension has forgotten all that it kept: the daemon knows their ids.
    scene.until_confirmed();
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    fs::remove_file(scene.daemon.path().join("data/telegram/telegram.json")).expect("it was kept");
    scene.daemon.run();
    scene.bot.push(again);
    scene.settle(BEN);
    let answers: Vec<_> = (0..6).map(|n| scene.count(ANN, &format!("you said number {n}"))).collect();
    assert_eq!(answers, [1; 6], "{:?}", scene.bot.texts(ANN));
    let order: Vec<_> = scene.bot.texts(ANN).into_iter().filter(|text| text.contains("number")).collect();
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn an_answer_is_shown_while_it_is_made_and_is_one_message_in_the_end() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new("    allowed: [7]\n", move |request| match latest(request) {
        (_, text) if text == "hello" => Say::Call(vec![("kv_list".to_owned(), json!({}))]),
        (role, _) if role == "tool" => {
            held.wait();
            Say::Text("you said hello".to_owned())
        }
        (_, text) => Say::Text(format!("you said {text}")),
    });
    // Whether the whole was written is not known at first, and it is the same when it is written again.
    scene.bot.trouble_with("editMessageText", "you said hello", Trouble::DoneAndCut);
    scene.bot.says(ANN, "hello");
    let shown = || scene.bot.texts(ANN).into_iter().find(|text| text == "[kv_list] …");
    assert!(until("what works is shown", shown).is_some(), "{}", scene.daemon.log());
    gate.open();
    let id = scene.until_there(ANN, "you said hello");
    scene.settle(ANN);
    let told = scene.daemon.events("telegram:person.7");
    assert!(!told.iter().any(|event| event["data"]["code"] == "delivery.uncertain"), "{told:?}");
    let all: Vec<_> =
        scene.bot.chat(ANN).into_iter().filter(|(_, posted)| posted.text.contains("hello")).collect();
    assert_eq!((all.len(), id), (1, all[0].0), "{all:?}");
    assert!(all[0].1.edits >= 1, "{all:?}");
    // The next answer is a message of its own.
    scene.bot.says(ANN, "again");
    scene.until_there(ANN, "you said again");
    assert_eq!(scene.bot.chat(ANN).len(), 3);
}

#[test]
fn previews_come_no_more_often_than_the_service_takes_them() {
    let scene = Scene::of_known();
    for n in 0..4 {
        scene.bot.says(ANN, &format!("long {n} {}", "word ".repeat(50)));
    }
    scene.until_there(ANN, "you said long 3");
    let edits = scene.bot.calls("editMessageText");
    for pair in edits.windows(2) {
        let (one, two) = (&pair[0].1["text"], &pair[1].1["text"]);
        let preview = |text: &Value| text.as_str().is_some_and(|text| text.ends_with('…'));
        assert!(
            !(preview(one) && preview(two)) || pair[1].0 - pair[0].0 >= Duration::from_millis(950),
            "{pair:?}"
        );
    }
}

#[test]
fn what_the_service_does_not_take_yet_is_sent_when_it_does_and_once() {
    let scene = Scene::of_known();
    scene.bot.trouble("sendMessage", Trouble::TooMany(2));
    scene.bot.trouble("sendMessage", Trouble::TooMany(1));
    scene.bot.says(ANN, "hello");
    scene.until_there(ANN, "you said hello");
    let calls = scene.bot.calls("sendMessage");
    assert!(calls[1].0 - calls[0].0 >= Duration::from_millis(1_900), "it waited as long as it was told");
    assert_eq!(scene.count(ANN, "you said hello"), 1);
    scene.bot.trouble("getUpdates", Trouble::TooMany(1));
    scene.bot.trouble("getUpdates", Trouble::Gateway);
    scene
        .bot
        .trouble("getUpdates", Trouble::Refused(409, "Conflict: terminated by other getUpdates request"));
    scene.bot.trouble("getUpdates", Trouble::Cut);
    scene.settle(ANN);
    scene.settle(ANN);
    assert!(scene.daemon.log().contains("409"), "{}", scene.daemon.log());
}

#[test]
fn a_message_that_may_have_arrived_is_never_sent_again() {
    let scene = Scene::of_known();
    scene.bot.refuse_previews();
    scene.bot.trouble_with("sendMessage", "you said one", Trouble::DoneAndCut);
    scene.bot.trouble_with("sendMessage", "you said two", Trouble::Gateway);
    scene.bot.trouble_with("sendMessage", "you said three", Trouble::Cut);
    for text in ["one", "two", "three"] {
        scene.bot.says(ANN, text);
    }
    scene.settle(ANN);
    let counts = ["one", "two", "three"].map(|text| scene.count(ANN, &format!("you said {text}")));
    assert_eq!(counts, [1, 0, 0], "{:?}", scene.bot.texts(ANN));
    let told = scene.daemon.events("telegram:person.7");
    let doubts = told.iter().filter(|event| event["data"]["code"] == "delivery.uncertain").count();
    assert_eq!(doubts, 3, "{told:?}");
}

#[test]
fn whoever_has_blocked_the_bot_holds_up_nobody_else() {
    let scene = Scene::of_known();
    scene.bot.block(ANN);
    scene.bot.says(ANN, "hello");
    scene.settle(BEN);
    let failed = || {
        let told = scene.daemon.events("telegram:person.7");
        told.into_iter().find(|event| event["data"]["code"] == "delivery.failed")
    };
    let failed = until("it is given up", failed).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    assert!(
        failed["data"]["message"].as_str().is_some_and(|said| said.contains("blocked by the user")),
        "{failed}"
    );
    // A flood in one chat does not, either.
    scene.bot.trouble("sendMessage", Trouble::TooMany(30));
    scene.bot.push([scene.bot.message_in(json!({"id": ROOM, "type": "supergroup"}), ANN, "@plum_bot hello")]);
    until("it was tried", || {
        (scene.bot.calls("sendMessage").iter().any(|(_, p)| p["chat_id"] == ROOM)).then_some(())
    });
    scene.settle(BEN);
    assert!(scene.bot.texts(ROOM).is_empty(), "that one still waits");
}

#[test]
fn a_long_answer_comes_in_parts_that_fit() {
    let scene =
        Scene::new("    allowed: [7]\n", |_| Say::Text(format!("{}the end", "some words\n".repeat(1_000))));
    scene.bot.says(ANN, "hello");
    scene.until_there(ANN, "the end");
    let parts = scene.bot.texts(ANN);
    assert_eq!(parts.len(), 3, "{:?}", parts.iter().map(String::len).collect::<Vec<_>>());
    assert_eq!(parts.join("\n").matches("some words").count(), 1_000);
    assert!(!parts.iter().any(|part| part.contains('…')));
}

#[test]
fn nothing_is_lost_or_doubled_when_the_kernel_dies_in_the_middle() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new("    allowed: [7, 8]\n", move |request| {
        let (_, text) = latest(request);
        if text == "slow" {
            held.wait();
        }
        Say::Text(format!("you said {text}"))
    });
    scene.bot.says(ANN, "first");
    scene.until_there(ANN, "you said first");
    scene.bot.says(ANN, "slow");
    until("the model is asked", || (scene.server.requests().len() >= 2).then_some(()));
    scene.daemon.kill_kernel();
    // What comes meanwhile waits at the service.
    scene.bot.says(ANN, "meanwhile");
    scene.bot.says(BEN, "me too");
    gate.open();
    scene.daemon.until_ready();
    scene.until_there(ANN, "you said meanwhile");
    scene.until_there(BEN, "you said me too");
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.settle(ANN);
    for text in ["first", "slow", "meanwhile"] {
        assert_eq!(scene.count(ANN, &format!("you said {text}")), 1, "{text}: {:?}", scene.bot.texts(ANN));
    }
    assert_eq!(scene.count(BEN, "you said me too"), 1);
    scene.until_confirmed();
}

fn buttons(posted: &Posted) -> Vec<&str> {
    let rows = posted.markup["inline_keyboard"].as_array().into_iter().flatten();
    rows.flat_map(|row| row.as_array().expect("a row")).filter_map(|button| button["text"].as_str()).collect()
}

#[test]
fn a_question_has_buttons_and_the_card_says_what_became_of_it_wherever_it_was_answered() {
    let file = effects();
    let scene = Scene::new("    allowed: [7, 8]\n", obedient(&file));
    let ran = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    let room = || json!({"id": ROOM, "type": "supergroup"});
    let posted =
        |id: i64| scene.bot.chat(ROOM).into_iter().find(|(known, _)| *known == id).expect("it is there").1;
    scene.bot.push([scene.bot.message_in(room(), ANN, "@plum_bot go")]);
    let card = scene.until_there(ROOM, "may call `careful_effect_append`");
    assert!(buttons(&posted(card)).starts_with(&["Allow", "Deny"]), "{:?}", posted(card));
    // The answer of somebody whom the operator did not name does not count.
    scene.bot.presses(ANN, card, "Allow");
    scene.until_there(ROOM, "Answers are not taken here");
    assert_eq!(ran(), 0);
    scene.bot.presses(9, card, "Allow");
    scene.bot.presses(BEN, card, "Allow");
    scene.until_there(ROOM, "done: ");
    assert_eq!(ran(), 1);
    let settled =
        until("the card is settled", || Some(posted(card)).filter(|card| card.text.ends_with("` runs.")));
    assert_eq!(settled.as_ref().map(buttons), Some(vec![]), "{:?}", scene.bot.chat(ROOM));
    assert_eq!(scene.bot.calls("answerCallbackQuery").len(), 3);
    // Answered by the operator, elsewhere.
    scene.bot.push([scene.bot.message_in(room(), ANN, "@plum_bot go")]);
    let waits = || scene.bot.chat(ROOM).into_iter().rfind(|(_, posted)| buttons(posted).contains(&"Allow"));
    let (second, _) = until("it is asked again", waits).unwrap_or_else(|| scene.fail(ROOM, "a question"));
    let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
    let id = list
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["state"] == "pending")
        .expect("one waits")["id"]
        .clone();
    scene.daemon.client().ask("approvals.answer", json!({"id": id, "allow": false})).expect("it is answered");
    let denied = || {
        Some(posted(second)).filter(|card| card.text.ends_with("does not run.") && buttons(card).is_empty())
    };
    assert!(until("the card says so", denied).is_some(), "{:?}", posted(second));
    scene.until_confirmed();
    assert_eq!(ran(), 1);
}

#[test]
fn a_button_counts_that_is_pressed_before_the_service_has_said_which_message_it_is_below() {
    let file = effects();
    let scene = Scene::new("    allowed: [7, 8]\n", obedient(&file));
    scene.bot.is_quick(BEN, "Allow");
    let room = json!({"id": ROOM, "type": "supergroup"});
    scene.bot.push([scene.bot.message_in(room, ANN, "@plum_bot go")]);
    scene.until_there(ROOM, "done: ");
    assert_eq!(fs::read_to_string(&file).unwrap_or_default().lines().count(), 1);
    let settled = || {
        let all = scene.bot.chat(ROOM).into_iter().map(|(_, posted)| posted);
        all.into_iter().find(|posted| posted.text.ends_with("` runs.") && buttons(posted).is_empty())
    };
    assert!(until("the card is settled", settled).is_some(), "{:?}", scene.bot.chat(ROOM));
    let told = scene.bot.calls("answerCallbackQuery");
    assert!(told.len() == 1 && told[0].1["text"].is_null(), "{told:?}");
}

#[test]
fn the_button_below_an_answer_that_is_being_made_stops_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new("    allowed: [7, 8]\n", move |request| match latest(request) {
        (role, _) if role == "tool" => {
            held.wait();
            Say::Text("too late".to_owned())
        }
        (_, text) if text == "slow" => Say::Call(vec![("kv_list".to_owned(), json!({}))]),
        (_, text) => Say::Text(format!("you said {text}")),
    });
    // Before it is known which message shows the answer.
    scene.bot.is_quick(ANN, "Stop");
    scene.bot.says(ANN, "slow");
    let said = || scene.bot.calls("answerCallbackQuery").first().map(|(_, params)| params["text"].clone());
    assert_eq!(
        until("the button is answered", said),
        Some(json!("It is stopped.")),
        "{}",
        scene.daemon.log()
    );
    gate.open();
    scene.settle(ANN);
    let left = scene.bot.chat(ANN);
    assert!(!left.iter().any(|(_, posted)| posted.text == "too late"), "{left:?}");
    assert!(
        left.iter().all(|(_, posted)| buttons(posted).is_empty()),
        "nothing is left to be stopped: {left:?}"
    );
}

#[test]
fn commands_begin_anew_stop_and_say_who_somebody_is() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new("    allowed: [7, 8]\n", move |request| {
        let (_, text) = latest(request);
        if text == "slow" {
            held.wait();
        }
        Say::Text(format!("you said {text}"))
    });
    scene.bot.says(BEN, "/who");
    scene.until_there(BEN, "You are `telegram/8`. This conversation is `telegram:person.8`. Your answers to questions about calls count.");
    scene.bot.says(ANN, "a secret word");
    scene.until_there(ANN, "you said a secret word");
    scene.bot.says(ANN, "/new");
    scene.until_there(ANN, "begins a new conversation");
    scene.bot.says(ANN, "what did I say");
    scene.until_there(ANN, "you said what did I say");
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(!last.contains("a secret word"), "{last}");
    scene.bot.says(ANN, "slow");
    let asked = || scene.server.requests().last().is_some_and(|last| latest(last).1 == "slow").then_some(());
    assert!(until("the model is asked", asked).is_some());
    scene.bot.says(ANN, "/stop");
    scene.until_there(ANN, "It is stopped.");
    gate.open();
    // Of others' conversations nothing changed.
    scene.bot.says(BEN, "/stop");
    scene.until_there(BEN, "Nothing runs.");
    let photo = scene.bot.number();
    scene.bot.push([
        json!({"update_id": photo, "message": {"message_id": 3, "chat": {"id": ANN, "type": "private"},
        "from": {"id": ANN, "first_name": "x"}, "sticker": {"file_id": "x"}}}),
    ]);
    scene.until_there(ANN, "Only texts, pictures and files are read here.");
}
