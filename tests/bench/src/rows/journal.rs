//! What the disk costs: durable turns of many conversations share their commits.

use std::time::Duration;

use anyhow::Result;

use crate::{
    daemon::Daemon,
    load,
    model::Model,
    process::{Cores, fsync_ms},
    report::{Row, Unit, median},
    settings::Settings,
    turns::Work,
};

const SESSIONS: usize = 64;
const ROUNDS: usize = 3;

/// Turns of each conversation in a round.
const TURNS: usize = 40;
const ALONE: usize = 400;

/// How many times those of one conversation many should reach, and in any case where a commit takes at most
/// [`SLOW_MS`].
const TIMES: f64 = 10.0;
const A_SECOND: f64 = 2000.0;
const SLOW_MS: f64 = 5.0;

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let model = Model::start(Duration::ZERO)?;
    let _beside = Cores::Beside.hold()?;
    let daemon = Daemon::home(model.address(), Settings::measured("full"))?;
    daemon.start_whole()?;
    let fsync = fsync_ms(daemon.path())?;
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        one.push(load::measure(&daemon, Work::Echo, 1, ALONE)?.a_second);
        many.push(load::measure(&daemon, Work::Echo, SESSIONS, TURNS)?.a_second);
    }
    let (one, many) = (median(one), median(many));
    let kept = format!("fsync {}; one conversation {}", Unit::Millis.show(fsync), Unit::PerSecond.show(one));
    let what = format!("durable `echo` turns of {SESSIONS} conversations at once");
    let speed = match fsync <= SLOW_MS {
        true => Row::least(what.clone(), many, Unit::PerSecond, A_SECOND),
        false => Row::plain(what.clone(), many, Unit::PerSecond),
    };
    let times = Row::least(format!("{what}, over those of one"), many / one, Unit::Times, TIMES);
    Ok(vec![speed.beside(kept), times])
}
