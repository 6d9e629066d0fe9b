//! What comes in: the service is asked for updates, and each is heard once.
//!
//! An update is confirmed by the request after the one that brought it, and only when the daemon has taken it in: whatever ends
//! before, the service tells of it again, and the daemon knows its id.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use drupe_channel::{ChatChannel, HeardMessage, SendFailure, WriterWish};
use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

use crate::{
    api::{LARGEST_FETCHED, told},
    service::TelegramBot,
    settings::TelegramSettings,
    update::{self, Bot, Incoming, SentFile},
};

/// Updates of one request. Each may have some KiB of text and more of what stands beside it, and an answer at most 1 MiB.
const UPDATES: u64 = 25;
/// The first pause after a failure, and the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How often the files of a message are asked for before it is taken in without them: with the pauses between, within half a minute.
const TRIES: u32 = 5;

/// Asks for updates, and hands in what they say.
pub struct Ear {
    pub channel: ChatChannel<TelegramBot>,
    pub settings: TelegramSettings,
    /// The update whose files did not come, and how often.
    pub missing: Mutex<(i64, u32)>,
}

/// The longest text that is shown with a button which was pressed, in letters
/// (<https://core.telegram.org/bots/api#answercallbackquery>, read on 2026-11-27).
const LONGEST_WITH_BUTTON: usize = 200;

impl Ear {
    /// Hears until it is told to end.
    pub async fn hear(&self, shutdown: Shutdown) -> Result<(), Fault> {
        tokio::select! {
            () = shutdown => Ok(()),
            ended = self.listen() => ended,
        }
    }

    async fn listen(&self) -> Result<(), Fault> {
        let bot = self.until_known().await?;
        self.channel.host.info(format!("hears as @{}", bot.username));
        let (mut pause, mut limit) = (PAUSE, UPDATES);
        loop {
            match self.updates(limit).await {
                Ok(updates) => {
                    limit = UPDATES;
                    match self.take_all(updates, &bot).await {
                        Ok(()) => pause = PAUSE,
                        Err(fault) => {
                            // Not confirmed: it comes again.
                            self.channel.host.warn(format!("a message is taken in later: {fault}"));
                            self.rest(&mut pause).await?;
                        }
                    }
                }
                Err(SendFailure::TooMany { seconds }) => {
                    self.channel.host.sleep(Duration::from_secs(seconds.clamp(1, 3600))).await?;
                }
                Err(failure) => {
                    // An answer that is too long has fewer updates the next time.
                    limit = (limit / 2).max(1);
                    self.channel.host.warn(format!("no messages came: {}", told(failure)));
                    self.rest(&mut pause).await?;
                }
            }
        }
    }

