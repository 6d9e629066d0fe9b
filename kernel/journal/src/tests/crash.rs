//! A process that is killed at every commit loses nothing that it had confirmed, and repeats nothing.
//!
//! The victim is this test program again, started with one ignored test, which gets its orders on its standard
//! input: the kill is a real one.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::*;
use crate::{
    activations, intake, outbox, records, turns as turn_rows,
    writer::{Survives, Writing},
};

/// Says that the point has been reached at which the victim is to be killed.
pub const REACHED: &str = "reached";

pub type Commit = fn(&mut Writing<'_>) -> Result<(), StoreError>;

/// The commits of one turn, and of the operator after it, in order.
pub const LIFE: [(&str, Commit); 11] = [
    ("accept", |on| intake::accept(on, &message("s", "1", "hello")).map(|_| ())),
    ("start", |on| {
        let turn = the_turn(on)?;
        turn_rows::start(on, &start(&turn, "s", vec![remark("start")])).map(|_| ())
    }),
    ("step", |on| record(on, vec![begin("r", "main", None, "hello"), step("r", 1)])),
    ("answer", |on| record(on, vec![answer("r", 1, "", &["tool"])])),
    ("intent", |on| record(on, vec![intent("r", 1, 0, EffectClass::Once)])),
    ("result", |on| record(on, vec![result("r", 1, 0, "42")])),
    ("finish", |on| {
        let turn = the_turn(on)?;
        turn_rows::finish(on, &done(&turn, "hi")).map(|_| ())
    }),
    ("sending", |on| {
        let due = outbox::due(on.db)?;
        outbox::sending(on, due[0].id)
    }),
    ("sent", |on| outbox::ended(on, crate::DeliveryId(1), &Sent::Delivered { remote_id: None })),
    ("ask", |on| activations::ask(on, "kv", "h1", &[]).map(|_| ())),
    ("allow", |on| activations::answer(on, "kv", true, None, "operator").map(|_| ())),
];

fn the_turn(on: &Writing<'_>) -> Result<TurnId, StoreError> {
    Ok(on.db.query_row("SELECT id FROM turns", [], |row| crate::rows::id(row, 0))?)
}

fn record(on: &mut Writing<'_>, entries: Vec<Entry>) -> Result<(), StoreError> {
    let turn = the_turn(on)?;
    // Each commit has an event.
    let entries = [vec![said("entry")], entries].concat();
    records::write(on, None, &batch_of(&turn, entries)).map(|_| ())
}

/// How many commits of [`LIFE`] left their traces; anything in between is a failure.
pub async fn traces(store: &Store) -> usize {
    let seen: (u32, u32, u32, u32, Option<String>, Option<String>) = store
        .read(|db| {
            Ok(db.query_row(
                "SELECT (SELECT count(*) FROM turns),
                        (SELECT coalesce(sum(starts), 0) FROM turns),
                        (SELECT coalesce(sum(json_array_length(entries)), 0) FROM log),
                        (SELECT count(*) FROM turns WHERE finished_ms IS NOT NULL),
                        (SELECT state FROM outbox),
                        (SELECT state || (SELECT count(*) FROM audit) FROM activations)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?)),
            )?)
        })
        .await
        .unwrap();
    match (seen.0, seen.1, seen.2, seen.3, seen.4.as_deref(), seen.5.as_deref()) {
        (0, 0, 0, 0, None, None) => 0,
        (1, 0, 0, 0, None, None) => 1,
        (1, 1, 0, 0, None, None) => 2,
        (1, 1, entries @ (3 | 5 | 7 | 9), 0, None, None) => entries as usize / 2 + 2,
        (1, 1, 9, 1, Some("due"), None) => 7,
        (1, 1, 9, 1, Some("uncertain" | "sending"), None) => 8,
        (1, 1, 9, 1, Some("sent"), None) => 9,
        (1, 1, 9, 1, Some("sent"), Some("pending0")) => 10,
        (1, 1, 9, 1, Some("sent"), Some("allowed1")) => 11,
        other => panic!("half a commit: {other:?}"),
    }
}

