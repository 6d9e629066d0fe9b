//! Many conversations with one daemon at once, each over a connection of its own.

use std::{path::Path, time::Instant};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    task::JoinSet,
};

use crate::{
    daemon::{self, Daemon},
    floor::Taken,
    process::cpu_ms,
    turns::Work,
};

/// Runs so many conversations at once, each for so many turns.
pub fn measure(daemon: &Daemon, work: Work, sessions: usize, turns: usize) -> Result<Taken> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let root = daemon.supervisor()?;
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in 0..sessions {
            clients.push(Talk::connect(daemon.path()).await?);
        }
        let (clients, _) = at_once(clients, work, turns / 10 + 1).await?;
        let (cpu, began) = (cpu_ms(root)?, Instant::now());
        let (_, each) = at_once(clients, work, turns).await?;
        Ok(Taken::new(cpu_ms(root)? - cpu, began.elapsed(), each))
    })
}

async fn at_once(clients: Vec<Talk>, work: Work, turns: usize) -> Result<(Vec<Talk>, Vec<f64>)> {
    let mut all = JoinSet::new();
    for mut client in clients {
        all.spawn(async move {
            let mut each = Vec::with_capacity(turns);
            for _ in 0..turns {
                let began = Instant::now();
                client.turn(work).await?;
                each.push(began.elapsed().as_secs_f64() * 1e3);
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

struct Talk(BufReader<UnixStream>);

impl Talk {
    async fn connect(home: &Path) -> Result<Self> {
        let stream = drupe_link::Home::new(home)?.connect()?;
        stream.set_nonblocking(true)?;
        let mut talk = Self(BufReader::new(UnixStream::from_std(stream)?));
        talk.exchange(&daemon::hello(home)?).await?;
        Ok(talk)
    }

    async fn turn(&mut self, work: Work) -> Result<()> {
        let submit = json!({"id": 1, "method": "turn.submit", "params": daemon::submit(work)});
        let turn = self.exchange(&submit).await?;
        let wait = json!({"id": 2, "method": "turn.wait", "params": {"turn": turn["turn"]}});
        daemon::check_turn(&self.exchange(&wait).await?, work)
    }

    async fn exchange(&mut self, request: &Value) -> Result<Value> {
        self.0.get_mut().write_all(format!("{request}\n").as_bytes()).await?;
        let mut line = String::new();
        self.0.read_line(&mut line).await?;
        daemon::result(&line)
    }
}
