//! People who write in Slack: the real extension in a process of its own, against a stand-in of the Web API and of Socket Mode.

mod crowd;
mod files;
mod requests;
mod sending;
mod sent;
mod workspace;

use std::fs;

use serde_json::{Value, json};

use self::workspace::{APP_TOKEN, BOT_TOKEN, Behaviour, Posted, Trouble, Workspace, chat_of};
use crate::{
    chat::{Gate, WIDE_LIMITS, effects, obedient},
    harness::{
        Daemon,
        model_server::{ModelServer, Say, latest},
        unique, until,
    },
};

const ANN: &str = "U0ANN";
const BEN: &str = "U0BEN";
const ROOM: &str = "C0ROOM";

struct Scene {
    slack: Workspace,
    daemon: Daemon,
    server: ModelServer,
}

const BOTH: &str = "    allowed: [U0ANN, U0BEN]\n";
const SETTINGS: &str = "approvals: {preauthorized: all, people: [slack/U0BEN]}\n";

impl Scene {
    fn new(more: &str, model: impl Fn(&Value) -> Say + Send + Sync + 'static) -> Self {
        let (slack, server) = (Workspace::start(), ModelServer::start(model));
        let mut daemon = Daemon::home(&(server.config() + WIDE_LIMITS + SETTINGS + &slack.config(more)));
        daemon.variable("SLACK_APP_TOKEN", APP_TOKEN);
        daemon.variable("SLACK_BOT_TOKEN", BOT_TOKEN);
        daemon.plugin("careful", "faulty", "config: {prefix: careful, careful: true}\n");
        daemon.run();
        Self { slack, daemon, server }
    }

    fn of_known() -> Self {
        Self::new(BOTH, obedient(&effects()))
    }

    /// Waits until something stands in a channel that is whole; its time.
    fn until_there(&self, channel: &str, part: &str) -> String {
        let there = || {
            let is_it =
                |(_, posted): &(String, Posted)| posted.text.contains(part) && !posted.text.ends_with('…');
            self.slack.channel(channel).into_iter().find(is_it)
        };
        until("it is there", there).unwrap_or_else(|| self.fail(channel, part)).0
    }

    fn fail(&self, channel: &str, part: &str) -> ! {
        let waits = self.slack.unacknowledged();
        panic!("{part}: {:?}, {waits} not acknowledged\n{}", self.slack.channel(channel), self.daemon.log())
    }

    /// How often something stands in a channel.
    fn count(&self, channel: &str, text: &str) -> usize {
        self.slack.texts(channel).iter().filter(|there| *there == text).count()
    }

    /// Whatever was said before is answered by then.
    fn settle(&self, who: &str) {
        let mark = unique();
        self.slack.says(who, &mark);
        self.until_there(&chat_of(who), &mark);
    }

    fn until_acknowledged(&self) {
        let acknowledged = || (self.slack.unacknowledged() == 0).then_some(());
        assert!(until("all is acknowledged", acknowledged).is_some(), "{}", self.daemon.log());
    }

    fn posted(&self, channel: &str, ts: &str) -> Posted {
        self.slack.channel(channel).into_iter().find(|(known, _)| known == ts).expect("it is there").1
    }

    fn told(&self, session: &str, code: &str) -> usize {
        self.daemon.events(session).iter().filter(|event| event["data"]["code"] == code).count()
    }
}

fn buttons(posted: &Posted) -> Vec<&str> {
    let blocks = posted.blocks.as_array().into_iter().flatten();
    let elements = blocks.filter_map(|block| block["elements"].as_array()).flatten();
    elements.filter_map(|button| button["text"]["text"].as_str()).collect()
}

