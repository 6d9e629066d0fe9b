//! Answers that are shown while they are made.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use drupe_extension_api::prelude::*;

use crate::{
    buttons::Button,
    channel::ChatChannel,
    service::{ChatService, NewPost, SendFailure},
    text,
};

/// An answer that is being made.
pub(crate) struct Draft {
    address: String,
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

impl<S: ChatService> ChatChannel<S> {
    /// Takes a part of an answer in; showing it is a task of its own, which no part waits for. What [`Channel::stream`] is to do.
    pub fn stream(&self, part: ChannelStream) -> Result<(), Fault> {
        let ChannelStream { session, address, part, message: _ } = part;
        if let StreamPart::Begin = part {
            let nowhere = || Fault::denied("the answer says no place that it goes to");
            let draft = Arc::new(Draft {
                address: address.ok_or_else(nowhere)?,
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
                let waits = self.pace.preview_waits(S::counted(&draft.address), Instant::now());
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
            let Some(text) = draft.text::<S>() else { continue };
            if text != last {
                *goes_on = self.preview(&draft, &text).await;
                last = text;
            }
        }
    }

    /// Whether previews go on: not where nobody knows which message shows one.
    async fn preview(&self, draft: &Draft, text: &str) -> bool {
        let session = draft.session.as_str();
        let known = self.kept.look(|kept| kept.showing.get(session).cloned());
        let buttons = [Button::stop()];
        let said = match &known {
            Some(message) => self.change(&draft.address, message, text, &buttons).await.map(|()| None),
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mark = format!("preview {session} {}", now.as_nanos());
                let new = NewPost { text, buttons: &buttons, mark: &mark };
                self.post(&draft.address, &new).await.map(Some)
            }
        };
        match said {
            Ok(None) => true,
            Ok(Some(message)) => self.kept.change(|kept| kept.showing.insert(session, message)).await.is_ok(),
            Err(SendFailure::TooMany { .. } | SendFailure::NotSent(_)) => true,
            Err(SendFailure::Doubtful(_)) => known.is_some(),
            Err(SendFailure::Refused { .. } | SendFailure::Denied(_)) => false,
        }
    }

    /// Ends what is shown of an answer; gives the message that showed it. It is not kept as that any more, before the whole answer takes its
    /// place: whatever ends this process then, no later answer is written over it.
    pub(crate) async fn end_draft(&self, session: &SessionId) -> Result<Option<String>, Fault> {
        let draft = self.drafts().remove(session);
        if let Some(draft) = draft {
            *draft.goes_on.lock().await = false;
            draft.changed.notify_one();
        }
        if self.kept.look(|kept| kept.showing.get(session.as_str()).is_none()) {
            return Ok(None);
        }
        self.kept.change(|kept| kept.showing.remove(session.as_str())).await
    }

    /// The conversation whose answer a message shows while it is made. Somebody quick may press its button before it is known which message that
    /// is: then it is the one whose answer is being made there.
    pub(crate) fn shown_by(&self, address: &str, message: &str) -> Option<String> {
        let known = self.kept.look(|kept| {
            kept.showing.iter().find(|(_, shows)| *shows == message).map(|(session, _)| session.to_owned())
        });
        known.or_else(|| {
            let drafts: Vec<_> = self.drafts().values().cloned().collect();
            let is_unknown = |draft: &&Arc<Draft>| {
                self.kept.look(|kept| kept.showing.get(draft.session.as_str()).is_none())
            };
            let mut there = drafts.iter().filter(|draft| draft.address == address).filter(is_unknown);
            there.next().map(|draft| draft.session.to_string())
        })
    }
}

impl Draft {
    /// What is shown of it; none while there is nothing of it.
    fn text<S: ChatService>(&self) -> Option<String> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let status = shown.status.as_deref().map(|tool| format!("[{tool}]")).unwrap_or_default();
        let text = format!("{}{status}", shown.text);
        (!text.trim().is_empty()).then(|| text::preview(&text, S::LONGEST_PREVIEW, S::units))
    }
}
