//! Messages on their way out, and what becomes of each.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drupe_extension_api::{prelude::*, wire::SETTLED};

use crate::{
    buttons::Button,
    draft::Draft,
    kept::KeptState,
    pace::{ChannelPace, MessageRoom, WORTH},
    record::{ChannelRecord, QuestionCard},
    service::{ChatService, NewPost, SendFailure},
    text,
};

/// The daemon gives a message half a minute; what is not begun by then is told to be tried again, part by part.
const TIME: Duration = Duration::from_secs(18);
/// How often a change is tried whose outcome is not known.
const CHANGES: usize = 2;

/// A channel to one service. Clones are the same.
pub struct ChatChannel<S: ChatService> {
    pub host: Host,
    pub service: S,
    pub kept: KeptState<ChannelRecord<S::Record>>,
    pub(crate) pace: Arc<ChannelPace>,
    drafts: Arc<Mutex<HashMap<SessionId, Arc<Draft>>>>,
}

impl<S: ChatService> Clone for ChatChannel<S> {
    fn clone(&self) -> Self {
        let Self { host, service, kept, pace, drafts } = self;
        Self {
            host: host.clone(),
            service: service.clone(),
            kept: kept.clone(),
            pace: pace.clone(),
            drafts: drafts.clone(),
        }
    }
}

