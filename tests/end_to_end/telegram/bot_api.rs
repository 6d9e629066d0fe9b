//! A stand-in for the servers of Telegram's Bot API on loopback: real HTTP with connections that are kept, `getUpdates` that waits and
//! confirms, messages that are sent and edited, and the faults of the service and of the way to it. Forms and errors as in
//! <https://core.telegram.org/bots/api>, read on 2026-11-27.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub const TOKEN: &str = "424242:AAFakeTokenOfNobody_0123456789-abcdef";
pub const BOT: i64 = 424_242;

/// What happens to a call of a method in place of what should.
#[derive(Clone, Copy, PartialEq)]
pub enum Trouble {
    /// It is to be made again after so many seconds.
    TooMany(u64),
    /// It is done, and the connection ends before it is said.
    DoneAndCut,
    /// The connection ends before it is done.
    Cut,
    /// It is refused with this code and text.
    Refused(u16, &'static str),
    /// Whoever stands between answers.
    Gateway,
}

#[derive(Clone, Debug)]
pub struct Posted {
    pub chat: i64,
    pub text: String,
    pub markup: Value,
    pub edits: usize,
}

#[derive(Default)]
struct State {
    updates: VecDeque<Value>,
    next_update: i64,
    next_message: i64,
    messages: BTreeMap<i64, Posted>,
    calls: Vec<(Instant, String, Value)>,
    /// Of a method, for a text or for any.
    troubles: Vec<(&'static str, Option<&'static str>, Trouble)>,
    /// Whether what is shown of an answer before it is whole is refused.
    refuses_previews: bool,
    /// Which request for updates is the newest: those before are ended.
    polls: u64,
    /// Chats in which nothing can be sent.
    blocked: Vec<i64>,
}

#[derive(Clone)]
pub struct BotServer {
    pub address: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl BotServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let shared = Arc::new((Mutex::new(State { next_update: 1000, ..State::default() }), Condvar::new()));
        let server = Self { address, shared };
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no thread panics while it holds this")
    }

    /// The next call of that method goes wrong.
    pub fn trouble(&self, method: &'static str, trouble: Trouble) {
        self.state().troubles.push((method, None, trouble));
    }

    /// The next call of that method with this text does.
    pub fn trouble_with(&self, method: &'static str, text: &'static str, trouble: Trouble) {
        self.state().troubles.push((method, Some(text), trouble));
    }

    /// Answers are not shown before they are whole.
    pub fn refuse_previews(&self) {
        self.state().refuses_previews = true;
    }

    pub fn block(&self, chat: i64) {
        self.state().blocked.push(chat);
    }

    /// Gives these updates to whoever asks, in this order.
    pub fn push(&self, updates: impl IntoIterator<Item = Value>) {
        self.state().updates.extend(updates);
        self.shared.1.notify_all();
    }

    /// A number for the next update.
    pub fn number(&self) -> i64 {
        let mut state = self.state();
        state.next_update += 1;
        state.next_update
    }

    /// A message of somebody in their own chat with the bot; the update.
    pub fn message(&self, who: i64, text: &str) -> Value {
        self.message_in(json!({"id": who, "type": "private"}), who, text)
    }

    pub fn message_in(&self, chat: Value, who: i64, text: &str) -> Value {
        let number = self.number();
        json!({"update_id": number, "message": {"message_id": number * 10, "date": 1, "chat": chat, "text": text,
            "from": {"id": who, "is_bot": false, "first_name": format!("Name{who}")}}})
    }

    /// Somebody writes to the bot.
    pub fn says(&self, who: i64, text: &str) {
        self.push([self.message(who, text)]);
    }

    /// Somebody presses the button below a message that says this.
    pub fn presses(&self, who: i64, message: i64, label: &str) {
        let posted = self.state().messages[&message].clone();
        let buttons = posted.markup["inline_keyboard"].as_array().into_iter().flatten();
        let button =
            buttons.flat_map(|row| row.as_array().expect("a row")).find(|button| button["text"] == label);
        let data = &button.unwrap_or_else(|| panic!("no button {label}: {posted:?}"))["callback_data"];
        assert!(data.as_str().is_some_and(|data| (1..=64).contains(&data.len())), "{data}");
        let number = self.number();
        let kind = if posted.chat < 0 { "supergroup" } else { "private" };
        self.push([json!({"update_id": number, "callback_query": {"id": format!("q{number}"), "data": data,
            "from": {"id": who, "is_bot": false, "first_name": "x"}, "chat_instance": "1",
            "message": {"message_id": message, "date": 1, "chat": {"id": posted.chat, "type": kind}}}})]);
    }

