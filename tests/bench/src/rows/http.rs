//! What the HTTP door costs beside the control socket, and what many clients that do nothing do to those that work.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    connection::Connection,
    daemon::{self, Daemon},
    door::Door,
    load,
    model::Model,
    process::{Cores, cpu_ms, pss_mb},
    report::{Row, Unit, median, part},
    settings::Settings,
    turns::Work,
};

const ROUNDS: usize = 3;

/// Turns of a round.
const TURNS: usize = 400;

/// Pieces of an answer that are waited for.
const FIRST: usize = 200;

/// Connections on which one request was made and no second one.
const IDLE: usize = 10_000;

/// Watchers of sessions in which nothing happens any more.
const WATCHERS: usize = 1000;

/// Turns while those are there, and how many of them at once.
const REAL: usize = 100;
const AT_ONCE: usize = 10;

/// Time for a subscription to stand: a watcher is there before the first word.
const STANDING: Duration = Duration::from_millis(50);

/// Files that this program needs besides.
const OWN_FILES: u64 = 1000;

/// What was needed for a moment is given back by then.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures.
pub fn measure() -> Result<Vec<Row>> {
    let files = getrlimit(Resource::Nofile);
    let wanted = (IDLE + WATCHERS) as u64 + OWN_FILES;
    ensure!(files.maximum.is_none_or(|most| most >= wanted), "{wanted} files may have to be open at once");
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..files })?;
    let model = Model::start(Duration::ZERO)?;
    let mut rows = beside_the_control_socket(&model)?;
    rows.extend(load::runtime()?.block_on(crowded(&model))?);
    Ok(rows)
}

fn beside_the_control_socket(model: &Model) -> Result<Vec<Row>> {
    let _beside = Cores::Beside.hold()?;
    let daemon = Daemon::home(model.address(), Settings::measured("full"))?;
    daemon.start_whole()?;
    let (runtime, root, door) = (load::runtime()?, daemon.supervisor()?, Door::open(&daemon)?);
    let (mut by_control, mut by_http) = (Taken::default(), Taken::default());
    let mut control = daemon.client()?;
    for _ in 0..ROUNDS {
        by_control.add(root, || control.turn(Work::Echo))?;
        by_http.add(root, || runtime.block_on(door.turn(Work::Echo)))?;
    }
    let (mut firsts, mut events) = (Vec::new(), Vec::new());
    for _ in 0..FIRST {
        firsts.push(milliseconds(runtime.block_on(door.first_piece(Work::Spaced))?));
        events.push(milliseconds(runtime.block_on(first_event(&daemon))?));
    }
    let (first, event) = (median(firsts), median(events));
    Ok(vec![
        Row::plain(
            "an `echo` turn over HTTP, in turns over the control socket",
            by_http.wall() / by_control.wall(),
            Unit::Times,
        )
        .beside(format!(
            "{} and {}",
            Unit::Millis.show(by_http.wall()),
            Unit::Millis.show(by_control.wall())
        )),
        Row::plain("its processor time, the same", by_http.cpu() / by_control.cpu(), Unit::Times).beside(
            format!("{} and {}", Unit::Millis.show(by_http.cpu()), Unit::Millis.show(by_control.cpu())),
        ),
        Row::plain(
            "the first piece of a streamed answer, Chat Completions over events of the control socket",
            first / event,
            Unit::Times,
        )
        .beside(format!("{} and {}", Unit::Millis.show(first), Unit::Millis.show(event))),
    ])
}

/// How long it takes until the first piece of an answer comes as an event of the control socket, in a session of its own as a
/// request over HTTP has.
async fn first_event(daemon: &Daemon) -> Result<Duration> {
    let session = daemon::unique();
    let connection = Connection::open(daemon.path()).await?;
    let mut events = connection.follow(&session).await?;
    tokio::time::sleep(STANDING).await;
    let began = Instant::now();
    connection.ask("turn.submit", &daemon::submit_in(&session, Work::Spaced.text())).await?;
    let mut took = None;
    loop {
        let reply = events.recv().await.context("the daemon closed the connection")?;
        match reply["event"]["kind"].as_str().unwrap_or_default() {
            "interaction.item.updated"
                if reply["event"]["data"]["item"] == "agent_message" && took.is_none() =>
            {
                took = Some(began.elapsed());
            }
            "interaction.turn.completed" => return took.context("an answer without a piece"),
            _ => {}
        }
    }
}

