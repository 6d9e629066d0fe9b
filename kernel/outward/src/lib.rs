//! Requests over HTTP that are sent for extensions, with secrets that are filled in on the way out.
//!
//! Whoever asks writes `${NAME}` where a secret belongs, and gets the answer; the value is known here and at the host that it is
//! bound to. Which secrets an extension has, and where they may go, is the caller's to say; what comes back is the caller's to look
//! through. Nothing here is logged.

mod fill;
mod form;
mod request;
mod send;

pub use fill::{BoundHosts, BoundValue};
pub use form::{FormFile, OpenedFile};
pub use request::host_of;
pub use send::OutwardClient;

/// Bytes that the body of a request may have, filled in.
pub const LONGEST_REQUEST: usize = 1 << 20;
/// Bytes that the body of an answer may have.
pub const LONGEST_ANSWER: usize = 1 << 20;
/// Bytes that its address and headers may have together, filled in.
pub const LONGEST_HEAD: usize = 32 << 10;
/// The most headers of a request.
pub const MOST_HEADERS: usize = 64;
/// The most parts of a form.
const MOST_PARTS: usize = 32;
