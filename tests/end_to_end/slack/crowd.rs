//! Many people who write much, while sockets die, the service takes less than it is given, and kernels are killed.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{
    ANN, Scene, effects, obedient,
    workspace::{Behaviour, chat_of},
};
use crate::harness::Daemon;

/// How many messages many people write, with what goes wrong meanwhile.
struct Crowd {
    people: usize,
    messages: usize,
    /// One of so many calls is refused for a second, and one is done and cut.
    faults: u64,
    /// After so many messages a socket dies, what is told is told twice, or the kernel is killed, in turn.
    each: usize,
    kills: bool,
}

/// What became of the messages of a crowd.
#[derive(Debug, PartialEq)]
struct Tally {
    lost: usize,
    doubled: usize,
    uncertain: usize,
}

impl Crowd {
    fn run(&self) -> Tally {
        let people: Vec<String> = (0..self.people).map(|n| format!("U0P{n}")).collect();
        let allowed = format!("    allowed: [U0ANN, {}]\n", people.join(", "));
        let scene = Scene::new(&allowed, obedient(&effects()));
        scene.settle(ANN);
        scene.slack.faults(self.faults);
        let begun = Instant::now();
        for n in 0..self.messages {
            scene.slack.says(&people[n % self.people], &format!("message {n}"));
            let trouble = n / self.each % 5;
            if n % self.each == self.each - 1 {
                match trouble {
                    0 => scene.slack.sockets_are(Behaviour::Leaving),
                    1 => scene.slack.tell_again(),
                    2 => scene.slack.sockets_are(Behaviour::Cut),
                    3 if self.kills => drop(scene.daemon.kill_kernel()),
                    _ => scene.slack.sockets_are(Behaviour::Silent),
                }
            }
            // Not more than the daemon takes at a time.
            while scene.slack.unacknowledged() > 50 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let said =
            |n: usize| scene.count(&chat_of(&people[n % self.people]), &format!("you said message {n}"));
        let told = || {
            let sessions = people.iter().map(|who| format!("slack:person.{who}"));
            sessions.map(|session| scene.told(&session, "delivery.uncertain")).sum::<usize>()
        };
        // Until nothing changes any more.
        let mut before = (usize::MAX, Instant::now());
        let counts = loop {
            let counts: Vec<usize> = (0..self.messages).map(said).collect();
            let missing = counts.iter().filter(|count| **count == 0).count();
            if missing == 0 || (missing == before.0 && before.1.elapsed() > Duration::from_secs(60)) {
                break counts;
            }
            if missing != before.0 {
                before = (missing, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        scene.until_acknowledged();
        // Nothing more goes out behind that.
        scene.settle(ANN);
        let doubled = counts.iter().filter(|count| **count > 1).count();
        let (missing, uncertain) = (counts.iter().filter(|count| **count == 0).count(), told());
        let tally = Tally { lost: missing.saturating_sub(uncertain), doubled, uncertain };
        println!(
            "{} messages of {} people in {:?}: {tally:?}, {missing} not there; acknowledged within {:?}; {} calls; {}",
            self.messages,
            self.people,
            begun.elapsed(),
            scene.slack.slowest(),
            scene.slack.calls("chat.postMessage").len() + scene.slack.calls("chat.update").len(),
            memory(&scene.daemon),
        );
        if tally.lost + tally.doubled > 0 {
            println!("{}", scene.daemon.log());
        }
        tally
    }
}

/// What the process of the extension has in memory, as the system says.
fn memory(daemon: &Daemon) -> String {
    let home = daemon.path().display().to_string();
    let mut processes =
        fs::read_dir("/proc").expect("there are processes").flatten().map(|entry| entry.path());
    let of_it = processes.find(|process| {
        let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        line.contains("ext-host") && line.contains("slack") && line.contains(&home)
    });
    let status =
        of_it.and_then(|process| fs::read_to_string(process.join("status")).ok()).unwrap_or_default();
    let lines = status.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
fn of_many_messages_none_is_lost_or_doubled_although_sockets_die_and_the_service_is_strict() {
    let crowd = Crowd { people: 30, messages: 300, faults: 60, each: 60, kills: false };
    assert_eq!(crowd.run(), Tally { lost: 0, doubled: 0, uncertain: 0 });
}

/// Takes many minutes: `cargo test -p drupe --test end_to_end slack::crowd::of_ten_thousand -- --ignored --nocapture`.
#[test]
#[ignore = "takes many minutes"]
fn of_ten_thousand_messages_none_is_lost_or_doubled() {
    let crowd = Crowd { people: 200, messages: 10_000, faults: 200, each: 500, kills: true };
    let tally = crowd.run();
    assert_eq!((tally.lost, tally.doubled), (0, 0), "{tally:?}");
}
