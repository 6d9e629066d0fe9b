//! Many people who write much to the bot.

use super::{Scene, Trouble};
use crate::{
    chat::{
        crowd::{Crowd, Crowded, Tally},
        effects, obedient,
    },
    harness::Daemon,
};

/// The number of somebody of a crowd.
fn who(person: usize) -> i64 {
    1000 + person as i64
}

impl Crowded for Scene {
    const CHANNEL: &'static str = "telegram";

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    fn writes(&self, person: usize, text: &str) {
        self.bot.says(who(person), text);
    }

    fn reads(&self, person: usize) -> Vec<String> {
        self.bot.texts(who(person))
    }

    fn session(&self, person: usize) -> String {
        format!("telegram:person.{}", who(person))
    }

    fn waits(&self) -> usize {
        self.bot.unconfirmed()
    }

    fn is_strict(&self, one_of: u64) {
        self.bot.goes_wrong(one_of);
    }

    fn breaks(&self, time: usize) {
        match time % 5 {
            0 => self.bot.trouble("getUpdates", Trouble::Cut),
            1 => self.bot.tell_again(),
            2 => self.bot.trouble("getUpdates", Trouble::Silence),
            3 => self.bot.trouble("getUpdates", Trouble::TooMany(1)),
            _ => self.bot.reverse(),
        }
    }

    fn settles(&self) {
        self.until_confirmed();
        self.settle(super::ANN);
    }

    fn remarks(&self) -> String {
        let calls = |method| self.bot.calls(method).len();
        format!("{} calls", calls("sendMessage") + calls("editMessageText"))
    }
}

fn of(crowd: &Crowd) -> Tally {
    let people: Vec<String> = (0..crowd.people).map(|person| who(person).to_string()).collect();
    let allowed = format!("    allowed: [7, {}]\n", people.join(", "));
    crowd.run(&Scene::polling(2, &allowed, obedient(&effects())))
}

#[test]
fn of_many_messages_none_is_lost_or_doubled_although_the_way_breaks_and_the_service_is_strict() {
    let tally = of(&Crowd { people: 30, messages: 300, one_of: 60, each: 60, kills: false });
    // The service has no way to look whether a message is there.
    assert_eq!((tally.lost, tally.doubled), (0, 0), "{tally:?}");
}

/// Takes many minutes: `cargo test -p drupe --test end_to_end telegram::crowd::of_ten_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "takes many minutes"]
fn of_ten_thousand_messages_none_is_lost_or_doubled() {
    let tally = of(&Crowd { people: 200, messages: 10_000, one_of: 200, each: 500, kills: true });
    assert_eq!((tally.lost, tally.doubled), (0, 0), "{tally:?}");
}
