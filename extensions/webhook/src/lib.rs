//! The channel to programs: each message is a signed request to an address of the configuration. Nobody writes in it.
//!
//! A message has one id, whoever sends it how often, and receivers know a repetition by it. So one of which nobody heard whether it
//! arrived is sent again, for as often as the daemon gives it.

mod address;
mod post;
mod settings;
mod signature;

use std::collections::BTreeMap;

use drupe_extension_api::prelude::*;

use self::{post::WebhookEndpoint, settings::WebhookSettings};

struct Webhook {
    endpoints: BTreeMap<String, WebhookEndpoint>,
    sender: post::EndpointClient,
}

impl Extension for Webhook {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: WebhookSettings = host.config()?;
        let endpoint =
            |(name, settings): (String, _)| Ok((name.clone(), WebhookEndpoint::new(&name, settings)?));
        let endpoints = settings.endpoints.into_iter().map(endpoint).collect::<Result<_, Fault>>()?;
        Ok(Self { endpoints, sender: post::EndpointClient::new(host) })
    }
}

impl Channel for Webhook {
    async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let endpoint = self.named(message.address.as_deref())?;
        self.sender.send(endpoint, &message).await
    }
}

impl Webhook {
    /// The endpoint that an address names; without an address, the only one.
    fn named(&self, address: Option<&str>) -> Result<&WebhookEndpoint, Fault> {
        let found = match (address, self.endpoints.len()) {
            (Some(name), _) => self.endpoints.get(name),
            (None, 1) => self.endpoints.values().next(),
            (None, _) => None,
        };
        found.ok_or_else(|| {
            let message = match address {
                Some(name) => format!("`extensions.webhook.endpoints` has no `{name}`"),
                None => "the message names no endpoint, and there is not just one".to_owned(),
            };
            Fault::denied(message).help("`address` of an entry of `copies` names one of them")
        })
    }
}

export!(Webhook: Channel);

#[cfg(test)]
mod tests;
