//! What was told through a socket is taken in, so that it may be acknowledged.

use std::{sync::Arc, time::Duration};

use drupe_channel::{
    ChatChannel, ChatService, HeardMessage, SendFailure, Taking, WriterWish, file_not_taken,
};
use drupe_extension_api::{prelude::*, wire::MOST_FILES};
use tokio::sync::Semaphore;

use crate::{
    api::told,
    event::{App, SlackHeard},
    files::SlackFile,
    service::SlackApp,
    settings::SlackSettings,
};

/// Pauses before the daemon is asked again that cannot take something in at the moment. The service waits three seconds in all.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];
/// The same for a message whose files do not come. The service tells of it again meanwhile, and that is the same message; it gives up after some
/// minutes, so that the message is taken in without them by then.
const FILES_AGAIN: [Duration; 4] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(3), Duration::from_secs(6)];
/// Messages whose files are fetched at the same time: half of the requests that the daemon has under way for an extension, so that answers go out
/// beside them.
const FETCHING: usize = 4;

/// Hands in what somebody wrote. Clones are the same.
#[derive(Clone)]
pub struct SlackEar {
    pub channel: ChatChannel<SlackApp>,
    pub settings: Arc<SlackSettings>,
    fetching: Arc<Semaphore>,
}

impl SlackEar {
    pub fn new(channel: ChatChannel<SlackApp>, settings: SlackSettings) -> Self {
        Self { channel, settings: Arc::new(settings), fetching: Arc::new(Semaphore::new(FETCHING)) }
    }

    /// Takes in what is told by one way, of one conversation one thing after another.
    pub fn taking<I: Send + 'static>(&self) -> Taking<I, SlackHeard> {
        let ear = self.clone();
        Taking::new(move |told| {
            let ear = ear.clone();
            async move { ear.take(told).await }
        })
    }

    /// Takes something in, so that it may be acknowledged: what the daemon must know it has on its disk. Whatever is shown for it goes out
    /// beside that.
    ///
    /// # Errors
    /// The daemon cannot take it in at the moment: the service tells of it again.
    pub async fn take(&self, SlackHeard { mut heard, mut files, is_aside }: SlackHeard) -> Result<(), Fault> {
        let channel = SlackApp::counted(&heard.address);
        let is_answered = heard.is_private || self.settings.answers_in(channel);
        heard.agent = self.settings.agent_in(channel);
        let is_for_others = self.channel.kept.look(|kept| {
            kept.was_heard(&heard.external_id) || is_aside && kept.own.threads.get(&heard.address).is_none()
        });
        if !is_answered || is_for_others {
            return Ok(());
        }
        let mut again = if files.is_empty() { AGAIN.iter() } else { FILES_AGAIN.iter() };
        loop {
            let fault = match self.hear(&heard, &files).await {
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
                code => match again.next() {
                    Some(pause) => self.channel.host.sleep(*pause).await?,
                    // Of the daemon's own disk there may be room again; whoever has the file may never give it.
                    None if code == FaultCode::Unavailable && !files.is_empty() => {
                        if let WriterWish::Answer { text, .. } = &mut heard.wish {
                            files.drain(..).for_each(|file| file_not_taken(text, &file.name, &fault.message));
                        }
                        again = AGAIN.iter();
                    }
                    None => return Err(fault),
                },
            }
        }
    }

    /// Hears something, with its files as the daemon gets them, and with words for those that it cannot get.
    async fn hear(&self, heard: &HeardMessage, files: &[SlackFile]) -> Result<Option<String>, Fault> {
        let WriterWish::Answer { text, .. } = &heard.wish else { return self.channel.hear(heard).await };
        if files.is_empty() {
            return self.channel.hear(heard).await;
        }
        // Not even where it is asked for that a stranger sent.
        self.channel.known(&heard.sender).await?;
        let _place = self.fetching.acquire().await.map_err(Fault::internal)?;
        let (mut text, mut found) = (text.clone(), Vec::new());
        for (nth, file) in files.iter().enumerate() {
            if nth == MOST_FILES {
                let more = files.len() - nth;
                file_not_taken(
                    &mut text,
                    &file.name,
                    &format!("it and all behind it, {more} in all, are too many"),
                );
                break;
            }
            match self.channel.service.file(file).await {
                Ok(file) => found.push(file),
                // What the service has no name for is said here.
                Err(SendFailure::Refused { code, said }) if code.is_empty() => {
                    file_not_taken(&mut text, &file.name, &said);
                }
                Err(failure @ SendFailure::Refused { .. }) => {
                    let why = told(failure);
                    self.channel.host.warn(format!("a file is not taken in: {why}"));
                    file_not_taken(&mut text, &file.name, &why);
                }
                // It only asks, so that it can be asked again.
                Err(failure) => return Err(Fault::new(FaultCode::Unavailable, told(failure))),
            }
        }
        let wish = WriterWish::Answer { text, files: found };
        self.channel.hear(&HeardMessage { wish, ..heard.clone() }).await
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
