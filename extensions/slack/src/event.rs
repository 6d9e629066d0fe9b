//! What comes in: frames of the socket as what the service says, and what somebody wants. Pure.
//!
//! Forms as in <https://docs.slack.dev/apis/events-api/using-socket-mode>, and the pages of the events `app_mention` and `message.im` and of the
//! payload `block_actions`, read on 2026-11-27 in copies of their texts and in the service's own SDKs.

use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::text;

/// The app in its workspace, as `auth.test` tells it.
#[derive(Debug, Clone, Deserialize)]
pub struct App {
    #[serde(rename = "user_id")]
    pub user: String,
    #[serde(rename = "team_id")]
    pub team: String,
    #[serde(default, rename = "user")]
    pub name: String,
}

/// What the service says through a socket.
#[derive(Debug, Clone, PartialEq)]
pub enum SocketFrame {
    /// The socket is open, and events come through it.
    Hello,
    /// The socket will be closed, or is no longer used.
    Disconnect { reason: String },
    /// Something happened. It is told again until it is acknowledged by its id.
    Envelope { id: String, incoming: Option<Box<HeardMessage>> },
    /// Nothing that is known here.
    Other,
}

/// Where something was written: a channel, and in it a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelPlace {
    pub channel: String,
    pub thread: Option<String>,
}

/// What somebody who writes to the bot wants.
#[derive(Debug, Clone, PartialEq)]
pub enum WriterIntent {
    /// An answer to a text.
    Answer(String),
    /// A word for this channel.
    Word(BotWord),
    /// Something was sent that is no text.
    Unreadable,
    /// A button was pressed that stands below the message of that time.
    Pressed { message: String, value: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BotWord {
    New,
    Stop,
    Who,
}

/// Something that is for the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct HeardMessage {
    pub place: ChannelPlace,
    pub is_private: bool,
    /// As the daemon knows them.
    pub sender: Sender,
    /// As the service knows them.
    pub user: String,
    /// The same whenever the service tells of it again.
    pub external_id: String,
    pub wanted: WriterIntent,
}

#[derive(Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    envelope_id: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    payload: Value,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    subtype: Option<String>,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    channel_type: String,
    user: Option<String>,
    user_team: Option<String>,
    bot_id: Option<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    ts: String,
    thread_ts: Option<String>,
    #[serde(default)]
    files: Vec<Value>,
    #[serde(default)]
    hidden: bool,
}

#[derive(Deserialize)]
struct BlockActions {
    #[serde(rename = "type")]
    kind: String,
    user: Presser,
    channel: Option<Named>,
    container: Container,
    message: Option<Threaded>,
    actions: Vec<Action>,
}

#[derive(Deserialize)]
struct Presser {
    id: String,
    name: Option<String>,
    username: Option<String>,
    team_id: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    message_ts: String,
}

#[derive(Deserialize)]
struct Threaded {
    thread_ts: Option<String>,
}

#[derive(Deserialize)]
struct Action {
    #[serde(default)]
    value: String,
    #[serde(default)]
    action_ts: String,
}

/// What a frame of a socket says; `Other` for what is no JSON of the service.
pub fn read(frame: &str, app: &App) -> SocketFrame {
    let Ok(Told { kind, envelope_id: id, reason, payload }) = serde_json::from_str(frame) else {
        return SocketFrame::Other;
    };
    let incoming = match kind.as_str() {
        "hello" => return SocketFrame::Hello,
        "disconnect" => return SocketFrame::Disconnect { reason },
        "events_api" => event(&payload, app),
        "interactive" => pressed(&payload, app),
        _ => None,
    };
    match id.is_empty() {
        true => SocketFrame::Other,
        false => SocketFrame::Envelope { id, incoming: incoming.map(Box::new) },
    }
}

/// What was written, where it is for the assistant: everything in a chat with the bot alone, elsewhere what names it.
fn event(payload: &Value, app: &App) -> Option<HeardMessage> {
    let event = Event::deserialize(&payload["event"]).ok()?;
    let is_private = match event.kind.as_str() {
        "message" if event.channel_type == "im" => true,
        // Of everything else that is written in channels the service tells beside it what names the bot.
        "app_mention" => false,
        _ => return None,
    };
    // What was changed or removed, who joined, and what bots write: two that answer each other never end.
    let is_said = matches!(event.subtype.as_deref(), None | Some("file_share" | "thread_broadcast"));
    let user = event.user.filter(|user| is_said && event.bot_id.is_none() && *user != app.user)?;
    if event.hidden || event.channel.is_empty() || event.ts.is_empty() {
        return None;
    }
    let said = text::plain(&event.text, &app.user);
    let wanted = match (said.trim().is_empty(), event.files.is_empty()) {
        (true, true) => return None,
        (true, false) => WriterIntent::Unreadable,
        (false, false) => WriterIntent::Answer(format!(
            "{said}\n(Something came with this that is no text; it was not read.)"
        )),
        (false, true) => word(&said).map_or(WriterIntent::Answer(said), WriterIntent::Word),
    };
    let begins = (!is_private).then(|| event.ts.clone());
    Some(HeardMessage {
        external_id: format!("{}:{}", event.channel, event.ts),
        place: ChannelPlace { thread: event.thread_ts.or(begins), channel: event.channel },
        is_private,
        sender: Sender { id: known_as(&user, event.user_team.as_deref(), app), name: None },
        user,
        wanted,
    })
}

