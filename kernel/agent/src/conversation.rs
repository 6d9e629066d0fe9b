//! Who talks with the user: the orchestrator, or an agent that it handed the conversation to.
//!
//! [`Conversation`] is what is kept of it from message to message, and [`Conversation::after`] the only way in which it changes: a pure and
//! total function of what happened. It knows neither models nor rows; whoever answers a message tells it what
//! happened and does what the new state says.

use std::fmt;

use drupe_extension_api::{AgentId, AgentResponse, ControlTransfer, FailureClass, ResponseStatus, TurnId};
use serde::{Deserialize, Serialize};

/// How long an agent may keep a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffLimits {
    /// Messages that it may answer.
    pub max_turns: u32,
    /// Tokens that these may take together.
    pub max_tokens: u64,
    /// Milliseconds since it took the conversation over.
    pub max_ms: u64,
    /// Milliseconds without a message from the user.
    pub idle_ms: u64,
}

/// Who talks with the user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Conversation {
    /// The orchestrator, from the beginning on.
    #[default]
    Orchestrator,
    /// An agent that takes it over with the message that is being answered.
    HandingOver {
        /// The agent that answers from here on.
        to: AgentId,
        /// What it is told of the conversation before.
        summary: String,
    },
    /// An agent that has it.
    With(Tenure),
    /// The orchestrator, which does not know yet that it has the conversation again.
    Reclaiming {
        /// The agent that had it.
        from: AgentId,
        /// Why it has it no more.
        reason: Reclaimed,
        /// What that agent said of it.
        summary: String,
    },
}

/// An agent has a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    /// The agent that has it.
    pub agent: AgentId,
    /// What it was told of the conversation before.
    pub summary: String,
    /// When it took it over, in milliseconds since 1970.
    pub since_ms: i64,
    /// When it answered last, in the same unit.
    pub last_ms: i64,
    /// The turn in which it took it over.
    pub first: TurnId,
    /// Messages that it has answered.
    pub turns: u32,
    /// Tokens that these took together.
    pub tokens: u64,
}

/// Why the orchestrator has a conversation again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Reclaimed {
    /// The agent gave it back.
    Returned,
    /// It has answered as many messages as it may.
    Turns {
        /// As many as it may.
        most: u32,
    },
    /// Its messages have taken as many tokens as they may.
    Tokens {
        /// As many as they may.
        most: u64,
    },
    /// It had it as long as it may.
    Time,
    /// No message came for long.
    Idle,
    /// It failed to answer a message.
    Failed {
        /// What went wrong, for people.
        error: String,
    },
    /// It is not there any more.
    Gone,
    /// The user asked for it.
    Person,
    /// The operator, or a client on the user's behalf, chose who answers.
    Chosen,
}

/// What happens to a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A message came, for the agent that has the conversation or for the orchestrator.
    Message {
        /// When, in milliseconds since 1970.
        at_ms: i64,
        /// How long that agent may keep a conversation; none where it is not there.
        limits: Option<HandoffLimits>,
    },
    /// The orchestrator handed it over.
    HandedOver {
        /// The agent that takes it over.
        to: AgentId,
        /// What that is told of it.
        summary: String,
    },
    /// Who talks has answered a message.
    Answered {
        /// When, in milliseconds since 1970.
        at_ms: i64,
        /// Tokens that the answer took.
        tokens: u64,
        /// The turn whose message it was.
        turn: TurnId,
        /// How long the agent may keep the conversation; none for the orchestrator.
        limits: Option<HandoffLimits>,
    },
    /// Somebody stopped the answer to a message.
    Stopped {
        /// When, in milliseconds since 1970.
        at_ms: i64,
        /// The turn whose message it was.
        turn: TurnId,
    },
    /// The agent gave it back.
    Returned {
        /// What the agent says of its part.
        summary: String,
    },
    /// The agent failed to answer.
    Failed {
        /// What went wrong, for people.
        error: String,
    },
    /// The user asked for the orchestrator.
    AskedBack,
    /// Who answers was chosen from outside.
    Chosen,
}

impl Conversation {
    /// The agent that has the conversation, or takes it over.
    pub fn agent(&self) -> Option<&AgentId> {
        match self {
            Self::HandingOver { to, .. } => Some(to),
            Self::With(held) => Some(&held.agent),
            Self::Orchestrator | Self::Reclaiming { .. } => None,
        }
    }

