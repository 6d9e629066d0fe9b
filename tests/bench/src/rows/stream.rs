//! Answers in pieces: 256 that are there at once, watched by somebody, and 64 that come one after another, as they do from
//! a model, for somebody who waits for the end.

use std::time::Duration;

use anyhow::Result;

use crate::{
    daemon::Daemon,
    floor, load,
    model::Model,
    process::Cores,
    report::{Row, Unit, median},
    settings::Settings,
    turns::Work,
};

const ROUNDS: usize = 3;
const TURNS: usize = 256;
const FLOOR_TURNS: usize = 3000;

/// Each takes more than an eighth of a second, whoever asks.
const SPACED_TURNS: usize = 60;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let (memory, full) = (started(&model, "memory")?, started(&model, "full")?);
    let runtime = load::runtime()?;
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    let mut spaced = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        taken[0].push(floor::measure(model.address(), Work::Stream, FLOOR_TURNS)?.cpu_ms);
        for (daemon, taken) in [&memory, &full].into_iter().zip(&mut taken[1..]) {
            taken.push(runtime.block_on(load::watched(daemon, Work::Stream, TURNS))?.cpu_ms);
        }
        spaced[0].push(floor::measure(model.address(), Work::Spaced, SPACED_TURNS)?.cpu_ms);
        for (daemon, spaced) in [&memory, &full].into_iter().zip(&mut spaced[1..]) {
            spaced.push(load::measure(daemon, Work::Spaced, 1, SPACED_TURNS)?.cpu_ms);
        }
    }
    let mut all = rows("a watched answer in 256 pieces", 4.0, taken.map(median));
    all.extend(rows("an answer in 64 pieces 2 ms apart", 1.3, spaced.map(median)));
    Ok(all)
}

fn rows(what: &str, most: f64, [floor, memory, full]: [f64; 3]) -> Vec<Row> {
    let row = |durability, value: f64| {
        let what = format!("CPU of {what} over the floor, durability {durability}");
        Row::most(what, value / floor, Unit::Times, most).beside(Unit::Millis.show(value))
    };
    vec![
        Row::plain(format!("CPU of the floor, {what}"), floor, Unit::Millis),
        row("memory", memory),
        row("full", full),
    ]
}

fn started(model: &Model, durability: &'static str) -> Result<Daemon> {
    let daemon = Daemon::home(model.address(), Settings::measured(durability))?;
    daemon.start_whole()?;
    load::runtime()?.block_on(load::watched(&daemon, Work::Stream, TURNS / 8))?;
    Ok(daemon)
}