#[test]
fn a_stranger_gets_a_code_and_is_answered_once_they_are_let_in() {
    let scene = Scene::new("", obedient(&effects()));
    let chat = chat_of(ANN);
    scene.slack.says(ANN, "hello");
    scene.until_there(&chat, "tell the code");
    let list = scene.daemon.json(&["pair", "--json"]);
    let code = list[0]["code"].as_str().expect("somebody waits").to_owned();
    assert!(scene.slack.texts(&chat)[0].contains(&code), "{:?}", scene.slack.texts(&chat));
    assert_eq!((&list[0]["id"], &list[0]["name"]), (&json!("slack/U0ANN"), &json!("Name of U0ANN")));
    // In a channel nobody is told anything, and words of strangers are no way in.
    scene.slack.push([scene.slack.mention(BEN, ROOM, None, "hello")]);
    scene.slack.says(ANN, "!who");
    let twice = || (scene.slack.texts(&chat).len() == 2).then_some(());
    assert!(until("the code is shown again", twice).is_some(), "{}", scene.daemon.log());
    scene.until_acknowledged();
    scene.daemon.says(&["pair", "allow", &code]);
    scene.slack.says(ANN, "good morning");
    scene.until_there(&chat, "you said good morning");
    let texts = scene.slack.texts(&chat);
    assert_eq!(texts.iter().filter(|text| text.contains("tell the code")).count(), 2, "{texts:?}");
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(scene.slack.texts(ROOM).is_empty());
    let asked = scene.server.requests();
    assert!(
        !asked.iter().any(|request| request.to_string().contains("\"hello\"")),
        "nothing of strangers is read"
    );
    // The tokens are nowhere but on the way.
    let kept =
        fs::read_to_string(scene.daemon.path().join("data/slack/slack.json")).expect("it keeps something");
    for hidden in [APP_TOKEN, BOT_TOKEN, "hello", "ticket="] {
        assert!(!scene.daemon.log().contains(hidden) && !kept.contains(hidden), "{hidden}: {kept}");
    }
}

#[test]
fn what_is_told_again_or_out_of_order_or_twice_is_one_turn_each() {
    let mut scene = Scene::of_known();
    let mut events: Vec<Value> = (0..6).map(|n| scene.slack.direct(ANN, &format!("number {n}"))).collect();
    let again = events.clone();
    events.reverse();
    events.extend(again.clone());
    scene.slack.push(events);
    scene.slack.tell_again();
    scene.settle(ANN);
    // Also where the extension has forgotten all that it kept: the daemon knows their ids.
    scene.until_acknowledged();
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    scene.daemon.run();
    scene.slack.push(again);
    scene.settle(BEN);
    scene.until_acknowledged();
    let chat = chat_of(ANN);
    let answers: Vec<_> = (0..6).map(|n| scene.count(&chat, &format!("you said number {n}"))).collect();
    assert_eq!(answers, [1; 6], "{:?}", scene.slack.texts(&chat));
}

#[test]
fn a_thread_of_a_channel_is_a_conversation_and_the_answer_is_in_it() {
    let scene = Scene::of_known();
    let first = scene.slack.mention(ANN, ROOM, None, "a secret word");
    let thread = first["ts"].as_str().expect("a time").to_owned();
    // What bots write, what was changed, and what does not name the bot is nothing to it.
    let mut of_bot = scene.slack.mention(ANN, ROOM, None, "from a bot");
    of_bot["bot_id"] = json!("B0OTHER");
    let mut changed = scene.slack.direct(ANN, "changed later");
    changed["subtype"] = json!("message_changed");
    let mut aside = scene.slack.direct(ANN, "said aside");
    (aside["channel"], aside["channel_type"]) = (json!(ROOM), json!("channel"));
    scene.slack.push([first, of_bot, changed, aside]);
    let answer = scene.until_there(ROOM, "you said a secret word");
    assert_eq!(scene.posted(ROOM, &answer).thread.as_deref(), Some(thread.as_str()));
    scene.slack.push([scene.slack.mention(BEN, ROOM, Some(&thread), "and <@U0ANN> &lt;b&gt;?")]);
    let second = scene.until_there(ROOM, "you said and @U0ANN <b>?");
    assert_eq!(scene.posted(ROOM, &second).thread.as_deref(), Some(thread.as_str()));
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(last.contains("a secret word"), "the thread goes on: {last}");
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "elsewhere")]);
    scene.until_there(ROOM, "you said elsewhere");
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(!last.contains("a secret word"), "another thread is another conversation: {last}");
    scene.until_acknowledged();
    assert_eq!((scene.slack.channel(ROOM).len(), scene.slack.channel(&chat_of(ANN)).len()), (3, 0));
}

#[test]
fn channels_are_answered_as_the_configuration_says() {
    let rules = "    other_channels: false\n    channels: {C0ROOM: {}, C0HAIKU: {agent: haiku}, C0SHUT: {answer: false}}\n";
    let scene = Scene::new(&format!("{BOTH}{rules}"), |request| {
        let is_haiku = request["messages"][0].to_string().contains("only haikus");
        Say::Text(format!("{} said {}", if is_haiku { "haiku" } else { "orchestrator" }, latest(request).1))
    });
    let manifest = "id: haiku\nname: Haiku\ndescription: Writes haikus.\nagent: {model: default, instructions: You write only haikus.}\n";
    scene.daemon.write("extensions/haiku/manifest.yaml", manifest);
    scene.daemon.until_extension("haiku", "active");
    for channel in ["C0OTHER", "C0SHUT", "C0HAIKU", ROOM] {
        scene.slack.push([scene.slack.mention(ANN, channel, None, "hello")]);
    }
    scene.until_there(ROOM, "orchestrator said hello");
    scene.until_there("C0HAIKU", "haiku said hello");
    scene.until_acknowledged();
    assert!(scene.slack.texts("C0OTHER").is_empty() && scene.slack.texts("C0SHUT").is_empty());
}

