//! What a root of a turn is told of the turns before it. A turn that runs asks this, and so does one that is replayed: what both
//! are told must be the same, to the byte.

use std::sync::Arc;

use drupe_agent::Conversation;
use drupe_extension_api::{AgentInvocationContext, Message, Preview, SessionId, TurnId, wire::Submit};
use drupe_journal::{Store, StoreError};

/// Earlier turns that the orchestrator is shown.
const HISTORY: usize = 20;

/// The most bytes of them; older ones are left out first.
const HISTORY_BYTES: usize = 32 * 1024;

/// The most bytes of one of their texts.
const EXCERPT: usize = 8 * 1024;

/// Earlier turns that an agent which is addressed directly is told of.
const SUMMARY: usize = 3;

#[derive(Clone, Copy)]
pub enum Audience<'a> {
    Orchestrator,
    /// An agent that a message names, or that was chosen for the session.
    Addressed,
    /// The agent that has the conversation: one that the loop runs, or code.
    Handed {
        conversation: &'a Conversation,
        in_loop: bool,
    },
}

/// The turns of a session that have ended.
pub struct Earlier<'a> {
    pub store: &'a Store,
    pub session: &'a SessionId,
    /// Those alone that had ended when this one began; none for a turn that runs, since all others have.
    pub before: Option<&'a TurnId>,
    /// Whether there are any, so that nothing is asked where there are none.
    pub any: bool,
}

/// What a root knows of a conversation: as texts beside its task, and as messages before it.
pub type ToldBefore = (AgentInvocationContext, Vec<Arc<Message>>);

impl Earlier<'_> {
    /// What the root is told that answers `ask`.
    pub async fn told(&self, ask: &Submit, to: Audience<'_>) -> Result<ToldBefore, StoreError> {
        let (summary, history) = match (to, carried(ask)) {
            (Audience::Handed { conversation, in_loop }, _) => self.its_part(conversation, in_loop).await?,
            (_, Some(history)) => (None, history),
            (Audience::Addressed, None) => (self.summary(None, SUMMARY).await?, Vec::new()),
            (Audience::Orchestrator, None) => (None, self.history(None).await?),
        };
        let context = AgentInvocationContext {
            conversation_summary: summary,
            user_message: None,
            correlation_id: None,
        };
        Ok((context, history))
    }

    /// What an agent sees of a conversation that it has: what it was told of it when it was handed over, and the messages since.
    /// Code is told all of it as one text.
    async fn its_part(
        &self,
        conversation: &Conversation,
        in_loop: bool,
    ) -> Result<(Option<String>, Vec<Arc<Message>>), StoreError> {
        let held = match conversation {
            Conversation::HandingOver { summary, .. } => return Ok((Some(summary.clone()), Vec::new())),
            Conversation::With(held) => held,
            Conversation::Orchestrator | Conversation::Reclaiming { .. } => return Ok((None, Vec::new())),
        };
        let since = Some(held.first.clone());
        if in_loop {
            return Ok((Some(held.summary.clone()), self.history(since).await?));
        }
        let part = self.summary(since, HISTORY).await?;
        let part = part.map(|part| format!("\n\nSince then:\n{part}")).unwrap_or_default();
        Ok((Some(format!("{}{part}", held.summary)), Vec::new()))
    }

    async fn pairs(&self, since: Option<TurnId>, most: usize) -> Result<Vec<(String, String)>, StoreError> {
        match self.any {
            true => self.store.conversation(self.session, since, self.before.cloned(), most).await,
            false => Ok(Vec::new()),
        }
    }

    /// The latest turns as messages, newest kept first where they are too long.
    async fn history(&self, since: Option<TurnId>) -> Result<Vec<Arc<Message>>, StoreError> {
        let turns = self.pairs(since, HISTORY).await?;
        let mut left = HISTORY_BYTES;
        let kept = turns.iter().rev().take_while(|(input, answer)| {
            let size = input.len().min(EXCERPT) + answer.len().min(EXCERPT);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        });
        let kept: Vec<_> = kept.collect();
        let messages = kept.into_iter().rev().flat_map(|(input, answer)| {
            let asked = Message::User { content: excerpt(input) };
            let said = Message::Assistant {
                content: excerpt(answer),
                reasoning: None,
                tool_calls: Vec::new(),
                provider_items: None,
            };
            [Arc::new(asked), Arc::new(said)]
        });
        Ok(messages.collect())
    }

    /// The latest turns in short.
    async fn summary(&self, since: Option<TurnId>, most: usize) -> Result<Option<String>, StoreError> {
        let turns = self.pairs(since, most).await?;
        let line = |(input, answer): &(String, String)| {
            format!(
                "- the user said: {}\n  the answer was: {}",
                Preview::of(input).text,
                Preview::of(answer).text
            )
        };
        let text = turns.iter().map(line).collect::<Vec<_>>().join("\n");
        Ok((!text.is_empty()).then_some(text))
    }
}

/// The conversation that a client brings along.
fn carried(ask: &Submit) -> Option<Vec<Arc<Message>>> {
    let history = ask.carried.as_ref()?.history.as_ref()?;
    Some(history.iter().cloned().map(Arc::new).collect())
}

/// A text of an earlier turn: whole, or its beginning and its end.
fn excerpt(text: &str) -> String {
    if text.len() <= EXCERPT {
        return text.to_owned();
    }
    let half = EXCERPT / 2;
    let (head, tail) = (text.floor_char_boundary(half), text.ceil_char_boundary(text.len() - half));
    format!("{}\n… ({} bytes left out) …\n{}", &text[..head], tail - head, &text[tail..])
}
