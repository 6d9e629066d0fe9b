//! What sets a turn off, and what it asks.
//!
//! Whoever takes a message in at the edge makes its [`Origin`]: the control API for a client, the kernel's host table
//! for an extension, the bus for a message of a topic. From there on it is handed along and stored as it is; nobody
//! concludes it from the name of a session or the beginning of an id.
//!
//! An origin has one duty: together with the channel and the external id of the message it is unique. The same message
//! of the same origin is the same turn, whatever repeats it: a client that lost its connection, a chat service that
//! delivers twice, a topic that is tried again. [`Store::accept`](crate::Store::accept) is the only place that asks.
//!
//! What comes next is a further variant here, with the text that stands for it in the journal and an external id that is
//! unique within it; intake needs no further rule.

use std::{borrow::Cow, fmt, str::FromStr};

use drupe_agent::Chain;
use drupe_extension_api::{AgentId, CorrelationId, ExtensionId, TurnId, wire::Submit};

/// A message that shall be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// What is asked, of whom and how; with `queue` set, since configuration may change before it is read again.
    pub ask: Submit,
    /// What set it off.
    pub origin: Origin,
    /// The links of events that led to it; empty where a person wrote it.
    pub chain: Chain,
    /// Links it to the turn that set it off; none for one that links what it sets off anew.
    pub correlation: Option<CorrelationId>,
}

impl Inbound {
    /// A message that no events led to, and that nothing else is linked to.
    pub fn new(ask: Submit, origin: Origin) -> Self {
        Self { ask, origin, chain: Chain::default(), correlation: None }
    }

    /// Whether somebody is at the other end who could be asked: nobody waits for what a topic or a schedule sets off, nor for
    /// what strangers have an extension hand in that answers them nothing, such as a webhook.
    pub fn somebody_waits(&self) -> bool {
        match self.origin {
            Origin::Topic { .. } | Origin::Schedule(_) => false,
            Origin::Extension(_) | Origin::Person { .. } => {
                !self.ask.channel.is_empty() || self.of_strangers().is_none()
            }
            Origin::Client { .. } | Origin::Spawned { .. } | Origin::Report { .. } => true,
        }
    }

    /// What brings it, where strangers wrote it: whoever handed it in says so, or it is a message of a topic, which may hold
    /// anything at all.
    pub fn of_strangers(&self) -> Option<String> {
        let is_said = self.ask.carried.as_ref().is_some_and(|carried| carried.untrusted);
        (is_said || matches!(self.origin, Origin::Topic { .. })).then(|| self.origin.to_string())
    }
}

/// What set a turn off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A program that speaks the control API. Its external ids are its own.
    Client {
        /// The named token that it showed, as `token/name` where it was for somebody of that name; none for the operator.
        token: Option<String>,
    },
    /// An extension handed it in: what somebody wrote in its channel, or something of its own.
    Extension(ExtensionId),
    /// Somebody wrote in the channel of an extension, which says who.
    Person {
        /// The extension that hands in what they write.
        channel: ExtensionId,
        /// The service's own id of them.
        id: String,
    },
    /// A message of a topic that an agent follows. The external id is the message's number.
    Topic {
        /// The agent.
        follower: AgentId,
    },
    /// A schedule, `extension/name`, or `name` where a person made it. The external id is the slot.
    Schedule(String),
    /// An agent of a turn spawned another one that goes on when that turn has ended. The external id is that of its call.
    Spawned {
        /// The turn whose agent did so.
        by: TurnId,
    },
    /// Such an agent has ended, and its report comes to the session in which it was spawned.
    Report {
        /// The turn in which it worked.
        of: TurnId,
    },
}

impl Origin {
    /// The operator, or a program of theirs.
    pub const OPERATOR: Self = Self::Client { token: None };

    /// The extension that set this off: it handed the message in, or has the agent that follows the topic. None where the
    /// operator or the bearer of a token did.
    pub fn extension(&self) -> Option<&str> {
        match self {
            Self::Client { .. } | Self::Spawned { .. } | Self::Report { .. } => None,
            Self::Extension(id) | Self::Person { channel: id, .. } => Some(id.as_str()),
            Self::Topic { follower } => Some(follower.as_str()),
            Self::Schedule(id) => id.split_once('/').map(|(extension, _)| extension),
        }
    }