#[test]
fn an_answer_is_shown_while_it_is_made_and_is_one_message_in_the_end() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new(BOTH, move |request| match latest(request) {
        (_, text) if text == "hello" => Say::Call(vec![("kv_list".to_owned(), json!({}))]),
        (role, _) if role == "tool" => {
            held.wait();
            Say::Text("you said hello".to_owned())
        }
        (_, text) => Say::Text(format!("you said {text}")),
    });
    let chat = chat_of(ANN);
    // Whether the whole was written is not known at first, and it is the same when it is written again.
    scene.slack.trouble_with("chat.update", "you said hello", Trouble::DoneAndCut);
    scene.slack.says(ANN, "hello");
    let shown = || {
        let shown = scene.slack.channel(&chat).into_iter().map(|(_, posted)| posted);
        shown.into_iter().find(|posted| posted.text == "[kv_list] …")
    };
    let shown = until("what works is shown", shown).unwrap_or_else(|| scene.fail(&chat, "[kv_list]"));
    assert_eq!(buttons(&shown), ["Stop"]);
    gate.open();
    let ts = scene.until_there(&chat, "you said hello");
    scene.settle(ANN);
    assert_eq!(scene.told("slack:person.U0ANN", "delivery.uncertain"), 0);
    let all: Vec<_> =
        scene.slack.channel(&chat).into_iter().filter(|(_, posted)| posted.text.contains("hello")).collect();
    assert_eq!((all.len(), &ts), (1, &all[0].0), "{all:?}");
    assert!(all[0].1.edits >= 1 && buttons(&all[0].1).is_empty(), "{all:?}");
}

#[test]
fn the_button_below_an_answer_and_the_word_stop_it() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new(BOTH, move |request| match latest(request) {
        (role, _) if role == "tool" => {
            held.wait();
            Say::Text("too late".to_owned())
        }
        (_, text) if text.starts_with("slow") => Say::Call(vec![("kv_list".to_owned(), json!({}))]),
        (_, text) => Say::Text(format!("you said {text}")),
    });
    let chat = chat_of(ANN);
    let shown = |part: &str| {
        let is_it =
            |(_, posted): &(String, Posted)| posted.text.contains(part) && buttons(posted) == ["Stop"];
        until("it is shown", || scene.slack.channel(&chat).into_iter().rfind(is_it))
            .unwrap_or_else(|| scene.fail(&chat, part))
            .0
    };
    scene.slack.says(ANN, "slow one");
    let message = shown("[kv_list]");
    // Whoever is not known stops nothing.
    scene.slack.presses("U0EVE", &message, "Stop");
    scene.until_acknowledged();
    assert!(!scene.slack.texts(&chat).iter().any(|text| text.contains("stopped")));
    scene.slack.presses(ANN, &message, "Stop");
    scene.until_there(&chat, "It is stopped.");
    scene.slack.says(ANN, "slow two");
    shown("[kv_list]");
    scene.slack.says(ANN, "Stop");
    let twice = || (scene.count(&chat, "It is stopped.") == 2).then_some(());
    assert!(until("both are stopped", twice).is_some(), "{:?}", scene.slack.texts(&chat));
    gate.open();
    // Of others' conversations nothing changed.
    scene.slack.says(BEN, "stop");
    scene.until_there(&chat_of(BEN), "Nothing runs.");
    scene.settle(ANN);
    assert!(!scene.slack.texts(&chat).iter().any(|text| text.contains("too late")));
    let left = scene.slack.channel(&chat);
    assert!(
        left.iter().all(|(_, posted)| buttons(posted).is_empty()),
        "nothing is left to be stopped: {left:?}"
    );
}

