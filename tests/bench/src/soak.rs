//! A life of months in half an hour: turns without an end, people who write through a bot of Telegram, restarts, kills, changed extensions
//! and schedules at once. What must not grow is looked at again and again; every message must have its one answer in the end.
//!
//! `drupe-bench soak [TURNS [RESTARTS [KILLS]]]`; by default 100,000, 1,000 and 1,000.

mod people;

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::people::{Answered, CHANNEL, People, channel_mb};
use crate::{
    daemon::{Daemon, check_turn, signal, unique},
    model::Model,
    process::{self, pss_mb},
    settings::Settings,
    turns::{KEEPER, Work},
};

/// The argument that asks for it.
pub const ROLE: &str = "soak";

/// Conversations at once.
const CLIENTS: usize = 4;

/// Looks at what must not grow, while no kernel ends.
const LOOKS: usize = 20;

/// Kernels that are killed alone are killed so far apart: more than five crashes within a minute would rightly end in safe mode. Between
/// them the supervisor is killed as well, as by a power cut, which is nobody's crash.
const APART: Duration = Duration::from_secs(13);

/// For how long a message is handed in again while no kernel takes it, and its answer waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// What such a life consists of.
struct Plan {
    turns: usize,
    restarts: usize,
    kills: usize,
}

/// Runs it and prints what was seen.
pub fn main(arguments: &[String]) -> Result<()> {
    let number = |at: usize, usual: usize| {
        arguments.get(at).map_or(Ok(usual), |text| text.parse().context("a number"))
    };
    let plan = Plan { turns: number(0, 100_000)?, restarts: number(1, 1000)?, kills: number(2, 1000)? };
    process::build().context("the release build")?;
    let model = Model::start(Duration::ZERO)?;
    let people = People::start();
    let settings = Settings { extensions: vec![(CHANNEL, people.config())], ..Settings::default() };
    let soak = Soak { daemon: Daemon::home(model.address(), settings)?, people, asked: AtomicUsize::new(0) };
    let daemon = &soak.daemon;
    soak.people.keep_token(daemon)?;
    daemon.keeper(KEEPER.1)?;
    hot(daemon, 0)?;
    daemon.start_whole()?;
    let began = Instant::now();
    let looks = soak.steadily(plan.turns / 2)?;
    let ends = soak.endings(&plan)?;
    // Whoever was told last that it is ready is the one that is looked at.
    daemon.forget_notices()?;
    let asked = soak.asked.load(Ordering::SeqCst);
    let found = account(daemon, asked)?;
    let answered = soak.people.account(daemon)?;
    let hours = began.elapsed().as_secs_f64() / 3600.0;
    print(&format!(
        "| turns | restarts | kernels killed | both killed | changed extensions | schedules | lost | answered otherwise | hours |\n\
         |---|---|---|---|---|---|---|---|---|\n| {} | {} | {} | {} | {} | {} | {} | {} | {hours:.2} |\n",
        asked,
        ends.restarts,
        ends.kills,
        ends.power_cuts,
        ends.changes,
        found.scheduled,
        found.lost,
        found.otherwise,
    ));
    let Answered { messages, lost, doubled, uncertain } = answered;
    print(&format!(
        "| messages of people | lost | answered twice | told to be uncertain |\n|---|---|---|---|\n| {messages} | {lost} | {doubled} | {uncertain} |\n"
    ));
    slopes(&looks);
    let last = Look::at(daemon)?;
    print(&format!("after all of it: {last}"));
    daemon.stop()?;
    ensure!(found.lost + lost == 0, "{} messages have no answer", found.lost + lost);
    ensure!(doubled == 0, "{doubled} answers came twice");
    Ok(())
}

/// An agent without code that is another one each time, and does something every five seconds.
fn hot(daemon: &Daemon, version: usize) -> Result<()> {
    let manifest = format!(
        "id: hot\nname: Hot\ndescription: Version {version} of an agent that changes.\nagent:\n  model: default\n  instructions: Version {version}.\n\
         schedules:\n  - {{name: tick, cron: '@every 5s', task: '{}', notify: false}}\n",
        Work::Echo.text()
    );
    daemon.extension("hot", &manifest)
}