impl<S: ChatService> ChatChannel<S> {
    /// A channel that keeps in this file of the extension's data folder what has to be known after a restart.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(host: Host, service: S, file: &str) -> Result<Self, Fault> {
        let kept = KeptState::open(host.clone(), file)?;
        Ok(Self { host, service, kept, pace: Arc::default(), drafts: Arc::default() })
    }

    /// Delivers a message whole, or says how far it came: what [`Channel::send`] is to do.
    pub async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let begun = Instant::now();
        let nowhere = || Fault::denied("the message says no place that it goes to");
        let address = message.address.as_deref().ok_or_else(nowhere)?;
        if let Some(question) = message.delivery.strip_suffix(SETTLED)
            && let Some(done) = self.settle(question, &message.text).await?
        {
            return Ok(done);
        }
        let draft = match message.kind {
            OutboundKind::Answer => self.end_draft(&message.session).await?,
            OutboundKind::Notice | OutboundKind::File => None,
        };
        if let Some(file) = &message.file {
            let send = || self.paced(address, false, self.service.send_file(address, &message, file));
            let sent = self.in_its_time(address, begun, send).await;
            return sent.map(delivered).map_err(failed::<S>);
        }
        let parts = text::parts(&message.text, S::LONGEST, S::units);
        let sent = self.kept.look(|kept| kept.parts.get(&message.delivery).copied()).unwrap_or_default();
        let mut last = None;
        for (at, part) in parts.iter().enumerate().skip(sent) {
            let buttons = if at + 1 == parts.len() { Button::of(&message) } else { Vec::new() };
            let mark = format!("{} {at}", message.delivery);
            let new = NewPost { text: part, buttons: &buttons, mark: &mark };
            let draft = draft.as_deref().filter(|_| at == 0);
            if !buttons.is_empty() {
                self.ask(&message, address, part).await?;
            }
            let written = self.in_its_time(address, begun, || self.write(address, draft, &new)).await;
            if let (Some(draft), Err(SendFailure::TooMany { .. } | SendFailure::NotSent(_))) =
                (draft, &written)
            {
                // Nothing was written: what was shown so far stays, and the next attempt takes its place.
                self.kept
                    .change(|kept| kept.showing.insert(message.session.as_str(), draft.to_owned()))
                    .await?;
            }
            let posted = written.map_err(failed::<S>)?;
            let noted = self.kept.change(|kept| {
                kept.parts.insert(&message.delivery, at + 1);
                if let Some(card) = kept.questions.get_mut(&message.delivery).filter(|_| !buttons.is_empty())
                {
                    card.message = Some(posted.clone());
                }
            });
            noted.await?;
            last = Some(posted);
        }
        Ok(Delivery { remote_id: last })
    }

    /// Keeps that a question is asked, before anybody can see it: whoever presses its buttons at once, or after a crash in between, is heard.
    async fn ask(&self, message: &OutboundMessage, address: &str, text: &str) -> Result<(), Fault> {
        let (address, session) = (address.to_owned(), message.session.to_string());
        let card = QuestionCard { message: None, address, session, text: text.to_owned() };
        let noted = self.kept.change(|kept| kept.questions.insert(&message.delivery, card)).await;
        // Nothing went out so far.
        noted.map_err(|fault| Fault::new(FaultCode::Unavailable, fault.to_string()))
    }

    /// Sends something as soon as the service takes it, where that is soon.
    async fn in_its_time<F: Future<Output = Result<String, SendFailure>>>(
        &self,
        address: &str,
        begun: Instant,
        send: impl Fn() -> F,
    ) -> Result<String, SendFailure> {
        loop {
            self.wait_for_room(address, begun).await?;
            match send().await {
                // Its time may come while the daemon waits, and no longer than others may be held up.
                Err(SendFailure::TooMany { seconds })
                    if seconds <= WORTH.as_secs()
                        && begun.elapsed() + Duration::from_secs(seconds) <= TIME => {}
                other => return other,
            }
        }
    }

    /// Waits as long as the service wants, where that is not long: messages to few addresses are on their way at the same time.
    async fn wait_for_room(&self, address: &str, begun: Instant) -> Result<(), SendFailure> {
        let waits = match self.pace.room(S::counted(address), address, Instant::now()) {
            MessageRoom::After(waits) => waits,
            MessageRoom::NotYet { tell_after, seconds } => {
                self.host.sleep(tell_after).await.map_err(SendFailure::NotSent)?;
                return Err(SendFailure::TooMany { seconds });
            }
        };
        match begun.elapsed() + waits > TIME {
            true => Err(SendFailure::TooMany { seconds: waits.as_secs() + 1 }),
            false if waits.is_zero() => Ok(()),
            false => self.host.sleep(waits).await.map_err(SendFailure::NotSent),
        }
    }

    /// Writes a part of a message: in the place of what was shown of it, where something was.
    async fn write(
        &self,
        address: &str,
        draft: Option<&str>,
        new: &NewPost<'_>,
    ) -> Result<String, SendFailure> {
        if let Some(draft) = draft {
            let mut said = self.change(address, draft, new.text, &[]).await;
            for _ in 1..CHANGES {
                if let Err(SendFailure::Doubtful(_)) = said {
                    said = self.change(address, draft, new.text, &[]).await;
                }
            }
            match said {
                Ok(()) => return Ok(draft.to_owned()),
                // Somebody removed it.
                Err(SendFailure::Refused { .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.post(address, new).await
    }

    /// Writes below a question what became of it, and takes its buttons away. None where it is not known which message shows it.
    async fn settle(&self, question: &str, outcome: &str) -> Result<Option<Delivery>, Fault> {
        let card = self.kept.look(|kept| kept.questions.get(question).cloned());
        let Some(QuestionCard { mut message, address, text, .. }) = card else { return Ok(None) };
        if let Some(shows) = &message {
            let whole = format!("{text}\n\n{outcome}");
            let is_one = text::parts(&whole, S::LONGEST, S::units).len() == 1;
            let text = if is_one { &whole } else { outcome };
            self.wait_for_room(&address, Instant::now()).await.map_err(failed::<S>)?;
            match self.change(&address, shows, text, &[]).await {
                // Somebody removed it: the outcome is told by itself.
                Err(SendFailure::Refused { .. }) => message = None,
                said => said.map_err(failed::<S>)?,
            }
        }
        self.kept.change(|kept| kept.questions.remove(question)).await?;
        Ok(message.map(delivered))
    }

    pub(crate) async fn post(&self, address: &str, new: &NewPost<'_>) -> Result<String, SendFailure> {
        self.paced(address, false, self.service.post(address, new)).await
    }

    pub(crate) async fn change(
        &self,
        address: &str,
        message: &str,
        text: &str,
        buttons: &[Button],
    ) -> Result<(), SendFailure> {
        self.paced(address, true, self.service.change(message, text, buttons)).await
    }

    /// Asks the service, and notes when something can be sent there again.
    pub(crate) async fn paced<T>(
        &self,
        address: &str,
        is_change: bool,
        asked: impl Future<Output = Result<T, SendFailure>>,
    ) -> Result<T, SendFailure> {
        let said = asked.await;
        let everywhere = if is_change { S::BETWEEN_CHANGES } else { Duration::ZERO };
        let (place, now) = (S::counted(address), Instant::now());
        match &said {
            Err(SendFailure::TooMany { seconds }) => {
                self.pace.hold(place, now, *seconds, !everywhere.is_zero());
            }
            _ => self.pace.sent(place, now, S::between_messages(place), everywhere),
        }
        said
    }

    pub(crate) fn drafts(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Draft>>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn delivered(message: String) -> Delivery {
    Delivery { remote_id: Some(message) }
}

fn failed<S: ChatService>(failure: SendFailure) -> Fault {
    failure.into_fault(S::NAME)
}
