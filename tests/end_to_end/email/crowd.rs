//! Many people who write many mails.

use super::{ADA, Scene, letter, vouched};
use crate::{
    chat::{
        crowd::{Crowd, Crowded},
        effects, obedient,
    },
    harness::Daemon,
};

fn who(person: usize) -> String {
    format!("p{person}@example.org")
}

impl Crowded for Scene {
    const CHANNEL: &'static str = "email";

    fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// All that one of them writes is of one thread.
    fn writes(&self, person: usize, text: &str) {
        let from = who(person);
        let (mail, _) =
            letter(&from, "A crowd", &format!("References: <first-{person}@mail.example>\r\n"), text);
        let mail = vouched(&from) + &mail;
        self.mailbox.deliver(&mail);
        if person == 0 {
            self.mailbox.deliver(&format!("X-Again: 1\r\n{mail}"));
        }
    }

    fn reads(&self, person: usize) -> Vec<String> {
        let to = who(person);
        self.relay.mails().iter().filter(|mail| mail.to == to).map(|mail| mail.text()).collect()
    }

    fn session(&self, person: usize) -> String {
        let to = who(person);
        let mails = self.relay.mails();
        let mail = mails.iter().find(|mail| mail.to == to).expect("they were answered");
        self.session(mail, &format!("p{person}_at_example.org"))
    }

    fn waits(&self) -> usize {
        self.mailbox.unread()
    }

    fn is_strict(&self, one_of: u64) {
        self.relay.faults(one_of);
    }

    fn breaks(&self, _time: usize) {
        self.mailbox.cut();
    }

    fn settles(&self) {
        self.settle(ADA);
    }

    fn remarks(&self) -> String {
        format!("{} mails", self.relay.mails().len())
    }
}

/// What is lost and what is doubled, where there is a mailbox.
fn run(crowd: &Crowd) -> Option<(usize, usize)> {
    let people: Vec<String> = (0..crowd.people).map(|person| format!("p{person}_at_example.org")).collect();
    let allowed = format!("    allowed: [ada_at_example.org, {}]\n", people.join(", "));
    let scene = Scene::new(&allowed, "", obedient(&effects()))?;
    let tally = crowd.run(&scene);
    Some((tally.lost, tally.doubled))
}

#[test]
fn of_many_mails_none_is_lost_or_doubled_although_connections_end() {
    let crowd = Crowd { people: 10, messages: 100, one_of: 40, each: 10, kills: false };
    assert!(run(&crowd).is_none_or(|tally| tally == (0, 0)));
}

/// Takes many minutes: `cargo test -p drupe --test end_to_end email::crowd::of_ten_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "takes many minutes"]
fn of_ten_thousand_mails_none_is_lost_or_doubled() {
    let crowd = Crowd { people: 200, messages: 10_000, one_of: 200, each: 500, kills: true };
    assert!(run(&crowd).is_none_or(|tally| tally == (0, 0)));
}