/// A daemon, and who makes it work.
struct Soak {
    daemon: Daemon,
    people: People,
    /// Turns that clients asked for so far.
    asked: AtomicUsize,
}

impl Soak {
    /// The first half: one kernel serves all of it, and is looked at.
    fn steadily(&self, turns: usize) -> Result<Vec<(usize, Look)>> {
        // What is made once, such as caches and plans, is there before the first look.
        self.talk((turns / 10).max(CLIENTS))?;
        let mut looks = vec![self.look()?];
        for _ in 0..LOOKS {
            self.talk((turns * 9 / 10 / LOOKS).max(CLIENTS))?;
            looks.push(self.look()?);
        }
        Ok(looks)
    }

    /// The second half: kernels end in the middle of turns.
    fn endings(&self, plan: &Plan) -> Result<Ends> {
        let daemon = &self.daemon;
        let rounds = plan.restarts.max(plan.kills).max(1);
        let each = (plan.turns / 2 / rounds).max(CLIENTS);
        let mut ends = Ends::default();
        let mut crashed: Option<Instant> = None;
        for round in 0..rounds {
            thread::scope(|scope| -> Result<()> {
                let talking = scope.spawn(|| self.talk(each));
                if round % 10 == 0 {
                    ends.changes += 1;
                    hot(daemon, ends.changes)?;
                }
                if due(round, plan.restarts, rounds) {
                    ends.restarts += 1;
                    patiently(|| daemon.client()?.ask("restart", &json!({"reason": "the soak"})))?;
                }
                if due(round, plan.kills, rounds) {
                    if crashed.is_some_and(|at| at.elapsed() < APART) {
                        ends.power_cuts += 1;
                        daemon.kill()?;
                        daemon.start()?;
                    } else if let Ok(kernel) = daemon.kernel() {
                        ends.kills += 1;
                        crashed = Some(Instant::now());
                        // One that is about to end by itself may be gone by then.
                        let _ = signal(kernel, Signal::KILL);
                    }
                }
                talking.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
            })?;
        }
        Ok(ends)
    }

    /// So many turns, by several clients at once, each in conversations of its own, while people write.
    fn talk(&self, turns: usize) -> Result<()> {
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| self.people.write_until(&enough));
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || (0..turns.div_ceil(CLIENTS)).try_for_each(|_| self.turn(client)))
                })
                .collect();
            let outcome = clients
                .into_iter()
                .try_for_each(|client| client.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
            enough.store(true, Ordering::SeqCst);
            outcome
        })
    }

    /// One message, handed in until it is accepted, and its answer.
    fn turn(&self, client: usize) -> Result<()> {
        let daemon = &self.daemon;
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let work = [Work::Echo, Work::Tool, Work::Delegate, Work::Stream][number % 4];
        // Some hundred turns a conversation.
        let session = format!("soak-{client}-{}", number / 400);
        let message = json!({"external_id": unique(), "session": session, "text": work.text()});
        let accepted = patiently(|| daemon.client()?.ask("turn.submit", &message))?;
        let result = patiently(|| {
            daemon.client()?.ask("turn.wait", &json!({"turn": accepted["turn"], "brief": false}))
        })?;
        // A kill between the intent of a call and its result is told, and the model answers all the same.
        match result["status"].as_str() {
            Some("success") => Ok(()),
            _ => check_turn(&result, work),
        }
    }

    /// What must not grow, after so many turns.
    fn look(&self) -> Result<(usize, Look)> {
        Ok((self.asked.load(Ordering::SeqCst), Look::at(&self.daemon)?))
    }
}

/// What ended kernels in the second half.
#[derive(Default)]
struct Ends {
    restarts: usize,
    /// Of the kernel alone.
    kills: usize,
    /// Of supervisor and kernel.
    power_cuts: usize,
    changes: usize,
}

/// Whether one of `count` things, spread over `rounds`, falls into this round.
fn due(round: usize, count: usize, rounds: usize) -> bool {
    (round + 1) * count / rounds > round * count / rounds
}

