//! Memory and threads of conversations that live: watched after some turns, and with a turn that runs.

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    connection::Connection,
    daemon::{self, Daemon},
    load,
    model::Model,
    process::{pss_mb, tree},
    report::{Row, Unit},
    settings::Settings,
    turns::Work,
};

const SESSIONS: u32 = 1000;

/// Turns that each of them has had.
const TURNS: u32 = 2;

/// Conversations that speak over one connection: fewer than the requests that a connection may have at once, as each is
/// watched.
const TOGETHER: u32 = 50;

/// What was needed for a moment is given back by then.
const SETTLE: Duration = Duration::from_secs(2);

/// Of the model while turns run: long enough that all of them wait for it at the same time.
const LATENCY: Duration = Duration::from_secs(20);

/// When all of them wait.
const WAITING: Duration = Duration::from_secs(10);

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let runtime = load::runtime()?;
    let model = Model::start(Duration::ZERO)?;
    let watched = runtime.block_on(watched(&model))?;
    let slow = Model::start(LATENCY)?;
    let running = runtime.block_on(running(&slow))?;
    let row = |what: String, used: &Used| {
        Row::most(what, used.kilobytes, Unit::Kilobytes, 10.0).beside(format!("{:+} threads", used.threads))
    };
    Ok(vec![
        row(format!("a conversation that is watched, after {TURNS} turns, over {SESSIONS}"), &watched),
        row(format!("a conversation whose turn waits for the model, over {SESSIONS}"), &running),
    ])
}

/// What each conversation uses of the whole daemon's memory, and the threads that all of them add.
struct Used {
    kilobytes: f64,
    threads: i64,
}

async fn watched(model: &Model) -> Result<Used> {
    let daemon = started(model).await?;
    let before = Now::of(&daemon)?;
    let mut kept = Vec::new();
    for _ in 0..SESSIONS / TOGETHER {
        let connection = Arc::new(Connection::open(daemon.path()).await?);
        let mut all = JoinSet::new();
        for _ in 0..TOGETHER {
            let connection = Arc::clone(&connection);
            all.spawn(async move {
                let session = daemon::unique();
                let events = connection.follow(&session).await?;
                for _ in 0..TURNS {
                    connection.turn_in(&session, Work::Echo).await?;
                }
                anyhow::Ok(events)
            });
        }
        while let Some(one) = all.join_next().await {
            kept.push((one??, Arc::clone(&connection)));
        }
    }
    tokio::time::sleep(SETTLE).await;
    before.until(&daemon)
}

async fn running(model: &Model) -> Result<Used> {
    let daemon = started(model).await?;
    let before = Now::of(&daemon)?;
    let connection = Connection::open(daemon.path()).await?;
    for _ in 0..SESSIONS {
        let message = daemon::submit_in(&daemon::unique(), Work::Echo.text());
        connection.ask("turn.submit", &message).await?;
    }
    tokio::time::sleep(WAITING).await;
    let used = before.until(&daemon)?;
    let waiting = connection.ask("status", &json!({})).await?["queued_turns"].as_u64();
    anyhow::ensure!(waiting == Some(0), "{waiting:?} turns have not begun");
    Ok(used)
}

/// A daemon that has answered before.
async fn started(model: &Model) -> Result<Daemon> {
    let daemon = Daemon::home(model.address(), Settings::default())?;
    daemon.start_whole()?;
    Connection::open(daemon.path()).await?.turn(Work::Echo).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(daemon)
}

/// What all processes use at a moment.
struct Now {
    megabytes: f64,
    threads: i64,
}

impl Now {
    fn of(daemon: &Daemon) -> Result<Self> {
        let mut now = Self { megabytes: 0.0, threads: 0 };
        for pid in tree(daemon.supervisor()?)? {
            now.megabytes += pss_mb(pid)?;
            let threads = fs::read_dir(format!("/proc/{pid}/task")).context("its threads")?.count();
            now.threads += i64::try_from(threads)?;
        }
        Ok(now)
    }

    fn until(&self, daemon: &Daemon) -> Result<Used> {
        let now = Self::of(daemon)?;
        Ok(Used {
            kilobytes: (now.megabytes - self.megabytes) * 1e3 / f64::from(SESSIONS),
            threads: now.threads - self.threads,
        })
    }
}
