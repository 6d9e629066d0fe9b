//! What comes in: updates of the Bot API as what somebody wants. Pure.

use drupe_channel::{HeardMessage, WriterWish};
use drupe_extension_api::prelude::*;
use serde_json::{Map, Value};

/// The bot itself, as `getMe` tells it.
#[derive(Debug, Clone, Deserialize)]
pub struct Bot {
    pub id: i64,
    #[serde(default)]
    pub username: String,
}

/// Where something was written: a chat, and in it a topic where it has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChatPlace {
    pub chat: i64,
    pub thread: Option<i64>,
}

/// A file that somebody sent, as the service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentFile {
    pub id: String,
    pub name: String,
    /// In bytes, where the service says it.
    pub size: Option<u64>,
}

/// An update that is for the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct Incoming {
    pub heard: HeardMessage,
    pub files: Vec<SentFile>,
    /// The id of a button's press, by which it is answered.
    pub query: Option<String>,
}

#[derive(Deserialize)]
struct Update {
    message: Option<Message>,
    callback_query: Option<Pressed>,
}

#[derive(Deserialize)]
struct Message {
    message_id: i64,
    #[serde(default)]
    message_thread_id: Option<i64>,
    /// Whether the thread is a topic of a forum; of replies in other groups there is an id as well.
    #[serde(default)]
    is_topic_message: bool,
    from: Option<User>,
    chat: Chat,
    text: Option<String>,
    caption: Option<String>,
    reply_to_message: Option<Box<Message>>,
    /// Set for messages that tell of something in the chat, such as somebody who joined it, or one that was pinned.
    new_chat_members: Option<Value>,
    left_chat_member: Option<Value>,
    pinned_message: Option<Value>,
}