    async fn rest(&self, pause: &mut Duration) -> Result<(), Fault> {
        self.channel.host.sleep(*pause).await?;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    async fn until_known(&self) -> Result<Bot, Fault> {
        let mut pause = PAUSE;
        loop {
            match self.channel.service.api.call("getMe", &json!({})).await {
                Ok(bot) => return Ok(serde_json::from_value(bot)?),
                Err(failure) => {
                    self.channel.host.error(format!("the bot is not known: {}", told(failure)));
                    self.rest(&mut pause).await?;
                }
            }
        }
    }

    async fn updates(&self, limit: u64) -> Result<Vec<Value>, SendFailure> {
        let seconds = self.settings.poll_seconds;
        let mut params =
            json!({"timeout": seconds, "limit": limit, "allowed_updates": ["message", "callback_query"]});
        if let Some(offset) = self.channel.kept.look(|kept| kept.own.offset(self.now_ms())) {
            params["offset"] = offset.into();
        }
        let within = (seconds + 10) * 1000;
        let updates = self.channel.service.api.call_for("getUpdates", &params, within).await?;
        let mut updates = match updates {
            Value::Array(updates) => updates,
            _ => Vec::new(),
        };
        // In order, whatever came between.
        updates.sort_by_key(update::number);
        Ok(updates)
    }

    /// Takes updates in, the oldest first, until one is not taken.
    async fn take_all(&self, updates: Vec<Value>, bot: &Bot) -> Result<(), Fault> {
        for update in updates {
            let Some(number) = update::number(&update) else { continue };
            let known = number.to_string();
            if !self.channel.kept.look(|kept| kept.was_heard(&known))
                && let Some(incoming) = update::read(&update, bot, self.channel.host.id())
            {
                self.take(number, incoming).await?;
            }
            let now_ms = self.now_ms();
            let confirmed = self.channel.kept.change(|kept| {
                kept.hear(&known);
                kept.own.confirm(number, now_ms);
            });
            confirmed.await?;
        }
        Ok(())
    }

    /// Takes one in. A fault is of the daemon, and passes.
    async fn take(&self, number: i64, mut incoming: Incoming) -> Result<(), Fault> {
        incoming.heard.agent = self.settings.agent.clone();
        let said = match self.wants(&incoming).await {
            Err(fault) if fault.code == FaultCode::Unauthenticated => {
                self.channel.meet(&incoming.heard).await?
            }
            // It cannot be taken in, now or later.
            Err(fault)
                if matches!(fault.code, FaultCode::Invalid | FaultCode::Denied | FaultCode::NotFound) =>
            {
                self.channel.host.warn(format!("a message is not taken in: {fault}"));
                Some(format!("This is not taken in: {}", fault.message))
            }
            // Of the daemon's own disk there may be room again; whoever has the file may never give it.
            Err(fault)
                if fault.code == FaultCode::Unavailable && self.has_tried_enough(number, &incoming) =>
            {
                let files = std::mem::take(&mut incoming.files);
                if let WriterWish::Answer { text, .. } = &mut incoming.heard.wish {
                    files.iter().for_each(|file| not_taken(text, &file.name, &fault.message));
                }
                self.wants(&incoming).await?
            }
            other => other?,
        };
        match (incoming.query, said) {
            // The button shows that it works until this is said, whatever came of it.
            (Some(query), said) => {
                let mut params = json!({"callback_query_id": query});
                if let Some(said) = said {
                    params["text"] = said.chars().take(LONGEST_WITH_BUTTON).collect::<String>().into();
                }
                let _ = self.channel.service.api.call("answerCallbackQuery", &params).await;
            }
            (None, Some(said)) => self.channel.say(&incoming.heard, &said).await,
            (None, None) => {}
        }
        Ok(())
    }

    fn has_tried_enough(&self, number: i64, incoming: &Incoming) -> bool {
        if incoming.files.is_empty() {
            return false;
        }
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = if missing.0 == number { (number, missing.1 + 1) } else { (number, 1) };
        missing.1 >= TRIES
    }

    /// Takes a message in with its files as the daemon gets them, and with words for those that it cannot get.
    async fn wants(&self, Incoming { heard, files, .. }: &Incoming) -> Result<Option<String>, Fault> {
        let WriterWish::Answer { text, .. } = &heard.wish else { return self.channel.hear(heard).await };
        let (mut text, mut found) = (text.clone(), Vec::new());
        // Not even where it is asked for that a stranger sent.
        if !files.is_empty() {
            self.channel.known(&heard.sender).await?;
        }
        for SentFile { id, name, size } in files {
            let asked = match size {
                Some(size) if *size > LARGEST_FETCHED => Err(format!(
                    "it has {} MB, and Telegram gives a bot {} MB at most",
                    size.div_ceil(1_000_000),
                    LARGEST_FETCHED / 1_000_000
                )),
                _ => match self.channel.service.api.file(id).await {
                    Ok(fetch) => Ok(fetch),
                    Err(SendFailure::Refused { said, .. }) => Err(format!("Telegram says {said}")),
                    // It only asks, so that it can be asked again.
                    Err(SendFailure::Doubtful(fault)) => {
                        return Err(Fault::new(FaultCode::Unavailable, fault.message));
                    }
                    Err(failure) => return Err(failure.into_fault("Telegram")),
                },
            };
            match asked {
                Ok(fetch) => found.push(InboundFile { name: name.clone(), fetch }),
                Err(why) => not_taken(&mut text, name, &why),
            }
        }
        let wish = WriterWish::Answer { text, files: found };
        self.channel.hear(&HeardMessage { wish, ..heard.clone() }).await
    }

    fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Says in a message that a file of it is not there.
fn not_taken(text: &mut String, name: &str, why: &str) {
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(100).collect();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&format!("[A file came with this message, {name:?}, and was not taken: {why}]"));
}
