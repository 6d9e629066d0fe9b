//! What is heard becomes a message for the daemon, an answer to a question, or a word that is done here.

use drupe_extension_api::prelude::*;

use crate::{
    buttons::{self, STOP},
    channel::ChatChannel,
    record::QuestionCard,
    service::ChatService,
};

/// Something that is for the assistant.
#[derive(Debug, Clone, PartialEq)]
pub struct HeardMessage {
    /// Where it was written, to which an answer goes.
    pub address: String,
    /// The conversation of whoever writes there, as long as none was begun in its place.
    pub conversation: String,
    /// Whether nobody else reads it.
    pub is_private: bool,
    /// As the daemon knows them.
    pub sender: Sender,
    /// The same whenever the service tells of it again.
    pub external_id: String,
    /// Who answers, in place of the orchestrator.
    pub agent: Option<AgentId>,
    pub wish: WriterWish,
}

/// What somebody who writes to the bot wants.
#[derive(Debug, Clone, PartialEq)]
pub enum WriterWish {
    /// An answer to a text, or to files with or without one.
    Answer { text: String, files: Vec<InboundFile> },
    /// That what they write from now on is a new conversation.
    BeginAnew,
    /// That what runs or waits in the conversation ends.
    Stop,
    /// To be told who they are here.
    KnowWhoTheyAre,
    /// Something to which the channel itself says this, to those who are known.
    Reply(String),
    /// A button was pressed that says `value` and stands below a message.
    Press { message: String, value: String },
}

impl<S: ChatService> ChatChannel<S> {
    /// Takes something in: once this returns, what the daemon must know is on its disk. Gives what is said for it, which nobody must get.
    ///
    /// # Errors
    /// [`FaultCode::Unauthenticated`] for somebody who is not known, see [`meet`](Self::meet); those of [`Host::submit`].
    pub async fn hear(&self, heard: &HeardMessage) -> Result<Option<String>, Fault> {
        let HeardMessage { conversation, sender, external_id, .. } = heard;
        let session = self.kept.look(|kept| kept.conversation(conversation));
        match &heard.wish {
            WriterWish::Answer { text, files } => {
                let submit = Submit {
                    address: Some(heard.address.clone()),
                    agent: heard.agent.clone(),
                    sender: Some(sender.clone()),
                    files: files.clone(),
                    ..Submit::new(SessionId::new(session)?, external_id, text)
                };
                self.host.submit(submit).await.map(|_| None)
            }
            WriterWish::Press { message, value } => self.pressed(heard, message, value).await,
            WriterWish::Stop => self.stop(session, sender).await.map(Some),
            WriterWish::BeginAnew => {
                self.known(sender).await?;
                self.kept.change(|kept| kept.begin_anew(conversation, external_id)).await?;
                Ok(Some("What you write now begins a new conversation.".to_owned()))
            }
            WriterWish::KnowWhoTheyAre => {
                let answers = if self.known(sender).await? { "count" } else { "do not count" };
                let (id, name) = (self.host.id(), &sender.id);
                Ok(Some(format!(
                    "You are `{id}/{name}`. This conversation is `{session}`. Your answers to questions about calls {answers}."
                )))
            }
            WriterWish::Reply(text) => self.known(sender).await.map(|_| Some(text.clone())),
        }
    }

    async fn pressed(
        &self,
        heard: &HeardMessage,
        message: &str,
        value: &str,
    ) -> Result<Option<String>, Fault> {
        let HeardMessage { sender, external_id, .. } = heard;
        if value == STOP {
            return match self.shown_by(&heard.address, message) {
                Some(session) => self.stop(session, sender).await.map(Some),
                None => self.known(sender).await.map(|_| Some("Nothing runs.".to_owned())),
            };
        }
        let place = S::counted(&heard.address);
        let is_it = |card: &&QuestionCard| match &card.message {
            Some(known) => known == message,
            // It is being sent, or was when something ended.
            None => S::counted(&card.address) == place,
        };
        let asked = buttons::answers(value).and_then(|question| {
            let card = self.kept.look(|kept| kept.questions.get(question).filter(is_it).cloned())?;
            Some((question, card))
        });
        let Some((question, card)) = asked else {
            self.known(sender).await?;
            return Ok(Some("This is not asked any more.".to_owned()));
        };
        let submit = Submit {
            address: Some(card.address),
            sender: Some(sender.clone()),
            ..Submit::new(SessionId::new(card.session)?, external_id, value)
        };
        self.host.submit(submit).await?;
        if card.message.is_none() {
            // By now it is known which message shows it.
            let noted = self.kept.change(|kept| {
                if let Some(card) = kept.questions.get_mut(question).filter(|card| card.message.is_none()) {
                    card.message = Some(message.to_owned());
                }
            });
            noted.await?;
        }
        Ok(None)
    }

    /// What somebody who is not known is shown. In a group that is nothing: they can write to the bot alone.
    pub async fn meet(&self, heard: &HeardMessage) -> Result<Option<String>, Fault> {
        if !heard.is_private || matches!(heard.wish, WriterWish::Press { .. }) {
            return Ok(None);
        }
        match self.host.admit(&heard.sender).await? {
            Admission::Waiting { text, .. } => Ok(Some(text)),
            Admission::Known { .. } | Admission::Unknown => Ok(None),
        }
    }

    /// Whether the answers of somebody to questions count.
    ///
    /// # Errors
    /// [`FaultCode::Unauthenticated`] for somebody who is not known.
    pub async fn known(&self, sender: &Sender) -> Result<bool, Fault> {
        match self.host.admit(sender).await? {
            Admission::Known { may_approve } => Ok(may_approve),
            Admission::Waiting { .. } | Admission::Unknown => {
                Err(Fault::new(FaultCode::Unauthenticated, "they are not known"))
            }
        }
    }

    async fn stop(&self, session: String, sender: &Sender) -> Result<String, Fault> {
        Ok(match self.host.stop_session(SessionId::new(session)?, Some(sender.clone())).await? {
            0 => "Nothing runs.".to_owned(),
            1 => "It is stopped.".to_owned(),
            turns => format!("All {turns} are stopped."),
        })
    }

    /// Says something for what was heard that nobody must get.
    pub async fn say(&self, heard: &HeardMessage, text: &str) {
        let said = self.paced(&heard.address, false, self.service.say(heard, text)).await;
        if let Err(failure) = said {
            self.host.warn(format!("a reply was not sent: {}", failure.into_fault(S::NAME)));
        }
    }
}

/// Says in the text of a message that a file of it is not there, and why.
pub fn file_not_taken(text: &mut String, name: &str, why: &str) {
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(100).collect();
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&format!("[A file came with this message, {name:?}, and was not taken: {why}]"));
}
