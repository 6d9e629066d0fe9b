//! What a turn costs where much is there already: agents, conversations, messages.

use std::time::Duration;

use anyhow::Result;

use crate::{
    connection::Connection,
    daemon::{self, Daemon},
    load,
    model::Model,
    process::{Cores, cpu_ms},
    report::{Row, Unit, median},
    settings::Settings,
    turns::Work,
};

const ROUNDS: usize = 3;

/// Turns of a round. A round of one conversation makes it longer, by little.
const TURNS: usize = 60;

/// Conversations that are made at the same time.
const TOGETHER: usize = 64;

/// What it is compared with.
const FEW: usize = 10;

/// How many times as much a turn may take.
const MOST: f64 = 2.0;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let rows: [(&str, Cost, usize); 3] = [
        ("agents", agents, 1000),
        ("conversations", conversations, 10_000),
        ("messages of it", messages, 1000),
    ];
    Ok(rows.map(|(what, cost, many)| row(&model, what, cost, many)).into())
}

/// What a turn costs where there are so many.
type Cost = fn(&Model, usize) -> Result<f64>;

fn row(model: &Model, what: &str, cost: Cost, count: usize) -> Row {
    let what = format!("CPU of an `echo` turn, durability full, from {FEW} to {count} {what}");
    match (cost(model, FEW), cost(model, count)) {
        (Ok(few), Ok(many)) => {
            let beside = format!("{}, then {}", Unit::Millis.show(few), Unit::Millis.show(many));
            Row::most(what, many / few, Unit::Times, MOST).beside(beside)
        }
        (Err(error), _) | (_, Err(error)) => Row::failed(&what, &error),
    }
}

fn agents(model: &Model, count: usize) -> Result<f64> {
    let daemon = Daemon::home(model.address(), Settings::measured("full"))?;
    for at in 0..count {
        daemon.agent(&format!("agent{at}"))?;
    }
    daemon.start_whole()?;
    turns(&daemon, None)
}

fn conversations(model: &Model, count: usize) -> Result<f64> {
    let daemon = started(model)?;
    let together = TOGETHER.min(count);
    load::measure(&daemon, Work::Echo, together, count.div_ceil(together))?;
    turns(&daemon, None)
}

/// Each turn is two messages.
fn messages(model: &Model, count: usize) -> Result<f64> {
    let daemon = started(model)?;
    let session = daemon::unique();
    load::runtime()?.block_on(async {
        let connection = Connection::open(daemon.path()).await?;
        for _ in 0..count / 2 {
            connection.turn_in(&session, Work::Echo).await?;
        }
        anyhow::Ok(())
    })?;
    turns(&daemon, Some(&session))
}

fn started(model: &Model) -> Result<Daemon> {
    let daemon = Daemon::home(model.address(), Settings::measured("full"))?;
    daemon.start_whole()?;
    Ok(daemon)
}

/// Processor time of a turn in that conversation, or in new ones.
#[expect(clippy::cast_precision_loss, reason = "tens of turns")]
fn turns(daemon: &Daemon, session: Option<&str>) -> Result<f64> {
    let root = daemon.supervisor()?;
    load::runtime()?.block_on(async {
        let connection = Connection::open(daemon.path()).await?;
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let before = cpu_ms(root)?;
            for _ in 0..TURNS {
                let session = session.map_or_else(daemon::unique, str::to_owned);
                connection.turn_in(&session, Work::Echo).await?;
            }
            rounds.push((cpu_ms(root)? - before) / TURNS as f64);
        }
        Ok(median(rounds))
    })
}
