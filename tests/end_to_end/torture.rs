//! What happens when an extension fails in each way and in each place: how it ended, who was named, how long until all
//! worked again, and what was lost. With `--nocapture` each test prints its rows of a table.
//!
//! The quick form is part of the suite. `DRUPE_TORTURE=20 cargo test -p drupe --test end_to_end torture` fails each
//! call that often, and every way in every place.

mod attacks;
mod calls;
mod health;
mod loading;
mod looping;
mod scene;
mod services;
mod stopping;
mod threads;

use std::time::Duration;

use crate::harness::Daemon;

/// How often each call fails, and whether every way to fail is tried in every place.
struct Effort {
    runs: usize,
    whole: bool,
}

impl Effort {
    fn of_this_run() -> Self {
        match std::env::var("DRUPE_TORTURE") {
            Ok(runs) => Self { runs: runs.parse().expect("`DRUPE_TORTURE` is a number"), whole: true },
            Err(_) => Self { runs: 3, whole: false },
        }
    }
}

/// A line of the table.
struct Row<'a> {
    what: &'a str,
    place: &'a str,
    isolation: &'a str,
    how: &'a str,
    named: &'a str,
    /// From the end of what ended to the work of all.
    ready: Option<Duration>,
    lost: &'a str,
}

impl Row<'_> {
    fn print(&self) {
        let ready = self.ready.map_or("–".to_owned(), |ready| format!("{}", ready.as_millis()));
        let Row { what, place, isolation, how, named, lost, .. } = self;
        println!("| {what} | {place} | {isolation} | {how} | {named} | {ready} | {lost} |");
    }
}

/// Above the first line.
fn print_head() {
    println!("| what | where | isolation | how it ended | named | ready again after ms | lost |");
    println!("|---|---|---|---|---|---|---|");
}

/// The longest that a crash may keep others from working: two seconds where that is what is measured, more on a machine
/// that runs all tests at once.
fn soon() -> Duration {
    Duration::from_secs(if Effort::of_this_run().whole { 2 } else { 15 })
}

/// How many silent kernels nobody is blamed for, since a busy machine did not let them run.
fn stood_still(daemon: &Daemon) -> usize {
    daemon.log().matches("nobody is blamed").count()
}
