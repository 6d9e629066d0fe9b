//! A stand-in for the servers of Slack on loopback: the Web API over real HTTP with connections that are kept, and real WebSockets of Socket Mode,
//! through which events are told until they are acknowledged. It has the faults of the service and of the way to it. Forms and errors as in
//! <https://docs.slack.dev>, read on 2026-11-27.

mod files;
mod requests;
mod sockets;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::{files::Files, sockets::Told};
pub use self::{
    files::Shared,
    requests::{SIGNING_SECRET, request},
    sockets::Behaviour,
};
pub use crate::chat::calls::Trouble;
use crate::chat::{
    calls::{Calls, until_so},
    http::{self, Request},
};

pub const APP_TOKEN: &str = "xapp-1-A0APP-4242-fake0of0nobody";
pub const BOT_TOKEN: &str = "xoxb-4242-4242-fake0of0nobody";
pub const BOT: &str = "U0BOT";

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
    calls: Calls,
    /// Who presses a button of the next message that has it, before anybody is told that it was sent.
    quick: Option<(&'static str, &'static str)>,
    archived: BTreeSet<String>,
    /// Where what happens is told by requests.
    told_at: Option<SocketAddr>,
    files: Files,
    /// How long it took from telling something to its acknowledgement.
    acknowledged_after: Vec<Duration>,
}

#[derive(Clone)]
pub struct Workspace {
    pub address: String,
    /// Where files are.
    pub files_at: String,
    sockets_at: String,
    state: Arc<Mutex<State>>,
}

impl Workspace {
    pub fn start() -> Self {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (api, files, sockets) = (listen(), listen(), listen());
        let at = |listener: &TcpListener| listener.local_addr().expect("an address");
        let server = Self {
            address: format!("http://{}/api", at(&api)),
            files_at: format!("http://{}", at(&files)),
            sockets_at: format!("ws://{}/link/?ticket=", at(&sockets)),
            state: Arc::default(),
        };
        let serving = server.clone();
        http::serve(api, move |request, stream| serving.serve(&request, stream));
        let giving = server.clone();
        http::serve(files, move |request, stream| giving.serve_file(&request, stream));
        sockets::serve(server.clone(), sockets);
        server
    }

    /// The settings of the extension, with more of them.
    pub fn config(&self, more: &str) -> String {
        let (api, files) = (&self.address, &self.files_at);
        format!(
            "extensions:\n  slack:\n    enabled: true\n    api: \"{api}\"\n    files: \"{files}\"\n    quiet_seconds: 4\n{more}"
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds this")
    }

    /// The next call of that method goes wrong.
    pub fn trouble(&self, method: &'static str, trouble: Trouble) {
        self.state().calls.trouble(method, None, trouble);
    }

    /// The next call of that method with this text does.
    pub fn trouble_with(&self, method: &'static str, text: &'static str, trouble: Trouble) {
        self.state().calls.trouble(method, Some(text), trouble);
    }

    /// Of so many messages and changes one is refused for a second, and one is done although its connection is cut.
    pub fn faults(&self, one_of: u64) {
        self.state().calls.go_wrong(one_of);
    }

    /// Answers are not shown before they are whole.
    pub fn refuse_previews(&self) {
        self.state().calls.refuse_previews();
    }

    /// Somebody presses a button of the next message that has it, before the service has answered whoever sends it.
    pub fn is_quick(&self, who: &'static str, label: &'static str) {
        self.state().quick = Some((who, label));
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

    /// One of a message in a thread of a channel, as the service tells of all of them to apps that follow those.
    pub fn aside(&self, who: &str, channel: &str, thread: &str, text: &str) -> Value {
        let mut event = self.mention(who, channel, Some(thread), "");
        (event["type"], event["channel_type"], event["text"]) =
            (json!("message"), json!("channel"), json!(text));
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
        self.state().calls.of(method)
    }

    fn serve(&self, request: &Request, stream: &mut TcpStream) -> std::io::Result<bool> {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let method = path.strip_prefix("/api/").unwrap_or_default();
        let mut params: Value = serde_json::from_slice(&request.body).unwrap_or_else(|_| json!({}));
        let is_form = request.header("content-type") == "application/x-www-form-urlencoded";
        let form = if is_form { std::str::from_utf8(&request.body).expect("text") } else { query };
        for (name, value) in form.split('&').filter_map(|pair| pair.split_once('=')) {
            params[name] = decoded(value).into();
        }
        let needed = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
        if request.header("authorization") != format!("Bearer {needed}") {
            return http::answer(stream, (200, String::new(), refused("invalid_auth")));
        }
        if let Some(scope) = self.state().files.lacks(method) {
            let lacks =
                json!({"ok": false, "error": "missing_scope", "needed": scope, "provided": "chat:write"});
            return http::answer(stream, (200, String::new(), lacks));
        }
        let (sends, posts) = (method.starts_with("chat."), method == "chat.postMessage");
        let trouble = self.state().calls.note(method, &params, sends, posts);
        let does = || {
            let said = self.perform(method, &params);
            if posts {
                self.press_at_once(&said["ts"]);
            }
            (200, String::new(), said)
        };
        http::perform(stream, trouble, does, |trouble| match trouble {
            Trouble::Refused(_, error) => (200, String::new(), refused(error)),
            Trouble::TooMany(seconds) => (429, format!("retry-after: {seconds}\r\n"), refused("ratelimited")),
            _ => unreachable!("the rest is no answer"),
        })
    }

    fn press_at_once(&self, sent: &Value) {
        let Some(ts) = sent.as_str() else { return };
        let quick = {
            let mut state = self.state();
            let blocks = state.messages[ts].blocks.to_string();
            let has_it = |(_, label): &(&str, &str)| blocks.contains(&format!("\"text\":\"{label}\""));
            state.quick.take_if(|quick| has_it(quick))
        };
        if let Some((who, label)) = quick {
            self.presses(who, ts, label);
            until_so(|| self.unacknowledged() == 0);
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
            _ if method.starts_with("files.") => self.perform_on_files(&mut state, method, params),
            _ => refused("unknown_method"),
        }
    }
}

/// A value of a form or a query.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        let digits = if byte == b'%' { [rest.next(), rest.next()] } else { [None; 2] };
        match digits {
            [Some(high), Some(low)] => {
                let digits = [high, low];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            }
            _ => bytes.push(if byte == b'+' { b' ' } else { byte }),
        }
    }
    String::from_utf8(bytes).expect("text")
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
