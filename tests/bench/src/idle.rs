//! What a daemon costs that has nothing to do, with every extension that ships turned on and nobody behind the addresses of their
//! services: who wakes, how often, and what it takes.
//!
//! `drupe-bench idle [MINUTES]`; ten by default, after one in which the start comes to rest.

use std::{collections::BTreeMap, fs, thread, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    AS_BUILT,
    daemon::Daemon,
    model::Model,
    process::{self, Stat, pss_mb, tree},
    report::line,
    settings::{Settings, Shipped},
    turns::Work,
};

/// The argument that asks for it.
pub const ROLE: &str = "idle";

/// Until a start, and a first turn, have come to rest.
const SETTLE: Duration = Duration::from_secs(60);

/// How much of a core it may take, in per cent.
const TARGET: f64 = 0.05;

/// Measures and prints a table, a row for each process.
pub fn main(arguments: &[String]) -> Result<()> {
    let (options, minutes): (Vec<_>, Vec<_>) = arguments.iter().partition(|argument| *argument == AS_BUILT);
    let minutes: f64 =
        minutes.first().map_or(Ok(10.0), |text| text.parse().context("a number of minutes"))?;
    if options.is_empty() {
        process::build().context("the release build")?;
    }
    let model = Model::start(Duration::ZERO)?;
    let daemon =
        Daemon::home(model.address(), Settings { shipped: Shipped::Everything, ..Settings::default() })?;
    daemon.secrets(&[
        "TELEGRAM_BOT_TOKEN",
        "SLACK_APP_TOKEN",
        "SLACK_BOT_TOKEN",
        "NTFY_TOPIC",
        "EMAIL_PASSWORD",
    ])?;
    daemon.start_whole()?;
    let on = daemon.client()?.ask("extensions.list", &json!({}))?;
    let on = on.as_array().into_iter().flatten().filter(|extension| extension["state"] == "active").count();
    daemon.client()?.turn(Work::Echo)?;
    thread::sleep(SETTLE);
    let before = Used::of_all(&daemon)?;
    thread::sleep(Duration::from_secs_f64(minutes * 60.0));
    let after = Used::of_all(&daemon)?;
    line("| process | CPU, ms a minute | wake-ups a minute | PSS, MB |");
    line("|---|---|---|---|");
    let mut whole = Used::default();
    for (process, used) in &after {
        let none = Used::default();
        let then = before.get(process).unwrap_or(&none);
        let row = Used {
            cpu_ms: (used.cpu_ms - then.cpu_ms) / minutes,
            wakes: (used.wakes - then.wakes) / minutes,
            ..used.clone()
        };
        row.print();
        whole.add(&row);
    }
    Used { name: format!("all {} processes, {on} extensions", after.len()), ..whole.clone() }.print();
    let ended = before.keys().filter(|process| !after.contains_key(process)).count();
    let gone =
        if ended > 0 { format!("; {ended} processes ended and are not counted") } else { String::new() };
    let share = whole.cpu_ms / 600.0;
    line(&format!("\n{share:.4} % of a core over {minutes} minutes; the target is {TARGET} %{gone}"));
    daemon.stop()
}

/// What a process has used so far, and holds.
#[derive(Debug, Clone, Default)]
struct Used {
    name: String,
    cpu_ms: f64,
    wakes: f64,
    pss_mb: f64,
}

impl Used {
    /// Each process of a daemon.
    fn of_all(daemon: &Daemon) -> Result<BTreeMap<u32, Self>> {
        let all = tree(daemon.supervisor()?)?;
        // One that ended between two looks is left out.
        Ok(all.into_iter().filter_map(|process| Some((process, Self::of(process)?))).collect())
    }

    fn of(process: u32) -> Option<Self> {
        let cpu_ms = drupe_confine::cpu_time(process)?.as_secs_f64() * 1e3;
        let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        let threads = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        let wakes = threads.filter_map(|status| wakes(&status)).sum();
        Some(Self { name: name(process)?, cpu_ms, wakes, pss_mb: pss_mb(process).ok()? })
    }

    fn add(&mut self, other: &Self) {
        self.cpu_ms += other.cpu_ms;
        self.wakes += other.wakes;
        self.pss_mb += other.pss_mb;
    }

    fn print(&self) {
        let Self { name, cpu_ms, wakes, pss_mb } = self;
        line(&format!("| {name} | {cpu_ms:.2} | {wakes:.0} | {pss_mb:.1} |"));
    }
}

/// How often a thread has waited for something and was woken.
fn wakes(status: &str) -> Option<f64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// What a process is, by how it was started.
fn name(process: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let extension = || words.iter().skip_while(|word| *word != "--id").nth(1).map(|id| format!("`{id}`"));
    match words.get(1).map(AsRef::as_ref) {
        Some("run") => Some("supervisor".into()),
        Some("kernel") => Some("kernel".into()),
        Some("ext-host") => extension(),
        Some("confined") => {
            let program = tree(process)
                .ok()?
                .into_iter()
                .find(|child| Stat::of(*child).is_some_and(|s| s.parent == process));
            Some(format!("above {}", program.and_then(name).unwrap_or_else(|| "a program".into())))
        }
        _ => Some(words.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_used_and_how_often_it_was_woken_is_read() {
        assert_eq!(
            wakes("Name:\ta\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"),
            Some(12.0)
        );
        let own = Used::of(std::process::id()).expect("it runs");
        assert!(own.cpu_ms > 0.0 && own.pss_mb > 0.0 && !own.name.is_empty());
    }
}