#[derive(Deserialize)]
struct Chat {
    id: i64,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct User {
    id: i64,
    #[serde(default)]
    is_bot: bool,
    #[serde(default)]
    first_name: String,
    #[serde(default)]
    last_name: String,
    username: Option<String>,
}

#[derive(Deserialize)]
struct Pressed {
    id: String,
    from: User,
    message: Option<Message>,
    data: Option<String>,
}

/// The number of an update; none of what is no update.
pub fn number(update: &Value) -> Option<i64> {
    update["update_id"].as_i64()
}

/// What an update says, where it is for the assistant, to the extension of that id.
pub fn read(update: &Value, bot: &Bot, extension: &ExtensionId) -> Option<Incoming> {
    let id = number(update)?;
    let Update { message, callback_query } = Update::deserialize(update).ok()?;
    let heard = |message: &Message, sender: Sender, external_id: String, wish: WriterWish| {
        let (place, is_private) = (place(message), message.chat.kind == "private");
        let conversation = place.session(extension.as_str(), is_private, &sender);
        HeardMessage {
            address: place.address(),
            conversation,
            is_private,
            sender,
            external_id,
            agent: None,
            wish,
        }
    };
    if let Some(Pressed { id: query, from, message, data }) = callback_query {
        let (message, sender) = (message?, sender(from)?);
        let shows = format!("{}/{}", message.chat.id, message.message_id);
        let wish = WriterWish::Press { message: shows, value: data.unwrap_or_default() };
        let heard = heard(&message, sender, format!("pressed:{query}"), wish);
        return Some(Incoming { heard, files: Vec::new(), query: Some(query) });
    }
    let mut message = message?;
    let happened = [&message.new_chat_members, &message.left_chat_member, &message.pinned_message]
        .iter()
        .any(|it| it.is_some());
    let files = files(&update["message"]);
    let text = message.text.take().or(message.caption.take());
    let answers_bot = |to: &Message| to.from.as_ref().is_some_and(|from| from.id == bot.id);
    let is_reply = message.reply_to_message.as_deref().is_some_and(answers_bot);
    // In a group only what is said to the bot.
    let is_meant = message.chat.kind == "private"
        || is_reply
        || text.as_deref().is_some_and(|text| mentions(text, &bot.username));
    if happened || !is_meant {
        return None;
    }
    let answer = |text: String| WriterWish::Answer { text, files: Vec::new() };
    let wish = match text.as_deref().map(|text| without_mention(text, &bot.username)) {
        text if !files.is_empty() => answer(text.unwrap_or_default()),
        None => WriterWish::Reply("Only texts, pictures and files are read here.".to_owned()),
        Some(text) if text.trim().is_empty() => return None,
        Some(text) => command(&text).unwrap_or_else(|| answer(text)),
    };
    let sender = sender(message.from.take()?)?;
    // Numbers of updates begin anew at random after a week without any, so the message's own is a part of the id.
    let external_id = format!("{id}:{}:{}", message.chat.id, message.message_id);
    Some(Incoming { heard: heard(&message, sender, external_id, wish), files, query: None })
}

/// The files of a message. An animation is a document as well; of a picture the service has several sizes.
fn files(message: &Value) -> Vec<SentFile> {
    let sizes = message["photo"].as_array().into_iter().flatten();
    let area = |size: &&Value| {
        size["width"].as_u64().unwrap_or(0).saturating_mul(size["height"].as_u64().unwrap_or(0))
    };
    let photo = sizes.max_by_key(area).and_then(|largest| file(largest, "photo.jpg"));
    let kinds = [
        ("document", "document"),
        ("video", "video.mp4"),
        ("audio", "audio.mp3"),
        ("voice", "voice.ogg"),
        ("video_note", "video.mp4"),
    ];
    let other = kinds.iter().find_map(|(kind, name)| file(&message[*kind], name));
    photo.into_iter().chain(other).collect()
}

/// A file with the name that it has, or else this one.
fn file(found: &Value, name: &str) -> Option<SentFile> {
    let named = found["file_name"].as_str().filter(|named| !named.trim().is_empty());
    Some(SentFile {
        id: found["file_id"].as_str()?.to_owned(),
        name: named.unwrap_or(name).to_owned(),
        size: found["file_size"].as_u64(),
    })
}

fn place(message: &Message) -> ChatPlace {
    ChatPlace {
        chat: message.chat.id,
        thread: message.message_thread_id.filter(|_| message.is_topic_message),
    }
}

/// None for what other bots write: two that answer each other never end.
fn sender(user: User) -> Option<Sender> {
    let name = format!("{} {}", user.first_name, user.last_name).trim().to_owned();
    let name = match user.username {
        Some(username) => format!("{name} (@{username})"),
        None => name,
    };
    (!user.is_bot).then(|| Sender { id: user.id.to_string(), name: Some(name) })
}

/// Whether a text names the bot, as `@name` or `/command@name`.
fn mentions(text: &str, username: &str) -> bool {
    find_mention(text, username).is_some()
}

fn find_mention(text: &str, username: &str) -> Option<usize> {
    let (text, name) = (text.to_ascii_lowercase(), format!("@{}", username.to_ascii_lowercase()));
    let ends = |at: &usize| {
        let next = text[at + name.len()..].chars().next();
        !next.is_some_and(|next| next.is_alphanumeric() || next == '_')
    };
    (!username.is_empty()).then(|| text.match_indices(&name).map(|(at, _)| at).find(ends)).flatten()
}

/// A text without the name of the bot where it begins with it, or names it behind a command.
fn without_mention(text: &str, username: &str) -> String {
    let Some(at) = find_mention(text, username) else { return text.to_owned() };
    let (before, after) = (&text[..at], &text[at + 1 + username.len()..]);
    let is_command = before.starts_with('/') && !before.contains(char::is_whitespace);
    match before.trim().is_empty() || is_command {
        true => format!("{before}{after}").trim_start_matches([' ', ',', ':', '\n']).to_owned(),
        false => text.to_owned(),
    }
}

fn command(text: &str) -> Option<WriterWish> {
    match text.split_whitespace().next()? {
        "/start" => Some(WriterWish::Reply("Write what you want.".to_owned())),
        "/new" => Some(WriterWish::BeginAnew),
        "/stop" => Some(WriterWish::Stop),
        "/who" => Some(WriterWish::KnowWhoTheyAre),
        _ => None,
    }
}

impl ChatPlace {
    /// As the daemon keeps it with a message.
    pub fn address(&self) -> String {
        match self.thread {
            Some(thread) => format!("{}/{thread}", self.chat),
            None => self.chat.to_string(),
        }
    }

