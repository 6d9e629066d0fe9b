//! The Bot API as a chat service: how its messages are sent, changed and given buttons, and how many of them it takes.

use std::time::Duration;

use drupe_channel::{Button, ChatService, NewPost, SendFailure};
use drupe_extension_api::{prelude::*, wire::FormPart};
use serde_json::{Value, json};

use crate::{
    api::{BotApi, LARGEST_SENT, is_unchanged},
    update::ChatPlace,
};

/// One bot, as whoever has its token reaches it.
#[derive(Clone)]
pub struct TelegramBot {
    pub api: BotApi,
}

/// How far its updates were heard, beside what each channel keeps.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BotRecord {
    /// The lowest number of an update that was not heard, and when the last one was.
    offset: Option<(i64, i64)>,
}

/// After a week without an update the service begins to number at random (<https://core.telegram.org/bots/api#update>, read on 2026-11-27):
/// an offset from before would skip what came since.
const OFFSET_HOLDS_MS: i64 = 6 * 24 * 60 * 60 * 1000;

impl BotRecord {
    pub fn offset(&self, now_ms: i64) -> Option<i64> {
        self.offset.filter(|(_, at)| now_ms - at < OFFSET_HOLDS_MS).map(|(offset, _)| offset)
    }

    /// All updates below one were heard: the next request confirms them.
    pub fn confirm_below(&mut self, next: i64, now_ms: i64) {
        self.offset = Some((next, now_ms));
    }
}

impl ChatService for TelegramBot {
    const NAME: &'static str = "Telegram";
    /// In units of UTF-16 (<https://core.telegram.org/bots/api#sendmessage>, read on 2026-11-27).
    const LONGEST: usize = 4096;

    type Record = BotRecord;

    /// A group counts as a whole, whatever topics it has.
    fn counted(address: &str) -> &str {
        address.split_once('/').map_or(address, |(chat, _)| chat)
    }

    /// The service takes about one message a second in a chat and twenty a minute in a group, edits included
    /// (<https://core.telegram.org/bots/faq>, "My bot is hitting limits", read on 2026-11-27). Groups have negative numbers.
    fn between_messages(chat: &str) -> Duration {
        Duration::from_secs(if chat.starts_with('-') { 3 } else { 1 })
    }

    async fn post(&self, address: &str, message: &NewPost<'_>) -> Result<String, SendFailure> {
        let mut params = place_of(address)?.params();
        params.extend(written(message.text, message.buttons));
        sent(address, &self.api.call("sendMessage", &params.into()).await?)
    }

    async fn change(&self, message: &str, text: &str, buttons: &[Button]) -> Result<(), SendFailure> {
        let odd = || SendFailure::refused("", "it is no message of this bot");
        let (chat, id) = message.split_once('/').ok_or_else(odd)?;
        let number = |text: &str| text.parse::<i64>().map_err(|_| odd());
        let mut params = written(text, buttons);
        params.insert("chat_id".to_owned(), number(chat)?.into());
        params.insert("message_id".to_owned(), number(id)?.into());
        match self.api.call("editMessageText", &params.into()).await {
            Err(failure) if is_unchanged(&failure) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Sends a file as it is: as a picture the service would make it smaller.
    async fn send_file(
        &self,
        address: &str,
        message: &OutboundMessage,
        file: &OutboundFile,
    ) -> Result<String, SendFailure> {
        let place = place_of(address)?;
        if file.bytes > LARGEST_SENT {
            let (has, most) = (file.bytes.div_ceil(1_000_000), LARGEST_SENT / 1_000_000);
            return Err(SendFailure::refused(
                "",
                format!("it has {has} MB, and Telegram takes {most} MB at most"),
            ));
        }
        let text = |name: &str, value: String| FormPart::Text { name: name.to_owned(), value };
        let mut parts = vec![text("chat_id", place.chat.to_string())];
        parts.extend(place.thread.map(|thread| text("message_thread_id", thread.to_string())));
        if !message.text.trim().is_empty() {
            parts.push(text("caption", message.text.clone()));
        }
        parts.push(FormPart::File { name: "document".to_owned(), delivery: message.delivery.clone() });
        sent(address, &self.api.upload("sendDocument", parts).await?)
    }
}

fn place_of(address: &str) -> Result<ChatPlace, SendFailure> {
    ChatPlace::read(address).ok_or_else(|| SendFailure::refused("", format!("`{address}` is no chat")))
}

/// A text with its buttons, without a preview: for that the service would fetch what an address leads to.
fn written(text: &str, buttons: &[Button]) -> serde_json::Map<String, Value> {
    let drawn = |button: &Button| json!({"text": button.label, "callback_data": button.value});
    let (first, others) = buttons.split_at(buttons.len().min(2));
    let first: Vec<Value> = first.iter().map(drawn).collect();
    let rows = Some(first).filter(|row| !row.is_empty()).into_iter();
    let rows: Vec<Vec<Value>> = rows.chain(others.iter().map(|button| vec![drawn(button)])).collect();
    let params = json!({"text": text, "link_preview_options": {"is_disabled": true},
        "reply_markup": {"inline_keyboard": rows}});
    params.as_object().cloned().unwrap_or_default()
}

/// By what a message is known that the service says it sent.
fn sent(address: &str, said: &Value) -> Result<String, SendFailure> {
    let odd = || SendFailure::doubtful("the service did not say which message it sent");
    let id = said["message_id"].as_i64().ok_or_else(odd)?;
    Ok(format!("{}/{id}", TelegramBot::counted(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_is_too_old_would_skip_updates_and_is_not_used() {
        let mut kept = BotRecord::default();
        assert_eq!(kept.offset(0), None);
        kept.confirm_below(42, 1_000);
        assert_eq!(kept.offset(2_000), Some(42));
        assert_eq!(kept.offset(1_000 + OFFSET_HOLDS_MS), None);
    }
}