/// Asks again while no kernel answers.
fn patiently(mut ask: impl FnMut() -> Result<Value>) -> Result<Value> {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// What the journal says in the end.
struct Account {
    lost: usize,
    otherwise: usize,
    scheduled: u64,
}

fn account(daemon: &Daemon, asked: usize) -> Result<Account> {
    let sessions = patiently(|| daemon.client()?.ask("sessions.list", &json!({})))?;
    let (mut turns, mut scheduled, mut otherwise) = (0, 0, 0);
    for session in sessions.as_array().context("sessions")? {
        let (id, count) =
            (session["id"].as_str().unwrap_or_default(), session["turn_count"].as_u64().unwrap_or(0));
        if id.starts_with(CHANNEL) {
            continue;
        }
        if !id.starts_with("soak-") {
            scheduled += count;
            continue;
        }
        turns += usize::try_from(count)?;
        let mut after = Value::Null;
        loop {
            let shown =
                daemon.client()?.ask("sessions.show", &json!({"id": id, "brief": true, "after": after}))?;
            let told = shown["turns"].as_array().context("turns")?;
            otherwise += told.iter().filter(|turn| turn["status"] != "success").count();
            after = shown["next"].clone();
            if after.is_null() {
                break;
            }
        }
    }
    if turns > asked {
        bail!("{asked} messages were handed in, and the journal has {turns}");
    }
    Ok(Account { lost: asked - turns, otherwise, scheduled })
}

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Look {
    supervisor_mb: f64,
    kernel_mb: f64,
    channel_mb: f64,
    files: usize,
    threads: usize,
    journal_mb: f64,
}

impl Look {
    fn at(daemon: &Daemon) -> Result<Self> {
        let (supervisor, kernel) = (daemon.supervisor()?, daemon.kernel()?);
        let entries =
            |what: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("/proc/{kernel}/{what}"))?.count());
        let bytes = ["journal.db", "journal.db-wal"]
            .map(|name| fs::metadata(daemon.path().join(name)).map_or(0, |found| found.len()));
        Ok(Self {
            supervisor_mb: pss_mb(supervisor)?,
            kernel_mb: pss_mb(kernel)?,
            channel_mb: channel_mb(supervisor)?,
            files: entries("fd")?,
            threads: entries("task")?,
            journal_mb: bytes.iter().sum::<u64>() as f64 / 1e6,
        })
    }

    fn figures(self) -> BTreeMap<&'static str, f64> {
        BTreeMap::from([
            ("supervisor, MB", self.supervisor_mb),
            ("kernel, MB", self.kernel_mb),
            ("channel, MB", self.channel_mb),
            ("open files of the kernel", self.files as f64),
            ("threads of the kernel", self.threads as f64),
            ("journal, MB", self.journal_mb),
        ])
    }
}

impl std::fmt::Display for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { supervisor_mb, kernel_mb, channel_mb, files, threads, journal_mb } = self;
        write!(
            f,
            "supervisor {supervisor_mb:.1} MB, kernel {kernel_mb:.1} MB, channel {channel_mb:.1} MB, {files} files, {threads} threads, journal {journal_mb:.1} MB"
        )
    }
}

/// Of each figure the first, the last, and by how much it grows with 10,000 turns, by the straight line that fits best.
fn slopes(looks: &[(usize, Look)]) {
    print("| while one kernel served | first | last | slope over 10,000 turns |\n|---|---|---|---|");
    let rows: Vec<_> = looks.iter().map(|(turns, look)| (*turns as f64, look.figures())).collect();
    let (Some((_, first)), Some((_, last))) = (rows.first(), rows.last()) else { return };
    for (name, from) in first {
        let points: Vec<_> = rows.iter().map(|(turns, figures)| (*turns, figures[name])).collect();
        print(&format!("| {name} | {from:.2} | {:.2} | {:.3} |", last[name], slope(&points) * 10_000.0));
    }
    print("");
}

/// Of the straight line that fits best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    if spread == 0.0 { 0.0 } else { together / spread }
}

fn print(text: &str) {
    crate::report::line(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_has_a_slope_and_what_swings_has_none() {
        assert!((slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) - 2.0).abs() < 1e-9);
        assert!(slope(&[(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 1.0)]).abs() < 1e-9);
    }

    #[test]
    fn what_is_spread_falls_into_as_many_rounds() {
        for count in [0, 1, 3, 7] {
            assert_eq!((0..7).filter(|round| due(*round, count, 7)).count(), count);
        }
    }
}
