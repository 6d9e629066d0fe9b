//! One connection to a daemon with many requests at once.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    daemon::{self, check_turn},
    turns::Work,
};

/// Who waits for replies, by the number of the request.
type Waiting = Arc<Mutex<HashMap<u64, mpsc::UnboundedSender<Value>>>>;

/// A connection. Its requests do not wait for each other.
pub struct Connection {
    write: tokio::sync::Mutex<OwnedWriteHalf>,
    waiting: Waiting,
    next: std::sync::atomic::AtomicU64,
    _reading: JoinSet<()>,
}

impl Connection {
    /// Connects to the daemon of a home.
    pub async fn open(home: &Path) -> Result<Self> {
        let stream = drupe_link::Home::new(home)?.connect()?;
        stream.set_nonblocking(true)?;
        let (read, write) = UnixStream::from_std(stream)?.into_split();
        let waiting = Waiting::default();
        let mut reading = JoinSet::new();
        reading.spawn(read_all(read, Arc::clone(&waiting)));
        let connection = Self { write: write.into(), waiting, next: 1.into(), _reading: reading };
        connection.exchange(daemon::hello(home)?).await?;
        Ok(connection)
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, method: &str, params: &Value) -> Result<Value> {
        self.exchange(json!({"method": method, "params": params})).await
    }

    /// The events of a session from now on.
    pub async fn follow(&self, session: &str) -> Result<mpsc::UnboundedReceiver<Value>> {
        let params = json!({"session": session, "follow": true});
        self.send(json!({"method": "events.subscribe", "params": params})).await
    }

    /// One turn in that conversation; how long it took until the whole result was there.
    pub async fn turn_in(&self, session: &str, work: Work) -> Result<Duration> {
        let message = daemon::submit_in(session, work.text());
        let began = Instant::now();
        let turn = self.ask("turn.submit", &message).await?;
        let result = self.ask("turn.wait", &json!({"turn": turn["turn"]})).await?;
        let took = began.elapsed();
        check_turn(&result, work)?;
        Ok(took)
    }

    /// One turn in a new conversation.
    pub async fn turn(&self, work: Work) -> Result<Duration> {
        self.turn_in(&daemon::unique(), work).await
    }

    async fn exchange(&self, request: Value) -> Result<Value> {
        let mut reply = self.send(request).await?.recv().await.context("the daemon closed the connection")?;
        match reply.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => bail!("the daemon answered: {}", reply["error"]),
        }
    }

    /// Sends a request under a number of its own.
    async fn send(&self, mut request: Value) -> Result<mpsc::UnboundedReceiver<Value>> {
        let id = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        request["id"] = id.into();
        let (replies, received) = mpsc::unbounded_channel();
        locked(&self.waiting).insert(id, replies);
        self.write.lock().await.write_all(format!("{request}\n").as_bytes()).await?;
        Ok(received)
    }
}

fn locked(waiting: &Waiting) -> std::sync::MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<Value>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives each reply to whoever waits for it. In the end nobody waits any more.
async fn read_all(read: OwnedReadHalf, waiting: Waiting) {
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(reply) = serde_json::from_str::<Value>(&line) else { break };
        let Some(id) = reply["id"].as_u64() else { break };
        let mut waiting = locked(&waiting);
        let events = reply.get("event").is_some();
        // A watcher that went away misses nothing.
        if let Some(who) = waiting.get(&id) {
            let _ = who.send(reply);
        }
        if !events {
            waiting.remove(&id);
        }
    }
    locked(&waiting).clear();
}

/// Takes the events of one turn until it has ended: the text of its answer, as it was streamed.
pub async fn watch(events: &mut mpsc::UnboundedReceiver<Value>) -> Result<String> {
    let mut text = String::new();
    loop {
        let reply = events.recv().await.context("the daemon closed the connection")?;
        let event = &reply["event"];
        match event["kind"].as_str().with_context(|| format!("no event: {reply}"))? {
            "interaction.item.updated" if event["data"]["item"] == "agent_message" => {
                text.push_str(event["data"]["delta"].as_str().unwrap_or_default());
            }
            "interaction.turn.completed" => {
                ensure!(event["data"]["status"] == "success", "a turn went wrong: {event}");
                return Ok(text);
            }
            _ => {}
        }
    }
}
