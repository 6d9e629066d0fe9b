//! The channel for people who write to a Telegram bot: long polling, answers that grow while they are made, questions with buttons.
//!
//! Who is answered is decided by the daemon (`senders: known`), to which this hands every message with the number of its writer. It has
//! neither the network nor the bot's token: the daemon sends its requests and fills the token in.

mod api;
mod hear;
mod intake;
mod service;
mod settings;
mod update;

use std::sync::Arc;

use drupe_channel::ChatChannel;
use drupe_extension_api::prelude::*;
use tokio::sync::Semaphore;

use self::{api::BotApi, hear::Ear, service::TelegramBot, settings::TelegramSettings};

struct Telegram {
    ear: Ear,
}

impl Extension for Telegram {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: TelegramSettings = host.config()?;
        let bot = TelegramBot { api: BotApi::new(host.clone(), &settings.api) };
        let channel = ChatChannel::open(host, bot, "telegram.json")?;
        let files = Arc::new(Semaphore::new(hear::WITH_FILES));
        Ok(Self { ear: Ear { channel, settings: Arc::new(settings), files } })
    }
}

impl Channel for Telegram {
    const CARRIES_FILES: bool = true;
    const SENDS_AT_ONCE: bool = true;

    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.ear.channel.send(message).await
    }

    async fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        self.ear.channel.stream(part)
    }
}

impl Service for Telegram {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        self.ear.hear(shutdown).await
    }
}

export!(Telegram: Channel, Service);
