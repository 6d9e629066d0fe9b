//! What comes in: frames of the socket as what the service says, and what somebody wants. Pure.
//!
//! Forms as in <https://docs.slack.dev/apis/events-api/using-socket-mode>, and the pages of the events `app_mention`, `message.im` and
//! `message.channels` and of the payload `block_actions`, read on 2026-11-27 in copies of their texts and in the service's own SDKs. That a message
//! which names the bot is told as both, in any order, is said in <https://github.com/slackapi/bolt-python/issues/941>, and that one with a file may be
//! told as a message alone in <https://github.com/slackapi/bolt-python/issues/925>.

use drupe_channel::{HeardMessage, WriterWish};
use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::{files::SlackFile, text};

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
    Envelope { id: String, incoming: Option<Box<SlackHeard>> },
    /// Nothing that is known here.
    Other,
}

/// Where something was written: a channel, and in it a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelPlace {
    pub channel: String,
    pub thread: Option<String>,
}

/// Something that is for the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct SlackHeard {
    pub heard: HeardMessage,
    /// What came with a message.
    pub files: Vec<SlackFile>,
    /// Whether it was said in a thread of a channel without the bot's name: it is for the bot where it takes part in that thread.
    pub is_aside: bool,
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
    files: Vec<SlackFile>,
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

/// What a frame of a socket says to the extension of that id; `Other` for what is no JSON of the service.
pub fn read(frame: &str, app: &App, extension: &ExtensionId) -> SocketFrame {
    let Ok(Told { kind, envelope_id: id, reason, payload }) = serde_json::from_str(frame) else {
        return SocketFrame::Other;
    };
    let incoming = match kind.as_str() {
        "hello" => return SocketFrame::Hello,
        "disconnect" => return SocketFrame::Disconnect { reason },
        "events_api" => event(&payload, app, extension),
        "interactive" => pressed(&payload, app, extension),
        _ => None,
    };
    match id.is_empty() {
        true => SocketFrame::Other,
        false => SocketFrame::Envelope { id, incoming: incoming.map(Box::new) },
    }
}

/// Whether an event happened in the workspace of the app: the app may be installed in others as well. In a channel that workspaces share, it is told to each as
/// theirs, and by which it is heard stands beside that.
pub fn is_of(payload: &Value, app: &App) -> bool {
    let heard = payload["authorizations"].as_array().into_iter().flatten().map(|one| &one["team_id"]);
    heard.chain([&payload["team_id"], &payload["context_team_id"]]).any(|team| *team == app.team)
}

/// What was written, where it may be for the assistant: everything in a chat with the bot alone, elsewhere what names it or stands in a thread.
pub fn event(payload: &Value, app: &App, extension: &ExtensionId) -> Option<SlackHeard> {
    let event = Event::deserialize(&payload["event"]).ok()?;
    let (is_private, is_aside) = match (event.kind.as_str(), event.channel_type.as_str()) {
        ("message", "im") => (true, false),
        ("app_mention", _) => (false, false),
        // What names the bot is told as a mention besides. With a file it is in some workspaces told as this alone, and that one message is
        // told twice does no harm.
        ("message", "channel" | "group")
            if !event.files.is_empty() && text::names(&event.text, &app.user) =>
        {
            (false, false)
        }
        // What begins with another name is said to them.
        ("message", "channel" | "group")
            if event.thread_ts.is_some()
                && !text::names(&event.text, &app.user)
                && !event.text.trim_start().starts_with("<@") =>
        {
            (false, true)
        }
        _ => return None,
    };
    // What was changed or removed, who joined, and what bots write: two that answer each other never end.
    let is_said = matches!(event.subtype.as_deref(), None | Some("file_share" | "thread_broadcast"));
    let user = event.user.filter(|user| is_said && event.bot_id.is_none() && *user != app.user)?;
    if event.hidden || event.channel.is_empty() || event.ts.is_empty() {
        return None;
    }
    let said = text::plain(&event.text, &app.user);
    let answer = |text| WriterWish::Answer { text, files: Vec::new() };
    let wish = match (said.trim().is_empty(), event.files.is_empty()) {
        (true, true) => return None,
        (_, false) => answer(said),
        (false, true) => {
            word(&said, event.thread_ts.is_some() || !is_private).unwrap_or_else(|| answer(said))
        }
    };
    let begins = (!is_private).then(|| event.ts.clone());
    let external_id = format!("{}:{}", event.channel, event.ts);
    let place = ChannelPlace { thread: event.thread_ts.or(begins), channel: event.channel };
    let sender = Sender { id: known_as(&user, event.user_team.as_deref(), app), name: None };
    let heard = place.heard(extension, is_private, sender, external_id, wish);
    Some(SlackHeard { heard, files: event.files, is_aside })
}

