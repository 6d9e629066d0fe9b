//! How long until the daemon serves: from its start, by a restart, after a crash.

mod many;

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    daemon::{Daemon, signal},
    model::Model,
    report::{Row, Unit, median},
    settings::Settings,
    turns::Work,
};

const STARTS: usize = 7;
const NATIVE: usize = 12;

/// Fewer than the crashes in a minute that lead to safe mode.
const KILLS: usize = 3;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let mut rows = Vec::new();
    for native in [0, NATIVE] {
        let daemon = Daemon::home(model.address(), Settings::default())?;
        for at in 0..native {
            daemon.native(&format!("native{at}"), "inproc")?;
        }
        daemon.settle();
        let with = match native {
            0 => "shipped extensions".to_owned(),
            _ => format!("shipped and {native} native extensions"),
        };
        starts(&daemon, &with, &mut rows)?;
        daemon.start_whole()?;
        rows.push(restarts(&daemon, &with)?);
        rows.push(kills(&daemon, &with)?);
        daemon.stop()?;
    }
    many::measure(&model, &mut rows)?;
    Ok(rows)
}

fn starts(daemon: &Daemon, with: &str, rows: &mut Vec<Row>) -> Result<()> {
    // The first start probes the libraries and makes the journal.
    let cold = milliseconds(daemon.start()?);
    daemon.stop()?;
    let (mut ready, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let began = Instant::now();
        ready.push(milliseconds(daemon.start()?));
        daemon.client()?.turn(Work::Echo)?;
        answered.push(milliseconds(began.elapsed()));
        daemon.stop()?;
    }
    let cold = format!("the first start of the home: {}", Unit::Millis.show(cold));
    let what = format!("`drupe run` to ready, {with}");
    rows.push(Row::most(what, median(ready), Unit::Millis, 60.0).beside(cold));
    rows.push(Row::most(
        format!("`drupe run` to the first answer, {with}"),
        median(answered),
        Unit::Millis,
        100.0,
    ));
    Ok(())
}

fn restarts(daemon: &Daemon, with: &str) -> Result<Row> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        let mut client = daemon.client()?;
        daemon.forget_notices()?;
        let began = Instant::now();
        client.ask("restart", &json!({}))?;
        daemon.ready()?;
        times.push(milliseconds(began.elapsed()));
    }
    Ok(Row::most(format!("requested restart, ready to ready, {with}"), median(times), Unit::Millis, 150.0))
}

fn kills(daemon: &Daemon, with: &str) -> Result<Row> {
    let mut times = Vec::new();
    for _ in 0..KILLS {
        let kernel = daemon.kernel()?;
        daemon.forget_notices()?;
        let began = Instant::now();
        signal(kernel, Signal::KILL)?;
        daemon.ready()?;
        times.push(milliseconds(began.elapsed()));
    }
    let beside = "the pause before the next kernel grows with each crash";
    let what = format!("`kill -9` of the kernel until ready, {with}");
    Ok(Row::most(what, median(times), Unit::Millis, 2000.0).beside(beside))
}

/// For the table.
fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
