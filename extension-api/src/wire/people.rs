//! People who write through a channel: who wrote, and whether the operator knows them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::SessionId;

/// The longest id of somebody in a service, in bytes: names of their sessions still fit.
pub const LONGEST_SENDER: usize = 48;

/// Who wrote a message, as the service knows them that a channel speaks to.
///
/// The sessions of somebody alone are `<extension>:person.<id>` and those below it; those of several people begin with
/// `<extension>:group.`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sender {
    /// The service's own id of them, which never changes and which nobody chooses: 1 to 48 letters, digits, `_`, `.` and `-`.
    pub id: String,
    /// What they call themselves. It is shown to the operator and proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Sender {
    /// Whether the id can be a part of the names of sessions.
    pub fn is_sound(&self) -> bool {
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        (1..=LONGEST_SENDER).contains(&self.id.len()) && self.id.bytes().all(sound)
    }
}

/// Whether somebody is answered in a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Admission {
    /// The operator knows them, or nobody needs to be known.
    Known {
        /// Whether their answers to questions about calls count.
        may_approve: bool,
    },
    /// They wait for the operator. They are shown the text, and nothing else.
    Waiting { code: String, expires: Timestamp, text: String },
    /// They are shown nothing, neither a code nor why.
    Unknown,
}

/// What runs or waits in a conversation is to end, as somebody in it wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopConversation {
    /// One of the extension's own.
    pub session: SessionId,
    /// Who wants it. They must be known, where the manifest has `senders: known`.
    #[serde(default)]
    pub sender: Option<Sender>,
}
