//! The channel to phones and desktops: each message is published on a topic of an ntfy server. Nobody writes in it.
//!
//! It has neither the network nor the name of the topic, which is the password of whoever follows it: the daemon sends its requests and
//! fills the name in. A message that may have been published is looked up, and never published again.

mod publish;
mod settings;
mod text;

use drupe_extension_api::prelude::*;

use self::{publish::Publisher, settings::NotifySettings};

struct Notify {
    publisher: Publisher,
}

impl Extension for Notify {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: NotifySettings = host.config()?;
        Ok(Self { publisher: Publisher::new(host, settings) })
    }
}

impl Channel for Notify {
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        self.publisher.send(&message).await
    }
}

export!(Notify: Channel);
