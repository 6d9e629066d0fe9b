//! The channel for people who write to the assistant in Slack: Socket Mode or its requests over HTTP, answers that grow while they are made, questions with buttons, files both
//! ways.
//!
//! Who is answered is decided by the daemon (`senders: known`), to which this hands every message with the id of its writer. It has the network
//! for its socket, and no token: the daemon sends its requests and fills the tokens in.

mod api;
mod blocks;
mod door;
mod ear;
mod event;
mod files;
mod network;
mod service;
mod settings;
mod signature;
mod socket;
mod text;

use std::sync::Arc;

use drupe_channel::ChatChannel;
use drupe_extension_api::prelude::*;

use self::{
    api::WebApi, door::EventsDoor, ear::SlackEar, service::SlackApp, settings::SlackSettings, socket::Sockets,
};

/// The key of the configuration under which the daemon opens a socket, where it has a value.
const EVENTS: &str = "events";

struct Slack {
    ear: SlackEar,
    /// Where the service comes to, if this does not go to it.
    door: Option<Arc<EventsDoor>>,
}

impl Extension for Slack {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: SlackSettings = host.config()?;
        let app = SlackApp {
            host: host.clone(),
            api: WebApi::new(host.clone(), &settings.api),
            files: settings.files.trim_end_matches('/').into(),
        };
        if settings.events.is_none() {
            app.api.check_app_token().await?;
        }
        let channel = ChatChannel::open(host.clone(), app, "slack.json")?;
        let socket = settings.events.as_ref().map(|_| host.listener(EVENTS)).transpose()?;
        let ear = SlackEar::new(channel, settings);
        let secret = ear.settings.signing_secret.as_deref();
        let door = socket.map(|socket| EventsDoor::new(ear.clone(), socket, secret)).transpose()?;
        Ok(Self { door: door.map(Arc::new), ear })
    }
}

impl Channel for Slack {
    const CARRIES_FILES: bool = true;
    const SENDS_AT_ONCE: bool = true;

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
            if let Some(door) = &self.door {
                return door.serve().await;
            }
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
