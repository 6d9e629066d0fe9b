//! Memory of a daemon that waits.

use std::{thread, time::Duration};

use anyhow::Result;

use crate::{
    daemon::{Daemon, Settings},
    model::Model,
    process::{pss_mb, tree},
    report::{Row, Unit, median},
};

/// What start-up needed is given back by then.
const SETTLE: Duration = Duration::from_secs(2);
const STARTS: usize = 3;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let mut supervisors = Vec::new();
    let mut totals = Vec::new();
    for shipped in [false, true] {
        let mut daemon = Daemon::home(&model, Settings { shipped, ..Settings::default() })?;
        let mut sums = Vec::new();
        for _ in 0..STARTS {
            daemon.start_whole()?;
            thread::sleep(SETTLE);
            let root = daemon.supervisor()?;
            supervisors.push(pss_mb(root)?);
            sums.push(tree(root)?.into_iter().map(pss_mb).sum::<Result<f64>>()?);
            daemon.stop()?;
        }
        totals.push(median(sums));
    }
    let [bare, all] = totals[..] else { return Ok(Vec::new()) };
    Ok(vec![
        Row::most("idle memory (PSS) of the supervisor", median(supervisors), Unit::Megabytes, 5.0),
        Row::most("with the kernel, no extension", bare, Unit::Megabytes, 12.0),
        Row::most("with the kernel and all shipped extensions", all, Unit::Megabytes, 30.0),
    ])
}