    /// Who talks after that happened. What cannot happen in a state leaves it as it is.
    #[must_use]
    pub fn after(self, happened: Happened) -> Self {
        use Happened as H;
        match (self, happened) {
            (Self::With(held), H::Message { at_ms, limits }) => {
                let reason = match limits {
                    None => Some(Reclaimed::Gone),
                    Some(limits) if passed(held.last_ms, at_ms) >= limits.idle_ms => Some(Reclaimed::Idle),
                    Some(limits) if passed(held.since_ms, at_ms) >= limits.max_ms => Some(Reclaimed::Time),
                    Some(_) => None,
                };
                reason.map_or(Self::With(held.clone()), |reason| reclaimed(held, reason, String::new()))
            }
            (Self::Orchestrator | Self::Reclaiming { .. }, H::HandedOver { to, summary }) => {
                Self::HandingOver { to, summary }
            }
            (Self::HandingOver { to, summary }, H::Answered { at_ms, tokens, turn, limits }) => {
                Tenure::new(to, summary, at_ms, turn).answered(at_ms, tokens, limits)
            }
            // It has it, and answers the next message.
            (Self::HandingOver { to, summary }, H::Stopped { at_ms, turn }) => {
                Self::With(Tenure::new(to, summary, at_ms, turn))
            }
            (Self::HandingOver { to: from, .. }, H::Message { limits: None, .. }) => {
                Self::Reclaiming { from, reason: Reclaimed::Gone, summary: String::new() }
            }
            (Self::With(held), H::Answered { at_ms, tokens, limits, .. }) => {
                held.answered(at_ms, tokens, limits)
            }
            // It knows now.
            (Self::Reclaiming { .. }, H::Answered { .. }) => Self::Orchestrator,
            (Self::HandingOver { to: from, summary }, happened) => match ended(happened) {
                Some((reason, summary)) => Self::Reclaiming { from, reason, summary },
                None => Self::HandingOver { to: from, summary },
            },
            (Self::With(held), happened) => match ended(happened) {
                Some((reason, summary)) => reclaimed(held, reason, summary),
                None => Self::With(held),
            },
            (state, _) => state,
        }
    }

    /// Whether the message that led from `before` to this state, by `response`, still waits for an answer: from whoever talks now.
    pub fn owes_an_answer(&self, before: &Self, response: &AgentResponse) -> bool {
        match self {
            Self::HandingOver { .. } => before != self,
            Self::Reclaiming { reason: Reclaimed::Failed { .. }, .. } => before.agent().is_some(),
            Self::Reclaiming { reason: Reclaimed::Returned, .. } => {
                let answers =
                    matches!(&response.transfer, Some(ControlTransfer::Return { answered: true, .. }));
                before.agent().is_some() && !answers
            }
            Self::Orchestrator | Self::With(_) | Self::Reclaiming { .. } => false,
        }
    }
}

impl Happened {
    /// What the response of who talks to a turn's message comes to.
    pub fn of(response: &AgentResponse, at_ms: i64, turn: &TurnId, limits: Option<HandoffLimits>) -> Self {
        let error = || response.error.clone().unwrap_or_else(|| response.content.clone());
        let turn = turn.clone();
        match (&response.transfer, response.status) {
            (Some(ControlTransfer::HandOver { to, summary }), _) => {
                Self::HandedOver { to: to.clone(), summary: summary.clone() }
            }
            (Some(ControlTransfer::Return { summary, .. }), _) => Self::Returned { summary: summary.clone() },
            (None, ResponseStatus::Success) => {
                Self::Answered { at_ms, tokens: response.tokens_used.unwrap_or(0), turn, limits }
            }
            // What is not its business is the orchestrator's.
            (None, ResponseStatus::Refused) => Self::Returned { summary: error() },
            (None, ResponseStatus::Error) if response.class == Some(FailureClass::Cancelled) => {
                Self::Stopped { at_ms, turn }
            }
            (None, ResponseStatus::Error) => Self::Failed { error: error() },
        }
    }
}

impl Tenure {
    fn new(agent: AgentId, summary: String, at_ms: i64, first: TurnId) -> Self {
        Self { agent, summary, since_ms: at_ms, last_ms: at_ms, first, turns: 0, tokens: 0 }
    }

    fn answered(self, at_ms: i64, tokens: u64, limits: Option<HandoffLimits>) -> Conversation {
        let held = Self {
            last_ms: at_ms,
            turns: self.turns.saturating_add(1),
            tokens: self.tokens.saturating_add(tokens),
            ..self
        };
        let Some(limits) = limits else { return Conversation::With(held) };
        let reason = if held.turns >= limits.max_turns {
            Reclaimed::Turns { most: limits.max_turns }
        } else if held.tokens >= limits.max_tokens {
            Reclaimed::Tokens { most: limits.max_tokens }
        } else if passed(held.since_ms, at_ms) >= limits.max_ms {
            Reclaimed::Time
        } else {
            return Conversation::With(held);
        };
        reclaimed(held, reason, String::new())
    }
}

