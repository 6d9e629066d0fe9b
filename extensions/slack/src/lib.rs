//! The channel for people who write to the assistant in Slack: Socket Mode, answers that grow while they are made, questions with buttons, files both
//! ways.
//!
//! Who is answered is decided by the daemon (`senders: known`), to which this hands every message with the id of its writer. It has the network
//! for its socket, and no token: the daemon sends its requests and fills the tokens in.

mod api;
mod blocks;
mod ear;
mod event;
mod files;
mod network;
mod service;
mod settings;
mod socket;
mod taking;
mod text;

use drupe_channel::ChatChannel;
use drupe_extension_api::prelude::*;

use self::{api::WebApi, ear::SlackEar, service::SlackApp, settings::SlackSettings, socket::Sockets};

struct Slack {
    ear: SlackEar,
}

impl Extension for Slack {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: SlackSettings = host.config()?;
        let app = SlackApp {
            host: host.clone(),
            api: WebApi::new(host.clone(), &settings.api),
            files: settings.files.trim_end_matches('/').into(),
        };
        let channel = ChatChannel::open(host, app, "slack.json")?;
        Ok(Self { ear: SlackEar::new(channel, settings) })
    }
}

impl Channel for Slack {
    const CARRIES_FILES: bool = true;

    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.ear.channel.send(message).await
    }

    async fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        self.ear.channel.stream(part)
    }
}

impl Service for Slack {
    async fn run(&self, shutdown: Shutdown) -> Result<(), Fault> {
        let listening = async {
            let app = self.ear.until_known().await?;
            self.ear.channel.host.info(format!("hears as @{}", app.name));
            Sockets::new(self.ear.clone(), app).keep_open().await
        };
        tokio::select! {
            () = shutdown => Ok(()),
            ended = listening => ended,
        }
    }
}

export!(Slack: Channel, Service);

#[cfg(test)]
mod tests;
