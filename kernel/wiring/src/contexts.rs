//! Texts that extensions add to a turn of the orchestrator, such as what is remembered of the user.
//!
//! They are given as data beside the task and not within the system prompt: what they hold was written by strangers at
//! times, and a prompt whose bytes stay the same is what providers cache. It deliberately cuts no text: one that does not
//! fit is left out whole, and that is told.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use drupe_agent::Run;
use drupe_extension_api::{
    ExtensionId,
    wire::{ContextText, TurnContext, op},
};
use drupe_host::{Header, Instance, cut};
use futures_util::future::join_all;

use crate::{
    Lasting, Part,
    rests::{is_late, not_asked},
};

/// How long all of them together may take: they are asked at the same time, and the user waits.
const DEADLINE: Duration = Duration::from_secs(1);

/// Bytes of the reason why an extension gave no context. It stands in every turn.
const REMARK: usize = 2 * 1024;

/// Bytes that one token stands for at least.
const BYTES_PER_TOKEN: usize = 3;

/// The extensions that have texts.
#[derive(Clone, Default)]
pub struct Contexts {
    providers: Vec<(ExtensionId, Arc<Instance>)>,
    lasting: Arc<Lasting>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    /// The texts, the most important first.
    pub notes: Vec<String>,
    /// What was left out, and why.
    pub remarks: Vec<String>,
    /// The extension whose text holds what strangers wrote.
    pub untrusted: Option<String>,
}

impl Contexts {
    pub(crate) fn of<'a>(parts: impl Iterator<Item = &'a Part>, lasting: &Arc<Lasting>) -> Self {
        let providers = parts.filter_map(|p| Some((p.id().clone(), Arc::clone(p.instance.as_ref()?))));
        Self { providers: providers.collect(), lasting: Arc::clone(lasting) }
    }

    pub fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// Asks all of them for a turn, whose root they may charge for it; what they give takes at most `tokens`.
    pub async fn gather(&self, turn: &TurnContext, root: &Arc<Run>, tokens: u32) -> Gathered {
        let mut gathered = Gathered::default();
        let mut providers = Vec::new();
        for (id, instance) in &self.providers {
            match self.lasting.live.rests.left(id, None) {
                None => providers.push((id, instance)),
                Some(left) => gathered.remarks.push(not_asked("the context", id, left)),
            }
        }
        let answers = join_all(providers.iter().map(async |(id, instance)| {
            let token = self.lasting.tokens.grant_charging((*id).clone(), Arc::clone(root));
            let trace = root.scope.correlation.as_str();
            let header = Header { token: token.as_str(), trace, timeout: Some(DEADLINE) };
            instance.call::<Option<ContextText>>(op::CONTEXT_GET, turn, header).await
        }))
        .await;
        let mut texts = Vec::new();
        for ((id, _), answer) in providers.into_iter().zip(answers) {
            self.lasting.live.rests.answered(id, None, is_late(&answer));
            match answer {
                Ok(Some(text)) if !text.text.trim().is_empty() => texts.push((id, text)),
                Ok(_) => {}
                Err(fault) => {
                    let fault = cut(fault.to_string(), REMARK);
                    gathered.remarks.push(format!("`{id}` gave no context: {fault}"));
                }
            }
        }
        fit(texts, tokens, &mut gathered);
        gathered
    }
}

/// Keeps the most important texts that fit; of equal ones the lower id goes first.
fn fit(mut texts: Vec<(&ExtensionId, ContextText)>, tokens: u32, gathered: &mut Gathered) {
    texts.sort_by_key(|(id, text)| (Reverse(text.priority), (*id).clone()));
    let mut room = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_TOKEN);
    for (id, text) in texts {
        let note = format!("From `{id}`: {}", text.text);
        match room.checked_sub(note.len()) {
            Some(left) => {
                room = left;
                gathered.notes.push(note);
                if text.untrusted {
                    gathered.untrusted.get_or_insert_with(|| id.to_string());
                }
            }
            None => gathered.remarks.push(format!(
                "the context of `{id}` was left out: {} bytes do not fit into what is left of \
                 `orchestrator.context_tokens` ({tokens})",
                note.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_important_texts_that_fit_are_kept_and_the_rest_is_told() {
        let ids: Vec<ExtensionId> = ["a", "b", "c"].map(|id| ExtensionId::new(id).expect("an id")).into();
        let text = |at: usize, priority, len: usize| {
            let text = "x".repeat(len);
            (&ids[at], ContextText { text, priority, untrusted: priority == 5 && len == 200 })
        };
        let mut gathered = Gathered::default();
        fit(vec![text(2, 5, 10), text(0, 1, 10), text(1, 5, 200)], 20, &mut gathered);
        let from: Vec<&str> = gathered.notes.iter().map(|n| &n[6..7]).collect();
        assert_eq!(from, ["c", "a"]);
        assert!(gathered.remarks[0].contains("`b`"), "{:?}", gathered.remarks);
        assert_eq!(gathered.untrusted, None, "what is left out is not read");
    }
}
