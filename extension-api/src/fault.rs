//! Errors that cross a boundary, as plain data.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// Why an operation failed. Callers branch on `code`; people read the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// What kind of failure it is.
    pub code: FaultCode,
    /// What happened, lower-case, naming the user's thing.
    pub message: String,
    /// The next step, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Whether the same call may succeed later.
    #[serde(default)]
    pub retriable: bool,
}

/// The kinds of [`Fault`]. A code that this release does not know reads as [`FaultCode::Other`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// The input does not have the form it needs.
    Invalid,
    /// The thing named does not exist.
    NotFound,
    /// The caller may not do this.
    Denied,
    /// Nobody was given what the caller showed of itself.
    Unauthenticated,
    /// The other side does not know this operation.
    Unsupported,
    Cancelled,
    /// The call's deadline passed.
    Timeout,
    Panicked,
    /// The process that ran the extension ended during the call.
    Crashed,
    /// A bound on concurrent work or queue length is reached.
    Busy,
    /// The other side is not there at the moment.
    Unavailable,
    /// Something that the operator must configure is missing.
    NotConfigured,
    /// A budget is used up.
    Budget,
    /// It may have happened or not; it will not be tried again by itself.
    OutcomeUnknown,
    /// A fault of drupe itself.
    Internal,
    /// Any other failure of the thing asked.
    #[serde(other)]
    Other,
}

impl Fault {
    /// A fault with a message and no help.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        let retriable = matches!(code, FaultCode::Busy | FaultCode::Unavailable | FaultCode::Timeout);
        Self { code, message: message.into(), help: None, retriable }
    }

    /// [`FaultCode::Invalid`] with a message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultCode::Invalid, message)
    }

    /// [`FaultCode::NotFound`] with a message.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(FaultCode::NotFound, message)
    }

    /// [`FaultCode::Denied`] with a message.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(FaultCode::Denied, message)
    }

    /// [`FaultCode::Unsupported`] for an operation.
    pub fn unsupported(operation: &str) -> Self {
        Self::new(FaultCode::Unsupported, format!("operation `{operation}` is not supported"))
    }

    /// [`FaultCode::Internal`] with a message.
    pub fn internal(message: impl fmt::Display) -> Self {
        Self::new(FaultCode::Internal, message.to_string())
    }

    /// Adds the next step.
    #[must_use]
    pub fn help(mut self, help: impl Into<Cow<'static, str>>) -> Self {
        self.help = Some(help.into().into_owned());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => FaultCode::NotFound,
            std::io::ErrorKind::PermissionDenied => FaultCode::Denied,
            _ => FaultCode::Other,
        };
        Self::new(code, error.to_string())
    }
}

impl From<serde_json::Error> for Fault {
    fn from(error: serde_json::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<crate::InvalidId> for Fault {
    fn from(error: crate::InvalidId) -> Self {
        Self::invalid(error.to_string())
    }
}