#[tokio::test]
async fn a_kill_within_or_after_any_commit_keeps_exactly_what_was_committed() {
    for (at, (name, _)) in LIFE.iter().enumerate() {
        for (storage, moment) in
            [("full", "within"), ("full", "after"), ("process", "within"), ("process", "after")]
        {
            let home = Home::new();
            let mut victim = Victim::start(&format!("life {storage} {at} {moment}"), &home.path());
            while victim.line() != REACHED {}
            victim.kill();

            let store = home.open();
            let expected = if moment == "after" { at + 1 } else { at };
            assert_eq!(traces(&store).await, expected, "{name} {storage} {moment}");
            let seqs: Vec<_> =
                store.events_after(&session("s"), 0, 99).await.unwrap().iter().map(|e| e.seq).collect();
            assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{name} {storage} {moment}");
            let again = store.accept(message("s", "1", "hello")).await.unwrap();
            assert_eq!(again.duplicate, expected > 0, "{name} {storage} {moment}");
        }
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_no_confirmed_message() {
    let home = Home::new();
    let mut confirmed: Vec<String> = Vec::new();
    for round in 0..12 {
        let mut victim = Victim::start(&format!("intake {round}"), &home.path());
        let wanted = confirmed.len() + 1 + round * 7;
        while confirmed.len() < wanted {
            confirmed.push(victim.line());
        }
        victim.kill();
    }
    let store = home.open();
    let before = store.counts().await.unwrap().queued_turns;
    assert!(before >= confirmed.len() as u64);
    for external_id in &confirmed {
        let again = store.accept(message("s", external_id, "hello")).await.unwrap();
        assert!(again.duplicate, "{external_id} was confirmed and is gone");
    }
    assert_eq!(store.counts().await.unwrap().queued_turns, before);
}

/// The process that is killed.
pub struct Victim {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Held open: its end tells the victim that nobody is left to kill it.
    orders: ChildStdin,
}

impl Victim {
    #[expect(clippy::disallowed_methods, reason = "only a real process can really be killed")]
    pub fn start(orders: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["tests::crash::victim", "--exact", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "{orders} {}", path.display()).unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output, orders: input }
    }

    /// The next line that the victim itself wrote.
    pub fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the victim ended by itself");
            if let Some(said) = line.trim_end().strip_prefix("> ") {
                return said.to_owned();
            }
        }
    }

    /// A further line for it.
    pub fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}

#[test]
#[ignore = "the other side of the tests above, which start it"]
fn victim() {
    let mut orders = String::new();
    std::io::stdin().read_line(&mut orders).unwrap();
    let words: Vec<_> = orders.split_whitespace().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    match words[..] {
        ["life", storage, at, moment, path] => {
            let storage = match storage {
                "full" => Storage::Full(path.into()),
                _ => Storage::Process(path.into()),
            };
            runtime.block_on(live(&storage, at.parse().unwrap(), moment == "within"));
        }
        ["intake", round, path] => runtime.block_on(take_in(round, &Storage::Full(path.into()))),
        ["power", storage, seed, path] => {
            let storage = match storage {
                "full" => Storage::Full(path.into()),
                _ => Storage::Process(path.into()),
            };
            runtime.block_on(power::write_until_killed(&storage, seed.parse().unwrap()));
        }
        ["upgrade", seed, path] => {
            runtime.block_on(power::upgrade::upgrade_until_killed(path.as_ref(), seed.parse().unwrap()))
        }
        ["full_upgrade", _] => power::upgrade::upgrade_without_room(),
        ["work", _, path] => {
            runtime.block_on(checkpoints::work_on(&Storage::Process(path.into())));
            wait_for_the_end();
        }
        // Somebody ran the ignored tests by hand.
        _ => {}
    }
}

async fn live(storage: &Storage, last: usize, within: bool) {
    let store = Home::new().open_as(storage).unwrap();
    for (_, commit) in &LIFE[..last] {
        store.write(Survives::Power, *commit).await.unwrap();
    }
    let commit = LIFE[last].1;
    let work = move |on: &mut Writing<'_>| {
        commit(on)?;
        if within {
            wait_for_the_end();
        }
        Ok(())
    };
    store.write(Survives::Power, work).await.unwrap();
    wait_for_the_end();
}

async fn take_in(round: &str, storage: &Storage) {
    let store = Home::new().open_as(storage).unwrap();
    for n in 0.. {
        let names: Vec<_> = (0..3).map(|part| format!("{round}.{n}.{part}")).collect();
        let accepted = names.iter().map(|name| store.accept(message("s", name, "hello")));
        for (name, accepted) in names.iter().zip(futures_util::future::join_all(accepted).await) {
            accepted.unwrap();
            say(name);
        }
    }
}

pub fn say(what: &str) {
    let mut output = std::io::stdout().lock();
    // The test harness may have begun a line of its own.
    writeln!(output, "\n> {what}").unwrap();
    output.flush().unwrap();
}

/// Waits for a line; ends when nobody is left to write one.
pub fn hear() {
    if std::io::stdin().read_line(&mut String::new()).unwrap_or(0) == 0 {
        std::process::exit(1);
    }
}

fn wait_for_the_end() {
    say(REACHED);
    // Returns when the parent is gone without having killed this process.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(1);
}
