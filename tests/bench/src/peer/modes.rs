//! What a peer does, and the figures that it prints: the keys are those of the harness.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Asked, Line, Mode, Scenario};
use crate::{
    connection::Connection,
    daemon::{self, Daemon},
    floor::Taken,
    load,
    process::{cpu_ms, pss_mb, tree},
    turns::Work,
};

/// Turns before the first that counts, at least.
const WARM: usize = 20;

/// Sessions of [`Mode::Memory`] whose turns run at the same time.
const TOGETHER: usize = 20;

/// Does what is asked with a daemon, and ends the daemon.
pub async fn run(asked: &Asked) -> Result<Line> {
    let daemon = asked.daemon()?;
    let line = match asked.mode {
        Mode::Cold => cold(&daemon).await?,
        Mode::Sequence(scenario, turns) => Some(sequence(&daemon, scenario, turns).await?),
        Mode::AtOnce(scenario, sessions, seconds) => {
            Some(at_once(&daemon, scenario, sessions, Duration::from_secs_f64(seconds)).await?)
        }
        Mode::Memory(sessions) => Some(memory(&daemon, sessions).await?),
        Mode::Bytes(tools) => {
            Connection::open(daemon.path()).await?.turn(Work::Echo).await?;
            Some(json!({"tools": tools}))
        }
    };
    daemon.stop()?;
    Ok(line)
}

async fn cold(daemon: &Daemon) -> Result<Line> {
    Connection::open(daemon.path()).await?.turn(Work::Echo).await?;
    // The clock of whoever started this stops when the line is there.
    println(&"ANSWER ok")?;
    Ok(None)
}

fn println(text: &impl std::fmt::Display) -> Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

async fn sequence(daemon: &Daemon, scenario: Scenario, turns: usize) -> Result<Value> {
    let warm = WARM.max(turns / 5);
    let taken = match scenario {
        Scenario::Stream => {
            load::watched(daemon, Work::Echo, warm).await?;
            load::watched(daemon, Work::Echo, turns).await?
        }
        Scenario::Whole(work) => {
            one_after_another(daemon, work, warm).await?;
            one_after_another(daemon, work, turns).await?
        }
    };
    Ok(line(&taken, turns, json!({"sc": scenario.name()})))
}

async fn one_after_another(daemon: &Daemon, work: Work, turns: usize) -> Result<Taken> {
    let root = daemon.supervisor()?;
    let connection = Connection::open(daemon.path()).await?;
    let (cpu, began) = (cpu_ms(root)?, Instant::now());
    let mut each = Vec::with_capacity(turns);
    for _ in 0..turns {
        each.push(connection.turn(work).await?.as_secs_f64() * 1e3);
    }
    Ok(Taken::new(cpu_ms(root)? - cpu, began.elapsed(), each))
}

async fn at_once(daemon: &Daemon, scenario: Scenario, sessions: usize, time: Duration) -> Result<Value> {
    let Scenario::Whole(work) = scenario else { bail!("streams are measured one after another") };
    let root = daemon.supervisor()?;
    let connection = Arc::new(Connection::open(daemon.path()).await?);
    talk(&connection, work, sessions, Duration::ZERO).await?;
    let (cpu, began) = (cpu_ms(root)?, Instant::now());
    let each = talk(&connection, work, sessions, time).await?;
    let (turns, wall) = (each.len(), began.elapsed());
    let taken = Taken::new(cpu_ms(root)? - cpu, wall, each);
    let also = json!({
        "sc": scenario.name(), "C": sessions, "wall": wall.as_secs_f64(), "tps": taken.a_second,
        "util": taken.cpu_ms * taken.a_second / 1e3,
    });
    Ok(line(&taken, turns, also))
}

/// So many conversations at once; none begins a further turn after that time.
async fn talk(connection: &Arc<Connection>, work: Work, sessions: usize, time: Duration) -> Result<Vec<f64>> {
    let began = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..sessions {
        let connection = Arc::clone(connection);
        all.spawn(async move {
            let mut each = Vec::new();
            loop {
                each.push(connection.turn(work).await?.as_secs_f64() * 1e3);
                if began.elapsed() >= time {
                    return anyhow::Ok(each);
                }
            }
        });
    }
    let mut each = Vec::new();
    while let Some(one) = all.join_next().await {
        each.extend(one??);
    }
    Ok(each)
}

/// Memory is PSS of all processes: pages that they share count once.
async fn memory(daemon: &Daemon, sessions: usize) -> Result<Value> {
    let root = daemon.supervisor()?;
    let used = || -> Result<f64> { tree(root)?.into_iter().map(pss_mb).sum() };
    let idle = used()?;
    let connection = Arc::new(Connection::open(daemon.path()).await?);
    connection.turn(Work::Echo).await?;
    let after = used()?;
    for begin in (0..sessions).step_by(TOGETHER) {
        let mut all = JoinSet::new();
        for _ in begin..sessions.min(begin + TOGETHER) {
            let connection = Arc::clone(&connection);
            all.spawn(async move {
                let session = daemon::unique();
                connection.turn_in(&session, Work::Echo).await?;
                connection.turn_in(&session, Work::Echo).await
            });
        }
        while let Some(one) = all.join_next().await {
            one??;
        }
    }
    let full = used()?;
    // Mebibytes, as others print what the system tells in units of 1024.
    let mebibytes = |megabytes: f64| megabytes * 1e6 / 1024.0 / 1024.0;
    Ok(json!({
        "idle_mb": mebibytes(idle), "after1_mb": mebibytes(after), "k": sessions, "k_mb": mebibytes(full),
        "per_session_kb": mebibytes(full - after) * 1024.0 / count(sessions),
    }))
}

/// A line of figures beside these.
fn line(taken: &Taken, turns: usize, mut also: Value) -> Value {
    also["n"] = turns.into();
    also["cpu_ms"] = taken.cpu_ms.into();
    also["p50_ms"] = taken.p50_ms.into();
    also["p99_ms"] = taken.p99_ms.into();
    also["min_ms"] = taken.min_ms.into();
    also
}

#[expect(clippy::cast_precision_loss, reason = "thousands")]
fn count(number: usize) -> f64 {
    number as f64
}
