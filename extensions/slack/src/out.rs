//! What goes out: answers with what is shown of them while they are made, questions with buttons, and what becomes of each.
//!
//! A message that may have arrived is never sent a second time: the service knows no id by which it would see that two are one. Whether it is
//! there is looked up. A change of one may come twice: the same text is the same message.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use drupe_extension_api::{prelude::*, wire::SETTLED};
use serde_json::{Value, json};

use crate::{
    api::{SlackFailure, WebApi},
    blocks,
    event::ChannelPlace,
    kept::{AppKeeper, PostedMessage, QuestionCard},
    pace::{MessageRoom, WORTH, WorkspacePace},
    text::{self, LONGEST, escaped},
};

/// The daemon gives a message half a minute; what is not begun by then is told to be tried again, part by part.
const TIME: Duration = Duration::from_secs(18);
/// How often a change is tried whose outcome is not known.
const CHANGES: usize = 2;
/// How often a message is looked for that may have arrived, the pause before each look, and the time for all.
const LOOKS: usize = 2;
const BEFORE_LOOK: Duration = Duration::from_secs(1);
const LOOKED_FOR: Duration = Duration::from_secs(8);
/// How far the clocks may be apart, in seconds, and how many messages are looked through.
const APART: u64 = 60;
const LOOKED_THROUGH: &str = "100";
/// What a message bears beside its text, by which it is found again.
const MARK: &str = "drupe_delivery";

/// Sends through one bot. Clones are the same.
#[derive(Clone)]
pub struct SlackOutgoing {
    pub host: Host,
    pub api: WebApi,
    pub keeper: AppKeeper,
    pub pace: Arc<WorkspacePace>,
    drafts: Arc<Mutex<HashMap<SessionId, Arc<Draft>>>>,
}

/// An answer that is being made.
struct Draft {
    place: ChannelPlace,
    session: SessionId,
    shown: Mutex<Shown>,
    changed: tokio::sync::Notify,
    /// Whether another answer of the conversation has begun.
    is_over: AtomicBool,
    /// Held while the service is asked to show something; false once nothing more is to be shown.
    goes_on: tokio::sync::Mutex<bool>,
}

#[derive(Default)]
struct Shown {
    text: String,
    /// The tool that works at the moment, if one does.
    status: Option<String>,
}

impl SlackOutgoing {
    pub fn new(host: Host, api: WebApi, keeper: AppKeeper) -> Self {
        Self { host, api, keeper, pace: Arc::default(), drafts: Arc::default() }
    }

