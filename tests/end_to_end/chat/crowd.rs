//! Many people who write much, while the way to the service breaks, the service takes less than it is given, and kernels are killed.

use std::{
    collections::HashMap,
    fs,
    time::{Duration, Instant},
};

use crate::harness::Daemon;

/// A service with its daemon, as a crowd sees them. People have numbers.
pub trait Crowded {
    /// The id of the extension.
    const CHANNEL: &'static str;

    fn daemon(&self) -> &Daemon;
    fn writes(&self, person: usize, text: &str);
    /// What stands where somebody wrote.
    fn reads(&self, person: usize) -> Vec<String>;
    fn session(&self, person: usize) -> String;
    /// How much was written that the extension has not taken in.
    fn waits(&self) -> usize;
    /// From now on, of so many messages and changes one is refused for a second, and one is done although its connection is cut.
    fn is_strict(&self, one_of: u64);
    /// Something breaks, each time something else.
    fn breaks(&self, time: usize);
    /// Whatever was written before is answered by then, and nothing of it comes later.
    fn settles(&self);
    /// What is told of the run besides.
    fn remarks(&self) -> String;
}

/// How many messages many people write, with what goes wrong meanwhile.
pub struct Crowd {
    pub people: usize,
    pub messages: usize,
    pub one_of: u64,
    /// After so many messages something breaks.
    pub each: usize,
    /// Whether each fifth time it is the kernel that is killed.
    pub kills: bool,
}

/// What became of the messages of a crowd.
#[derive(Debug, PartialEq)]
pub struct Tally {
    /// Messages that are not there and of which nobody was told that they may not be.
    pub lost: usize,
    pub doubled: usize,
    pub uncertain: usize,
}

impl Crowd {
    pub fn run<S: Crowded>(&self, scene: &S) -> Tally {
        scene.settles();
        let memory = || memory(scene.daemon(), S::CHANNEL);
        let (begun, at_first) = (Instant::now(), memory());
        scene.is_strict(self.one_of);
        for n in 0..self.messages {
            scene.writes(n % self.people, &format!("message {n}"));
            if n % self.each == self.each - 1 {
                match n / self.each {
                    time if self.kills && time % 5 == 3 => drop(scene.daemon().kill_kernel()),
                    time => scene.breaks(time),
                }
            }
            if n % 1000 == 999 {
                println!("{} written after {:?}: {}", n + 1, begun.elapsed(), memory());
            }
            // A service tells what is next when it is told that the daemon has what was before, or nearly so.
            while scene.waits() > 5 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let counts = self.until_nothing_changes(scene);
        // Nothing more goes out behind that.
        scene.settles();
        let uncertain = (0..self.people).map(|person| {
            let events = scene.daemon().events(&scene.session(person));
            events.iter().filter(|event| event["data"]["code"] == "delivery.uncertain").count()
        });
        let (uncertain, missing) = (uncertain.sum(), counts.iter().filter(|count| **count == 0).count());
        let doubled = counts.iter().filter(|count| **count > 1).count();
        let tally = Tally { lost: missing.saturating_sub(uncertain), doubled, uncertain };
        println!(
            "{} messages of {} people in {:?}: {tally:?}, {missing} not there; {}; {at_first} at first, {} at the end",
            self.messages,
            self.people,
            begun.elapsed(),
            scene.remarks(),
            memory(),
        );
        if tally.lost + tally.doubled > 0 {
            println!("{}", scene.daemon().log());
        }
        tally
    }

    /// How often each answer is there, once all are or nothing has come for a minute.
    fn until_nothing_changes<S: Crowded>(&self, scene: &S) -> Vec<usize> {
        let mut before = (usize::MAX, Instant::now());
        loop {
            let mut there: HashMap<String, usize> = HashMap::new();
            for text in (0..self.people).flat_map(|person| scene.reads(person)) {
                *there.entry(text).or_default() += 1;
            }
            let said = |n: usize| there.get(&format!("you said message {n}")).copied().unwrap_or(0);
            let counts: Vec<usize> = (0..self.messages).map(said).collect();
            let missing = counts.iter().filter(|count| **count == 0).count();
            if missing == 0 || (missing == before.0 && before.1.elapsed() > Duration::from_secs(60)) {
                return counts;
            }
            if missing != before.0 {
                before = (missing, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// What the process of a channel has in memory, as the system says: its share of what several have, or all of it where that is not told.
fn memory(daemon: &Daemon, channel: &str) -> String {
    let home = daemon.path().display().to_string();
    let mut processes =
        fs::read_dir("/proc").expect("there are processes").flatten().map(|entry| entry.path());
    let of_it = processes.find(|process| {
        let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        line.contains("ext-host") && line.contains(channel) && line.contains(&home)
    });
    let Some(process) = of_it else { return "no process".to_owned() };
    let lines = |file: &str, name: &str| {
        let text = fs::read_to_string(process.join(file)).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let pss = lines("smaps_rollup", "Pss:").or_else(|| lines("status", "VmRSS"));
    format!("{} {}", process.file_name().unwrap_or_default().display(), pss.unwrap_or_default())
}
