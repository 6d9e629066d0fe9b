//! What comes in: frames of the socket as what the service says, and what somebody wants. Pure.
//!
//! Forms as in <https://docs.slack.dev/apis/events-api/using-socket-mode>, and the pages of the events `app_mention`, `message.im` and
//! `message.channels` and of the payload `block_actions`, read on 2026-11-27 in copies of their texts and in the service's own SDKs. That a message
//! which names the bot is told as both, in any order, is said in <https://github.com/slackapi/bolt-python/issues/941>, and that one with a file may be
//! told as a message alone in <https://github.com/slackapi/bolt-python/issues/925>.

#[cfg(test)]
mod tests;

use drupe_channel::{HeardMessage, WriterWish};
use drupe_extension_api::prelude::*;
use serde_json::Value;

use crate::{
    files::{SharedMessage, SlackFile, named_files},
    text,
};

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
    /// Its text in another form, in which newer programs of the service write a file that stands between the words.
    #[serde(default)]
    blocks: Value,
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
    let files = match event.kind == "app_mention" && event.files.is_empty() {
        true => {
            let message = SharedMessage { channel: event.channel.clone(), ts: event.ts.clone() };
            named_files(&event.blocks, &message)
        }
        false => event.files,
    };
    let said = text::plain(&event.text, &app.user);
    let answer = |text| WriterWish::Answer { text, files: Vec::new() };
    let wish = match (said.trim().is_empty(), files.is_empty()) {
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
    Some(SlackHeard { heard, files, is_aside })
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
