//! An answer in 256 pieces, from the model's socket to whoever watches the turn.

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

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let (memory, full) = (started(&model, "memory")?, started(&model, "full")?);
    let runtime = load::runtime()?;
    let mut taken = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        taken[0].push(floor::measure(model.address(), Work::Stream, FLOOR_TURNS)?.cpu_ms);
        for (daemon, taken) in [&memory, &full].into_iter().zip(&mut taken[1..]) {
            taken.push(runtime.block_on(load::watched(daemon, Work::Stream, TURNS))?.cpu_ms);
        }
    }
    let [floor, memory, full] = taken.map(median);
    let what =
        |durability| format!("CPU of a watched answer in 256 pieces over the floor, durability {durability}");
    let row = |durability, value: f64| {
        Row::most(what(durability), value / floor, Unit::Times, 4.0).beside(Unit::Millis.show(value))
    };
    Ok(vec![
        Row::plain("CPU of the floor, an answer in 256 pieces", floor, Unit::Millis),
        row("memory", memory),
        row("full", full),
    ])
}

fn started(model: &Model, durability: &'static str) -> Result<Daemon> {
    let mut daemon = Daemon::home(model.address(), Settings::measured(durability))?;
    daemon.start_whole()?;
    load::runtime()?.block_on(load::watched(&daemon, Work::Stream, TURNS / 8))?;
    Ok(daemon)
}
