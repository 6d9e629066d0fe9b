//! Many conversations at once.

use std::time::Duration;

use anyhow::Result;

use crate::{
    daemon::Daemon,
    floor::{self, Taken},
    load,
    model::Model,
    process::Cores,
    report::{Row, Unit, median},
    settings::Settings,
    turns::Work,
};

const SESSIONS: usize = 64;
const ROUNDS: usize = 3;

/// Turns of one session in a round.
const TURNS: usize = 30;
const FLOOR_TURNS: usize = 600;

/// Of the model, where waiting is measured.
const LATENCY: Duration = Duration::from_millis(100);
const LATENT_TURNS: usize = 10;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let daemon = |durability, model: &Model| -> Result<Daemon> {
        let daemon = Daemon::home(model.address(), Settings::measured(durability))?;
        daemon.start_whole()?;
        Ok(daemon)
    };
    let (memory, full) = (daemon("memory", &model)?, daemon("full", &model)?);
    let (mut floors, mut memories, mut fulls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(floor::measure_at_once(model.address(), Work::Tool, SESSIONS, FLOOR_TURNS)?);
        memories.push(load::measure(&memory, Work::Tool, SESSIONS, TURNS)?);
        fulls.push(load::measure(&full, Work::Tool, SESSIONS, TURNS)?);
    }
    drop((memory, full));
    let slow = Model::start(LATENCY)?;
    let latent = load::measure(&daemon("memory", &slow)?, Work::Tool, SESSIONS, LATENT_TURNS)?;
    let a_core = 1e3 / cpu(&floors);
    let title = format!("`tool`, {SESSIONS} sessions at once");
    let row = |durability: &str, taken: &[Taken]| {
        let beside = format!(
            "{} CPU a turn, {:.2} × the floor; {:.0} turns/s of wall time",
            Unit::Millis.show(cpu(taken)),
            cpu(taken) / cpu(&floors),
            median(taken.iter().map(|t| t.a_second).collect())
        );
        (format!("{title}: turns a second of one core, durability {durability}"), 1e3 / cpu(taken), beside)
    };
    let (what, value, beside) = row("memory", &memories);
    let (what_full, value_full, beside_full) = row("full", &fulls);
    Ok(vec![
        Row::plain(format!("{title}: turns a second of one core, floor"), a_core, Unit::PerSecond),
        Row::least(what, value, Unit::PerSecond, a_core / 2.0).beside(beside),
        Row::plain(what_full, value_full, Unit::PerSecond).beside(beside_full),
        Row::most(
            format!("{title}, 100 ms of model latency: 99 of 100 turns within"),
            latent.p99_ms,
            Unit::Millis,
            210.0,
        ),
    ])
}

fn cpu(taken: &[Taken]) -> f64 {
    median(taken.iter().map(|t| t.cpu_ms).collect())
}