fn pressed(payload: &Value, app: &App) -> Option<HeardMessage> {
    let BlockActions { kind, user, channel, container, message, actions } =
        BlockActions::deserialize(payload).ok()?;
    let (channel, action) = (channel?.id, actions.into_iter().next()?);
    if kind != "block_actions" || container.message_ts.is_empty() {
        return None;
    }
    Some(HeardMessage {
        external_id: format!("pressed:{channel}:{}:{}:{}", container.message_ts, user.id, action.action_ts),
        is_private: channel.starts_with('D'),
        place: ChannelPlace { channel, thread: message.and_then(|message| message.thread_ts) },
        sender: Sender {
            id: known_as(&user.id, user.team_id.as_deref(), app),
            name: user.name.or(user.username),
        },
        user: user.id,
        wanted: WriterIntent::Pressed { message: container.message_ts, value: action.value },
    })
}

/// The id by which the daemon knows somebody. Ids are the workspace's own, so whoever comes from another one through a shared channel bears that
/// one's before it.
fn known_as(user: &str, team: Option<&str>, app: &App) -> String {
    match team.filter(|team| *team != app.team) {
        Some(team) => format!("{team}.{user}"),
        None => user.to_owned(),
    }
}

/// A word that is all of a text.
fn word(text: &str) -> Option<BotWord> {
    match text.trim().to_lowercase().as_str() {
        "stop" | "!stop" => Some(BotWord::Stop),
        "!new" => Some(BotWord::New),
        "!who" => Some(BotWord::Who),
        _ => None,
    }
}

impl ChannelPlace {
    /// As the daemon keeps it with a message.
    pub fn address(&self) -> String {
        match &self.thread {
            Some(thread) => format!("{}/{thread}", self.channel),
            None => self.channel.clone(),
        }
    }

    /// The place of an address.
    pub fn read(address: &str) -> Option<Self> {
        let (channel, thread) = match address.split_once('/') {
            Some((channel, thread)) => (channel, Some(thread.to_owned())),
            None => (address, None),
        };
        (!channel.is_empty()).then(|| Self { channel: channel.to_owned(), thread })
    }