    /// The place of an address.
    pub fn read(address: &str) -> Option<Self> {
        let (chat, thread) = match address.split_once('/') {
            Some((chat, thread)) => (chat, Some(thread.parse().ok()?)),
            None => (address, None),
        };
        Some(Self { chat: chat.parse().ok()?, thread })
    }

    /// The session of who writes there, without the number of the conversation.
    pub fn session(&self, extension: &str, is_private: bool, sender: &Sender) -> String {
        let thread = self.thread.map(|thread| format!(".{thread}")).unwrap_or_default();
        match is_private {
            true => format!("{extension}:person.{}{}", sender.id, thread.replacen('.', ":topic", 1)),
            false => format!("{extension}:group.{}{thread}", self.chat),
        }
    }

    /// What each call is given that writes there.
    pub fn params(&self) -> Map<String, Value> {
        let thread = self.thread.map(|thread| ("message_thread_id".to_owned(), thread.into()));
        [("chat_id".to_owned(), self.chat.into())].into_iter().chain(thread).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bot() -> Bot {
        Bot { id: 99, username: "plum_bot".to_owned() }
    }

    fn group(text: &str, reply: Option<i64>) -> Value {
        let mut message = json!({"message_id": 5, "from": {"id": 7, "first_name": "Ann"},
            "chat": {"id": -100, "type": "supergroup"}, "text": text});
        if let Some(to) = reply {
            message["reply_to_message"] =
                json!({"message_id": 4, "from": {"id": to}, "chat": {"id": -100, "type": "supergroup"}});
        }
        json!({"update_id": 3, "message": message})
    }

    fn read(update: &Value, bot: &Bot) -> Option<Incoming> {
        super::read(update, bot, &ExtensionId::new("telegram").expect("an id"))
    }

    fn unreadable() -> Option<WriterWish> {
        Some(WriterWish::Reply("Only texts, pictures and files are read here.".to_owned()))
    }

    fn wanted(update: &Value) -> Option<WriterWish> {
        read(update, &bot()).map(|incoming| incoming.heard.wish)
    }

    #[test]
    fn in_a_group_only_what_is_said_to_the_bot_is_heard() {
        let answer = |text: &str| Some(WriterWish::Answer { text: text.to_owned(), files: Vec::new() });
        for (text, reply, expected) in [
            ("hello all", None, None),
            ("hello all", Some(8), None),
            ("yes", Some(99), answer("yes")),
            ("@plum_bot what now", None, answer("what now")),
            ("@Plum_Bot: what now", None, answer("what now")),
            ("what does @plum_bot say?", None, answer("what does @plum_bot say?")),
            ("@plum_bots what now", None, None),
            ("/new", None, None),
            ("/new@plum_bot", None, Some(WriterWish::BeginAnew)),
            ("/new@other_bot", None, None),
            ("@plum_bot", None, None),
            ("ä@plum_bot ö", None, answer("ä@plum_bot ö")),
        ] {
            assert_eq!(wanted(&group(text, reply)), expected, "{text}");
        }
    }

    #[test]
    fn somebody_is_known_by_the_number_that_they_cannot_choose() {
        let mut update = group("x", Some(99));
        update["message"]["from"] =
            json!({"id": 7, "first_name": "Ann", "last_name": "Lee", "username": "ann"});
        let incoming = read(&update, &bot()).expect("it is for the bot");
        assert_eq!(
            (incoming.heard.sender.id.as_str(), incoming.heard.sender.name.as_deref()),
            ("7", Some("Ann Lee (@ann)"))
        );
        assert_eq!(incoming.heard.external_id, "3:-100:5");
        assert_eq!(incoming.heard.conversation, "telegram:group.-100");
        update["message"]["chat"]["type"] = json!("private");
        let alone = read(&update, &bot()).expect("it is for the bot").heard;
        assert_eq!((alone.conversation.as_str(), alone.is_private), ("telegram:person.7", true));
        update["message"]["from"]["is_bot"] = json!(true);
        assert_eq!(read(&update, &bot()), None, "bots are not answered");
        update["message"]["from"] = Value::Null;
        assert_eq!(read(&update, &bot()), None, "somebody without a name is nobody");
    }

    #[test]
    fn what_is_no_text_and_what_is_no_message_is_told_apart() {
        let private = |more: Value| {
            let mut message =
                json!({"message_id": 5, "from": {"id": 7}, "chat": {"id": 7, "type": "private"}});
            message.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            json!({"update_id": 3, "message": message})
        };
        assert_eq!(wanted(&private(json!({"sticker": {"file_id": "s"}}))), unreadable());
        for odd in [json!([]), json!(7), json!([{"file_id": 7}]), json!([[]])] {
            assert_eq!(wanted(&private(json!({"photo": odd}))), unreadable());
        }
        assert_eq!(wanted(&private(json!({"text": "/stop now"}))), Some(WriterWish::Stop));
        assert_eq!(
            wanted(&private(json!({"text": "/other"}))),
            Some(WriterWish::Answer { text: "/other".into(), files: Vec::new() })
        );
        assert_eq!(wanted(&private(json!({"text": "  "}))), None);
        for odd in [json!({}), json!({"update_id": 1}), json!({"update_id": 1, "message": 7}), json!([])] {
            assert_eq!(wanted(&odd), None);
        }
        let topic = private(json!({"text": "x", "message_thread_id": 9, "is_topic_message": true}));
        let heard = read(&topic, &bot()).expect("a message").heard;
        assert_eq!(
            (heard.address.as_str(), heard.conversation.as_str()),
            ("7/9", "telegram:person.7:topic9")
        );
        assert_eq!(ChatPlace::read("7/9"), Some(ChatPlace { chat: 7, thread: Some(9) }));
        assert_eq!(ChatPlace::read("x"), None);
        let pressed = json!({"update_id": 4, "callback_query": {"id": "q1", "from": {"id": 7}, "data": "allow 1",
            "message": {"message_id": 5, "chat": {"id": -100, "type": "supergroup"}}}});
        let Some(Incoming { heard, query, .. }) = read(&pressed, &bot()) else { panic!("it is for the bot") };
        let wish = WriterWish::Press { message: "-100/5".into(), value: "allow 1".into() };
        assert_eq!((heard.wish, heard.address.as_str(), query.as_deref()), (wish, "-100", Some("q1")));
    }

    #[test]
    fn a_file_is_known_by_what_the_service_says_of_it() {
        let sent = |more: Value| {
            let mut message =
                json!({"message_id": 5, "from": {"id": 7}, "chat": {"id": 7, "type": "private"}});
            message.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
            match read(&json!({"update_id": 3, "message": message}), &bot()) {
                Some(Incoming {
                    heard: HeardMessage { wish: WriterWish::Answer { text, .. }, .. },
                    files,
                    ..
                }) => (text, files),
                other => panic!("{other:?}"),
            }
        };
        let is = |id: &str, name: &str, size| vec![SentFile { id: id.into(), name: name.into(), size }];
        let small = json!({"file_id": "s", "width": 90, "height": 60, "file_size": 1000});
        let large = json!({"file_id": "l", "width": 900, "height": 600});
        let photo = sent(json!({"photo": [small, large], "caption": "/new look"}));
        assert_eq!(photo, ("/new look".to_owned(), is("l", "photo.jpg", None)));
        let document =
            json!({"file_id": "d", "file_name": "../a.pdf", "file_size": 12, "mime_type": "text/plain"});
        assert_eq!(sent(json!({"document": document})), (String::new(), is("d", "../a.pdf", Some(12))));
        let animation = json!({"animation": {"file_id": "a"}, "document": {"file_id": "d", "file_size": -1}});
        assert_eq!(sent(animation).1, is("d", "document", None));
        assert_eq!(sent(json!({"voice": {"file_id": "v", "file_name": " "}})).1, is("v", "voice.ogg", None));
        // In a group a file is for the bot where its caption names it.
        let mut update = group("", None);
        update["message"] = json!({"message_id": 5, "from": {"id": 7}, "chat": {"id": -100, "type": "group"},
            "voice": {"file_id": "v"}});
        assert_eq!(wanted(&update), None);
        update["message"]["caption"] = json!("@plum_bot listen");
        let heard = read(&update, &bot()).expect("it is for the bot");
        assert_eq!(heard.files, is("v", "voice.ogg", None));
    }
}