    /// Whose share of the places for messages and turns this one takes; none for the operator, who has them all.
    pub fn share(&self) -> Option<Cow<'_, str>> {
        match (self.extension(), self) {
            (Some(id), _) => Some(Cow::Borrowed(id)),
            // No id of an extension has a colon. All for whom one token speaks share its places.
            (None, Self::Client { token: Some(token) }) => {
                let token = token.split_once('/').map_or(token.as_str(), |(token, _)| token);
                Some(format!("token:{token}").into())
            }
            // What agents set off by themselves takes no places from people.
            (None, Self::Spawned { .. }) => Some(Cow::Borrowed("spawned:")),
            _ => None,
        }
    }
}

/// As it stands in the journal: `operator`, `token:NAME`, `extension:ID`, `person:CHANNEL/ID`, `topic:AGENT`, `schedule:ID`, `spawned:TURN`,
/// `report:TURN`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client { token: None } => f.write_str("operator"),
            Self::Client { token: Some(name) } => write!(f, "token:{name}"),
            Self::Extension(id) => write!(f, "extension:{id}"),
            Self::Person { channel, id } => write!(f, "person:{channel}/{id}"),
            Self::Topic { follower } => write!(f, "topic:{follower}"),
            Self::Schedule(id) => write!(f, "schedule:{id}"),
            Self::Spawned { by } => write!(f, "spawned:{by}"),
            Self::Report { of } => write!(f, "report:{of}"),
        }
    }
}

/// A text that names no origin that this release knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no origin of a message that this release knows")]
pub struct UnknownOrigin(String);

impl FromStr for Origin {
    type Err = UnknownOrigin;

    fn from_str(text: &str) -> Result<Self, UnknownOrigin> {
        let unknown = || UnknownOrigin(text.to_owned());
        match text.split_once(':') {
            None if text == "operator" => Ok(Self::OPERATOR),
            Some(("token", name)) => Ok(Self::Client { token: Some(name.to_owned()) }),
            Some(("extension", id)) => ExtensionId::new(id).map(Self::Extension).map_err(|_| unknown()),
            Some(("person", who)) => {
                let (channel, id) =
                    who.split_once('/').filter(|(_, id)| !id.is_empty()).ok_or_else(unknown)?;
                let channel = ExtensionId::new(channel).map_err(|_| unknown())?;
                Ok(Self::Person { channel, id: id.to_owned() })
            }
            Some(("schedule", id)) if !id.is_empty() => Ok(Self::Schedule(id.to_owned())),
            Some(("spawned", by)) => TurnId::new(by).map(|by| Self::Spawned { by }).map_err(|_| unknown()),
            Some(("report", of)) => TurnId::new(of).map(|of| Self::Report { of }).map_err(|_| unknown()),
            Some(("topic", agent)) => {
                AgentId::new(agent).map(|follower| Self::Topic { follower }).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_reads_back_as_it_was_written_and_anything_else_is_refused() {
        let origins = [
            (Origin::OPERATOR, "operator", None),
            (Origin::Client { token: Some("a:b".into()) }, "token:a:b", None),
            (Origin::Extension("mail".parse().expect("an id")), "extension:mail", Some("mail")),
            (
                Origin::Person { channel: "chat".parse().expect("an id"), id: "7".into() },
                "person:chat/7",
                Some("chat"),
            ),
            (Origin::Topic { follower: "digest".parse().expect("an id") }, "topic:digest", Some("digest")),
            (Origin::Schedule("digest/daily".into()), "schedule:digest/daily", Some("digest")),
            (Origin::Schedule("tea".into()), "schedule:tea", None),
            (Origin::Spawned { by: "t-1".parse().expect("an id") }, "spawned:t-1", None),
            (Origin::Report { of: "t-1".parse().expect("an id") }, "report:t-1", None),
        ];
        for (origin, text, extension) in origins {
            assert_eq!((origin.to_string().as_str(), origin.extension()), (text, extension));
            let share = match origin {
                Origin::Spawned { .. } => Some("spawned:"),
                _ => extension.or(text.starts_with("token:").then_some(text)),
            };
            assert_eq!(origin.share().as_deref(), share, "{text}");
            assert_eq!(text.parse(), Ok(origin));
        }
        let ann = Origin::Client { token: Some("shop/ann".into()) };
        assert_eq!((ann.share().as_deref(), ann.to_string().parse()), (Some("token:shop"), Ok(ann.clone())));
        for text in ["", "operators", "extension:", "topic:A B", "schedule:", "person:chat", "person:chat/"] {
            assert_eq!(text.parse::<Origin>(), Err(UnknownOrigin(text.into())));
        }
    }
}
