//! Conversations with a daemon: many at once, each over a connection of its own, or watched as their answers come.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    connection::{Connection, watch},
    daemon::{self, Daemon},
    floor::Taken,
    process::cpu_ms,
    turns::Work,
};

/// Sessions that are watched over one connection. A watcher of real answers is there before the first word: its
/// beginning is not part of a turn.
const WATCHED: usize = 32;

/// Time for subscriptions to stand.
const STANDING: Duration = Duration::from_millis(50);

/// What one thread needs for connections.
pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Runs so many conversations at once, each for so many turns.
pub fn measure(daemon: &Daemon, work: Work, sessions: usize, turns: usize) -> Result<Taken> {
    let root = daemon.supervisor()?;
    runtime()?.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..sessions {
            clients.push(Connection::open(daemon.path()).await?);
        }
        let (clients, _) = at_once(clients, work, turns / 10 + 1).await?;
        let (cpu, began) = (cpu_ms(root)?, Instant::now());
        let (_, each) = at_once(clients, work, turns).await?;
        Ok(Taken::new(cpu_ms(root)? - cpu, began.elapsed(), each))
    })
}

async fn at_once(clients: Vec<Connection>, work: Work, turns: usize) -> Result<(Vec<Connection>, Vec<f64>)> {
    let mut all = JoinSet::new();
    for client in clients {
        all.spawn(async move {
            let mut each = Vec::with_capacity(turns);
            for _ in 0..turns {
                each.push(client.turn(work).await?.as_secs_f64() * 1e3);
            }
            anyhow::Ok((client, each))
        });
    }
    let (mut clients, mut each) = (Vec::new(), Vec::new());
    while let Some(one) = all.join_next().await {
        let (client, times) = one??;
        clients.push(client);
        each.extend(times);
    }
    Ok((clients, each))
}

/// So many turns one after another whose answers are watched, each in a session of its own. The processor time of
/// beginning to watch is left out.
pub async fn watched(daemon: &Daemon, work: Work, turns: usize) -> Result<Taken> {
    let root = daemon.supervisor()?;
    let (mut cpu, mut wall, mut each) = (0.0, Duration::ZERO, Vec::with_capacity(turns));
    while each.len() < turns {
        let connection = Connection::open(daemon.path()).await?;
        let mut sessions = Vec::new();
        for _ in 0..WATCHED.min(turns - each.len()) {
            let session = daemon::unique();
            let events = connection.follow(&session).await?;
            sessions.push((session, events));
        }
        tokio::time::sleep(STANDING).await;
        let before = cpu_ms(root)?;
        for (session, events) in &mut sessions {
            let began = Instant::now();
            connection.ask("turn.submit", &daemon::submit_in(session, work.text())).await?;
            let text = watch(events).await?;
            let took = began.elapsed();
            ensure!(!text.is_empty(), "an answer came without being streamed");
            wall += took;
            each.push(took.as_secs_f64() * 1e3);
        }
        cpu += cpu_ms(root)? - before;
    }
    Ok(Taken::new(cpu, wall, each))
}