    /// Takes a part of an answer in; showing it is a task of its own, which no part waits for.
    pub fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        let ChannelStream { session, address, part, message: _ } = part;
        if let StreamPart::Begin = part {
            let place = place_of(address.as_deref())?;
            let draft = Arc::new(Draft {
                place,
                session: session.clone(),
                shown: Mutex::default(),
                changed: tokio::sync::Notify::new(),
                is_over: AtomicBool::new(false),
                goes_on: tokio::sync::Mutex::new(true),
            });
            // One whose turn ended without an answer.
            if let Some(before) = self.drafts().insert(session, draft.clone()) {
                before.is_over.store(true, Ordering::Relaxed);
                before.changed.notify_one();
            }
            return self.host.spawn(self.clone().show(draft));
        }
        let Some(draft) = self.drafts().get(&session).cloned() else { return Ok(()) };
        let mut shown = draft.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match part {
            StreamPart::Delta { text } => {
                shown.text.push_str(&text);
                shown.status = None;
            }
            StreamPart::Reset => *shown = Shown::default(),
            StreamPart::Status { text } => {
                if !shown.text.is_empty() {
                    shown.text.push_str("\n\n");
                }
                shown.status = Some(text);
            }
            StreamPart::Begin | StreamPart::End => return Ok(()),
        }
        drop(shown);
        draft.changed.notify_one();
        Ok(())
    }

    /// Shows what there is of an answer, as often as the service takes it, until it is sent.
    async fn show(self, draft: Arc<Draft>) {
        let mut last = String::new();
        loop {
            draft.changed.notified().await;
            if draft.is_over.load(Ordering::Relaxed) {
                return;
            }
            // Others may have taken the turn that this one waited for.
            loop {
                let waits = self.pace.preview_waits(&draft.place.channel, Instant::now());
                if waits.is_zero() {
                    break;
                }
                tokio::time::sleep(waits).await;
            }
            let mut goes_on = draft.goes_on.lock().await;
            if !*goes_on {
                return;
            }
            // What was shown stays until there is something else.
            let Some(text) = draft.text() else { continue };
            if text != last {
                *goes_on = self.preview(&draft, &text).await;
                last = text;
            }
        }
    }

    /// Whether previews go on: not where nobody knows which message shows one.
    async fn preview(&self, draft: &Draft, text: &str) -> bool {
        let session = draft.session.as_str();
        let known = self.keeper.look(|kept| kept.drafts.get(session).cloned());
        let below = blocks::preview(text);
        let said = match &known {
            Some(message) => self.change(message, text, &below).await.map(|()| None),
            None => {
                let mark = format!("preview {session} {}", now().as_nanos());
                self.post(&draft.place, text, Some(&below), &mark).await.map(Some)
            }
        };
        match said {
            Ok(None) => true,
            Ok(Some(message)) => {
                let kept = self.keeper.change(|kept| kept.drafts.insert(session.to_owned(), message)).await;
                kept.is_ok()
            }
            Err(SlackFailure::TooMany { .. } | SlackFailure::NotSent(_)) => true,
            Err(SlackFailure::Doubtful(_)) if known.is_some() => true,
            Err(SlackFailure::Refused { .. } | SlackFailure::Doubtful(_)) => false,
        }
    }

    /// Delivers a message whole, or says how far it came.
    pub async fn send(&self, message: OutboundMessage) -> Result<Delivery, Fault> {
        let begun = Instant::now();
        let place = place_of(message.address.as_deref())?;
        if let Some(question) = message.delivery.strip_suffix(SETTLED)
            && let Some(done) = self.settle(question, &message.text).await?
        {
            return Ok(done);
        }
        let draft = match message.kind {
            OutboundKind::Answer => self.end_draft(&message.session).await?,
            OutboundKind::Notice | OutboundKind::File => None,
        };
        let parts = text::parts(&message.text, LONGEST);
        let sent = self.keeper.look(|kept| kept.parts.get(&message.delivery).copied()).unwrap_or_default();
        let mut last = None;
        for (at, part) in parts.iter().enumerate().skip(sent) {
            let below = (at + 1 == parts.len()).then(|| blocks::question(&message, part)).flatten();
            let mark = format!("{} {at}", message.delivery);
            let draft = draft.as_ref().filter(|_| at == 0);
            let written = loop {
                let written = match (self.wait_for_room(&place, begun).await, draft) {
                    (Err(failure), _) => Err(failure),
                    (Ok(()), Some(draft)) => self.take_place_of(&place, draft, part, &mark).await,
                    (Ok(()), None) => self.post(&place, part, below.as_ref(), &mark).await,
                };
                match written {
                    // Its time may come while the daemon waits, and no longer than others may be held up.
                    Err(SlackFailure::TooMany { seconds })
                        if seconds <= WORTH.as_secs()
                            && begun.elapsed() + Duration::from_secs(seconds) <= TIME => {}
                    other => break other,
                }
            };
            if let (Some(draft), Err(SlackFailure::TooMany { .. } | SlackFailure::NotSent(_))) =
                (draft, &written)
            {
                // Nothing was written: what was shown so far stays, and the next attempt takes its place.
                let (session, draft) = (message.session.to_string(), draft.clone());
                self.keeper.change(|kept| kept.drafts.insert(session, draft)).await?;
            }
            let posted = written.map_err(SlackFailure::into_fault)?;
            self.keeper
                .change(|kept| {
                    kept.parts.insert(&message.delivery, at + 1);
                    if below.is_some() {
                        let (session, text) = (message.session.to_string(), (*part).to_owned());
                        let card =
                            QuestionCard { message: posted.clone(), place: place.clone(), session, text };
                        kept.cards.insert(&message.delivery, card);
                    }
                })
                .await?;
            last = Some(posted);
        }
        Ok(Delivery { remote_id: last.map(|posted| format!("{}/{}", posted.channel, posted.ts)) })
    }

    /// Ends what is shown of an answer; gives the message that showed it. It is not kept as that any more, before the whole
    /// answer takes its place: whatever ends this process then, no later answer is written over it.
    async fn end_draft(&self, session: &SessionId) -> Result<Option<PostedMessage>, Fault> {
        let draft = self.drafts().remove(session);
        if let Some(draft) = draft {
            *draft.goes_on.lock().await = false;
            draft.changed.notify_one();
        }
        if self.keeper.look(|kept| kept.drafts.contains_key(session.as_str())) {
            return self.keeper.change(|kept| kept.drafts.remove(session.as_str())).await;
        }
        Ok(None)
    }

    /// Writes a part of an answer in the place of what was shown of it.
    async fn take_place_of(
        &self,
        place: &ChannelPlace,
        draft: &PostedMessage,
        part: &str,
        mark: &str,
    ) -> Result<PostedMessage, SlackFailure> {
        let no_blocks = json!([]);
        let mut said = self.change(draft, part, &no_blocks).await;
        for _ in 1..CHANGES {
            if let Err(SlackFailure::Doubtful(_)) = said {
                said = self.change(draft, part, &no_blocks).await;
            }
        }
        match said {
            Ok(()) => Ok(draft.clone()),
            // Somebody removed it.
            Err(SlackFailure::Refused { .. }) => self.post(place, part, None, mark).await,
            Err(failure) => Err(failure),
        }
    }

    /// Writes below a question what became of it, and takes its buttons away. None where no message with buttons shows it.
    async fn settle(&self, question: &str, outcome: &str) -> Result<Option<Delivery>, Fault> {
        let Some(card) = self.keeper.look(|kept| kept.cards.get(question).cloned()) else { return Ok(None) };
        let whole = format!("{}\n\n{outcome}", card.text);
        let text = if text::parts(&whole, LONGEST).len() == 1 { whole } else { outcome.to_owned() };
        self.wait_for_room(&card.place, Instant::now()).await.map_err(SlackFailure::into_fault)?;
        match self.change(&card.message, &text, &json!([])).await {
            Ok(()) => {}
            // Somebody removed it: the outcome is told by itself.
            Err(SlackFailure::Refused { .. }) => return Ok(None),
            Err(failure) => return Err(failure.into_fault()),
        }
        self.keeper.change(|kept| kept.cards.remove(question)).await?;
        Ok(Some(Delivery { remote_id: Some(format!("{}/{}", card.message.channel, card.message.ts)) }))
    }

    /// Waits as long as the service wants, where that is not long: the messages of all conversations go out one after another.
    async fn wait_for_room(&self, place: &ChannelPlace, begun: Instant) -> Result<(), SlackFailure> {
        let waits = match self.pace.room(&place.channel, &place.address(), Instant::now()) {
            MessageRoom::After(waits) => waits,
            MessageRoom::NotYet { tell_after, seconds } => {
                self.host.sleep(tell_after).await.map_err(SlackFailure::NotSent)?;
                return Err(SlackFailure::TooMany { seconds });
            }
        };
        match begun.elapsed() + waits > TIME {
            true => Err(SlackFailure::TooMany { seconds: waits.as_secs() + 1 }),
            false if waits.is_zero() => Ok(()),
            false => self.host.sleep(waits).await.map_err(SlackFailure::NotSent),
        }
    }

    /// Sends a message. `mark` is what it is found by where it is not known whether it arrived.
    async fn post(
        &self,
        place: &ChannelPlace,
        text: &str,
        below: Option<&Value>,
        mark: &str,
    ) -> Result<PostedMessage, SlackFailure> {
        let mut params = written(&place.channel, text);
        params["metadata"] = json!({"event_type": MARK, "event_payload": {"id": mark}});
        if let Some(thread) = &place.thread {
            params["thread_ts"] = thread.as_str().into();
        }
        if let Some(below) = below {
            params["blocks"] = below.clone();
        }
        let since = now();
        let sent = match self.paced(&place.channel, "chat.postMessage", &params).await {
            Err(SlackFailure::Doubtful(fault)) => {
                let found = tokio::time::timeout(LOOKED_FOR, self.find(place, mark, since)).await;
                found.ok().flatten().ok_or(SlackFailure::Doubtful(fault))?
            }
            other => other?,
        };
        let odd = || Fault::new(FaultCode::OutcomeUnknown, "the service did not say which message it sent");
        let ts = sent["ts"].as_str().ok_or_else(|| SlackFailure::Doubtful(odd()))?;
        Ok(PostedMessage { channel: place.channel.clone(), ts: ts.to_owned() })
    }

    /// Looks for a message that may have arrived. That it is not there says nothing: it may be on its way.
    async fn find(&self, place: &ChannelPlace, mark: &str, since: Duration) -> Option<Value> {
        let oldest = since.as_secs().saturating_sub(APART).to_string();
        let mut params = vec![
            ("channel", place.channel.as_str()),
            ("oldest", &oldest),
            ("limit", LOOKED_THROUGH),
            ("include_all_metadata", "true"),
        ];
        let method = match &place.thread {
            Some(thread) => {
                params.push(("ts", thread));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        for _ in 0..LOOKS {
            self.host.sleep(BEFORE_LOOK).await.ok()?;
            match self.api.read(method, &params).await {
                Ok(found) => {
                    let is_it = |message: &&Value| {
                        message["metadata"]["event_type"] == MARK
                            && message["metadata"]["event_payload"]["id"] == mark
                    };
                    if let Some(message) = found["messages"].as_array().and_then(|all| all.iter().find(is_it))
                    {
                        return Some(message.clone());
                    }
                }
                Err(failure) => {
                    self.host.warn(format!(
                        "whether a message arrived could not be looked up: {}",
                        failure.said()
                    ));
                }
            }
        }
        None
    }

    async fn change(&self, message: &PostedMessage, text: &str, blocks: &Value) -> Result<(), SlackFailure> {
        let mut params = written(&message.channel, text);
        params["ts"] = message.ts.as_str().into();
        params["blocks"] = blocks.clone();
        self.paced(&message.channel, "chat.update", &params).await.map(drop)
    }

    /// Says something that nobody must get: a word about a command. In a channel it is shown to whom it answers.
    pub async fn say(&self, place: &ChannelPlace, to: Option<&str>, text: &str) {
        let mut params = written(&place.channel, text);
        if let Some(thread) = &place.thread {
            params["thread_ts"] = thread.as_str().into();
        }
        let method = match to {
            Some(user) => {
                params["user"] = user.into();
                "chat.postEphemeral"
            }
            None => "chat.postMessage",
        };
        if let Err(failure) = self.paced(&place.channel, method, &params).await {
            self.host.warn(format!("a reply was not sent: {}", failure.said()));
        }
    }

    async fn paced(&self, channel: &str, method: &str, params: &Value) -> Result<Value, SlackFailure> {
        let is_change = method == "chat.update";
        let said = self.api.call(method, params).await;
        match &said {
            Err(SlackFailure::TooMany { seconds }) => {
                self.pace.hold(channel, is_change, Instant::now(), *seconds);
            }
            _ if is_change => self.pace.changed(channel, Instant::now()),
            _ => self.pace.sent(channel, Instant::now()),
        }
        said
    }

    fn drafts(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Draft>>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Draft {
    /// What is shown of it; none while there is nothing of it.
    fn text(&self) -> Option<String> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let status = shown.status.as_deref().map(|tool| format!("[{tool}]")).unwrap_or_default();
        let text = format!("{}{status}", shown.text);
        (!text.trim().is_empty()).then(|| text::preview(&text))
    }
}

/// A text in a channel, which calls nobody and whose addresses nobody fetches.
fn written(channel: &str, text: &str) -> Value {
    json!({"channel": channel, "text": escaped(text), "parse": "none", "link_names": false, "unfurl_links": false, "unfurl_media": false})
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn place_of(address: Option<&str>) -> Result<ChannelPlace, Fault> {
    let read = address.and_then(ChannelPlace::read);
    read.ok_or_else(|| Fault::denied("the message says no channel that it goes to"))
}
