//! Eight tools of 50 ms in one step, beside one of them.

use anyhow::Result;

use crate::{
    daemon::{Client, Daemon},
    model::Model,
    process::fsync_ms,
    report::{Row, Unit, median},
    settings::Settings,
    turns::{TOOLS, Work},
};

/// Turns of each kind.
const TURNS: usize = 20;

/// Commits of such a turn that wait for the disk: the accepted message and the answer. The tools are read-only, so no
/// intent of theirs has to be kept before they run.
const WAITED: f64 = 2.0;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(std::time::Duration::ZERO)?;
    let mut rows = Vec::new();
    for durability in ["full", "memory"] {
        let daemon = Daemon::home(model.address(), Settings { durability, ..Settings::default() })?;
        daemon.tools(TOOLS, 0)?;
        daemon.start_whole()?;
        let fsync = if durability == "full" { fsync_ms(daemon.path())? } else { 0.0 };
        let mut client = daemon.client()?;
        let one = wall(&mut client, Work::Slow)?;
        let eight = wall(&mut client, Work::Fanout)?;
        let show = |value| Unit::Millis.show(value);
        let beside = format!(
            "wall {}; with one tool {}; difference {}; fsync {}",
            show(eight),
            show(one),
            show(eight - one),
            show(fsync)
        );
        let what =
            format!("fan-out: wall of a turn with eight 50 ms tools, less fsyncs, durability {durability}");
        rows.push(Row::most(what, eight - WAITED * fsync, Unit::Millis, 55.0).beside(beside));
        daemon.stop()?;
    }
    Ok(rows)
}

fn wall(client: &mut Client, work: Work) -> Result<f64> {
    client.turn(work)?;
    let turns: Result<Vec<f64>> = (0..TURNS).map(|_| Ok(client.turn(work)?.as_secs_f64() * 1e3)).collect();
    Ok(median(turns?))
}
