//! What comes in: the service is asked for updates, and each is heard once.
//!
//! An update is confirmed by the request after the one that brought it, and only when the daemon has taken it in: whatever ends
//! before, the service tells of it again, and the daemon knows its id.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

use crate::{
    api::{BotApi, CallFailure, LARGEST_FETCHED},
    kept::Keeper,
    out,
    settings::TelegramSettings,
    update::{self, Bot, BotCommand, Incoming, Intent, SentFile},
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
    pub host: Host,
    pub api: BotApi,
    pub keeper: Keeper,
    pub out: out::Outgoing,
    pub settings: Arc<TelegramSettings>,
    /// The update whose files did not come, and how often.
    pub missing: Arc<Mutex<(i64, u32)>>,
}

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
        self.host.info(format!("hears as @{}", bot.username));
        let (mut pause, mut limit) = (PAUSE, UPDATES);
        loop {
            match self.updates(limit).await {
                Ok(updates) => {
                    limit = UPDATES;
                    match self.take_all(updates, &bot).await {
                        Ok(()) => pause = PAUSE,
                        Err(fault) => {
                            // Not confirmed: it comes again.
                            self.host.warn(format!("a message is taken in later: {fault}"));
                            self.rest(&mut pause).await?;
                        }
                    }
                }
                Err(CallFailure::TooMany { seconds }) => {
                    self.host.sleep(Duration::from_secs(seconds.clamp(1, 3600))).await?;
                }
                Err(failure) => {
                    // An answer that is too long has fewer updates the next time.
                    limit = (limit / 2).max(1);
                    self.host.warn(format!("no messages came: {}", said(failure)));
                    self.rest(&mut pause).await?;
                }
            }
        }
    }

    async fn rest(&self, pause: &mut Duration) -> Result<(), Fault> {
        self.host.sleep(*pause).await?;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    async fn until_known(&self) -> Result<Bot, Fault> {
        let mut pause = PAUSE;
        loop {
            match self.api.call("getMe", &json!({})).await {
                Ok(bot) => return Ok(serde_json::from_value(bot)?),
                Err(failure) => {
                    self.host.error(format!("the bot is not known: {}", said(failure)));
                    self.rest(&mut pause).await?;
                }
            }
        }
    }

    async fn updates(&self, limit: u64) -> Result<Vec<Value>, CallFailure> {
        let seconds = self.settings.poll_seconds;
        let mut params =
            json!({"timeout": seconds, "limit": limit, "allowed_updates": ["message", "callback_query"]});
        if let Some(offset) = self.keeper.look(|kept| kept.offset(self.now_ms())) {
            params["offset"] = offset.into();
        }
        let within = (seconds + 10) * 1000;
        let updates = self.api.call_for("getUpdates", &params, within).await?;
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
            if !self.keeper.look(|kept| kept.was_heard(number))
                && let Some(incoming) = update::read(&update, bot)
            {
                self.take(number, incoming).await?;
            }
            let now_ms = self.now_ms();
            self.keeper.change(|kept| kept.hear(number, now_ms)).await?;
        }
        Ok(())
    }

    /// Takes one in. A fault is of the daemon, and passes.
    async fn take(&self, number: i64, incoming: Incoming) -> Result<(), Fault> {
        match self.wants(number, &incoming).await {
            Err(fault) if fault.code == FaultCode::Unauthenticated => self.meet(&incoming).await,
            // It cannot be taken in, now or later.
            Err(fault)
                if matches!(fault.code, FaultCode::Invalid | FaultCode::Denied | FaultCode::NotFound) =>
            {
                self.host.warn(format!("a message is not taken in: {fault}"));
                self.say(&incoming, &format!("This is not taken in: {}", fault.message)).await;
                Ok(())
            }
            // Of the daemon's own disk there may be room again; whoever has the file may never give it.
            Err(fault)
                if fault.code == FaultCode::Unavailable && self.has_tried_enough(number, &incoming) =>
            {
                let mut without = incoming;
                if let Intent::Answer { text, files } = &mut without.wanted {
                    for SentFile { name, .. } in std::mem::take(files) {
                        not_taken(text, &name, &fault.message);
                    }
                }
                self.wants(number, &without).await
            }
            other => other,
        }
    }

    fn has_tried_enough(&self, number: i64, incoming: &Incoming) -> bool {
        if !matches!(&incoming.wanted, Intent::Answer { files, .. } if !files.is_empty()) {
            return false;
        }
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        *missing = if missing.0 == number { (number, missing.1 + 1) } else { (number, 1) };
        missing.1 >= TRIES
    }

    /// The files of a message as the daemon gets them, and its text with words for those that it cannot get.
    async fn with_files(
        &self,
        sender: &Sender,
        text: &str,
        files: &[SentFile],
    ) -> Result<(Vec<InboundFile>, String), Fault> {
        let (mut text, mut found) = (text.to_owned(), Vec::new());
        // Not even where it is asked for that a stranger sent.
        if !files.is_empty() && !matches!(self.host.admit(sender).await?, Admission::Known { .. }) {
            return Err(Fault::new(FaultCode::Unauthenticated, "they are not known"));
        }
        for SentFile { id, name, size } in files {
            let asked = match size {
                Some(size) if *size > LARGEST_FETCHED => Err(format!(
                    "it has {} MB, and Telegram gives a bot {} MB at most",
                    size.div_ceil(1_000_000),
                    LARGEST_FETCHED / 1_000_000
                )),
                _ => match self.api.file(id).await {
                    Ok(fetch) => Ok(fetch),
                    Err(CallFailure::Refused { description, .. }) => {
                        Err(format!("Telegram says {description}"))
                    }
                    // It only asks, so that it can be asked again.
                    Err(CallFailure::Doubtful(fault)) => {
                        return Err(Fault::new(FaultCode::Unavailable, fault.message));
                    }
                    Err(failure) => return Err(failure.into_fault()),
                },
            };
            match asked {
                Ok(fetch) => found.push(InboundFile { name: name.clone(), fetch }),
                Err(why) => not_taken(&mut text, name, &why),
            }
        }
        Ok((found, text))
    }

    async fn wants(&self, number: i64, incoming: &Incoming) -> Result<(), Fault> {
        let Incoming { place, sender, external_id, wanted, .. } = incoming;
        let base = self.base(incoming);
        let session = self.keeper.look(|kept| kept.conversation(&base));
        match wanted {
            Intent::Answer { text, files } => {
                let (files, text) = self.with_files(sender, text, files).await?;
                let submit = Submit {
                    address: Some(place.address()),
                    agent: self.settings.agent.clone(),
                    sender: Some(sender.clone()),
                    files,
                    ..Submit::new(SessionId::new(session)?, external_id, text)
                };
                self.host.submit(submit).await.map(drop)
            }
            Intent::Pressed { query, message, data } => {
                let known = self.keeper.look(|kept| {
                    kept.cards
                        .values()
                        .find(|card| (card.chat, card.message) == (place.chat, *message))
                        .cloned()
                });
                let done = match known {
                    Some(card) => {
                        let submit = Submit {
                            address: Some(place.address()),
                            sender: Some(sender.clone()),
                            ..Submit::new(SessionId::new(card.session)?, external_id, data)
                        };
                        self.host.submit(submit).await.map(|_| None)
                    }
                    None => Ok(Some("This is not asked any more.")),
                };
                // The button shows that it works until this is said, whatever came of it.
                let mut params = json!({"callback_query_id": query});
                if let Ok(Some(text)) = done {
                    params["text"] = text.into();
                }
                let _ = self.api.call("answerCallbackQuery", &params).await;
                done.map(drop)
            }
            Intent::Unreadable | Intent::Command(_) => {
                let Admission::Known { may_approve } = self.host.admit(sender).await? else {
                    return Err(Fault::new(FaultCode::Unauthenticated, "they are not known"));
                };
                let text = match wanted {
                    Intent::Command(BotCommand::Start) => "Write what you want.".to_owned(),
                    Intent::Command(BotCommand::New) => {
                        self.keeper.change(|kept| kept.begin_anew(base, &number.to_string())).await?;
                        "What you write now begins a new conversation.".to_owned()
                    }
                    Intent::Command(BotCommand::Stop) => {
                        match self.host.stop_session(SessionId::new(session)?, Some(sender.clone())).await? {
                            0 => "Nothing runs.".to_owned(),
                            1 => "It is stopped.".to_owned(),
                            turns => format!("All {turns} are stopped."),
                        }
                    }
                    Intent::Command(BotCommand::Who) => {
                        let answers = if may_approve { "count" } else { "do not count" };
                        format!(
                            "You are `{}/{}`. This conversation is `{session}`. Your answers to questions about calls {answers}.",
                            self.host.id(),
                            sender.id
                        )
                    }
                    _ => "Only texts, pictures and files are read here.".to_owned(),
                };
                self.say(incoming, &text).await;
                Ok(())
            }
        }
    }

    /// Shows somebody who is not known what the daemon says. In a group nobody is told: they can write to the bot alone.
    async fn meet(&self, incoming: &Incoming) -> Result<(), Fault> {
        if !incoming.is_private || matches!(incoming.wanted, Intent::Pressed { .. }) {
            return Ok(());
        }
        if let Admission::Waiting { text, .. } = self.host.admit(&incoming.sender).await? {
            self.say(incoming, &text).await;
        }
        Ok(())
    }

    /// Says something that nobody must get: a word about a command.
    async fn say(&self, incoming: &Incoming, text: &str) {
        if let Err(failure) = self.out.post(incoming.place, text, None).await {
            self.host.warn(format!("a reply was not sent: {}", failure.into_fault()));
        }
    }

    fn base(&self, incoming: &Incoming) -> String {
        incoming.place.session(self.host.id().as_str(), incoming.is_private, &incoming.sender)
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

/// What a failure means for whoever runs the bot.
fn said(failure: CallFailure) -> String {
    let CallFailure::Refused { code, description } = &failure else {
        return failure.into_fault().to_string();
    };
    let help = match code {
        401 | 404 => "; `drupe secret set TELEGRAM_BOT_TOKEN` with the token that @BotFather told",
        // Of a request of a process that ended, the service knows for a while no better than that it waits.
        409 if description.contains("getUpdates request") => {
            "; a request of before a restart ends by itself, and another program with the same token does not"
        }
        409 => "; the bot has a webhook: call `deleteWebhook` of the Bot API once",
        _ => "",
    };
    format!("Telegram says {code} {description}{help}")
}
