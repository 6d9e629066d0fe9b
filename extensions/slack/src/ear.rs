//! What was told through a socket is taken in, so that it may be acknowledged.

use std::{sync::Arc, time::Duration};

use drupe_channel::{ChatChannel, ChatService, HeardMessage, WriterWish};
use drupe_extension_api::prelude::*;

use crate::{
    api::told,
    event::{App, SlackHeard},
    service::SlackApp,
    settings::SlackSettings,
};

/// Pauses before the daemon is asked again that cannot take something in at the moment. The service waits three seconds in all.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];

/// Hands in what somebody wrote. Clones are the same.
#[derive(Clone)]
pub struct SlackEar {
    pub channel: ChatChannel<SlackApp>,
    pub settings: Arc<SlackSettings>,
}

impl SlackEar {
    /// Takes something in, so that it may be acknowledged: what the daemon must know it has on its disk. Whatever is shown for it goes out
    /// beside that.
    ///
    /// # Errors
    /// The daemon cannot take it in at the moment: the service tells of it again.
    pub async fn take(&self, SlackHeard { mut heard, is_aside }: SlackHeard) -> Result<(), Fault> {
        let channel = SlackApp::counted(&heard.address);
        let is_answered = heard.is_private || self.settings.answers_in(channel);
        heard.agent = self.settings.agent_in(channel);
        let is_for_others = self.channel.kept.look(|kept| {
            kept.was_heard(&heard.external_id) || is_aside && kept.own.threads.get(&heard.address).is_none()
        });
        if !is_answered || is_for_others {
            return Ok(());
        }
        let mut again = AGAIN.iter();
        loop {
            let fault = match self.channel.hear(&heard).await {
                Ok(None) => return self.take_part(&heard).await,
                Ok(Some(said)) => return self.reply(heard, said).await,
                Err(fault) => fault,
            };
            match fault.code {
                FaultCode::Unauthenticated => return self.meet(heard).await,
                // It cannot be taken in, now or later.
                FaultCode::Invalid | FaultCode::Denied | FaultCode::NotFound => {
                    self.channel.host.warn(format!("a message is not taken in: {fault}"));
                    return self.reply(heard, format!("This is not taken in: {}", fault.message)).await;
                }
                _ => match again.next() {
                    Some(pause) => self.channel.host.sleep(*pause).await?,
                    None => return Err(fault),
                },
            }
        }
    }

    /// From now on the bot hears what is said in the thread of a channel in which it was asked something.
    async fn take_part(&self, heard: &HeardMessage) -> Result<(), Fault> {
        let takes_part = self.channel.kept.look(|kept| kept.own.threads.get(&heard.address).is_some());
        if heard.is_private || takes_part || !matches!(heard.wish, WriterWish::Answer { .. }) {
            return Ok(());
        }
        self.channel.kept.change(|kept| kept.own.threads.insert(&heard.address, ())).await
    }

    /// Shows a reply beside what goes on; it is shown once, however often it is told again what it is for.
    async fn reply(&self, heard: HeardMessage, said: String) -> Result<(), Fault> {
        self.channel.kept.change(|kept| kept.hear(&heard.external_id)).await?;
        let channel = self.channel.clone();
        self.channel.host.spawn(async move { channel.say(&heard, &said).await })
    }

    /// Shows somebody who is not known what the daemon says, where nobody else reads it.
    async fn meet(&self, mut heard: HeardMessage) -> Result<(), Fault> {
        if !heard.is_private {
            return Ok(());
        }
        self.channel.kept.change(|kept| kept.hear(&heard.external_id)).await?;
        let channel = self.channel.clone();
        self.channel.host.spawn(async move {
            heard.sender.name = channel.service.name_of(&heard.sender).await;
            match channel.meet(&heard).await {
                Ok(Some(said)) => channel.say(&heard, &said).await,
                Ok(None) => {}
                Err(fault) => {
                    channel.host.warn(format!("somebody new could not be told how they are let in: {fault}"))
                }
            }
        })
    }

    /// Asks who the bot is, until it is told.
    pub async fn until_known(&self) -> Result<App, Fault> {
        let (host, api) = (&self.channel.host, &self.channel.service.api);
        let mut pause = Duration::from_secs(1);
        loop {
            let failure = match api.call("auth.test", &serde_json::json!({})).await {
                Ok(app) => return Ok(serde_json::from_value(app)?),
                Err(failure) => failure,
            };
            host.error(format!("the bot is not known: {}", told(failure)));
            host.sleep(pause).await?;
            pause = (pause * 2).min(Duration::from_secs(60));
        }
    }
}
