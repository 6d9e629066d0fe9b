//! A daemon whose supervisor is the real one and whose kernel does what a test tells it: real processes, a real link,
//! real sockets, and no extensions.
//!
//! `--script` lists what each kernel of the home does, by generation; the last entry holds for all that follow.

#[path = "../src/supervise/mod.rs"]
mod supervise;

#[path = "fake_daemon/deaths.rs"]
mod deaths;

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::exit,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use clap::Parser;
use deaths::Death;
use drupe_extension_api::control::{CONTROL_VERSION, Reply, ReplyBody, Request, Welcome, method};
use drupe_link::{BeginError, Crashed, Down, KernelLink, Received, Up};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{Shutdown, shutdown},
};
use supervise::{KernelArguments, Notify, Options};

#[derive(Parser)]
enum Verb {
    Run {
        #[arg(long)]
        home: PathBuf,
        #[arg(long)]
        script: OsString,
        #[arg(long)]
        notify: Option<OsString>,
    },
    Kernel {
        #[command(flatten)]
        arguments: KernelArguments,
        #[arg(long)]
        script: String,
        /// It speaks the next version of the link.
        #[arg(long)]
        newer: bool,
    },
}

fn main() {
    match Verb::parse() {
        Verb::Run { home, script, notify } => {
            let notify = notify.and_then(|socket| Notify::new(&socket, None).ok());
            exit(i32::from(supervise::run(Options {
                home,
                config: None,
                safe_mode: false,
                agents: Vec::new(),
                exe: std::env::current_exe().unwrap_or_default(),
                notify,
                human_log: true,
                kernel_args: vec!["--script".into(), script],
            })))
        }
        Verb::Kernel { arguments, script, newer } => {
            // SAFETY: this process has just begun and owns nothing yet.
            let take = |number| unsafe { drupe_confine::inherited(number) };
            let link = take(arguments.link_fd).expect("the link is inherited");
            let control = take(arguments.control_fd).expect("the socket is inherited");
            let page = arguments.blame_fd.expect("there is a page");
            drupe_blame::install(take(page).expect("the page is inherited")).expect("the page can be used");
            let link = KernelLink::new(link);
            let start = begin(&link, drupe_link::VERSION + u32::from(newer));
            run(&arguments, &script, &link, start, control.into());
        }
    }
}

/// As the real kernel does.
fn begin(link: &KernelLink, version: u32) -> Down {
    let hello = Up::Hello { pid: std::process::id(), version: "0".into() };
    match link.begin(&hello, version) {
        Ok(start) => start,
        Err(BeginError::Stranger) => exit(76),
        Err(BeginError::Link(_)) => exit(1),
    }
}

fn run(arguments: &KernelArguments, script: &str, link: &KernelLink, start: Down, control: UnixListener) {
    let Down::Start { generation, safe_mode, verdicts, fallback, .. } = &start else { exit(1) };
    let entries: Vec<_> = script.split(',').collect();
    let entry = entries[(*generation as usize - 1).min(entries.len() - 1)];
    let (name, value) = entry.split_once(':').unwrap_or((entry, "0"));
    match name {
        "exit" => exit(value.parse().unwrap_or(1)),
        "refuse" if !arguments.last_good => exit(78),
        "crash" => crash(),
        "fragile" if !safe_mode => crash(),
        "stuck" if fallback.is_none() => crash(),
        "loading" if verdicts.quarantined.len() < value.parse().unwrap_or(1) => {
            Death::in_operation(&format!("bad-{}", verdicts.quarantined.len() + 1), "initialize").die()
        }
        "hold" => hold(arguments, link),
        "flood" => flood(link),
        "newer" => say_more(link),
        _ => {}
    }
    let extensions = fallback.clone().or_else(|| Some(format!("set-{generation}")));
    serve(link, control, &start, extensions, name == "stubborn");
}

fn crash() {
    let _ = writeln!(std::io::stderr(), "the fake kernel is about to crash");
    std::process::abort();
}

/// Is not ready before a file appears.
fn hold(arguments: &KernelArguments, link: &KernelLink) {
    while !arguments.home.join("go").exists() {
        link.send(&Up::Beat).expect("the supervisor listens");
        poll_stop(link);
        thread::sleep(Duration::from_millis(10));
    }
}

/// Sends what is no frame and what is no truth, as fast as it is read.
fn flood(link: &KernelLink) {
    use rustix::net::{SendFlags, send};
    let large = vec![b'x'; 70_000];
    for round in 0..2_000 {
        let garbage: &[u8] = match round % 4 {
            0 => b"",
            1 => b"{\"frame\":\"stopping",
            2 => b"\xff\x00\xff",
            _ => &large,
        };
        if send(link, garbage, SendFlags::NOSIGNAL).is_err() {
            exit(1);
        }
    }
    for number in 0..10_000 {
        let crashed = Crashed {
            extension: format!("invented-{number}"),
            hash: "f".repeat(64),
            operation: "load\u{1b}[2J".into(),
            how: "h".repeat(2_000),
            loading: true,
        };
        let released = Up::Released { extension: format!("other-{number}"), reason: "r".repeat(2_000) };
        for frame in [Up::Crashed(crashed), released] {
            link.send(&frame).expect("the supervisor listens");
        }
    }
}

