//! A stand-in for the servers of Slack on loopback: the Web API over real HTTP with connections that are kept, and real WebSockets of Socket Mode,
//! through which events are told until they are acknowledged. It has the faults of the service and of the way to it. Forms and errors as in
//! <https://docs.slack.dev>, read on 2026-11-27.

mod sockets;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub use self::sockets::Behaviour;
use self::sockets::Told;

pub const APP_TOKEN: &str = "xapp-1-A0APP-4242-fake0of0nobody";
pub const BOT_TOKEN: &str = "xoxb-4242-4242-fake0of0nobody";
pub const BOT: &str = "U0BOT";

/// What happens to a call of a method in place of what should.
#[derive(Clone, Copy, PartialEq)]
pub enum Trouble {
    /// It is to be made again after so many seconds.
    TooMany(u64),
    /// It is done, and the connection ends before it is said.
    DoneAndCut,
    /// The connection ends before it is done.
    Cut,
    /// It is refused with this error.
    Refused(&'static str),
    /// Whoever stands between answers.
    Gateway,
}

#[derive(Clone, Debug)]
pub struct Posted {
    pub channel: String,
    pub thread: Option<String>,
    pub text: String,
    pub blocks: Value,
    metadata: Value,
    pub edits: usize,
    /// To whom alone it is shown.
    pub only: Option<String>,
}

#[derive(Default)]
pub(super) struct State {
    told: VecDeque<Told>,
    sockets: BTreeMap<u64, Behaviour>,
    next: u64,
    messages: BTreeMap<String, Posted>,
    calls: Vec<(Instant, String, Value)>,
    /// Of a method, for a text or for any.
    troubles: Vec<(&'static str, Option<&'static str>, Trouble)>,
    /// Of so many calls that send something, one goes wrong in each way.
    faults: Option<u64>,
    refuses_previews: bool,
    archived: BTreeSet<String>,
    /// The longest time from telling something to its acknowledgement.
    slowest: Duration,
}

#[derive(Clone)]
pub struct Workspace {
    pub address: String,
    sockets_at: String,
    state: Arc<Mutex<State>>,
}

impl Workspace {
    pub fn start() -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (api, sockets) = (listen(), listen());
        let at = |listener: &TcpListener| listener.local_addr().expect("an address");
        let server = Self {
            address: format!("http://{}/api", at(&api)),
            sockets_at: format!("ws://{}/link/?ticket=", at(&sockets)),
            state: Arc::default(),
        };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in api.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        sockets::serve(server.clone(), sockets);
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds this")
    }

    /// The next call of that method goes wrong.
    pub fn trouble(&self, method: &'static str, trouble: Trouble) {
        self.state().troubles.push((method, None, trouble));
    }

    /// The next call of that method with this text does.
    pub fn trouble_with(&self, method: &'static str, text: &'static str, trouble: Trouble) {
        self.state().troubles.push((method, Some(text), trouble));
    }

    /// Of so many messages and changes one is refused for a second, and one is done although its connection is cut.
    pub fn faults(&self, one_of: u64) {
        self.state().faults = Some(one_of);
    }

    /// Answers are not shown before they are whole.
    pub fn refuse_previews(&self) {
        self.state().refuses_previews = true;
    }

    pub fn archive(&self, channel: &str) {
        self.state().archived.insert(channel.to_owned());
    }

    /// A number that nothing else has.
    pub fn number(&self) -> u64 {
        let mut state = self.state();
        state.next += 1;
        state.next
    }

    fn time(state: &mut State) -> String {
        state.next += 1;
        format!("17900000{:02}.{:06}", state.next / 1_000_000, state.next % 1_000_000)
    }

    /// An event of a message that somebody writes in their own chat with the bot.
    pub fn direct(&self, who: &str, text: &str) -> Value {
        let ts = Self::time(&mut self.state());
        json!({"type": "message", "channel": chat_of(who), "channel_type": "im", "user": who, "text": text, "ts": ts, "event_ts": ts,
            "client_msg_id": "an-id", "team": "T0HOME"})
    }

    /// One of a message that names the bot in a channel, in a thread or outside.
    pub fn mention(&self, who: &str, channel: &str, thread: Option<&str>, text: &str) -> Value {
        let ts = Self::time(&mut self.state());
        let mut event = json!({"type": "app_mention", "channel": channel, "user": who, "text": format!("<@{BOT}> {text}"), "ts": ts,
            "event_ts": ts, "team": "T0HOME"});
        if let Some(thread) = thread {
            event["thread_ts"] = thread.into();
        }
        event
    }