    /// The session of who writes there. A thread is a conversation of its own; what is known of people in a channel is the channel's.
    pub fn session(&self, extension: &str, is_private: bool, sender: &Sender) -> String {
        let thread = self.thread.as_ref().map(|thread| format!(":{thread}")).unwrap_or_default();
        match is_private {
            true => format!("{extension}:person.{}{thread}", sender.id),
            false => format!("{extension}:group.{}{thread}", self.channel),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn app() -> App {
        App { user: "UBOT".into(), team: "T1".into(), name: "plum".into() }
    }

    fn told(event: Value) -> Option<HeardMessage> {
        let frame = json!({"type": "events_api", "envelope_id": "e1", "accepts_response_payload": false,
            "payload": {"type": "event_callback", "event_id": "Ev1", "team_id": "T1", "event": event}});
        match read(&frame.to_string(), &app()) {
            SocketFrame::Envelope { id, incoming } if id == "e1" => incoming.map(|incoming| *incoming),
            other => panic!("{other:?}"),
        }
    }

    fn with(mut event: Value, more: Value) -> Value {
        event.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        event
    }

    fn direct(more: Value) -> Value {
        let event = json!({"type": "message", "channel": "D1", "channel_type": "im", "user": "U7", "text": "hello", "ts": "10.1"});
        with(event, more)
    }

    fn mention(more: Value) -> Value {
        let event = json!({"type": "app_mention", "channel": "C1", "user": "U7", "text": "<@UBOT> hello", "ts": "10.1"});
        with(event, more)
    }

    #[test]
    fn what_is_said_to_the_bot_is_heard_and_nothing_else() {
        let answer = |text: &str| Some(WriterIntent::Answer(text.to_owned()));
        for (event, wanted) in [
            (direct(json!({})), answer("hello")),
            (direct(json!({"text": "a &lt; b"})), answer("a < b")),
            (direct(json!({"text": " "})), None),
            (direct(json!({"text": "Stop"})), Some(WriterIntent::Word(BotWord::Stop))),
            (direct(json!({"text": "stop it"})), answer("stop it")),
            (direct(json!({"text": "!new"})), Some(WriterIntent::Word(BotWord::New))),
            (
                direct(json!({"text": "", "subtype": "file_share", "files": [{}]})),
                Some(WriterIntent::Unreadable),
            ),
            (direct(json!({"subtype": "message_changed", "hidden": true})), None),
            (direct(json!({"subtype": "message_deleted"})), None),
            (direct(json!({"subtype": "bot_message"})), None),
            (direct(json!({"bot_id": "B7"})), None),
            (direct(json!({"user": "UBOT"})), None),
            (direct(json!({"user": null})), None),
            (direct(json!({"channel_type": "channel", "channel": "C1"})), None),
            (mention(json!({})), answer("hello")),
            (mention(json!({"text": "<@UBOT>"})), None),
            (mention(json!({"text": "<@UBOT> !who"})), Some(WriterIntent::Word(BotWord::Who))),
            (mention(json!({"bot_id": "B7"})), None),
            (json!({"type": "reaction_added", "user": "U7"}), None),
            (json!(7), None),
            (json!({}), None),
        ] {
            assert_eq!(told(event.clone()).map(|incoming| incoming.wanted), wanted, "{event}");
        }
        let file = told(direct(json!({"subtype": "file_share", "files": [{}]}))).expect("it is heard");
        assert!(matches!(file.wanted, WriterIntent::Answer(text) if text.starts_with("hello\n(")));
    }

    #[test]
    fn a_thread_is_a_conversation_and_a_mention_begins_one() {
        for (event, address, session) in [
            (direct(json!({})), "D1", "slack:person.U7"),
            (direct(json!({"thread_ts": "9.9"})), "D1/9.9", "slack:person.U7:9.9"),
            (mention(json!({})), "C1/10.1", "slack:group.C1:10.1"),
            (mention(json!({"thread_ts": "9.9"})), "C1/9.9", "slack:group.C1:9.9"),
        ] {
            let incoming = told(event).expect("it is heard");
            assert_eq!(incoming.place.address(), address);
            assert_eq!(ChannelPlace::read(address).as_ref(), Some(&incoming.place));
            assert_eq!(incoming.place.session("slack", incoming.is_private, &incoming.sender), session);
            assert!(SessionId::new(session).is_ok());
        }
        assert_eq!(ChannelPlace::read(""), None);
    }

    #[test]
    fn somebody_of_another_workspace_is_not_who_has_the_same_id_here() {
        let sender = |team: Value| told(mention(json!({"user_team": team}))).expect("heard").sender;
        assert_eq!(sender(Value::Null).id, "U7");
        assert_eq!(sender(json!("T1")).id, "U7");
        assert_eq!(sender(json!("T2")).id, "T2.U7");
        assert!(sender(json!("T2")).is_sound());
    }

    #[test]
    fn a_button_names_its_message_and_is_the_same_when_it_is_told_again() {
        let payload = json!({"type": "block_actions", "user": {"id": "U7", "username": "ann", "name": "ann", "team_id": "T1"},
            "channel": {"id": "C1", "name": "general"}, "container": {"type": "message", "message_ts": "11.2", "channel_id": "C1"},
            "message": {"ts": "11.2", "thread_ts": "10.1"},
            "actions": [{"action_id": "a", "value": "allow 1", "type": "button", "action_ts": "12.3"}]});
        let frame = json!({"type": "interactive", "envelope_id": "e2", "payload": payload});
        let SocketFrame::Envelope { incoming: Some(incoming), .. } = read(&frame.to_string(), &app()) else {
            panic!()
        };
        assert_eq!(incoming.external_id, "pressed:C1:11.2:U7:12.3");
        assert_eq!(incoming.place.address(), "C1/10.1");
        assert_eq!(
            incoming.wanted,
            WriterIntent::Pressed { message: "11.2".into(), value: "allow 1".into() }
        );
        assert_eq!((incoming.sender.id.as_str(), incoming.sender.name.as_deref()), ("U7", Some("ann")));
    }

    #[test]
    fn what_the_socket_itself_says_is_told_apart() {
        let read = |frame: &str| read(frame, &app());
        assert_eq!(read(r#"{"type":"hello","num_connections":1,"debug_info":{}}"#), SocketFrame::Hello);
        assert_eq!(
            read(r#"{"type":"disconnect","reason":"warning","debug_info":{}}"#),
            SocketFrame::Disconnect { reason: "warning".into() }
        );
        assert_eq!(
            read(r#"{"type":"slash_commands","envelope_id":"e3","payload":{}}"#),
            SocketFrame::Envelope { id: "e3".into(), incoming: None }
        );
        for odd in ["", "[]", "7", "{}", r#"{"type":"events_api"}"#, r#"{"type":7}"#, r#"{"type":"new"}"#] {
            assert_eq!(read(odd), SocketFrame::Other, "{odd}");
        }
    }
}
