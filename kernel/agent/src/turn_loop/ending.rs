//! What follows from how an answer ended: only a whole one is an answer.
//!
//! One that its bound on tokens cut off is gone on with once. What a filter cut off and what the model declined end the
//! run. A tool call that was dropped on the way has not run, and what was said before it is no success.

use drupe_extension_api::{AgentResponse, FailureClass};

use super::{Progress, Stop};
use crate::{
    model::{ModelFault, StopReason},
    prompt,
    told::is_blank,
};

/// How an answer ended.
#[derive(Debug, Clone, Default)]
pub(super) struct Ending {
    pub stop: StopReason,
    /// The bound that its request had; not known of one that an earlier process asked for.
    pub bound: Option<u32>,
    /// Whether the model reasoned.
    pub reasoned: bool,
    /// What the provider said of a filter or a refusal.
    pub said: String,
}

impl Ending {
    /// The provider's words, behind a sentence of ours.
    pub(super) fn in_its_words(&self) -> String {
        if self.said.is_empty() { String::new() } else { format!("; the provider says {}", self.said) }
    }
}

/// An answer that its bound cut off, and with which the model goes on.
pub(super) struct Begun {
    /// Its text, unless tool calls followed it.
    text: String,
    /// What is said where it comes to nothing.
    words: String,
}

impl Begun {
    /// The whole of it, with what came after.
    pub(super) fn joined(self, rest: &str) -> String {
        self.text + rest
    }

    /// Why a run ends that could not go on with it.
    pub(super) fn before(&self, reason: &str) -> String {
        format!("{}, and it could not be gone on with: {reason}", self.words)
    }
}

impl Progress<'_> {
    /// Acts on an answer that is not whole: the response, if that is the end of the run.
    pub(super) fn not_whole(
        &mut self,
        text: &str,
        ending: Ending,
        notes: &[drupe_extension_api::Message],
    ) -> Result<Option<AgentResponse>, Stop> {
        let model = self.model_name().to_owned();
        let fault = |words: String| Stop::Model(ModelFault::fatal(FailureClass::Model, words));
        match ending.stop {
            StopReason::Refusal { dropped_calls } => {
                let silent =
                    format!("model `{model}` declined the task without a word{}", ending.in_its_words());
                let mut words = if is_blank(text) { silent } else { text.to_owned() };
                if let Some(what) = dropped(dropped_calls) {
                    // Beside the model's own words.
                    words.push_str(&format!("\n\n({what})"));
                }
                Ok(Some(AgentResponse::refused(words)))
            }
            StopReason::Filter { dropped_calls } => Err(fault(format!(
                "the provider's filter cut the answer of model `{model}` off{}{}",
                ending.in_its_words(),
                none_ran(dropped_calls)
            ))),
            _ => self.cut_short(text, ending, notes).map(|()| None),
        }
    }

    /// Asks the model to go on with what its bound cut off, unless that happened twice in a row.
    fn cut_short(
        &mut self,
        text: &str,
        ending: Ending,
        notes: &[drupe_extension_api::Message],
    ) -> Result<(), Stop> {
        let dropped = ending.stop.dropped_calls();
        let words = format!("{}{}", self.cut_words(&ending), none_ran(dropped));
        let fault = |words: String| Err(Stop::Model(ModelFault::fatal(FailureClass::Model, words)));
        let before = self.begun.take();
        let again = before.is_some();
        let all = before.map_or_else(|| text.to_owned(), |begun| begun.joined(text));
        if !is_blank(&all) {
            self.last_text = Some(all.clone());
        }
        if is_blank(text) && dropped == 0 {
            let what = if ending.reasoned { "reasoning used all of it" } else { "no word of an answer came" };
            return fault(format!("{words}, and {what}: raise `max_output_tokens`, or let it reason less"));
        }
        if again {
            return fault(format!(
                "{words}, and so was what it should go on with: raise `max_output_tokens`"
            ));
        }
        let text = if dropped > 0 { String::new() } else { all };
        self.begun = Some(Begun { text, words });
        self.note(prompt::go_on(dropped), notes);
        Ok(())
    }

    fn cut_words(&self, ending: &Ending) -> String {
        let bound = ending.bound.map_or_else(String::new, |bound| format!(" of {bound}"));
        format!("the answer of model `{}` was cut off at its bound{bound} on tokens", self.model_name())
    }
}

/// The same, after what happened.
pub(super) fn none_ran(dropped_calls: u32) -> String {
    dropped(dropped_calls).map_or_else(String::new, |what| format!("; {what}"))
}

/// What became of the calls that a cut took along; none where there was none.
fn dropped(calls: u32) -> Option<String> {
    match calls {
        0 => None,
        1 => Some("the tool call that it had begun was dropped and did not run".into()),
        n => Some(format!("the {n} tool calls that it had begun were dropped, and none of them ran")),
    }
}
