//! Payloads of the operations on handles.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

#[cfg(doc)]
use super::host;

/// The most bytes of one [`host::HANDLE_PUT`].
pub const LARGEST_PUT: usize = 256 * 1024;

/// Payload of [`host::SUBSCRIBE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Subscribe {
    /// A whole topic.
    pub topic: String,
    /// Whether messages wait for this extension while it is away, and come again until they are done with: those that
    /// one [`host::HANDLE_NEXT`] gave count as done when the next one asks.
    #[serde(default)]
    pub durable: bool,
}

/// One message of a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BusMessage {
    pub topic: String,
    pub payload: Value,
    /// Links it to the turn that set it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<crate::CorrelationId>,
    /// Of a durable subscription: the message's number, the same each time it comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// How many were skipped before it because the reader was slow.
    #[serde(default)]
    pub skipped: u64,
}

/// Payload of [`host::HANDLE_NEXT`]. The answer of a handle of items is [`HandleItems`]; that of a handle of bytes is
/// the bytes themselves, and none of them is its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandleNext {
    pub handle: u64,
    /// The most items that the reader takes now; at most 1024 are given.
    pub credit: u32,
    /// The most bytes that the reader takes now; at most 1 MiB are given. The last of several items may go beyond.
    #[serde(default = "most_bytes")]
    pub bytes: u32,
}

fn most_bytes() -> u32 {
    1024 * 1024
}

impl HandleNext {
    /// Asks for so many items, of whatever size.
    pub fn items(handle: u64, credit: u32) -> Self {
        Self { handle, credit, bytes: most_bytes() }
    }

    /// Asks for so many bytes.
    pub fn bytes(handle: u64, bytes: u32) -> Self {
        Self { handle, credit: 1, bytes }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandleItems {
    /// What came, in order; at least one unless `ended`.
    pub items: Vec<Box<RawValue>>,
    pub ended: bool,
}

/// The payload of a [`host::HANDLE_PUT`]: the handle's number in eight bytes, the lowest first, then the content as it
/// is.
pub fn put_payload(handle: u64, content: &[u8]) -> Vec<u8> {
    [&handle.to_le_bytes(), content].concat()
}

/// The handle and the content of a [`host::HANDLE_PUT`]; none where it is too short to name a handle.
pub fn read_put(payload: &[u8]) -> Option<(u64, &[u8])> {
    let (handle, content) = payload.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*handle), content))
}