#[test]
fn nothing_is_lost_or_doubled_when_the_kernel_dies_in_the_middle() {
    let gate = Gate::default();
    let held = gate.clone();
    let scene = Scene::new(BOTH, move |request| {
        let (_, text) = latest(request);
        if text == "slow" {
            held.wait();
        }
        Say::Text(format!("you said {text}"))
    });
    let chat = chat_of(ANN);
    scene.slack.says(ANN, "first");
    scene.until_there(&chat, "you said first");
    scene.slack.says(ANN, "slow");
    until("the model is asked", || (scene.server.requests().len() >= 2).then_some(()));
    scene.slack.tell_again();
    scene.daemon.kill_kernel();
    // What is told meanwhile is told again.
    scene.slack.says(ANN, "meanwhile");
    scene.slack.tell_again();
    scene.slack.says(BEN, "me too");
    gate.open();
    scene.daemon.until_ready();
    scene.until_there(&chat, "you said meanwhile");
    scene.until_there(&chat_of(BEN), "you said me too");
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    scene.settle(ANN);
    for text in ["first", "slow", "meanwhile"] {
        assert_eq!(
            scene.count(&chat, &format!("you said {text}")),
            1,
            "{text}: {:?}",
            scene.slack.texts(&chat)
        );
    }
    assert_eq!(scene.count(&chat_of(BEN), "you said me too"), 1);
    scene.until_acknowledged();
}

#[test]
fn a_question_has_buttons_and_the_card_says_what_became_of_it_wherever_it_was_answered() {
    let file = effects();
    let scene = Scene::new(BOTH, obedient(&file));
    let ran = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "go")]);
    let card = scene.until_there(ROOM, "may call `careful_effect_append`");
    assert!(
        buttons(&scene.posted(ROOM, &card)).starts_with(&["Allow", "Deny"]),
        "{:?}",
        scene.posted(ROOM, &card)
    );
    // The answer of somebody whom the operator did not name does not count.
    scene.slack.presses(ANN, &card, "Allow");
    scene.until_there(ROOM, "Answers are not taken here");
    scene.slack.presses("U0EVE", &card, "Allow");
    scene.until_acknowledged();
    assert_eq!(ran(), 0);
    scene.slack.presses(BEN, &card, "Allow");
    scene.until_there(ROOM, "done: ");
    assert_eq!(ran(), 1);
    let settled = || Some(scene.posted(ROOM, &card)).filter(|card| card.text.ends_with("` runs."));
    let settled = until("the card is settled", settled);
    assert_eq!(settled.as_ref().map(buttons), Some(vec![]), "{:?}", scene.slack.channel(ROOM));
    // Answered by the operator, elsewhere.
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "go")]);
    let waits =
        || scene.slack.channel(ROOM).into_iter().rfind(|(_, posted)| buttons(posted).contains(&"Allow"));
    let (second, _) = until("it is asked again", waits).unwrap_or_else(|| scene.fail(ROOM, "a question"));
    let list = scene.daemon.client().ask("approvals.list", json!({})).expect("a list");
    let pending = list.as_array().expect("a list").iter().find(|one| one["state"] == "pending");
    let id = pending.expect("one waits")["id"].clone();
    scene.daemon.client().ask("approvals.answer", json!({"id": id, "allow": false})).expect("it is answered");
    let denied = || {
        let card = scene.posted(ROOM, &second);
        Some(()).filter(|()| card.text.ends_with("does not run.") && buttons(&card).is_empty())
    };
    assert!(until("the card says so", denied).is_some(), "{:?}", scene.posted(ROOM, &second));
    scene.until_acknowledged();
    assert_eq!(ran(), 1);
}

#[test]
fn a_button_counts_that_is_pressed_before_the_service_has_said_which_message_it_is_below() {
    let file = effects();
    let scene = Scene::new(BOTH, obedient(&file));
    scene.slack.is_quick(BEN, "Allow");
    scene.slack.push([scene.slack.mention(ANN, ROOM, None, "go")]);
    scene.until_there(ROOM, "done: ");
    assert_eq!(fs::read_to_string(&file).unwrap_or_default().lines().count(), 1);
    let settled = || {
        let all = scene.slack.channel(ROOM).into_iter().map(|(_, posted)| posted);
        all.into_iter().find(|posted| posted.text.ends_with("` runs.") && buttons(posted).is_empty())
    };
    assert!(until("the card is settled", settled).is_some(), "{:?}", scene.slack.channel(ROOM));
    assert!(!scene.slack.texts(ROOM).iter().any(|text| text.contains("not asked any more")));
}

