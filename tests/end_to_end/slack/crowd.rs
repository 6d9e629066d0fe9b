//! Many people who write much in Slack.

use std::time::Duration;

use super::{
    ANN, Scene,
    workspace::{Behaviour, chat_of},
};
use crate::{
    chat::{
        crowd::{Crowd, Crowded, Tally},
        effects, obedient,
    },
    harness::Daemon,
};

fn who(person: usize) -> String {
    format!("U0P{person}")
}

impl Crowded for Scene {
    const CHANNEL: &'static str = "slack";

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn writes(&self, person: usize, text: &str) {
        self.slack.says(&who(person), text);
    }

    fn reads(&self, person: usize) -> Vec<String> {
        self.slack.texts(&chat_of(&who(person)))
    }

    fn session(&self, person: usize) -> String {
        format!("slack:person.{}", who(person))
    }

    fn waits(&self) -> usize {
        self.slack.unacknowledged()
    }

    fn is_strict(&self, one_of: u64) {
        self.slack.faults(one_of);
    }

    fn breaks(&self, time: usize) {
        match time % 5 {
            0 => self.slack.sockets_are(Behaviour::Leaving),
            1 => self.slack.tell_again(),
            2 => self.slack.sockets_are(Behaviour::Cut),
            3 => self.slack.reverse(),
            _ => self.slack.sockets_are(Behaviour::Silent),
        }
    }

    fn settles(&self) {
        self.until_acknowledged();
        self.settle(ANN);
    }

    fn remarks(&self) -> String {
        let times = self.slack.acknowledged_after();
        let at = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or_default();
        let calls = |method| self.slack.calls(method).len();
        format!(
            "acknowledged within {:?} (half), {:?} (99 of 100), {:?} (all); {} calls",
            at(50),
            at(99),
            times.last().copied().unwrap_or_default(),
            calls("chat.postMessage") + calls("chat.update")
        )
    }
}

fn scene(crowd: &Crowd) -> Scene {
    let people: Vec<String> = (0..crowd.people).map(who).collect();
    Scene::new(&format!("    allowed: [U0ANN, {}]\n", people.join(", ")), obedient(&effects()))
}

#[test]
fn of_many_messages_none_is_lost_or_doubled_although_sockets_die_and_the_service_is_strict() {
    let crowd = Crowd { people: 30, messages: 300, one_of: 60, each: 60, kills: false };
    assert_eq!(crowd.run(&scene(&crowd)), Tally { lost: 0, doubled: 0, uncertain: 0 });
}

/// Takes many minutes: `cargo test -p drupe --test end_to_end slack::crowd::of_ten_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "takes many minutes"]
fn of_ten_thousand_messages_none_is_lost_or_doubled() {
    let crowd = Crowd { people: 200, messages: 10_000, one_of: 200, each: 500, kills: true };
    let scene = scene(&crowd);
    let tally = crowd.run(&scene);
    assert_eq!((tally.lost, tally.doubled), (0, 0), "{tally:?}");
    let times = scene.slack.acknowledged_after();
    let half = times.get(times.len() / 2).copied().unwrap_or_default();
    assert!(half < Duration::from_millis(250), "half of all took {half:?} or longer");
}
