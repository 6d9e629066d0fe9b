//! Payloads of the operations that the kernel calls on a channel: what goes out to people, and what is shown of it while it is made.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{FormPart, LONGEST_CAPTION, host};
use crate::SessionId;

/// A message on its way to a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutboundMessage {
    /// The same for each attempt to deliver it.
    pub delivery: String,
    #[serde(default)]
    pub kind: OutboundKind,
    /// The conversation.
    pub session: SessionId,
    /// Where in the channel, as the inbound message said.
    #[serde(default)]
    pub address: Option<String>,
    /// Of a file, what stands beside it: empty, or at most [`LONGEST_CAPTION`] bytes.
    pub text: String,
    /// The file that it is. Only a channel that says that it [carries files](super::Description::carries_files) gets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<OutboundFile>,
}

/// A file that goes out. Its bytes are had while its message is being sent: by the `delivery` of that, in a request of
/// [`host::HTTP_SEND`] ([`FormPart::File`]), or in the extension's own folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundFile {
    pub name: String,
    pub bytes: u64,
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// Its type as HTTP writes it, by its content.
    pub media_type: String,
    /// Where in the extension's folder of data a copy of it lies until `send` returns, or the daemon gives that up and puts the next one there,
    /// which its hash tells; only for a channel that [reads files](super::Description::reads_files).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_file: Option<String>,
}

/// What a message is that goes out to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboundKind {
    /// The answer to a message that came through the channel.
    #[default]
    Answer,
    /// A file that an agent sends.
    File,
    /// Something that nobody asked for. A kind that a newer kernel knows is read as this one.
    #[serde(other)]
    Notice,
}

/// What stands behind the `delivery` of a question about a call, which is the id that an answer names, in the notice that says what
/// became of it. A channel that shows buttons takes them away then.
pub const SETTLED: &str = ".settled";

/// A message was delivered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// The channel's own id of it.
    pub remote_id: Option<String>,
}

/// A part of an answer while it is made, for channels that can show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelStream {
    /// The conversation.
    pub session: SessionId,
    /// Where in the channel.
    #[serde(default)]
    pub address: Option<String>,
    /// The message that the part is of, by an id within the session; none for what is of no message, and from an older kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub part: StreamPart,
}

/// What happened to an answer that is being made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum StreamPart {
    Begin,
    /// What comes behind what was shown of its message: to a channel that was slow, all that has come since in one piece.
    Delta {
        text: String,
    },
    /// The deltas of its message so far are void: it begins anew, another one takes its place, or it is not known how much of
    /// it the channel shows. What is valid of it follows.
    Reset,
    Status {
        /// For people.
        text: String,
    },
    /// The answer ended; the whole follows as a message.
    End,
}
