//! Processor time of turns, one after another, beside the floor's.

use std::time::Duration;

use anyhow::Result;

use crate::{
    daemon::{Daemon, Settings},
    floor,
    model::Model,
    process::cpu_ms,
    report::{Row, Unit, median},
    turns::{KEEPER, Work},
};

const ROUNDS: usize = 3;

/// Kinds with the turns of a round, and the most that they may take, in floors, without and with durability.
const WORKS: [(Work, usize, f64, Option<f64>); 3] =
    [(Work::Echo, 600, 2.0, None), (Work::Tool, 400, 2.0, None), (Work::Delegate, 250, 2.0, Some(4.0))];

/// The floor is so much faster that it takes more turns to measure.
const FLOOR: usize = 10;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let (memory, full) = (started(&model, "memory")?, started(&model, "full")?);
    let mut rows = Vec::new();
    for (work, turns, most, most_full) in WORKS {
        let mut taken = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            taken[0].push(floor::measure(model.address(), work, turns * FLOOR)?.cpu_ms);
            taken[1].push(each(&memory, work, turns)?);
            taken[2].push(each(&full, work, turns)?);
        }
        let [floor, memory, full] = taken.map(median);
        let name = work.name();
        rows.push(Row::plain(format!("CPU of the floor, `{name}`"), floor, Unit::Millis));
        let show = |value| Unit::Millis.show(value);
        let what = |durability| format!("CPU of a `{name}` turn over the floor, durability {durability}");
        rows.push(Row::most(what("memory"), memory / floor, Unit::Times, most).beside(show(memory)));
        rows.push(match most_full {
            Some(most) => Row::most(what("full"), full / floor, Unit::Times, most).beside(show(full)),
            None => Row::plain(what("full"), full / floor, Unit::Times).beside(show(full)),
        });
    }
    Ok(rows)
}

fn started(model: &Model, durability: &'static str) -> Result<Daemon> {
    let mut daemon = Daemon::home(model, Settings { durability, ..Settings::default() })?;
    daemon.extension(KEEPER.0, KEEPER.1)?;
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
