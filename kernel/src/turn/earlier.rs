//! What a root of a turn is told of the turns before it. A turn that runs asks this, and so does one that is replayed: what both
//! are told must be the same, to the byte.

use std::sync::Arc;

use drupe_agent::{Conversation, prompt};
use drupe_extension_api::{AgentInvocationContext, Message, Preview, SessionId, TurnId, wire::Submit};
use drupe_journal::{Store, StoreError, Summary, SummedUp, ToldTurn, ToldTurns};

/// How much of a conversation is told whole; of more the newest.
#[derive(Clone, Copy)]
struct Extent {
    turns: usize,
    bytes: usize,
}

/// What the orchestrator is shown.
const SHOWN: Extent = Extent { turns: 30, bytes: 56 * 1024 };

/// What is beyond this has older turns summed up.
const WHOLE: Extent = Extent { turns: 29, bytes: 48 * 1024 };

/// What stays whole then. The turns in between are summed up at once, so that it is not done with each turn, and providers
/// can cache what stands before.
const KEPT: Extent = Extent { turns: 20, bytes: 24 * 1024 };

/// The most that is summed up at once: it is to fit what a turn has left to spend.
const AT_ONCE: Extent = Extent { turns: 40, bytes: 40 * 1024 };

/// Turns that are looked at: a conversation that was never summed up may have any number.
const LOOKED_AT: usize = 60;

/// Turns after an attempt that came to nothing before the next one.
const HELD_BACK: usize = 8;

/// What an agent that has the conversation is shown of its part.
const OF_ITS_PART: Extent = Extent { turns: 20, bytes: 32 * 1024 };

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

impl Older {
    /// What is kept of it, where the model gave these words, or none.
    pub fn summed_up(&self, text: &str) -> SummedUp {
        match text {
            "" => SummedUp::Nothing,
            text => SummedUp::To { up_to: self.up_to, text: text.to_owned() },
        }
    }
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

/// What a root knows of a conversation.
#[derive(Default)]
pub struct ToldBefore {
    /// As texts beside its task.
    pub context: AgentInvocationContext,
    /// As messages that come before the task.
    pub history: Vec<Arc<Message>>,
    /// What is to be summed up for the turns to come.
    pub older: Option<Older>,
}

/// Turns of a conversation that are to be told in short from the next turn on.
pub struct Older {
    /// What they were summed up to before, and those that came after that.
    pub messages: Vec<Arc<Message>>,
    /// The number of the last of them.
    pub up_to: i64,
}

impl Earlier<'_> {
    /// What the root is told that answers `ask`.
    pub async fn told(&self, ask: &Submit, to: Audience<'_>) -> Result<ToldBefore, StoreError> {
        let (summary, history) = match (to, carried(ask)) {
            (Audience::Handed { conversation, in_loop }, _) => self.its_part(conversation, in_loop).await?,
            (_, Some(history)) => (None, history),
            (Audience::Addressed, None) => (self.in_short().await?, Vec::new()),
            (Audience::Orchestrator, None) => return self.of_all().await,
        };
        let context = AgentInvocationContext {
            conversation_summary: summary,
            user_message: None,
            correlation_id: None,
        };
        Ok(ToldBefore { context, history, older: None })
    }

    /// What the orchestrator is told: what older turns were summed up to, and those since then.
    async fn of_all(&self) -> Result<ToldBefore, StoreError> {
        let known = self.summed_up().await?;
        let behind = known.as_ref().map_or(0, |summary| summary.up_to);
        let turns = self.turns(None, behind, LOOKED_AT).await?;
        let failed_in = known.as_ref().and_then(|summary| summary.failed_in);
        let since = turns.iter().filter(|turn| failed_in.is_some_and(|failed| turn.number > failed));
        let is_held_back = failed_in.is_some() && since.count() < HELD_BACK;
        let summary = known.map(|known| known.text).unwrap_or_default();
        let first = || {
            let said = (!summary.is_empty()).then(|| Message::User { content: prompt::summary(&summary) });
            said.map(Arc::new).into_iter()
        };
        let is_whole = newest(&turns, WHOLE).len() == turns.len();
        let older = match is_whole || is_held_back {
            true => &[],
            false => oldest(&turns[..turns.len() - newest(&turns, KEPT).len()], AT_ONCE),
        };
        Ok(ToldBefore {
            history: first().chain(messages(newest(&turns, SHOWN))).collect(),
            older: older
                .last()
                .map(|last| Older { messages: first().chain(messages(older)).collect(), up_to: last.number }),
            ..ToldBefore::default()
        })
    }

