//! What is heard becomes a message for the daemon, an answer to a question, or a word that is done here.

use std::{sync::Arc, time::Duration};

use drupe_extension_api::prelude::*;

use crate::{
    api::WebApi,
    blocks::STOP,
    event::{App, BotWord, HeardMessage, WriterIntent},
    kept::{AppKeeper, PostedMessage, QuestionCard},
    out::SlackOutgoing,
    settings::SlackSettings,
};

/// Pauses before the daemon is asked again that cannot take something in at the moment. The service waits three seconds in all.
const AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(800)];

/// How often it is looked what a button stands below, and how long after each look.
const LOOKS: u32 = 15;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Hands in what somebody wrote. Clones are the same.
#[derive(Clone)]
pub struct SlackEar {
    pub host: Host,
    pub api: WebApi,
    pub keeper: AppKeeper,
    pub out: SlackOutgoing,
    pub settings: Arc<SlackSettings>,
}

/// What is to be shown behind what was heard, and nobody must get.
struct Reply {
    text: String,
}

impl SlackEar {
    /// Takes something in, so that it may be acknowledged: what the daemon must know it has on its disk. Whatever is shown for it goes out
    /// beside that.
    ///
    /// # Errors
    /// The daemon cannot take it in at the moment: the service tells of it again.
    pub async fn take(&self, incoming: HeardMessage) -> Result<(), Fault> {
        let is_answered = incoming.is_private || self.settings.answers_in(&incoming.place.channel);
        if !is_answered || self.keeper.look(|kept| kept.was_done(&incoming.external_id)) {
            return Ok(());
        }
        let mut again = AGAIN.iter();
        loop {
            let fault = match self.wants(&incoming).await {
                Ok(None) => return Ok(()),
                Ok(Some(reply)) => return self.reply(incoming, reply).await,
                Err(fault) => fault,
            };
            match fault.code {
                FaultCode::Unauthenticated => return self.meet(incoming).await,
                // It cannot be taken in, now or later.
                FaultCode::Invalid | FaultCode::Denied | FaultCode::NotFound => {
                    self.host.warn(format!("a message is not taken in: {fault}"));
                    let text = format!("This is not taken in: {}", fault.message);
                    return self.reply(incoming, Reply { text }).await;
                }
                _ => match again.next() {
                    Some(pause) => self.host.sleep(*pause).await?,
                    None => return Err(fault),
                },
            }
        }
    }

    async fn wants(&self, incoming: &HeardMessage) -> Result<Option<Reply>, Fault> {
        let HeardMessage { place, sender, external_id, wanted, .. } = incoming;
        let base = place.session(self.host.id().as_str(), incoming.is_private, sender);
        let session = self.keeper.look(|kept| kept.conversation(&base));
        let hand_in = async |session: String, text: &str| {
            let submit = Submit {
                address: Some(place.address()),
                agent: self.settings.agent_in(&place.channel),
                sender: Some(sender.clone()),
                ..Submit::new(SessionId::new(session)?, external_id, text)
            };
            self.host.submit(submit).await.map(|_| None)
        };
        match wanted {
            WriterIntent::Answer(text) => hand_in(session, text).await,
            WriterIntent::Pressed { message, value } => {
                let (card, draft) = self.behind(&place.channel, message).await?;
                match (card, draft) {
                    (Some(card), _) => {
                        let submit = Submit {
                            address: Some(card.place.address()),
                            sender: Some(sender.clone()),
                            ..Submit::new(SessionId::new(card.session)?, external_id, value)
                        };
                        self.host.submit(submit).await.map(|_| None)
                    }
                    (None, Some(session)) if value == STOP => self.stop(session, sender).await.map(Some),
                    (None, _) => {
                        self.known(sender).await?;
                        let text = match value == STOP {
                            true => "Nothing runs.",
                            false => "This is not asked any more.",
                        };
                        Ok(Some(Reply { text: text.to_owned() }))
                    }
                }
            }
            WriterIntent::Word(BotWord::Stop) => self.stop(session, sender).await.map(Some),
            WriterIntent::Unreadable | WriterIntent::Word(_) => {
                let may_approve = self.known(sender).await?;
                let text = match wanted {
                    WriterIntent::Word(BotWord::New) if place.thread.is_none() => {
                        self.keeper.change(|kept| kept.begin_anew(base, external_id)).await?;
                        "What you write now begins a new conversation.".to_owned()
                    }
                    WriterIntent::Word(BotWord::New) => "A new thread is a new conversation.".to_owned(),
                    WriterIntent::Word(_) => {
                        let answers = if may_approve { "count" } else { "do not count" };
                        format!(
                            "You are `{}/{}`. This conversation is `{session}`. Your answers to questions about calls {answers}.",
                            self.host.id(),
                            sender.id
                        )
                    }
                    _ => "Only text is read here.".to_owned(),
                };
                Ok(Some(Reply { text }))
            }
        }
    }