    /// What stands in a chat, with the number of each message.
    pub fn chat(&self, chat: i64) -> Vec<(i64, Posted)> {
        let state = self.state();
        let there = state.messages.iter().filter(|(_, posted)| posted.chat == chat);
        there.map(|(id, posted)| (*id, posted.clone())).collect()
    }

    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.chat(chat).into_iter().map(|(_, posted)| posted.text).collect()
    }

    /// Calls of a method so far, each with its time.
    pub fn calls(&self, method: &str) -> Vec<(Instant, Value)> {
        let state = self.state();
        let of_it = state.calls.iter().filter(|(_, called, _)| called == method);
        of_it.map(|(at, _, params)| (*at, params.clone())).collect()
    }

    /// Updates that nobody has confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.state().updates.len()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut path, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                if path.is_empty() {
                    path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                }
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            let params: Value = serde_json::from_slice(&body).unwrap_or_default();
            let Some(method) = path.strip_prefix(&format!("/bot{TOKEN}/")) else {
                answer(&mut stream, refused(401, "Unauthorized"))?;
                continue;
            };
            let trouble = {
                let mut state = self.state();
                state.calls.push((Instant::now(), method.to_owned(), params.clone()));
                let text = params["text"].as_str().unwrap_or_default();
                let meant = |(of, with, _): &(&str, Option<&str>, Trouble)| {
                    *of == method && with.is_none_or(|with| with == text)
                };
                let at = state.troubles.iter().position(meant);
                let found = at.map(|at| state.troubles.remove(at).2);
                let refused = state.refuses_previews && method == "sendMessage" && text.ends_with('…');
                found.or(refused.then_some(Trouble::Refused(400, "Bad Request: not now")))
            };
            match trouble {
                None => answer(&mut stream, self.perform(method, &params))?,
                Some(Trouble::Cut) => return Ok(()),
                Some(Trouble::DoneAndCut) => {
                    self.perform(method, &params);
                    return Ok(());
                }
                Some(Trouble::Refused(code, text)) => answer(&mut stream, refused(code, text))?,
                Some(Trouble::Gateway) => {
                    let body = "<html>Bad Gateway</html>";
                    write!(
                        stream,
                        "HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    )?;
                }
                Some(Trouble::TooMany(seconds)) => {
                    let mut said = refused(429, "Too Many Requests: retry later");
                    said.1["parameters"] = json!({"retry_after": seconds});
                    answer(&mut stream, said)?;
                }
            }
        }
    }

    fn perform(&self, method: &str, params: &Value) -> (u16, Value) {
        let chat = params["chat_id"].as_i64().unwrap_or_default();
        let text = params["text"].as_str().unwrap_or_default();
        let markup = params["reply_markup"].clone();
        match method {
            "getMe" => done(json!({"id": BOT, "is_bot": true, "first_name": "Plum", "username": "plum_bot"})),
            "getUpdates" => self.updates(params),
            "answerCallbackQuery" => done(json!(true)),
            "sendMessage" | "editMessageText" if text.is_empty() => {
                refused(400, "Bad Request: message text is empty")
            }
            "sendMessage" | "editMessageText" if text.encode_utf16().count() > 4096 => {
                refused(400, "Bad Request: message is too long")
            }
            "sendMessage" | "editMessageText" if self.state().blocked.contains(&chat) => {
                refused(403, "Forbidden: bot was blocked by the user")
            }
            "sendMessage" => {
                let mut state = self.state();
                state.next_message += 1;
                let id = state.next_message;
                state.messages.insert(id, Posted { chat, text: text.to_owned(), markup, edits: 0 });
                done(json!({"message_id": id, "date": 1, "chat": {"id": chat}}))
            }
            "editMessageText" => {
                let id = params["message_id"].as_i64().unwrap_or_default();
                let mut state = self.state();
                let Some(posted) = state.messages.get_mut(&id).filter(|posted| posted.chat == chat) else {
                    return refused(400, "Bad Request: message to edit not found");
                };
                if posted.text == text && posted.markup == markup {
                    return refused(
                        400,
                        "Bad Request: message is not modified: specified new message content is the same",
                    );
                }
                (posted.text, posted.markup, posted.edits) = (text.to_owned(), markup, posted.edits + 1);
                done(json!({"message_id": id, "date": 1, "chat": {"id": chat}}))
            }
            _ => refused(404, "Not Found"),
        }
    }

    /// Waits for updates behind the offset; those before it are confirmed. A newer request ends this one.
    fn updates(&self, params: &Value) -> (u16, Value) {
        let deadline = Instant::now() + Duration::from_secs(params["timeout"].as_u64().unwrap_or(0));
        let limit = params["limit"].as_u64().unwrap_or(100);
        let mut state = self.state();
        state.polls += 1;
        let own = state.polls;
        self.shared.1.notify_all();
        if let Some(offset) = params["offset"].as_i64() {
            state.updates.retain(|update| update["update_id"].as_i64() >= Some(offset));
        }
        loop {
            if state.polls != own {
                return refused(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
                );
            }
            if !state.updates.is_empty() || Instant::now() >= deadline {
                let some: Vec<Value> = state.updates.iter().take(limit as usize).cloned().collect();
                return done(json!(some));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            state = self.shared.1.wait_timeout(state, left).expect("no thread panics while it holds this").0;
        }
    }
}

fn done(result: Value) -> (u16, Value) {
    (200, json!({"ok": true, "result": result}))
}

fn refused(code: u16, description: &str) -> (u16, Value) {
    (code, json!({"ok": false, "error_code": code, "description": description}))
}

fn answer(stream: &mut TcpStream, (code, body): (u16, Value)) -> std::io::Result<()> {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {code} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes())
}