/// Processor and wall time of rounds of turns, in milliseconds a turn.
#[derive(Default)]
struct Taken {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

impl Taken {
    #[expect(clippy::cast_precision_loss, reason = "hundreds of turns")]
    fn add(&mut self, root: u32, mut turn: impl FnMut() -> Result<Duration>) -> Result<()> {
        for _ in 0..TURNS / 10 {
            turn()?;
        }
        let before = cpu_ms(root)?;
        for _ in 0..TURNS {
            self.wall.push(milliseconds(turn()?));
        }
        self.cpu.push((cpu_ms(root)? - before) / TURNS as f64);
        Ok(())
    }

    fn cpu(&self) -> f64 {
        median(self.cpu.clone())
    }

    fn wall(&self) -> f64 {
        median(self.wall.clone())
    }
}

async fn crowded(model: &Model) -> Result<Vec<Row>> {
    let daemon = Daemon::home(model.address(), Settings::default())?;
    daemon.start_whole()?;
    let door = Door::open(&daemon)?;
    real(&door).await?;
    tokio::time::sleep(SETTLE).await;
    let memory = || -> Result<f64> { Door::processes(&daemon)?.into_iter().map(pss_mb).sum() };
    let (before, alone) = (memory()?, real(&door).await?);

    let mut idle = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        idle.push(once(&door).await?);
    }
    let (with_idle, beside_idle) = (memory()?, real(&door).await?);
    drop(idle);
    tokio::time::sleep(SETTLE).await;
    let after_idle = memory()?;

    let (mut watchers, control) = (Vec::with_capacity(WATCHERS), Connection::open(daemon.path()).await?);
    for _ in 0..WATCHERS {
        let session = daemon::unique();
        control.turn_in(&session, Work::Echo).await?;
        watchers.push(door.follow(&session).await?);
    }
    let (with_watchers, beside_watchers) = (memory()?, real(&door).await?);
    drop(watchers);
    tokio::time::sleep(SETTLE).await;
    let after_watchers = memory()?;

    let turns = |what: String, mut times: Vec<f64>| {
        let (half, most) = (part(&mut times, 0.5), part(&mut times, 0.99));
        Row::most(
            format!("{REAL} turns over HTTP, {AT_ONCE} at once{what}: 99 of 100"),
            most,
            Unit::Millis,
            1000.0,
        )
        .beside(format!("half of them {}", Unit::Millis.show(half)))
    };
    let held = |what: String, now: f64, after: f64| {
        Row::plain(what, now, Unit::Megabytes)
            .beside(format!("{} when they have gone", Unit::Megabytes.show(after)))
    };
    Ok(vec![
        turns(String::new(), alone),
        turns(format!(", beside {IDLE} idle connections"), beside_idle),
        turns(format!(", beside {WATCHERS} watchers"), beside_watchers),
        Row::plain("memory (PSS) of the processes of the door, at rest", before, Unit::Megabytes),
        held(format!("with {IDLE} idle connections"), with_idle, after_idle),
        held(format!("with {WATCHERS} watchers"), with_watchers, after_watchers),
    ])
}

/// Times of turns that are really made, in milliseconds.
async fn real(door: &Door) -> Result<Vec<f64>> {
    let (mut all, mut times) = (JoinSet::new(), Vec::with_capacity(REAL));
    for _ in 0..AT_ONCE {
        let door = door.clone();
        all.spawn(async move {
            let mut times = Vec::new();
            for _ in 0..REAL / AT_ONCE {
                times.push(milliseconds(door.turn(Work::Echo).await?));
            }
            anyhow::Ok(times)
        });
    }
    while let Some(one) = all.join_next().await {
        times.extend(one??);
    }
    Ok(times)
}

/// A connection on which one request was answered.
async fn once(door: &Door) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(door.address()).await?;
    stream.write_all(format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", door.address()).as_bytes()).await?;
    let mut answer = [0; 1024];
    let length = stream.read(&mut answer).await?;
    ensure!(answer[..length].starts_with(b"HTTP/1.1 200"), "the door answered something else");
    Ok(stream)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
