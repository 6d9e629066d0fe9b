//! Processor time of turns, one after another, beside the floor's.

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::{
    daemon::Daemon,
    floor,
    model::Model,
    process::{Cores, cpu_ms},
    report::{Row, Unit, median},
    settings::Settings,
    turns::{KEEPER, Work},
};

const ROUNDS: usize = 3;

const DURABILITIES: [&str; 3] = ["memory", "process", "full"];

/// Kinds with the turns of a round, and the most that they may take, in floors, with each durability.
const WORKS: [(Work, usize, [Option<f64>; 3]); 3] = [
    (Work::Echo, 1000, [Some(2.0), None, None]),
    (Work::Tool, 600, [Some(2.0), None, None]),
    (Work::Delegate, 400, [Some(2.0), None, Some(4.0)]),
];

/// The floor is so much faster that it takes more turns to measure.
const FLOOR: usize = 10;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let daemons = DURABILITIES.map(|durability| started(&model, durability));
    let mut rows = Vec::new();
    for (work, turns, most) in WORKS {
        let (mut floors, mut taken) = (Vec::new(), DURABILITIES.map(|_| Vec::new()));
        for _ in 0..ROUNDS {
            floors.push(floor::measure(model.address(), work, turns * FLOOR)?.cpu_ms);
            for (daemon, taken) in daemons.iter().zip(&mut taken) {
                let daemon = daemon.as_ref().map_err(|error| anyhow!("{error:#}"))?;
                taken.push(each(daemon, work, turns)?);
            }
        }
        let (floor, name) = (median(floors), work.name());
        rows.push(Row::plain(format!("CPU of the floor, `{name}`"), floor, Unit::Millis));
        for ((durability, taken), most) in DURABILITIES.into_iter().zip(taken).zip(most) {
            let (what, cpu) =
                (format!("CPU of a `{name}` turn over the floor, durability {durability}"), median(taken));
            let row = match most {
                Some(most) => Row::most(what, cpu / floor, Unit::Times, most),
                None => Row::plain(what, cpu / floor, Unit::Times),
            };
            rows.push(row.beside(Unit::Millis.show(cpu)));
        }
    }
    Ok(rows)
}

fn started(model: &Model, durability: &'static str) -> Result<Daemon> {
    let daemon = Daemon::home(model.address(), Settings::measured(durability))?;
    daemon.keeper(KEEPER.1)?;
    daemon.start_whole()?;
    Ok(daemon)
}

/// Processor time of a turn of the whole daemon.
#[expect(clippy::cast_precision_loss, reason = "hundreds of turns")]
fn each(daemon: &Daemon, work: Work, turns: usize) -> Result<f64> {
    let mut client = daemon.client()?;
    for _ in 0..turns / 10 {
        client.turn(work)?;
    }
    let root = daemon.supervisor()?;
    let before = cpu_ms(root)?;
    for _ in 0..turns {
        client.turn(work)?;
    }
    Ok((cpu_ms(root)? - before) / turns as f64)
}
