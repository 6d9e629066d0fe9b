//! What a conversation remembers besides its turns.
//!
//! A turn is given the state as it is when it begins, and who answers it is a function of that and of
//! the message alone: nothing else of a session changes what becomes of a message. Whoever adds something that lasts
//! from turn to turn (that an agent has taken the conversation over and since when, what the user allowed for the rest of
//! it) adds it here, and not beside it: what is kept elsewhere is neither restored, exported nor migrated with the rest.

use drupe_agent::Conversation;
use drupe_extension_api::AgentId;

/// The state of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionState {
    /// The agent that the user chose to talk with; none for the orchestrator.
    pub talks_with: Option<AgentId>,
    /// Who has the conversation where nobody was chosen: the orchestrator, or an agent that it handed it to.
    pub conversation: Conversation,
}
