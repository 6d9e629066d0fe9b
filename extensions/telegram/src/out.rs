//! What goes out: answers with what is shown of them while they are made, questions with buttons, and what becomes of each.
//!
//! A message that may have arrived is never sent a second time. A change of one is: the same text twice is the same message.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use drupe_extension_api::{
    prelude::*,
    wire::{FormPart, SETTLED},
};
use serde_json::{Value, json};

use crate::{
    api::{BotApi, CallFailure, LARGEST_SENT},
    kept::{Card, Keeper},
    pace::ChatPace,
    text,
    update::ChatPlace,
};

/// The daemon gives a message half a minute; what is not begun by then is told to be tried again, part by part.
const TIME: Duration = Duration::from_secs(18);
/// How often a change is tried whose outcome is not known.
const CHANGES: usize = 2;

/// Sends through one bot. Clones are the same.
#[derive(Clone)]
pub struct Outgoing {
    pub host: Host,
    pub api: BotApi,
    pub keeper: Keeper,
    pub pace: Arc<ChatPace>,
    drafts: Arc<Mutex<HashMap<SessionId, Arc<Draft>>>>,
}

/// An answer that is being made.
struct Draft {
    place: ChatPlace,
    session: SessionId,
    shown: Mutex<Shown>,
    changed: tokio::sync::Notify,
    /// Held while the service is asked to show something; false once nothing more is to be shown.
    goes_on: tokio::sync::Mutex<bool>,
}

#[derive(Default)]
struct Shown {
    text: String,
    /// The tool that works at the moment, if one does.
    status: Option<String>,
}