impl fmt::Display for Reclaimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("it gave the conversation back"),
            Self::Turns { most } => write!(f, "it has answered {most} messages, which is as many as it may"),
            Self::Tokens { most } => {
                write!(f, "its messages took {most} tokens or more, which is as many as they may")
            }
            Self::Time => f.write_str("it had the conversation as long as it may"),
            Self::Idle => f.write_str("no message came for long"),
            Self::Failed { error } => write!(f, "it failed: {error}"),
            Self::Gone => f.write_str("it is not there any more"),
            Self::Person => f.write_str("the user asked for the conversation back"),
            Self::Chosen => f.write_str("it was chosen from outside who answers"),
        }
    }
}

/// How an agent's part in a conversation ends, if it does by that.
fn ended(happened: Happened) -> Option<(Reclaimed, String)> {
    match happened {
        Happened::Returned { summary } => Some((Reclaimed::Returned, summary)),
        Happened::Failed { error } => Some((Reclaimed::Failed { error }, String::new())),
        Happened::AskedBack => Some((Reclaimed::Person, String::new())),
        Happened::Chosen => Some((Reclaimed::Chosen, String::new())),
        Happened::Message { .. }
        | Happened::HandedOver { .. }
        | Happened::Answered { .. }
        | Happened::Stopped { .. } => None,
    }
}

fn reclaimed(held: Tenure, reason: Reclaimed, summary: String) -> Conversation {
    Conversation::Reclaiming { from: held.agent, reason, summary }
}

