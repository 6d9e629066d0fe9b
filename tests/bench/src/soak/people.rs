//! People who write to the daemon through a bot of Telegram while everything else goes on, by the stand-in of its servers that the tests have.

#[path = "../../../end_to_end/telegram/bot_api.rs"]
#[expect(dead_code, clippy::expect_used, reason = "the tests use what this does not")]
mod bot_api;
#[path = "../../../end_to_end/chat/calls.rs"]
#[expect(dead_code, reason = "the tests use what this does not")]
mod calls;
#[path = "../../../end_to_end/chat/http.rs"]
mod http;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use self::bot_api::{BotServer, TOKEN, Trouble};
use crate::{
    daemon::Daemon,
    model::ANSWER,
    process::{self, pss_mb},
    turns::Work,
};

/// The extension that is their channel.
pub const CHANNEL: &str = "telegram";

/// How many write. Each waits for an answer before they write again.
const PEOPLE: std::ops::Range<i64> = 1..9;

/// After so many messages somebody begins a new conversation: each turn tells the model all of one.
const CONVERSATION: usize = 100;

/// One of so many messages meets a fault of the service.
const FAULTS: usize = 50;

/// How often somebody looks whether there is an answer, and for how long they wait for one.
const LOOK: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);

/// All of them, and the service.
pub struct People {
    bot: BotServer,
    wrote: Mutex<BTreeMap<i64, Wrote>>,
}

#[derive(Default)]
struct Wrote {
    messages: usize,
    last: Option<Instant>,
}

/// What became of what they wrote.
#[derive(Debug, Default)]
pub struct Answered {
    pub messages: usize,
    pub lost: usize,
    pub doubled: usize,
    /// Deliveries of which the operator was told that they may or may not have arrived.
    pub uncertain: usize,
}

impl People {
    pub fn start() -> Self {
        Self { bot: BotServer::start(), wrote: Mutex::default() }
    }

    /// What stands in `drupe.yaml` for their channel.
    pub fn config(&self) -> Value {
        json!({"enabled": true, "api": self.bot.address, "poll_seconds": 20, "allowed": PEOPLE.collect::<Vec<_>>()})
    }

    /// Keeps the bot's token in a home.
    pub fn keep_token(&self, daemon: &Daemon) -> Result<()> {
        let file = daemon.path().join(".env");
        fs::write(&file, format!("TELEGRAM_BOT_TOKEN={TOKEN}\n"))?;
        Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o600))?)
    }

    /// They write until it is enough, and wait for what was not answered yet.
    pub fn write_until(&self, enough: &AtomicBool) {
        while !enough.load(Ordering::SeqCst) {
            self.write();
            thread::sleep(LOOK);
        }
    }

    /// Whoever has an answer, or no patience any more, writes again.
    fn write(&self) {
        let answers = self.answers();
        let mut wrote = self.wrote.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: usize = wrote.values().map(|one| one.messages).sum();
        for who in PEOPLE {
            let one = wrote.entry(who).or_default();
            let waits = one.last.is_some_and(|last| last.elapsed() < PATIENCE);
            if waits && answers.get(&who).copied().unwrap_or(0) < one.messages {
                continue;
            }
            if one.messages.is_multiple_of(CONVERSATION) {
                self.bot.says(who, "/new");
            }
            one.messages += 1;
            one.last = Some(Instant::now());
            all += 1;
            if all.is_multiple_of(FAULTS) {
                match all / FAULTS % 4 {
                    0 => self.bot.trouble("sendMessage", Trouble::TooMany(1)),
                    1 => self.bot.trouble("getUpdates", Trouble::Cut),
                    2 => self.bot.trouble("editMessageText", Trouble::DoneAndCut),
                    _ => self.bot.trouble("getUpdates", Trouble::Gateway),
                }
            }
            self.bot.says(who, Work::Echo.text());
        }
    }

    /// How many whole answers stand in each chat.
    fn answers(&self) -> BTreeMap<i64, usize> {
        PEOPLE.map(|who| (who, self.bot.count(who, ANSWER))).collect()
    }

    /// Waits until all that is to come is there.
    pub fn account(&self, daemon: &Daemon) -> Result<Answered> {
        let wrote: BTreeMap<i64, usize> = {
            let wrote = self.wrote.lock().unwrap_or_else(PoisonError::into_inner);
            wrote.iter().map(|(who, one)| (*who, one.messages)).collect()
        };
        let began = Instant::now();
        let mut answers = self.answers();
        while began.elapsed() < PATIENCE && wrote.iter().any(|(who, messages)| answers[who] < *messages) {
            thread::sleep(LOOK);
            answers = self.answers();
        }
        let mut found = Answered::default();
        let sessions = daemon.client()?.ask("sessions.list", &json!({}))?;
        let ids = sessions.as_array().into_iter().flatten().filter_map(|session| session["id"].as_str());
        for id in ids.filter(|id| id.starts_with(CHANNEL)) {
            let events = daemon.client()?.events(id)?;
            found.uncertain +=
                events.iter().filter(|event| event["data"]["code"] == "delivery.uncertain").count();
        }
        for (who, messages) in wrote {
            found.messages += messages;
            found.lost += messages.saturating_sub(answers[&who]);
            found.doubled += answers[&who].saturating_sub(messages);
        }
        found.lost = found.lost.saturating_sub(found.uncertain);
        Ok(found)
    }
}

/// The memory of the channel's process, in megabytes.
pub fn channel_mb(supervisor: u32) -> Result<f64> {
    let of_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.clone().any(|word| word == b"ext-host") && words.any(|word| word == CHANNEL.as_bytes())
    };
    // The process that confines it bears the same words, and comes before it.
    let found = process::tree(supervisor)?.into_iter().rfind(of_it);
    pss_mb(found.context("a process of the channel")?)
}
