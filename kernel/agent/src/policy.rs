//! Whether a tool call may run: the one place in every call's path that decides it, whoever calls and whatever is called.
//!
//! A call has states, and each is recorded before what follows from it happens: it is **decided** about, **intended**,
//! **started**, and **ended**. Where nobody is asked and nothing is in the way the first three are one record, which is
//! committed together with the model's answer. A call about which a person is asked waits alone: those beside it run, the
//! clocks of all that only wait stand still ([`Stopwatch`](crate::stopwatch::Stopwatch)), and a process that goes on with
//! the turn comes back to the same question.
//!
//! [`Policy::decide`] is called once for each call, after its parameters were validated and before anything of it is
//! recorded. It must not wait, and must not look at what another process may see otherwise. [`Policy::answer`] is called
//! when the question is recorded, and again by each process that goes on with the turn, until the call is decided about.
//! Neither may start anything.

use drupe_extension_api::{
    AgentId, EffectId, InvocationId, SessionId, ToolSpec, TurnId,
    control::{ApprovalState, CallPreview},
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{ids::hashed, journal::JournalFault, run::Run};

/// Decides about every tool call of every origin.
pub trait Policy: Send + Sync {
    /// The decision.
    fn decide(&self, call: PolicyCall<'_>) -> Decision;

    /// Waits for the answer to a question that [`decide`](Self::decide) had asked. Who drops the future waits no longer.
    fn answer<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Result<Answer, JournalFault>> {
        let _ = question;
        Box::pin(std::future::ready(Ok(Answer { state: ApprovalState::Withdrawn, by: None, given: None })))
    }
}

/// A call that is to be decided about.
#[derive(Clone, Copy)]
pub struct PolicyCall<'a> {
    /// Who calls.
    pub run: &'a Run,
    /// The call.
    pub effect: &'a EffectId,
    /// What is called.
    pub spec: &'a ToolSpec,
    /// The parameters as JSON text.
    pub params: &'a str,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may run, and nobody is asked.
    Allow {
        /// The rule by which it may, where it is not what holds of most calls.
        by: Option<String>,
    },
    /// It may not, for this reason, which the model reads.
    Deny {
        /// The reason.
        reason: String,
    },
    /// A person is to say so.
    Ask(Need),
}

/// Why a person is asked about a call, and what the answer may hold for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Why one is asked, for that person.
    pub why: String,
    /// How long the question waits, in milliseconds; then it counts as denied.
    pub patience_ms: u64,
    /// Which calls an answer for the rest of the conversation is about; none where there can be no such answer.
    pub about: Option<String>,
    /// Whether it is asked for what strangers wrote.
    pub for_taint: bool,
}

/// A question to a person: about one call, and for it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The call, whose id is the question's.
    pub effect: EffectId,
    /// The conversation.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnId,
    /// The run that calls.
    pub invocation: InvocationId,
    /// The agent whose run it is.
    pub agent: AgentId,
    /// What is called.
    pub tool: String,
    /// Its parameters, whole.
    pub params: String,
    /// Why a person is asked.
    pub need: String,
    /// Which calls an answer for the rest of the conversation is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Whether it is asked for what strangers wrote.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_taint: bool,
    /// What the tool says that the call would change. The answer is not about it: see [`seal`](Self::seal).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<CallPreview>,
    /// What the tool gets back of that, so that it changes nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
    /// SHA-256, in hex, over the tool as it is described, its origin, the parameters, the agent and the session: an answer
    /// holds for this alone.
    pub digest: String,
    /// When it was asked, in milliseconds since 1970.
    pub asked_ms: i64,
    /// When it counts as denied.
    pub expires_ms: i64,
}

impl Question {
    /// That about a call of `run`.
    pub(crate) fn new(
        run: &Run,
        effect: EffectId,
        tool: (&ToolSpec, &str),
        params: &str,
        Need { why, patience_ms, about, for_taint }: Need,
    ) -> Self {
        let asked_ms = run.scope.clock.now_ms();
        Self {
            effect,
            session: run.scope.session.clone(),
            turn: run.scope.turn.clone(),
            invocation: run.id.clone(),
            agent: run.agent.clone(),
            tool: tool.0.name.to_string(),
            params: params.to_owned(),
            need: why,
            about,
            for_taint,
            preview: None,
            seal: None,
            digest: digest(run, tool, params),
            asked_ms,
            expires_ms: asked_ms.saturating_add(i64::try_from(patience_ms).unwrap_or(i64::MAX)),
        }
    }

