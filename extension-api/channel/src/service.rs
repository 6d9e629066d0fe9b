//! The seam: what a service has to say of itself.

use std::time::Duration;

use drupe_extension_api::prelude::*;
use serde::de::DeserializeOwned;

use crate::{buttons::Button, hear::HeardMessage};

/// A chat service, as one bot or app reaches it. Clones are the same.
///
/// An address is where in it something is written, as `submit` was told it; a message is known by a text of the service's own, by which it can
/// be changed and from which its place follows. Each method asks the service once; when it is asked, and whether again, is decided by
/// [`ChatChannel`](crate::ChatChannel).
pub trait ChatService: Clone + Send + Sync + 'static {
    /// Its name, as people know it.
    const NAME: &'static str;
    /// The longest text of a message, in [`units`](Self::units).
    const LONGEST: usize;
    /// The longest text above the button that ends an answer.
    const LONGEST_PREVIEW: usize = Self::LONGEST;
    /// The shortest time between two changes of messages, wherever they stand; zero where the service counts by [place](Self::counted) alone.
    const BETWEEN_CHANGES: Duration = Duration::ZERO;

    /// What it keeps beside what the library does, in the same file and the same object.
    type Record: Default + Serialize + DeserializeOwned + Send + 'static;

    /// How much of the length of a message a letter takes.
    fn units(letter: char) -> usize {
        letter.len_utf16()
    }

    /// The part of an address at which the service counts messages, such as the channel of a thread.
    fn counted(address: &str) -> &str {
        address
    }

    /// The shortest time between two messages at one place, of those that nobody must get.
    fn between_messages(_counted: &str) -> Duration {
        Duration::from_secs(1)
    }

    /// Sends a message; gives that by which it is known.
    fn post(
        &self,
        address: &str,
        message: &NewPost<'_>,
    ) -> impl Future<Output = Result<String, SendFailure>> + Send;

    /// Writes a text with these buttons in the place of what a message says. One that says it already is changed. A service that cannot do
    /// that refuses it, and gets another message in its place.
    fn change(
        &self,
        _message: &str,
        _text: &str,
        _buttons: &[Button],
    ) -> impl Future<Output = Result<(), SendFailure>> + Send {
        async { Err(SendFailure::refused("", "its messages cannot be changed")) }
    }

    /// Sends a file; only a channel that says that it carries files is given one.
    fn send_file(
        &self,
        _address: &str,
        _message: &OutboundMessage,
        _file: &OutboundFile,
    ) -> impl Future<Output = Result<String, SendFailure>> + Send {
        async { Err(SendFailure::refused("", "it takes no files")) }
    }

    /// Says something for what was heard that nobody must get: a word about a command.
    fn say(&self, heard: &HeardMessage, text: &str) -> impl Future<Output = Result<(), SendFailure>> + Send {
        async move {
            let message = NewPost { text, buttons: &[], mark: "" };
            self.post(&heard.address, &message).await.map(drop)
        }
    }
}

/// A message that is not there yet.
#[derive(Debug, Clone, Copy)]
pub struct NewPost<'a> {
    pub text: &'a str,
    pub buttons: &'a [Button],
    /// The same for each attempt, and that of no other message: by it one may be found that may have arrived. Empty where nobody must get it.
    pub mark: &'a str,
}

/// Why a service did not do what it was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum SendFailure {
    /// It answered, did nothing, and would say the same later. `code` is its own name for that.
    Refused { code: String, said: String },
    /// It did nothing, and wants to be asked again after so many seconds.
    TooMany { seconds: u64 },
    /// Nothing was sent, or the service was not there.
    NotSent(Fault),
    /// The daemon does not send it, now or later: its policy or its operator does not let it.
    Denied(Fault),
    /// It may have been done or not.
    Doubtful(Fault),
}

impl SendFailure {
    /// It was refused, with the service's own name for that and its words.
    pub fn refused(code: impl ToString, said: impl Into<String>) -> Self {
        Self::Refused { code: code.to_string(), said: said.into() }
    }

    /// Nobody knows whether it was done.
    pub fn doubtful(said: impl Into<String>) -> Self {
        Self::Doubtful(Fault::new(FaultCode::OutcomeUnknown, said.into()))
    }

    /// What it means that a request of [`Host::send`] has no answer.
    pub fn unanswered(fault: Fault) -> Self {
        match fault.code {
            // No connection came about, the daemon is ending, or a secret is not there yet.
            FaultCode::Unavailable | FaultCode::Busy | FaultCode::NotConfigured => Self::NotSent(fault),
            FaultCode::Denied => Self::Denied(fault),
            _ => Self::Doubtful(fault),
        }
    }

    /// As the daemon is told it: what was not sent is tried again, and what may have been sent is not.
    pub fn into_fault(self, service: &str) -> Fault {
        match self {
            Self::Refused { code, said } => {
                Fault::denied(format!("{service} refused it: {}", format!("{code} {said}").trim()))
            }
            Self::TooMany { seconds } => {
                let message = format!("{service} takes no more messages there for {seconds} seconds");
                Fault::new(FaultCode::Busy, message)
            }
            Self::NotSent(fault) => Fault::new(FaultCode::Unavailable, fault.to_string()),
            Self::Denied(fault) => {
                Fault { message: format!("nothing was sent to {service}: {}", fault.message), ..fault }
            }
            Self::Doubtful(fault) => Fault::new(FaultCode::OutcomeUnknown, fault.to_string()),
        }
    }
}