    async fn summed_up(&self) -> Result<Option<Summary>, StoreError> {
        match self.any {
            true => self.store.summary(self.session, self.before.cloned()).await,
            false => Ok(None),
        }
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
            let turns = self.turns(since, 0, OF_ITS_PART.turns).await?;
            let history = messages(newest(&turns, OF_ITS_PART)).collect();
            return Ok((Some(held.summary.clone()), history));
        }
        let part = self.beginnings(since, OF_ITS_PART.turns).await?;
        let part = part.map(|part| format!("\n\nSince then:\n{part}")).unwrap_or_default();
        Ok((Some(format!("{}{part}", held.summary)), Vec::new()))
    }

    async fn turns(
        &self,
        since: Option<TurnId>,
        behind: i64,
        most: usize,
    ) -> Result<Vec<ToldTurn>, StoreError> {
        let which = ToldTurns { since, behind, before: self.before.cloned(), most };
        match self.any {
            true => self.store.conversation(self.session, which).await,
            false => Ok(Vec::new()),
        }
    }

    /// What an agent is told that is addressed directly.
    async fn in_short(&self) -> Result<Option<String>, StoreError> {
        let latest = self.beginnings(None, SUMMARY).await?;
        let summary = self.summed_up().await?.map(|summary| summary.text).filter(|text| !text.is_empty());
        Ok(match (summary, latest) {
            (Some(summary), Some(latest)) => Some(format!("{summary}\n\nThe latest of it:\n{latest}")),
            (summary, latest) => summary.or(latest),
        })
    }

    /// The beginnings of the latest messages and answers.
    async fn beginnings(&self, since: Option<TurnId>, most: usize) -> Result<Option<String>, StoreError> {
        let turns = self.turns(since, 0, most).await?;
        let line = |turn: &ToldTurn| {
            format!(
                "- the user said: {}\n  the answer was: {}",
                Preview::of(&turn.said).text,
                Preview::of(&turn.answered).text
            )
        };
        let text = turns.iter().map(line).collect::<Vec<_>>().join("\n");
        Ok((!text.is_empty()).then_some(text))
    }
}

/// The newest of the turns that are within bounds.
fn newest(turns: &[ToldTurn], extent: Extent) -> &[ToldTurn] {
    &turns[turns.len() - fitting(turns.iter().rev(), extent)..]
}

fn oldest(turns: &[ToldTurn], extent: Extent) -> &[ToldTurn] {
    &turns[..fitting(turns.iter(), extent)]
}

/// How many of the turns are within bounds.
fn fitting<'a>(turns: impl Iterator<Item = &'a ToldTurn>, extent: Extent) -> usize {
    let mut left = extent.bytes;
    let fits = |turn: &&ToldTurn| {
        let size = turn.said.len().min(EXCERPT) + turn.answered.len().min(EXCERPT);
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    };
    turns.take(extent.turns).take_while(fits).count()
}

/// Each turn as its message and its answer.
fn messages(turns: &[ToldTurn]) -> impl Iterator<Item = Arc<Message>> {
    turns.iter().flat_map(|turn| {
        let asked = Message::User { content: excerpt(&turn.said) };
        let said = Message::Assistant {
            content: excerpt(&turn.answered),
            reasoning: None,
            tool_calls: Vec::new(),
            provider_items: None,
        };
        [Arc::new(asked), Arc::new(said)]
    })
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