#[test]
fn in_a_thread_in_which_it_was_asked_the_bot_hears_what_does_not_name_it() {
    let mut scene = Scene::of_known();
    let first = scene.slack.mention(ANN, ROOM, None, "a secret word");
    let thread = first["ts"].as_str().expect("a time").to_owned();
    scene.slack.push([first]);
    scene.until_there(ROOM, "you said a secret word");
    let aside = |thread: &str, text: &str| scene.slack.aside(BEN, ROOM, thread, text);
    // In threads of others it does not, nor what is said to somebody else, or to it and told as a mention besides.
    let elsewhere = aside("17900000.5", "elsewhere");
    let to_ann = aside(&thread, "<@U0ANN> what do you think");
    let twice = scene.slack.mention(BEN, ROOM, Some(&thread), "twice");
    let mut again = twice.clone();
    (again["type"], again["channel_type"]) = (json!("message"), json!("channel"));
    scene.slack.push([elsewhere, to_ann, again, twice, aside(&thread, "and without its name")]);
    let answer = scene.until_there(ROOM, "you said and without its name");
    assert_eq!(scene.posted(ROOM, &answer).thread.as_deref(), Some(thread.as_str()));
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(last.contains("a secret word"), "the thread goes on: {last}");
    // A stranger is told nothing there, and after a restart the bot still takes part.
    scene.slack.push([scene.slack.aside("U0EVE", ROOM, &thread, "let me in")]);
    scene.until_acknowledged();
    scene.daemon.says(&["stop"]);
    scene.daemon.ended();
    scene.daemon.run();
    scene.slack.push([scene.slack.aside(ANN, ROOM, &thread, "much later")]);
    scene.until_there(ROOM, "you said much later");
    scene.until_acknowledged();
    let texts = scene.slack.texts(ROOM);
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(scene.count(ROOM, "you said twice"), 1);
}

#[test]
fn words_begin_anew_and_say_who_somebody_is() {
    let scene = Scene::of_known();
    scene.slack.says(BEN, "!who");
    scene.until_there(&chat_of(BEN), "You are `slack/U0BEN`. This conversation is `slack:person.U0BEN`. Your answers to questions about calls count.");
    let chat = chat_of(ANN);
    scene.slack.says(ANN, "a secret word");
    scene.until_there(&chat, "you said a secret word");
    let new = scene.slack.direct(ANN, "!new");
    scene.slack.push([new.clone()]);
    scene.until_there(&chat, "begins a new conversation");
    scene.slack.push([new]);
    scene.slack.says(ANN, "what did I say");
    scene.until_there(&chat, "you said what did I say");
    let last = scene.server.requests().last().expect("the model was asked").to_string();
    assert!(!last.contains("a secret word"), "{last}");
    assert_eq!(scene.slack.texts(&chat).iter().filter(|text| text.contains("a new conversation")).count(), 1);
}

#[test]
fn a_socket_that_dies_is_cut_or_is_announced_to_end_is_replaced_and_nothing_is_lost() {
    let scene = Scene::of_known();
    let chat = chat_of(ANN);
    scene.settle(ANN);
    for (behaviour, text) in [
        (Behaviour::Leaving, "one"),
        (Behaviour::Cut, "two"),
        (Behaviour::Silent, "three"),
        (Behaviour::Silent, "four"),
        (Behaviour::Leaving, "five"),
    ] {
        let before = scene.slack.open();
        scene.slack.sockets_are(behaviour);
        scene.slack.says(ANN, text);
        scene.until_there(&chat, &format!("you said {text}"));
        let after = scene.slack.open();
        assert!(after.len() == 1 && !before.contains(&after[0]), "{before:?} {after:?}");
    }
    scene.until_acknowledged();
    for text in ["one", "two", "three", "four", "five"] {
        assert_eq!(scene.count(&chat, &format!("you said {text}")), 1, "{text}");
    }
    // Where no socket can be opened for a while it is tried until one can.
    for trouble in
        [Trouble::TooMany(1), Trouble::Gateway, Trouble::Refused(200, "internal_error"), Trouble::Cut]
    {
        scene.slack.trouble("apps.connections.open", trouble);
    }
    scene.slack.sockets_are(Behaviour::Cut);
    scene.settle(BEN);
    assert!(scene.daemon.log().contains("no socket to Slack is open"), "{}", scene.daemon.log());
}

#[test]
fn a_configuration_that_means_nothing_is_refused_with_what_is_wrong() {
    for (more, named) in [
        ("    channels: {general: {}}\n", "general"),
        ("    channels: {C0ROOM: {answers: false}}\n", "answers"),
        ("    quiet_seconds: 1\n", "quiet_seconds"),
        ("    socket: true\n", "socket"),
    ] {
        let api = "http://127.0.0.1:9/api";
        let config = format!("extensions:\n  slack:\n    enabled: true\n    api: \"{api}\"\n{more}");
        let mut daemon = Daemon::home(&("approvals: {preauthorized: all}\n".to_owned() + &config));
        daemon.variable("SLACK_APP_TOKEN", APP_TOKEN);
        daemon.variable("SLACK_BOT_TOKEN", BOT_TOKEN);
        daemon.run();
        let (state, reason) = daemon.extension("slack");
        assert!(state != "active" && reason.contains(named), "{named}: {state}, {reason}");
    }
}