/// What a later release may have added without a new version.
fn say_more(link: &KernelLink) {
    for said in
        [r#"{"frame":"levitate","by":3}"#, r#"{"frame":"beat","colour":"red"}"#, r#"{"frame":"sink"}"#]
    {
        rustix::net::send(link, said.as_bytes(), rustix::net::SendFlags::NOSIGNAL)
            .expect("the supervisor listens");
    }
}

fn poll_stop(link: &KernelLink) {
    match link.try_recv() {
        Ok(Received::Frame(Down::Stop)) => leave(link, &Up::Stopping),
        Ok(Received::Frame(Down::Restart { reason })) => leave(link, &restart(reason)),
        Ok(Received::Closed) => exit(1),
        _ => {}
    }
}

fn restart(reason: String) -> Up {
    Up::Restart { reason, unasked: false }
}

fn leave(link: &KernelLink, farewell: &Up) -> ! {
    let _ = link.send(&Up::Draining);
    let _ = link.send(farewell);
    exit(0)
}

/// What a client of the fake kernel may want of it.
enum Ask {
    Send(Up),
    Die(Death),
    /// What code in the process can do to the socket that it shares with the supervisor.
    Shut,
}

fn serve(link: &KernelLink, control: UnixListener, start: &Down, extensions: Option<String>, stubborn: bool) {
    let (asked, asks): (Sender<Ask>, Receiver<Ask>) = channel();
    let told = Arc::new(Mutex::new(serde_json::to_value(start).unwrap_or_default()));
    let known = told.clone();
    // The supervisor must bear that its kernel changes what they share.
    control.set_nonblocking(false).expect("a socket can block");
    let shared = control.try_clone().expect("a socket can be copied");
    thread::spawn(move || {
        loop {
            // Whether accepting waits is not ours alone to say.
            let _ = poll(&mut [PollFd::new(&control, PollFlags::IN)], None);
            let Ok((stream, _)) = control.accept() else { continue };
            stream.set_nonblocking(false).expect("a socket can block");
            let (asked, known) = (asked.clone(), known.clone());
            thread::spawn(move || answer(stream, &asked, &known));
        }
    });
    let config = "# the good one".to_owned();
    let ready = Up::Ready {
        drain_timeout_ms: 60_000,
        config,
        model: Some("fake".into()),
        notices: vec![],
        extensions,
        config_refused: None,
    };
    link.send(&ready).expect("the supervisor listens");
    loop {
        let _ = link.send(&Up::Beat);
        match link.try_recv() {
            Ok(Received::Frame(Down::Stop)) if !stubborn => leave(link, &Up::Stopping),
            Ok(Received::Frame(Down::Restart { reason })) => leave(link, &restart(reason)),
            Ok(Received::Frame(Down::Reload)) => {
                let _ = link.send(&ready);
            }
            Ok(Received::Frame(Down::Verdicts(verdicts))) => {
                told.lock().expect("no panic")["verdicts"] =
                    serde_json::to_value(verdicts).unwrap_or_default();
            }
            Ok(Received::Closed) => exit(1),
            _ => {}
        }
        match asks.recv_timeout(Duration::from_millis(20)) {
            Ok(Ask::Send(farewell @ Up::Restart { .. })) => leave(link, &farewell),
            Ok(Ask::Send(frame)) => link.send(&frame).expect("the supervisor listens"),
            Ok(Ask::Die(death)) => death.die(),
            Ok(Ask::Shut) => shutdown(&shared, Shutdown::Both).expect("it listens"),
            Err(_) => {}
        }
    }
}

fn answer(stream: UnixStream, asked: &Sender<Ask>, told: &Mutex<serde_json::Value>) {
    let mut writer = stream.try_clone().expect("a socket can be copied");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(request) = serde_json::from_str::<Request>(&line) else { return };
        let result = match request.method.as_str() {
            method::HELLO => {
                serde_json::to_value(Welcome { version: CONTROL_VERSION, from: "kernel".into() })
                    .unwrap_or_default()
            }
            method::STATUS => std::process::id().into(),
            // What the supervisor said at the start, with the latest verdicts.
            "told" => told.lock().expect("no panic").clone(),
            // What code in the kernel may leave behind: a process that holds the client's connection.
            "orphan" => orphan(&writer).into(),
            // Proof for a test that the kernel holds nothing which it should not.
            "descriptors" => descriptors().into(),
            _ => serde_json::Value::Null,
        };
        let reply = Reply { id: request.id, body: ReplyBody::Result(result) };
        let text = serde_json::to_string(&reply).unwrap_or_default();
        if writer.write_all(format!("{text}\n").as_bytes()).is_err() {
            return;
        }
        let ask = match request.method.as_str() {
            method::RESTART => Some(Ask::Send(restart("a client asked".into()))),
            "send" => serde_json::from_value(request.params).ok().map(Ask::Send),
            "shut" => Some(Ask::Shut),
            "die" => serde_json::from_value(request.params).ok().map(Ask::Die),
            _ => None,
        };
        if let Some(ask) = ask {
            let _ = asked.send(ask);
        }
    }
}

fn orphan(connection: &UnixStream) -> u32 {
    let held: OwnedFd = connection.try_clone().expect("a socket can be copied").into();
    #[expect(clippy::disallowed_methods, reason = "it stands for what code in a kernel does")]
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("600").stdin(held).spawn().expect("it starts").id()
}

fn descriptors() -> Vec<String> {
    let list = fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(Result::ok);
    list.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}
