//! The Web API as a chat service: how its messages are sent, found, changed and given buttons, and how many of them it takes.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use drupe_channel::{Button, ChatService, HeardMessage, NewPost, Recent, SendFailure};
use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

use crate::{
    api::{WebApi, told},
    blocks,
    event::ChannelPlace,
    text::{self, LONGEST_SECTION, escaped},
};

/// How often a message is looked for that may have arrived, the pause before each look, and the time for all.
pub const LOOKS: usize = 2;
pub const BEFORE_LOOK: Duration = Duration::from_secs(1);
pub const LOOKED_FOR: Duration = Duration::from_secs(8);
/// How far the clocks may be apart, in seconds, and how many messages are looked through.
const APART: u64 = 60;
const LOOKED_THROUGH: &str = "100";
/// What a message bears beside its text, by which it is found again.
const MARK: &str = "drupe_delivery";

/// One app in its workspace.
#[derive(Clone)]
pub struct SlackApp {
    pub host: Host,
    pub api: WebApi,
    /// The address below which files are.
    pub files: Arc<str>,
}

/// What is kept of Slack beside what is kept of each channel.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SlackRecord {
    /// Threads of channels in which the bot takes part, by their addresses.
    pub threads: Recent<()>,
}

impl ChatService for SlackApp {
    const NAME: &'static str = "Slack";
    const LONGEST: usize = text::LONGEST;
    const LONGEST_PREVIEW: usize = LONGEST_SECTION;
    /// The service takes about one message a second in a channel (<https://docs.slack.dev/apis/web-api/rate-limits>, "Posting messages"), and of
    /// changes more than fifty a minute in the whole workspace (`chat.update` is of tier 3), both read on 2026-11-27.
    const BETWEEN_CHANGES: Duration = Duration::from_millis(1_200);

    type Record = SlackRecord;

    fn units(letter: char) -> usize {
        text::units(letter)
    }

    /// A channel counts as a whole, whatever threads it has.
    fn counted(address: &str) -> &str {
        address.split_once('/').map_or(address, |(channel, _)| channel)
    }

    async fn post(&self, address: &str, message: &NewPost<'_>) -> Result<String, SendFailure> {
        let place = place_of(address)?;
        let mut params = written(&place, message.text);
        params["metadata"] = json!({"event_type": MARK, "event_payload": {"id": message.mark}});
        if !message.buttons.is_empty() {
            params["blocks"] = blocks::with_buttons(message.text, message.buttons);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sent = match self.api.call("chat.postMessage", &params).await {
            Err(SendFailure::Doubtful(fault)) => {
                let found = tokio::time::timeout(LOOKED_FOR, self.find(&place, message.mark, since)).await;
                found.ok().flatten().ok_or(SendFailure::Doubtful(fault))?
            }
            other => other?,
        };
        let odd = || SendFailure::doubtful("the service did not say which message it sent");
        let ts = sent["ts"].as_str().ok_or_else(odd)?;
        Ok(format!("{}/{ts}", place.channel))
    }

    async fn change(&self, message: &str, text: &str, buttons: &[Button]) -> Result<(), SendFailure> {
        let odd = || SendFailure::refused("", "it is no message of this bot");
        let (channel, ts) = message.split_once('/').ok_or_else(odd)?;
        let mut params = written(&ChannelPlace { channel: channel.to_owned(), thread: None }, text);
        params["ts"] = ts.into();
        params["blocks"] = blocks::with_buttons(text, buttons);
        self.api.call("chat.update", &params).await.map(drop)
    }

    async fn send_file(
        &self,
        address: &str,
        message: &OutboundMessage,
        file: &OutboundFile,
    ) -> Result<String, SendFailure> {
        self.share(&place_of(address)?, message, file).await
    }

    /// In a channel it is shown to whom it answers.
    async fn say(&self, heard: &HeardMessage, text: &str) -> Result<(), SendFailure> {
        let mut params = written(&place_of(&heard.address)?, text);
        if heard.is_private {
            return self.api.call("chat.postMessage", &params).await.map(drop);
        }
        params["user"] = user_of(&heard.sender).into();
        self.api.call("chat.postEphemeral", &params).await.map(drop)
    }
}

impl SlackApp {
    /// Looks for a message that may have arrived. That it is not there says nothing: it may be on its way.
    async fn find(&self, place: &ChannelPlace, mark: &str, since: Duration) -> Option<Value> {
        let oldest = since.as_secs().saturating_sub(APART).to_string();
        let mut params = vec![
            ("channel", place.channel.as_str()),
            ("oldest", &oldest),
            ("limit", LOOKED_THROUGH),
            ("include_all_metadata", "true"),
        ];
        let method = match &place.thread {
            Some(thread) => {
                params.push(("ts", thread));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        let is_it = |message: &&Value| {
            message["metadata"]["event_type"] == MARK && message["metadata"]["event_payload"]["id"] == mark
        };
        for _ in 0..LOOKS {
            self.host.sleep(BEFORE_LOOK).await.ok()?;
            match self.api.read(method, &params).await {
                Ok(found) => {
                    let all = found["messages"].as_array();
                    if let Some(message) = all.and_then(|all| all.iter().find(is_it)) {
                        return Some(message.clone());
                    }
                }
                Err(failure) => {
                    let why = told(failure);
                    self.host.warn(format!("whether a message arrived could not be looked up: {why}"));
                }
            }
        }
        None
    }

    /// What somebody calls themselves, where the app may ask for it.
    pub async fn name_of(&self, sender: &Sender) -> Option<String> {
        let told = self.api.read("users.info", &[("user", user_of(sender))]).await.ok()?;
        let (user, profile) = (&told["user"], &told["user"]["profile"]);
        let names = [&profile["real_name"], &user["real_name"], &user["name"]];
        names.iter().find_map(|name| name.as_str().filter(|name| !name.is_empty())).map(str::to_owned)
    }
}

/// The id by which the service knows somebody: before it may stand that of another workspace.
fn user_of(sender: &Sender) -> &str {
    sender.id.rsplit('.').next().unwrap_or(&sender.id)
}

fn place_of(address: &str) -> Result<ChannelPlace, SendFailure> {
    ChannelPlace::read(address).ok_or_else(|| SendFailure::refused("", format!("`{address}` is no channel")))
}

/// A text at a place, which calls nobody and whose addresses nobody fetches.
fn written(place: &ChannelPlace, text: &str) -> Value {
    let mut params = json!({"channel": place.channel, "text": escaped(text), "parse": "none", "link_names": false,
        "unfurl_links": false, "unfurl_media": false});
    if let Some(thread) = &place.thread {
        params["thread_ts"] = thread.as_str().into();
    }
    params
}
