//! What comes in: the service is asked for updates, and each is heard once.
//!
//! An update is confirmed by the request after the one that brought it, and only when the daemon has taken it in: whatever ends
//! before, the service tells of it again, and the daemon knows its id.

use std::{sync::Arc, time::Duration};

use drupe_channel::{ChatChannel, HeardMessage, SendFailure, WriterWish, file_not_taken};
use drupe_extension_api::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    api::{LARGEST_FETCHED, told},
    intake::UpdateIntake,
    service::TelegramBot,
    settings::TelegramSettings,
    update::{Bot, Incoming, SentFile},
};

/// New updates of one request. Each may have some KiB of text and more of what stands beside it, and an answer at most 1 MiB.
const UPDATES: usize = 25;
/// The most updates of one request (<https://core.telegram.org/bots/api#getupdates>, read on 2026-11-27).
const MOST_UPDATES: usize = 100;
/// The first pause after a failure, and the longest.
pub const PAUSE: Duration = Duration::from_secs(1);
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest time until it is asked what else there is while something is not taken in, of which each answer tells once more.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// How often the files of a message are asked for before it is taken in without them: with the pauses between, within half a minute.
const TRIES: u32 = 5;

/// Messages whose files are fetched at the same time. The daemon sends eight requests of an extension at once, and the others are for what is
/// heard and said meanwhile.
pub const WITH_FILES: usize = 2;

/// Asks for updates, and hands in what they say. Clones are the same.
#[derive(Clone)]
pub struct Ear {
    pub channel: ChatChannel<TelegramBot>,
    pub settings: Arc<TelegramSettings>,
    /// Held while files are fetched.
    pub files: Arc<Semaphore>,
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
        let mut intake = UpdateIntake::new(self.clone());
        let (mut pause, mut look, mut fewer) = (PAUSE, PAUSE, 1);
        loop {
            intake.settle(look).await;
            match self.updates(intake.unconfirmed(), fewer).await {
                Ok(updates) => {
                    (pause, fewer) = (PAUSE, 1);
                    look = if intake.begin(updates, &bot) { PAUSE } else { (look * 2).min(LONGEST_LOOK) };
                }
                Err(SendFailure::TooMany { seconds }) => {
                    self.channel.host.sleep(Duration::from_secs(seconds.clamp(1, 3600))).await?;
                }
                Err(failure) => {
                    // An answer that is too long has fewer updates the next time.
                    fewer = (fewer * 2).min(MOST_UPDATES);
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

    /// Asks for updates: for new ones behind so many that are known. Where there are such, the service answers at once.
    async fn updates(&self, known: usize, fewer: usize) -> Result<Vec<Value>, SendFailure> {
        let seconds = if known == 0 { self.settings.poll_seconds } else { 0 };
        let limit = ((UPDATES + known).min(MOST_UPDATES) / fewer).max(1);
        let mut params =
            json!({"timeout": seconds, "limit": limit, "allowed_updates": ["message", "callback_query"]});
        if let Some(offset) = self.channel.kept.look(|kept| kept.own.offset(self.now_ms())) {
            params["offset"] = offset.into();
        }
        let within = (seconds + 10) * 1000;
        match self.channel.service.api.call_for("getUpdates", &params, within).await? {
            Value::Array(updates) => Ok(updates),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes one in, whose files did not come so often. A fault is of the daemon, and passes.
    pub async fn take(&self, mut incoming: Incoming, missing: u32) -> Result<(), Fault> {
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
                if fault.code == FaultCode::Unavailable
                    && missing + 1 >= TRIES
                    && !incoming.files.is_empty() =>
            {
                let files = std::mem::take(&mut incoming.files);
                if let WriterWish::Answer { text, .. } = &mut incoming.heard.wish {
                    files.iter().for_each(|file| file_not_taken(text, &file.name, &fault.message));
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

    /// Takes a message in with its files as the daemon gets them, and with words for those that it cannot get.
    async fn wants(&self, Incoming { heard, files, .. }: &Incoming) -> Result<Option<String>, Fault> {
        let WriterWish::Answer { text, .. } = &heard.wish else { return self.channel.hear(heard).await };
        let (mut text, mut found) = (text.clone(), Vec::new());
        // Not even where it is asked for that a stranger sent.
        let mut _place = None;
        if !files.is_empty() {
            self.channel.known(&heard.sender).await?;
            _place = self.files.acquire().await.ok();
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
                    Err(SendFailure::Denied(fault)) => Err(fault.message),
                    // It only asks, so that it can be asked again.
                    Err(SendFailure::Doubtful(fault)) => {
                        return Err(Fault::new(FaultCode::Unavailable, fault.message));
                    }
                    Err(failure) => return Err(failure.into_fault("Telegram")),
                },
            };
            match asked {
                Ok(fetch) => found.push(InboundFile { name: name.clone(), source: FileSource::Fetch(fetch) }),
                Err(why) => file_not_taken(&mut text, name, &why),
            }
        }
        let wish = WriterWish::Answer { text, files: found };
        self.channel.hear(&HeardMessage { wish, ..heard.clone() }).await
    }

    pub fn now_ms(&self) -> i64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
