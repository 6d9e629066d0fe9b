//! Who gets the messages of durable topics: names of subscribers, as the journal keeps them.

use std::fmt;

use drupe_extension_api::{AgentId, ExtensionId};

/// A durable subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subscriber {
    /// An agent, by its manifest's `subscribe`: each message sets off a turn.
    Agent(AgentId),
    /// An extension, which pulls the messages from a handle.
    Extension(ExtensionId),
}

impl Subscriber {
    /// The subscriber of that name; none where no such one can be.
    pub fn of(name: &str) -> Option<Self> {
        match name.split_once(':')? {
            ("agent", id) => AgentId::new(id).ok().map(Self::Agent),
            ("extension", id) => ExtensionId::new(id).ok().map(Self::Extension),
            _ => None,
        }
    }
}

/// The name, such as `agent:librarian`.
impl fmt::Display for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(id) => write!(f, "agent:{id}"),
            Self::Extension(id) => write!(f, "extension:{id}"),
        }
    }
}