/// Milliseconds from one time to another; none of them where the clock went back.
fn passed(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: HandoffLimits =
        HandoffLimits { max_turns: 3, max_tokens: 100, max_ms: 1_000, idle_ms: 300 };

    fn id(id: &str) -> AgentId {
        id.parse().expect("an id")
    }

    fn turn() -> TurnId {
        "t".parse().expect("an id")
    }

    fn message(at_ms: i64) -> Happened {
        Happened::Message { at_ms, limits: Some(LIMITS) }
    }

    fn answered(at_ms: i64, tokens: u64) -> Happened {
        Happened::Answered { at_ms, tokens, turn: turn(), limits: Some(LIMITS) }
    }

    fn handed_over() -> Happened {
        Happened::HandedOver { to: id("poet"), summary: "crabs".into() }
    }

    fn after(happened: impl IntoIterator<Item = Happened>) -> Conversation {
        happened.into_iter().fold(Conversation::default(), Conversation::after)
    }

    fn reason(talk: Conversation) -> Reclaimed {
        match talk {
            Conversation::Reclaiming { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_agent_has_a_conversation_from_its_first_answer_on() {
        assert_eq!(
            after([handed_over()]),
            Conversation::HandingOver { to: id("poet"), summary: "crabs".into() }
        );
        let Conversation::With(held) =
            after([handed_over(), answered(10, 20), message(11), answered(30, 40)])
        else {
            panic!("it has it no more")
        };
        let expected = Tenure {
            agent: id("poet"),
            summary: "crabs".into(),
            since_ms: 10,
            last_ms: 30,
            first: turn(),
            turns: 2,
            tokens: 60,
        };
        assert_eq!(held, expected);
    }

    #[test]
    fn each_limit_and_each_way_gives_it_back_and_the_orchestrator_knows_after_its_answer() {
        let begun = || vec![handed_over(), answered(0, 10)];
        let with = |more: Vec<Happened>| reason(after(begun().into_iter().chain(more)));
        assert_eq!(with(vec![answered(1, 1), answered(2, 1)]), Reclaimed::Turns { most: 3 });
        assert_eq!(with(vec![answered(1, 90)]), Reclaimed::Tokens { most: 100 });
        assert_eq!(with(vec![message(300)]), Reclaimed::Idle);
        assert_eq!(
            with(vec![answered(250, 1), message(500), answered(1_000, 1)]),
            Reclaimed::Turns { most: 3 }
        );
        assert_eq!(with(vec![answered(1_000, 1)]), Reclaimed::Time);
        assert_eq!(with(vec![Happened::Message { at_ms: 1, limits: None }]), Reclaimed::Gone);
        assert_eq!(with(vec![Happened::AskedBack]), Reclaimed::Person);
        assert_eq!(with(vec![Happened::Chosen]), Reclaimed::Chosen);
        assert_eq!(
            with(vec![Happened::Failed { error: "x".into() }]),
            Reclaimed::Failed { error: "x".into() }
        );
        let back = after(begun().into_iter().chain([Happened::Returned { summary: "done".into() }]));
        assert!(matches!(&back, Conversation::Reclaiming { summary, .. } if summary == "done"));
        // A clock that goes back passes no limit.
        assert!(matches!(after(begun().into_iter().chain([message(-5_000)])), Conversation::With(_)));
        // The orchestrator's failure leaves it to be told again.
        let failed = back.clone().after(Happened::Failed { error: "x".into() });
        assert_eq!(failed, back);
        assert_eq!(
            back.after(Happened::Answered { at_ms: 9, tokens: 1, turn: turn(), limits: None }),
            Conversation::Orchestrator
        );
    }

    #[test]
    fn a_message_goes_on_to_who_talks_next_where_nobody_has_answered_it() {
        let response = |transfer| AgentResponse { transfer: Some(transfer), ..AgentResponse::success("x") };
        let hands = response(ControlTransfer::HandOver { to: id("poet"), summary: "crabs".into() });
        let returns = AgentResponse::returning("", "done");
        let parts = AgentResponse::returning("bye", "done");
        let goes_on = |from: &Conversation, response: &AgentResponse| {
            let happened = Happened::of(response, 20, &turn(), Some(LIMITS));
            from.clone().after(happened).owes_an_answer(from, response)
        };
        let with = after([handed_over(), answered(10, 20)]);
        assert!(goes_on(&Conversation::Orchestrator, &hands));
        assert!(goes_on(&with, &returns) && !goes_on(&with, &parts));
        assert!(goes_on(&with, &AgentResponse::refused("not mine")));
        assert!(goes_on(&with, &AgentResponse::error(FailureClass::Model, "broken")));
        assert!(!goes_on(&with, &AgentResponse::success("x")));
        // The orchestrator's own failure is the turn's.
        assert!(!goes_on(&Conversation::Orchestrator, &AgentResponse::error(FailureClass::Model, "broken")));
        // Whoever stops an answer wants no other, and the agent has the next message.
        let stopped = AgentResponse::error(FailureClass::Cancelled, "stopped");
        let handing = after([handed_over()]);
        assert!(!goes_on(&handing, &stopped) && !goes_on(&with, &stopped));
        let now = handing.after(Happened::of(&stopped, 20, &turn(), Some(LIMITS)));
        assert!(matches!(&now, Conversation::With(held) if held.turns == 0));
        assert_eq!(reason(now.after(message(20 + 300))), Reclaimed::Idle);
        // One that is gone before it ever answered keeps nothing.
        let gone = after([handed_over(), Happened::Message { at_ms: 0, limits: None }]);
        assert_eq!(reason(gone), Reclaimed::Gone);
    }

    fn anything() -> impl Strategy<Value = Happened> {
        let (at, limits) = (0..3_000_i64, prop::option::of(Just(LIMITS)));
        prop_oneof![
            (at.clone(), limits.clone()).prop_map(|(at_ms, limits)| Happened::Message { at_ms, limits }),
            Just(handed_over()),
            (at.clone(), 0..60_u64, limits).prop_map(|(at_ms, tokens, limits)| {
                Happened::Answered { at_ms, tokens, turn: turn(), limits }
            }),
            at.prop_map(|at_ms| Happened::Stopped { at_ms, turn: turn() }),
            Just(Happened::Returned { summary: "done".into() }),
            Just(Happened::Failed { error: "x".into() }),
            Just(Happened::AskedBack),
            Just(Happened::Chosen),
        ]
    }

    proptest! {
        /// Whatever happens in whatever order: nobody but the orchestrator hands over, nobody keeps a conversation beyond its
        /// limits, and what is kept is read back.
        #[test]
        fn nobody_gets_a_conversation_by_itself_or_keeps_it_for_ever(all in prop::collection::vec(anything(), 0..40)) {
            let mut talk = Conversation::default();
            for happened in all {
                let had = talk.agent().cloned();
                let over = matches!(happened, Happened::HandedOver { .. });
                let ends = matches!(
                    happened,
                    Happened::Returned { .. } | Happened::Failed { .. } | Happened::AskedBack | Happened::Chosen
                );
                let limited = matches!(happened, Happened::Answered { limits: Some(_), .. });
                talk = talk.after(happened);
                prop_assert!(talk.agent().is_none() || had.is_some() || over);
                prop_assert!(!ends || talk.agent().is_none());
                if let (Conversation::With(held), true) = (&talk, limited) {
                    prop_assert!(held.turns < LIMITS.max_turns && held.tokens < LIMITS.max_tokens);
                }
                let kept = serde_json::to_string(&talk).expect("it is data");
                prop_assert_eq!(serde_json::from_str::<Conversation>(&kept).expect("its own form"), talk.clone());
            }
        }
    }
}