impl Outgoing {
    pub fn new(host: Host, api: BotApi, keeper: Keeper) -> Self {
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
                goes_on: tokio::sync::Mutex::new(true),
            });
            self.drafts().insert(session, draft.clone());
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
            tokio::time::sleep(self.pace.edit_waits(draft.place.chat, Instant::now())).await;
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
        let known = self.keeper.look(|kept| kept.drafts.get(session).copied());
        let said = match known {
            Some(message) => self.change(draft.place, message, text, None).await.map(|()| None),
            None => self.post(draft.place, text, None).await.map(Some),
        };
        match said {
            Ok(None) => true,
            Ok(Some(message)) => {
                let kept = self.keeper.change(|kept| kept.drafts.insert(session.to_owned(), message)).await;
                kept.is_ok()
            }
            Err(CallFailure::TooMany { .. } | CallFailure::NotSent(_)) => true,
            Err(CallFailure::Doubtful(_)) if known.is_some() => true,
            Err(CallFailure::Refused { .. } | CallFailure::Doubtful(_)) => false,
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
        if let Some(file) = &message.file {
            return self.send_file(place, &message, file, begun).await;
        }
        let buttons = buttons(&message);
        let parts = text::parts(&message.text);
        let sent = self.keeper.look(|kept| kept.parts.get(&message.delivery).copied()).unwrap_or_default();
        let mut last = None;
        for (at, part) in parts.iter().enumerate().skip(sent) {
            let below = buttons.as_ref().filter(|_| at + 1 == parts.len());
            let draft = draft.filter(|_| at == 0);
            let written = loop {
                let written = match (self.wait_for_room(place, begun).await, draft) {
                    (Err(failure), _) => Err(failure),
                    (Ok(()), Some(draft)) => self.take_place_of(place, draft, part).await,
                    (Ok(()), None) => self.post(place, part, below).await,
                };
                match written {
                    // Its time may come while the daemon waits.
                    Err(CallFailure::TooMany { seconds })
                        if begun.elapsed() + Duration::from_secs(seconds) <= TIME => {}
                    other => break other,
                }
            };
            if let (Some(draft), Err(CallFailure::TooMany { .. } | CallFailure::NotSent(_))) =
                (draft, &written)
            {
                // Nothing was written: what was shown so far stays, and the next attempt takes its place.
                let session = message.session.to_string();
                self.keeper.change(|kept| kept.drafts.insert(session, draft)).await?;
            }
            let id = written.map_err(CallFailure::into_fault)?;
            last = Some(id);
            self.keeper
                .change(|kept| {
                    kept.parts.insert(message.delivery.clone(), at + 1);
                    if below.is_some() {
                        let (session, text) = (message.session.to_string(), (*part).to_owned());
                        let card = Card { chat: place.chat, message: id, session, text };
                        kept.cards.insert(message.delivery.clone(), card);
                    }
                })
                .await?;
        }
        Ok(Delivery { remote_id: last.map(|id| format!("{}/{id}", place.chat)) })
    }

    /// Sends a file as it is: as a picture the service would make it smaller.
    async fn send_file(
        &self,
        place: ChatPlace,
        message: &OutboundMessage,
        file: &OutboundFile,
        begun: Instant,
    ) -> Result<Delivery, Fault> {
        if file.bytes > LARGEST_SENT {
            let most = LARGEST_SENT / 1_000_000;
            let said =
                format!("it has {} MB, and Telegram takes {most} MB at most", file.bytes.div_ceil(1_000_000));
            return Err(Fault::denied(said));
        }
        self.wait_for_room(place, begun).await.map_err(CallFailure::into_fault)?;
        let text = |name: &str, value: String| FormPart::Text { name: name.to_owned(), value };
        let mut parts = vec![text("chat_id", place.chat.to_string())];
        parts.extend(place.thread.map(|thread| text("message_thread_id", thread.to_string())));
        if !message.text.trim().is_empty() {
            parts.push(text("caption", message.text.clone()));
        }
        parts.push(FormPart::File { name: "document".to_owned(), delivery: message.delivery.clone() });
        let said = self.api.upload("sendDocument", parts).await;
        self.heard(place, &said);
        let sent = said.map_err(CallFailure::into_fault)?;
        let id = sent["message_id"].as_i64();
        Ok(Delivery { remote_id: id.map(|id| format!("{}/{id}", place.chat)) })
    }

    /// Ends what is shown of an answer; gives the message that showed it. It is not kept as that any more, before the whole
    /// answer takes its place: whatever ends this process then, no later answer is written over it.
    async fn end_draft(&self, session: &SessionId) -> Result<Option<i64>, Fault> {
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
    async fn take_place_of(&self, place: ChatPlace, draft: i64, part: &str) -> Result<i64, CallFailure> {
        let mut said = self.change(place, draft, part, None).await;
        for _ in 1..CHANGES {
            if let Err(CallFailure::Doubtful(_)) = said {
                said = self.change(place, draft, part, None).await;
            }
        }
        match said {
            Ok(()) => Ok(draft),
            // Somebody removed it.
            Err(CallFailure::Refused { .. }) => self.post(place, part, None).await,
            Err(failure) => Err(failure),
        }
    }

    /// Writes below a question what became of it, and takes its buttons away. None where no message with buttons shows it.
    async fn settle(&self, question: &str, outcome: &str) -> Result<Option<Delivery>, Fault> {
        let Some(card) = self.keeper.look(|kept| kept.cards.get(question).cloned()) else { return Ok(None) };
        let place = ChatPlace { chat: card.chat, thread: None };
        let whole = format!("{}\n\n{outcome}", card.text);
        let text = if text::parts(&whole).len() == 1 { whole } else { outcome.to_owned() };
        self.wait_for_room(place, Instant::now()).await.map_err(CallFailure::into_fault)?;
        match self.change(place, card.message, &text, Some(&json!({"inline_keyboard": []}))).await {
            Ok(()) => {}
            // Somebody removed it: the outcome is told by itself.
            Err(CallFailure::Refused { .. }) => return Ok(None),
            Err(failure) => return Err(failure.into_fault()),
        }
        self.keeper.change(|kept| kept.cards.remove(question)).await?;
        Ok(Some(Delivery { remote_id: Some(format!("{}/{}", card.chat, card.message)) }))
    }

    /// Waits as long as the service wants, within the time that the daemon gives.
    async fn wait_for_room(&self, place: ChatPlace, begun: Instant) -> Result<(), CallFailure> {
        let waits = self.pace.message_waits(place.chat, Instant::now());
        if begun.elapsed() + waits > TIME {
            // In whole seconds, of which the last one counts as well.
            return Err(CallFailure::TooMany { seconds: waits.as_secs() + 1 });
        }
        match waits.is_zero() {
            true => Ok(()),
            false => self.host.sleep(waits).await.map_err(CallFailure::NotSent),
        }
    }

    /// Sends a message; its number.
    pub async fn post(
        &self,
        place: ChatPlace,
        text: &str,
        below: Option<&Value>,
    ) -> Result<i64, CallFailure> {
        let mut params = place.params();
        params["text"] = text.into();
        // The service would fetch what an address leads to.
        params["link_preview_options"] = json!({"is_disabled": true});
        if let Some(below) = below {
            params["reply_markup"] = below.clone();
        }
        let sent = self.paced(place, "sendMessage", &params).await?;
        let odd = || Fault::new(FaultCode::OutcomeUnknown, "the service did not say which message it sent");
        sent["message_id"].as_i64().ok_or_else(|| CallFailure::Doubtful(odd()))
    }

    async fn change(
        &self,
        place: ChatPlace,
        message: i64,
        text: &str,
        below: Option<&Value>,
    ) -> Result<(), CallFailure> {
        let mut params = json!({"chat_id": place.chat, "message_id": message, "text": text,
            "link_preview_options": {"is_disabled": true}});
        if let Some(below) = below {
            params["reply_markup"] = below.clone();
        }
        match self.paced(place, "editMessageText", &params).await {
            Err(failure) if failure.is_unchanged() => Ok(()),
            other => other.map(drop),
        }
    }

    async fn paced(&self, place: ChatPlace, method: &str, params: &Value) -> Result<Value, CallFailure> {
        let said = self.api.call(method, params).await;
        self.heard(place, &said);
        said
    }

    /// Notes when something can be sent there again.
    fn heard(&self, place: ChatPlace, said: &Result<Value, CallFailure>) {
        match said {
            Err(CallFailure::TooMany { seconds }) => self.pace.hold(place.chat, Instant::now(), *seconds),
            _ => self.pace.sent(place.chat, Instant::now()),
        }
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

fn place_of(address: Option<&str>) -> Result<ChatPlace, Fault> {
    let read = address.and_then(ChatPlace::read);
    read.ok_or_else(|| Fault::denied("the message says no chat that it goes to"))
}

/// Buttons for a question whose text says how it is answered. What they say is what a person would write.
fn buttons(message: &OutboundMessage) -> Option<Value> {
    let OutboundMessage { kind, delivery: id, text, .. } = message;
    let says = |answer: &str| text.contains(&format!("`{answer}`"));
    let (allow, deny) = (format!("allow {id}"), format!("deny {id}"));
    if *kind != OutboundKind::Notice || !says(&allow) || !says(&deny) {
        return None;
    }
    let button = |text: &str, data: String| json!({"text": text, "callback_data": data});
    let session = format!("{allow} session");
    let lasting = says(&session).then(|| vec![button("Allow in this conversation", session)]);
    let mut rows = vec![vec![button("Allow", allow), button("Deny", deny)]];
    rows.extend(lasting);
    Some(json!({ "inline_keyboard": rows }))
}