/// Which button below a message somebody pressed.
pub fn pressed(payload: &Value, app: &App, extension: &ExtensionId) -> Option<SlackHeard> {
    let BlockActions { kind, user, channel, container, message, actions } =
        BlockActions::deserialize(payload).ok()?;
    let (channel, action) = (channel?.id, actions.into_iter().next()?);
    if kind != "block_actions" || container.message_ts.is_empty() {
        return None;
    }
    let external_id = format!("pressed:{channel}:{}:{}:{}", container.message_ts, user.id, action.action_ts);
    let wish =
        WriterWish::Press { message: format!("{channel}/{}", container.message_ts), value: action.value };
    let sender =
        Sender { id: known_as(&user.id, user.team_id.as_deref(), app), name: user.name.or(user.username) };
    let is_private = channel.starts_with('D');
    let place = ChannelPlace { channel, thread: message.and_then(|message| message.thread_ts) };
    let heard = place.heard(extension, is_private, sender, external_id, wish);
    Some(SlackHeard { heard, files: Vec::new(), is_aside: false })
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
fn word(text: &str, is_in_thread: bool) -> Option<WriterWish> {
    match text.trim().to_lowercase().as_str() {
        "stop" | "!stop" => Some(WriterWish::Stop),
        "!new" if is_in_thread => Some(WriterWish::Reply("A new thread is a new conversation.".to_owned())),
        "!new" => Some(WriterWish::BeginAnew),
        "!who" => Some(WriterWish::KnowWhoTheyAre),
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

    fn heard(
        &self,
        extension: &ExtensionId,
        is_private: bool,
        sender: Sender,
        external_id: String,
        wish: WriterWish,
    ) -> HeardMessage {
        let conversation = self.session(extension.as_str(), is_private, &sender);
        HeardMessage {
            address: self.address(),
            conversation,
            is_private,
            sender,
            external_id,
            agent: None,
            wish,
        }
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

    fn read(frame: &str) -> SocketFrame {
        super::read(frame, &app(), &ExtensionId::new("slack").expect("an id"))
    }

    fn told(event: Value) -> Option<SlackHeard> {
        let frame = json!({"type": "events_api", "envelope_id": "e1", "accepts_response_payload": false,
            "payload": {"type": "event_callback", "event_id": "Ev1", "team_id": "T1", "event": event}});
        match read(&frame.to_string()) {
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
        let answer = |text: &str| Some(WriterWish::Answer { text: text.to_owned(), files: Vec::new() });
        let reply = |text: &str| Some(WriterWish::Reply(text.to_owned()));
        for (event, wanted) in [
            (direct(json!({})), answer("hello")),
            (direct(json!({"text": "a &lt; b"})), answer("a < b")),
            (direct(json!({"text": " "})), None),
            (direct(json!({"text": "Stop"})), Some(WriterWish::Stop)),
            (direct(json!({"text": "stop it"})), answer("stop it")),
            (direct(json!({"text": "!new"})), Some(WriterWish::BeginAnew)),
            (direct(json!({"text": "", "subtype": "file_share", "files": [{"id": "F1"}]})), answer("")),
            (direct(json!({"text": "stop", "files": [{"id": "F1"}]})), answer("stop")),
            (direct(json!({"subtype": "message_changed", "hidden": true})), None),
            (direct(json!({"subtype": "message_deleted"})), None),
            (direct(json!({"subtype": "bot_message"})), None),
            (direct(json!({"bot_id": "B7"})), None),
            (direct(json!({"user": "UBOT"})), None),
            (direct(json!({"user": null})), None),
            (direct(json!({"channel_type": "channel", "channel": "C1"})), None),
            (
                direct(json!({"text": "!new", "thread_ts": "9.9"})),
                reply("A new thread is a new conversation."),
            ),
            (mention(json!({"text": "<@UBOT> !new"})), reply("A new thread is a new conversation.")),
            (mention(json!({})), answer("hello")),
            (mention(json!({"text": "<@UBOT>"})), None),
            (mention(json!({"text": "<@UBOT> !who"})), Some(WriterWish::KnowWhoTheyAre)),
            (mention(json!({"bot_id": "B7"})), None),
            (json!({"type": "reaction_added", "user": "U7"}), None),
            (json!(7), None),
            (json!({}), None),
        ] {
            assert_eq!(told(event.clone()).map(|told| told.heard.wish), wanted, "{event}");
        }
    }

    #[test]
    fn files_are_heard_with_the_message_that_they_came_with() {
        let files = json!([{"id": "F1", "name": "a.txt", "mode": "hosted", "size": 7},
            {"id": "F2", "mode": "file_access", "file_access": "check_file_info", "created": 0, "user": ""}, {}]);
        let with_files = json!({"subtype": "file_share", "files": files});
        let named = json!({"channel": "C1", "channel_type": "channel", "text": "<@UBOT> look"});
        let file = |id: &str, name: &str| SlackFile { id: id.into(), name: name.into() };
        for (event, is_aside) in [
            (direct(with_files.clone()), false),
            (mention(json!({"files": with_files["files"]})), false),
            // Told as a message, whether it is told as a mention besides or not.
            (with(direct(named), with_files.clone()), false),
            (
                with(
                    direct(json!({"channel": "C1", "channel_type": "group", "thread_ts": "9.9", "text": ""})),
                    with_files,
                ),
                true,
            ),
        ] {
            let heard = told(event.clone()).expect("it is heard");
            assert_eq!(heard.files, [file("F1", "a.txt"), file("F2", ""), file("", "")], "{event}");
            assert_eq!(heard.is_aside, is_aside, "{event}");
        }
    }

    #[test]
    fn a_thread_is_a_conversation_and_a_mention_begins_one() {
        for (event, address, session) in [
            (direct(json!({})), "D1", "slack:person.U7"),
            (direct(json!({"thread_ts": "9.9"})), "D1/9.9", "slack:person.U7:9.9"),
            (mention(json!({})), "C1/10.1", "slack:group.C1:10.1"),
            (mention(json!({"thread_ts": "9.9"})), "C1/9.9", "slack:group.C1:9.9"),
        ] {
            let SlackHeard { heard, is_aside, .. } = told(event).expect("it is heard");
            assert_eq!((heard.address.as_str(), heard.conversation.as_str()), (address, session));
            let place = ChannelPlace::read(address).expect("a place");
            assert_eq!((place.address().as_str(), is_aside), (address, false));
            assert!(SessionId::new(session).is_ok());
        }
        assert_eq!(ChannelPlace::read(""), None);
    }

    #[test]
    fn what_is_said_in_a_thread_without_the_name_of_the_bot_is_said_aside() {
        let aside = |more: Value| {
            let in_thread = json!({"channel": "C1", "channel_type": "channel", "thread_ts": "9.9"});
            told(with(direct(in_thread), more))
        };
        for kind in ["channel", "group"] {
            let SlackHeard { heard, is_aside, .. } =
                aside(json!({"channel_type": kind})).expect("it is heard");
            assert_eq!((heard.address.as_str(), heard.is_private, is_aside), ("C1/9.9", false, true));
            assert_eq!(
                (heard.external_id.as_str(), heard.conversation.as_str()),
                ("C1:10.1", "slack:group.C1:9.9")
            );
        }
        for more in [
            json!({"thread_ts": null}),
            json!({"text": "and <@UBOT>?"}),
            json!({"text": "and <@UBOT|plum>?"}),
            json!({"text": "<@U8> what do you think"}),
            json!({"bot_id": "B7"}),
            json!({"text": "<@U8> look", "files": [{"id": "F1"}]}),
            json!({"subtype": "message_changed"}),
            json!({"channel_type": "mpim"}),
        ] {
            assert_eq!(aside(more.clone()), None, "{more}");
        }
    }

    #[test]
    fn somebody_of_another_workspace_is_not_who_has_the_same_id_here() {
        let sender = |team: Value| told(mention(json!({"user_team": team}))).expect("heard").heard.sender;
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
        let SocketFrame::Envelope { incoming: Some(told), .. } = read(&frame.to_string()) else { panic!() };
        let heard = told.heard;
        assert_eq!(
            (heard.external_id.as_str(), heard.address.as_str()),
            ("pressed:C1:11.2:U7:12.3", "C1/10.1")
        );
        assert_eq!(heard.wish, WriterWish::Press { message: "C1/11.2".into(), value: "allow 1".into() });
        assert_eq!((heard.sender.id.as_str(), heard.sender.name.as_deref()), ("U7", Some("ann")));
    }

    #[test]
    fn an_event_is_of_the_workspace_that_hears_it() {
        for (payload, is_of) in [
            (json!({"team_id": "T1"}), true),
            (json!({"team_id": "T2"}), false),
            (json!({"team_id": "T2", "authorizations": [{"team_id": "T3"}, {"team_id": "T1"}]}), true),
            (json!({"team_id": "T2", "context_team_id": "T1"}), true),
            (json!({"team_id": ["T1"], "authorizations": "T1"}), false),
            (json!({}), false),
        ] {
            assert_eq!(super::is_of(&payload, &app()), is_of, "{payload}");
        }
    }

    #[test]
    fn what_the_socket_itself_says_is_told_apart() {
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