    /// Whether it is about this call of this tool as it is now.
    pub(crate) fn is_about(&self, run: &Run, tool: (&ToolSpec, &str), params: &str) -> bool {
        self.digest == digest(run, tool, params)
    }
}

fn digest(run: &Run, tool: (&ToolSpec, &str), params: &str) -> String {
    digest_of(tool, params, run.agent.as_str(), run.scope.session.as_str())
}

fn digest_of((spec, origin): (&ToolSpec, &str), params: &str, agent: &str, session: &str) -> String {
    let spec = serde_json::to_string(spec).unwrap_or_default();
    hashed(&["question", &spec, origin, params, agent, session])
}

/// How a question was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether the call may run: only where this is [`ApprovalState::Allowed`].
    pub state: ApprovalState,
    /// By whom; none where nobody answered.
    pub by: Option<String>,
    /// What was filled in, as the text of a JSON object; none where nothing was asked for.
    pub given: Option<String>,
}

/// Allows what an invocation's registry holds (nothing else reaches it) and denies what needs a person's agreement,
/// since nobody can be asked.
#[derive(Debug, Default, Clone, Copy)]
pub struct Allowlist;

impl Policy for Allowlist {
    fn decide(&self, call: PolicyCall<'_>) -> Decision {
        if call.spec.annotations.needs_approval {
            let name = &call.spec.name;
            let reason = format!("`{name}` needs the operator's approval, and nobody can be asked for it");
            return Decision::Deny { reason };
        }
        Decision::Allow { by: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const SPEC: &str = r#"{"name": "shell_run", "description": "Runs.", "input_schema": {"type": "object"},
        "annotations": {"needs_approval": true}}"#;

    fn of(spec: &Value, texts: &[String; 4]) -> String {
        let spec: ToolSpec = serde_json::from_value(spec.clone()).expect("a tool");
        let [origin, params, agent, session] = texts;
        digest_of((&spec, origin), params, agent, session)
    }

    /// A text with one thing that is not as it was.
    fn mutated(text: &str, (place, kind): (usize, u8)) -> String {
        let mut all: Vec<char> = text.chars().collect();
        let at = place % all.len();
        match kind % 6 {
            0 => all.insert(at, ' '),
            1 => drop(all.remove(at)),
            2 => all.insert(at, '\u{200b}'),
            3 => all[at] = if all[at] == 'x' { 'y' } else { 'x' },
            4 => all.insert(at, all[at]),
            _ => all.extend("; rm -r .".chars()),
        }
        all.into_iter().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        /// An answer is found by what was asked about: with anything else of it, nothing is.
        #[test]
        fn an_answer_holds_for_what_was_shown_and_for_nothing_else(
            which in 0..8_usize,
            place in any::<usize>(),
            kind in any::<u8>(),
        ) {
            let spec: Value = serde_json::from_str(SPEC).expect("a tool");
            let texts = ["shell", r#"{"command": "git push", "cwd": "a/b", "env": {"A": "1"}}"#, "main", "s:1"]
                .map(str::to_owned);
            let asked = of(&spec, &texts);
            prop_assert_eq!(&asked, &of(&spec, &texts));
            let (mut spec, mut texts) = (spec, texts);
            match which {
                text @ 0..4 => texts[text] = mutated(&texts[text], (place, kind)),
                // What one part loses and its neighbour gains.
                4 => {
                    let letter = texts[2].pop().expect("a letter");
                    texts[3].insert(0, letter);
                }
                5 => spec["description"] = json!(mutated("Runs.", (place, kind))),
                6 => spec["input_schema"] = json!({"type": "object", "additionalProperties": place % 2 == 0}),
                _ => spec["annotations"]["effect"] = json!("idempotent"),
            }
            prop_assert_ne!(asked, of(&spec, &texts));
        }
    }
}