    /// Tells events, in this order.
    pub fn push(&self, events: impl IntoIterator<Item = Value>) {
        for event in events {
            self.tell(
                "events_api",
                json!({"type": "event_callback", "team_id": "T0HOME", "api_app_id": "A0APP", "event": event,
                "event_id": format!("Ev{}", self.number())}),
            );
        }
    }

    /// Somebody writes to the bot alone.
    pub fn says(&self, who: &str, text: &str) {
        self.push([self.direct(who, text)]);
    }

    /// Somebody presses the button below a message that says this.
    pub fn presses(&self, who: &str, message: &str, label: &str) {
        let posted = self.state().messages[message].clone();
        let elements =
            posted.blocks.as_array().into_iter().flatten().filter_map(|block| block["elements"].as_array());
        let button = elements.flatten().find(|button| button["text"]["text"] == label).cloned();
        let button = button.unwrap_or_else(|| panic!("no button {label}: {posted:?}"));
        let at = Self::time(&mut self.state());
        let payload = json!({"type": "block_actions", "user": {"id": who, "username": "x", "name": "x", "team_id": "T0HOME"},
            "api_app_id": "A0APP", "trigger_id": "1.2.3", "team": {"id": "T0HOME", "domain": "home"},
            "container": {"type": "message", "message_ts": message, "channel_id": posted.channel, "is_ephemeral": false},
            "channel": {"id": posted.channel, "name": "x"}, "message": {"ts": message, "thread_ts": posted.thread, "text": posted.text},
            "response_url": "https://hooks.slack.example/x",
            "actions": [{"type": "button", "action_id": button["action_id"], "block_id": "b", "value": button["value"], "action_ts": at}]});
        self.tell("interactive", payload);
    }

    /// What stands in a channel, with the time of each message.
    pub fn channel(&self, channel: &str) -> Vec<(String, Posted)> {
        let state = self.state();
        let there = state.messages.iter().filter(|(_, posted)| posted.channel == channel);
        there.map(|(ts, posted)| (ts.clone(), posted.clone())).collect()
    }

    pub fn texts(&self, channel: &str) -> Vec<String> {
        self.channel(channel).into_iter().map(|(_, posted)| posted.text).collect()
    }

