//! A daemon for the tests of clients: it answers each method with what a test gives, and remembers what it was asked.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    thread,
};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{CONTROL_VERSION, Reply, ReplyBody, Request, Welcome, method},
};
use drupe_link::{ControlToken, Home};
use serde_json::{Value, json};

use super::{Context, console::Console};

/// What was asked: methods and their parameters.
pub type Asked = Vec<(String, Value)>;

/// Answers a request; more than one reply where the first ones are events.
pub type Answer = fn(&str, &Value) -> Vec<ReplyBody>;

/// A home, with a daemon where one was started.
pub struct Fake {
    /// What a client is given.
    pub context: Context,
    asked: Arc<Mutex<Asked>>,
    _folder: tempfile::TempDir,
}

impl Fake {
    /// A home without a daemon.
    pub fn absent() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let context = Context {
            home: Home::create(folder.path().join("home")).expect("a home"),
            named: folder.path().join("home"),
            home_named: true,
            config: None,
            environment: super::Environment::default(),
            here: folder.path().to_owned(),
            exe: "/nonexistent/drupe".into(),
            console: Console {
                colour: false,
                colour_err: false,
                watched: false,
                terminal: false,
                bare: false,
                bare_err: false,
            },
        };
        Self { context, asked: Arc::default(), _folder: folder }
    }

    /// A home whose daemon answers so.
    pub fn start(answer: Answer) -> Self {
        Self::start_after(0, answer)
    }

    /// The same, where the supervisor answers on so many connections before a kernel does.
    pub fn start_after(connections: usize, answer: Answer) -> Self {
        let fake = Self::absent();
        ControlToken::create(&fake.context.home).expect("a token");
        let listener = fake.context.home.listen().expect("a socket");
        let asked = Arc::clone(&fake.asked);
        thread::spawn(move || {
            for (n, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let asked = Arc::clone(&asked);
                let served =
                    if n < connections { ("supervisor", restarting as Answer) } else { ("kernel", answer) };
                thread::spawn(move || serve(stream, served, &asked));
            }
        });
        fake
    }

    /// What was asked so far, greetings aside.
    pub fn asked(&self) -> Asked {
        self.asked.lock().expect("no panic").clone()
    }
}

/// What the supervisor says in place of a kernel.
fn restarting(_: &str, _: &Value) -> Vec<ReplyBody> {
    vec![ReplyBody::Error(Fault::new(FaultCode::Unavailable, "the kernel is restarting"))]
}

fn serve(stream: UnixStream, (from, answer): (&str, Answer), asked: &Mutex<Asked>) {
    let mut writer = stream.try_clone().expect("a socket can be copied");
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Request { id, method, params } = serde_json::from_str(&line).expect("a request");
        let replies = if method == method::HELLO {
            let welcome = Welcome { version: CONTROL_VERSION, from: from.into() };
            vec![ReplyBody::Result(json!(welcome))]
        } else {
            let replies = answer(&method, &params);
            asked.lock().expect("no panic").push((method, params));
            replies
        };
        for body in replies {
            let reply = serde_json::to_string(&Reply { id, body }).expect("a reply");
            // The client may have left.
            let _ = writer.write_all(format!("{reply}\n").as_bytes());
        }
    }
}