    /// The question, or the conversation whose answer is being made, that a message with buttons shows. Somebody quick may press before it is
    /// kept which message that is, so it is waited for a moment.
    async fn behind(&self, channel: &str, ts: &str) -> Result<(Option<QuestionCard>, Option<String>), Fault> {
        let is_it = |message: &PostedMessage| message.channel == channel && message.ts == ts;
        let mut looks = 0..LOOKS;
        loop {
            let found = self.keeper.look(|kept| {
                let card = kept.cards.values().find(|card| is_it(&card.message)).cloned();
                let draft = kept.drafts.iter().find(|(_, posted)| is_it(posted));
                (card, draft.map(|(session, _)| session.clone()))
            });
            if found != (None, None) || looks.next().is_none() {
                return Ok(found);
            }
            self.host.sleep(BETWEEN_LOOKS).await?;
        }
    }

    /// Whether the answers of somebody count who is known.
    async fn known(&self, sender: &Sender) -> Result<bool, Fault> {
        match self.host.admit(sender).await? {
            Admission::Known { may_approve } => Ok(may_approve),
            _ => Err(Fault::new(FaultCode::Unauthenticated, "they are not known")),
        }
    }

    async fn stop(&self, session: String, sender: &Sender) -> Result<Reply, Fault> {
        let text = match self.host.stop_session(SessionId::new(session)?, Some(sender.clone())).await? {
            0 => "Nothing runs.".to_owned(),
            1 => "It is stopped.".to_owned(),
            turns => format!("All {turns} are stopped."),
        };
        Ok(Reply { text })
    }

    /// Shows a reply beside what goes on; it is shown once, however often it is told again what it is for.
    async fn reply(&self, incoming: HeardMessage, Reply { text }: Reply) -> Result<(), Fault> {
        self.keeper.change(|kept| kept.do_once(&incoming.external_id)).await?;
        let out = self.out.clone();
        self.host.spawn(async move {
            let HeardMessage { place, is_private, user, .. } = incoming;
            out.say(&place, (!is_private).then_some(user.as_str()), &text).await;
        })
    }

    /// Shows somebody who is not known what the daemon says. In a channel nobody is told: they can write to the bot alone.
    async fn meet(&self, incoming: HeardMessage) -> Result<(), Fault> {
        if !incoming.is_private || matches!(incoming.wanted, WriterIntent::Pressed { .. }) {
            return Ok(());
        }
        self.keeper.change(|kept| kept.do_once(&incoming.external_id)).await?;
        let ear = self.clone();
        self.host.spawn(async move {
            let HeardMessage { place, mut sender, user, .. } = incoming;
            sender.name = ear.name_of(&user).await;
            match ear.host.admit(&sender).await {
                Ok(Admission::Waiting { text, .. }) => ear.out.say(&place, None, &text).await,
                Ok(Admission::Known { .. } | Admission::Unknown) => {}
                Err(fault) => {
                    ear.host.warn(format!("somebody new could not be told how they are let in: {fault}"))
                }
            }
        })
    }

    /// What somebody calls themselves, where the app may ask for it.
    async fn name_of(&self, user: &str) -> Option<String> {
        let told = self.api.read("users.info", &[("user", user)]).await.ok()?;
        let (user, profile) = (&told["user"], &told["user"]["profile"]);
        let names = [&profile["real_name"], &user["real_name"], &user["name"]];
        names.iter().find_map(|name| name.as_str().filter(|name| !name.is_empty())).map(str::to_owned)
    }

    /// Asks who the bot is, until it is told.
    pub async fn until_known(&self) -> Result<App, Fault> {
        let mut pause = Duration::from_secs(1);
        loop {
            let failure = match self.api.call("auth.test", &serde_json::json!({})).await {
                Ok(app) => return Ok(serde_json::from_value(app)?),
                Err(failure) => failure,
            };
            self.host.error(format!("the bot is not known: {}", failure.said()));
            self.host.sleep(pause).await?;
            pause = (pause * 2).min(Duration::from_secs(60));
        }
    }
}