    /// Calls of a method so far, each with its time.
    pub fn calls(&self, method: &str) -> Vec<(Instant, Value)> {
        let state = self.state();
        let of_it = state.calls.iter().filter(|(_, called, _)| called == method);
        of_it.map(|(at, _, params)| (*at, params.clone())).collect()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut path, mut length, mut token) = (String::new(), 0, String::new());
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if path.is_empty() {
                    path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                }
                if let Some((name, value)) = line.split_once(':') {
                    match name.to_ascii_lowercase().as_str() {
                        "content-length" => length = value.trim().parse().unwrap_or(0),
                        "authorization" => token = value.trim().replace("Bearer ", ""),
                        _ => {}
                    }
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let (path, query) = path.split_once('?').unwrap_or((&path, ""));
            let method = path.strip_prefix("/api/").unwrap_or_default();
            let mut params: Value = serde_json::from_slice(&body).unwrap_or_else(|_| json!({}));
            for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
                params[name] = value.replace("%2E", ".").into();
            }
            let needed = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
            if token != needed {
                answer(&mut stream, 200, "", &refused("invalid_auth"))?;
                continue;
            }
            match self.trouble_of(method, &params) {
                None => answer(&mut stream, 200, "", &self.perform(method, &params))?,
                Some(Trouble::Cut) => return Ok(()),
                Some(Trouble::DoneAndCut) => {
                    self.perform(method, &params);
                    return Ok(());
                }
                Some(Trouble::Refused(error)) => answer(&mut stream, 200, "", &refused(error))?,
                Some(Trouble::Gateway) => {
                    let body = "<html>Bad Gateway</html>";
                    write!(
                        stream,
                        "HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    )?;
                }
                Some(Trouble::TooMany(seconds)) => {
                    let after = format!("retry-after: {seconds}\r\n");
                    answer(&mut stream, 429, &after, &refused("ratelimited"))?;
                }
            }
        }
    }

    /// What goes wrong with a call.
    fn trouble_of(&self, method: &str, params: &Value) -> Option<Trouble> {
        let mut state = self.state();
        state.calls.push((Instant::now(), method.to_owned(), params.clone()));
        let text = params["text"].as_str().unwrap_or_default();
        let meant = |(of, with, _): &(&str, Option<&str>, Trouble)| {
            *of == method && with.is_none_or(|with| with == text)
        };
        if let Some(at) = state.troubles.iter().position(meant) {
            return Some(state.troubles.remove(at).2);
        }
        if state.refuses_previews && method == "chat.postMessage" && text.ends_with('…') {
            return Some(Trouble::Refused("restricted_action"));
        }
        let one_of = state.faults.filter(|_| method.starts_with("chat."))?;
        match state.calls.len() as u64 % one_of {
            0 => Some(Trouble::TooMany(1)),
            1 => Some(Trouble::DoneAndCut),
            _ => None,
        }
    }

    fn perform(&self, method: &str, params: &Value) -> Value {
        let field = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        let (channel, text) = (field("channel"), field("text"));
        let mut state = self.state();
        if method.starts_with("chat.") {
            let longest =
                |block: &Value| block["text"]["text"].as_str().is_some_and(|text| text.len() > 3000);
            match () {
                () if text.is_empty() => return refused("no_text"),
                () if text.encode_utf16().count() > 4000 => return refused("msg_too_long"),
                () if params["blocks"].as_array().is_some_and(|blocks| blocks.iter().any(longest)) => {
                    return refused("invalid_blocks");
                }
                () if state.archived.contains(&channel) => return refused("is_archived"),
                () => {}
            }
            assert!(
                !text.contains(['<', '>']) && params["parse"] == "none",
                "it could call somebody: {params}"
            );
        }
        let posted = Posted {
            channel: channel.clone(),
            thread: params["thread_ts"].as_str().map(str::to_owned),
            text: text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"),
            blocks: params["blocks"].clone(),
            metadata: params["metadata"].clone(),
            edits: 0,
            only: params["user"].as_str().map(str::to_owned),
        };
        match method {
            "auth.test" => done(
                json!({"user_id": BOT, "bot_id": "B0BOT", "team_id": "T0HOME", "user": "plum", "team": "Home"}),
            ),
            "apps.connections.open" => {
                state.next += 1;
                done(json!({"url": format!("{}{}", self.sockets_at, state.next)}))
            }
            "users.info" => done(
                json!({"user": {"id": params["user"], "name": "x", "real_name": format!("Name of {}", field("user"))}}),
            ),
            "chat.postMessage" | "chat.postEphemeral" => {
                let ts = Self::time(&mut state);
                state.messages.insert(ts.clone(), posted);
                done(json!({"channel": channel, "ts": ts, "message": {"text": text}}))
            }
            "chat.update" => {
                let ts = field("ts");
                let Some(known) = state.messages.get_mut(&ts).filter(|known| known.channel == channel) else {
                    return refused("message_not_found");
                };
                (known.text, known.blocks, known.edits) = (posted.text, posted.blocks, known.edits + 1);
                done(json!({"channel": channel, "ts": ts, "text": text}))
            }
            "conversations.history" | "conversations.replies" => {
                let thread = (method == "conversations.replies").then(|| field("ts"));
                let there = state.messages.iter().filter(|(_, known)| {
                    known.channel == channel
                        && known.only.is_none()
                        && (thread.is_none() || known.thread == thread)
                });
                let seen = there
                    .map(|(ts, known)| json!({"ts": ts, "text": known.text, "metadata": known.metadata}));
                let seen: Vec<Value> = seen.collect();
                // Without that, nothing of what is told beside a text comes.
                match params["include_all_metadata"] == "true" && params["oldest"].is_string() {
                    true => done(json!({"messages": seen, "has_more": false})),
                    false => refused("invalid_arguments"),
                }
            }
            _ => refused("unknown_method"),
        }
    }
}

/// The channel of somebody's own chat with the bot.
pub fn chat_of(who: &str) -> String {
    who.replacen('U', "D", 1)
}

fn done(mut more: Value) -> Value {
    more["ok"] = json!(true);
    more
}

fn refused(error: &str) -> Value {
    json!({"ok": false, "error": error})
}

fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}
