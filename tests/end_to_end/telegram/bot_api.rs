//! A stand-in for the servers of Telegram's Bot API on loopback: real HTTP with connections that are kept, `getUpdates` that waits and
//! confirms, messages that are sent and edited, and the faults of the service and of the way to it. Forms and errors as in
//! <https://core.telegram.org/bots/api>, read on 2026-11-27.

use std::{
    collections::{BTreeMap, VecDeque},
    io::Write,
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub use super::calls::Trouble;
use super::{
    calls::{Calls, until_so},
    http::{self, Request},
};

pub const TOKEN: &str = "424242:AAFakeTokenOfNobody_0123456789-abcdef";
pub const BOT: i64 = 424_242;

/// Updates that are told again where the service has forgotten that they were confirmed.
const AGAIN: usize = 30;

#[derive(Clone, Debug)]
pub struct Posted {
    pub chat: i64,
    pub text: String,
    pub markup: Value,
    pub edits: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub chat: i64,
    pub name: String,
    pub caption: String,
    pub bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    updates: VecDeque<Value>,
    next_update: i64,
    next_message: i64,
    messages: BTreeMap<i64, Posted>,
    calls: Calls,
    /// The latest that were confirmed.
    confirmed: VecDeque<Value>,
    /// Whether updates come in the wrong order.
    is_reversed: bool,
    /// Who presses a button of the next message that has it, before anybody is told that it was sent.
    quick: Option<(i64, &'static str)>,
    /// Which request for updates is the newest: those before are ended.
    polls: u64,
    /// Chats in which nothing can be sent.
    blocked: Vec<i64>,
    /// Files that people sent, by their ids: paths at which they are, and what they hold.
    files: BTreeMap<String, (String, Vec<u8>)>,
    /// Files that the bot sent.
    documents: Vec<Document>,
    /// Whether whoever asks for a file waits for it.
    holds_files: bool,
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
        http::serve(listener, move |request, stream| serving.serve(&request, stream));
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock().expect("no thread panics while it holds this")
    }

    /// The next call of that method goes wrong.
    pub fn trouble(&self, method: &'static str, trouble: Trouble) {
        self.state().calls.trouble(method, None, trouble);
    }

    /// The next call of that method with this text does.
    pub fn trouble_with(&self, method: &'static str, text: &'static str, trouble: Trouble) {
        self.state().calls.trouble(method, Some(text), trouble);
    }

    /// Answers are not shown before they are whole.
    pub fn refuse_previews(&self) {
        self.state().calls.refuse_previews();
    }

    /// Of so many messages and changes some go wrong.
    pub fn goes_wrong(&self, one_of: u64) {
        self.state().calls.go_wrong(one_of);
    }

    /// Tells what was confirmed of late once more.
    pub fn tell_again(&self) {
        let mut state = self.state();
        while let Some(update) = state.confirmed.pop_back() {
            state.updates.push_front(update);
        }
        drop(state);
        self.shared.1.notify_all();
    }

    /// From now on updates come in the wrong order, or in the right one.
    pub fn reverse(&self) {
        let mut state = self.state();
        state.is_reversed = !state.is_reversed;
    }

    /// Somebody presses a button of the next message that has it, before the service has answered whoever sends it.
    pub fn is_quick(&self, who: i64, label: &'static str) {
        self.state().quick = Some((who, label));
    }

    pub fn block(&self, chat: i64) {
        self.state().blocked.push(chat);
    }

    /// Gives these updates to whoever asks, in this order.
    pub fn push(&self, updates: impl IntoIterator<Item = Value>) {
        self.state().updates.extend(updates);
        self.shared.1.notify_all();
    }

    /// Somebody sent a file with this id.
    pub fn keep(&self, id: &str, content: &[u8]) {
        let path = format!("documents/file_{id}");
        self.state().files.insert(id.to_owned(), (path, content.to_owned()));
    }

    /// Has whoever asks for a file wait for it, or lets it come.
    pub fn hold_files(&self, hold: bool) {
        self.state().holds_files = hold;
        self.shared.1.notify_all();
    }

    /// A message of somebody with what else it has; the update.
    pub fn message_with(&self, who: i64, more: Value) -> Value {
        let mut update = self.message(who, "");
        let message = update["message"].as_object_mut().expect("a message");
        message.remove("text");
        message.extend(more.as_object().expect("a map").clone());
        update
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

    /// How often something stands in a chat.
    pub fn count(&self, chat: i64, text: &str) -> usize {
        self.state().messages.values().filter(|posted| posted.chat == chat && posted.text == text).count()
    }

    /// Files that the bot sent into a chat.
    pub fn documents(&self, chat: i64) -> Vec<Document> {
        self.state().documents.iter().filter(|document| document.chat == chat).cloned().collect()
    }

    /// Calls of a method so far, each with its time.
    pub fn calls(&self, method: &str) -> Vec<(Instant, Value)> {
        self.state().calls.of(method)
    }

    /// Updates that nobody has confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.state().updates.len()
    }

    fn serve(&self, request: &Request, stream: &mut TcpStream) -> std::io::Result<bool> {
        if let Some(path) = request.path.strip_prefix(&format!("/file/bot{TOKEN}/")) {
            return self.file(stream, path);
        }
        let kind = request.header("content-type");
        let params: Value = match kind.starts_with("multipart/form-data") {
            true => http::form(kind, &request.body),
            false => serde_json::from_slice(&request.body).unwrap_or_default(),
        };
        let told = |(status, body)| (status, String::new(), body);
        let Some(method) = request.path.strip_prefix(&format!("/bot{TOKEN}/")) else {
            return http::answer(stream, told(refused(401, "Unauthorized")));
        };
        let sends = ["sendMessage", "editMessageText"].contains(&method);
        let mut trouble = self.state().calls.note(method, &params, sends, method == "sendMessage");
        if trouble.take_if(|trouble| *trouble == Trouble::Held).is_some() {
            self.until_files_come();
        }
        let does = || {
            let said = self.perform(method, &params);
            if method == "sendMessage" {
                self.press_at_once(&said.1["result"]["message_id"]);
            }
            told(said)
        };
        http::perform(stream, trouble, does, |trouble| match trouble {
            Trouble::Refused(code, text) => told(refused(code, text)),
            Trouble::TooMany(seconds) => {
                let mut said = refused(429, "Too Many Requests: retry later");
                said.1["parameters"] = json!({"retry_after": seconds});
                told(said)
            }
            _ => unreachable!("the rest is no answer"),
        })
    }

    fn press_at_once(&self, sent: &Value) {
        let Some(id) = sent.as_i64() else { return };
        let quick = {
            let mut state = self.state();
            let markup = state.messages[&id].markup.to_string();
            let has_it = |(_, label): &(i64, &str)| markup.contains(&format!("\"text\":\"{label}\""));
            state.quick.take_if(|quick| has_it(quick))
        };
        if let Some((who, label)) = quick {
            let answered = self.calls("answerCallbackQuery").len();
            self.presses(who, id, label);
            until_so(|| self.calls("answerCallbackQuery").len() > answered);
        }
    }

    fn until_files_come(&self) {
        let held = |state: &mut State| state.holds_files;
        drop(self.shared.1.wait_while(self.state(), held).expect("no thread panics while it holds this"));
    }

    /// Gives a file; whether the connection goes on.
    fn file(&self, stream: &mut TcpStream, path: &str) -> std::io::Result<bool> {
        let mut state = self.state();
        let trouble = state.calls.note("file", &json!({"path": path}), false, false);
        let found = state.files.values().find(|(known, _)| known == path).map(|(_, content)| content.clone());
        drop(state);
        self.until_files_come();
        let content = match (trouble, found) {
            (Some(Trouble::Refused(code, text)), _) => {
                write!(stream, "HTTP/1.1 {code} {text}\r\ncontent-length: 0\r\n\r\n")?;
                return Ok(true);
            }
            (_, None) => {
                write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
                return Ok(true);
            }
            (_, Some(content)) => content,
        };
        let head = "content-type: application/octet-stream\r\ncontent-length";
        write!(stream, "HTTP/1.1 200 OK\r\n{head}: {}\r\n\r\n", content.len())?;
        let half = trouble.is_some();
        stream.write_all(&content[..if half { content.len() / 2 } else { content.len() }])?;
        Ok(!half)
    }

    fn perform(&self, method: &str, params: &Value) -> (u16, Value) {
        let chat = params["chat_id"].as_i64().unwrap_or_default();
        let text = params["text"].as_str().unwrap_or_default();
        let markup = params["reply_markup"].clone();
        match method {
            "getMe" => done(json!({"id": BOT, "is_bot": true, "first_name": "Plum", "username": "plum_bot"})),
            "getUpdates" => self.updates(params),
            "answerCallbackQuery" => done(json!(true)),
            "sendDocument" => {
                let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
                let chat = text("chat_id").parse().expect("a number");
                let file = &params["document"];
                let bytes = serde_json::from_value(file["bytes"].clone()).expect("bytes");
                let name = file["file"].as_str().expect("a name").to_owned();
                let mut state = self.state();
                state.documents.push(Document { chat, name, caption: text("caption"), bytes });
                state.next_message += 1;
                done(json!({"message_id": state.next_message, "date": 1, "chat": {"id": chat}}))
            }
            "getFile" => {
                let id = params["file_id"].as_str().unwrap_or_default();
                match self.state().files.get(id) {
                    Some((path, content)) => {
                        done(json!({"file_id": id, "file_size": content.len(), "file_path": path}))
                    }
                    None => refused(400, "Bad Request: invalid file_id"),
                }
            }
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
            let (waiting, confirmed): (VecDeque<_>, VecDeque<_>) = state
                .updates
                .drain(..)
                .partition(|update: &Value| update["update_id"].as_i64() >= Some(offset));
            state.updates = waiting;
            state.confirmed.extend(confirmed);
            let more = state.confirmed.len().saturating_sub(AGAIN);
            state.confirmed.drain(..more);
        }
        loop {
            if state.polls != own {
                return refused(
                    409,
                    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
                );
            }
            if !state.updates.is_empty() || Instant::now() >= deadline {
                let mut some: Vec<Value> = state.updates.iter().take(limit as usize).cloned().collect();
                if state.is_reversed {
                    some.reverse();
                }
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
