//! Why a verb failed: what, the next step, and the exit status.

use std::{fmt, io};

use drupe_extension_api::{Fault, FaultCode};
use drupe_link::Home;

use super::console::plain;

/// The exit statuses of clients beyond 0; 2 (wrong usage) is clap's.
pub mod status {
    /// What was asked for failed.
    pub const FAILED: u8 = 1;
    /// A file that was named does not hold what it should.
    pub const WRONG_INPUT: u8 = 65;
    /// A file that was named cannot be read.
    pub const NO_INPUT: u8 = 66;
    /// No daemon serves the home.
    pub const ABSENT: u8 = 69;
    /// A fault of drupe itself.
    pub const SOFTWARE: u8 = 70;
    /// The system refused a process or a signal handler.
    pub const SYSTEM: u8 = 71;
    /// A file or folder could not be made.
    pub const CANNOT_CREATE: u8 = 73;
    pub const IO: u8 = 74;
    /// It may go better later.
    pub const LATER: u8 = 75;
    pub const CONFIG: u8 = 78;
    /// Left by a second Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// What went wrong, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The process ends with it.
    pub status: u8,
    message: String,
    help: Option<String>,
}

impl Failure {
    /// A failure without a next step.
    pub fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), help: None }
    }

    /// A file or folder that cannot be made: it may go better once there is room.
    pub fn unmade(error: &io::Error, message: String) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        match full {
            true => Self::new(status::LATER, message).help("make room on its disk, then try again"),
            false => Self::new(status::CANNOT_CREATE, message),
        }
    }

    /// A failure about which everything has been said.
    pub fn said(status: u8) -> Self {
        Self::new(status, "")
    }

    /// No daemon serves this home.
    pub fn absent(home: &Home) -> Self {
        let message = format!("no daemon serves `{}`", home.path().display());
        Self::new(status::ABSENT, message).help("start one with `drupe run`, or `drupe` to chat at once; `drupe doctor` says what keeps one from it")
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// What is shown, without what a terminal would obey: messages may hold what models, providers and files say.
    /// Empty if everything has been said.
    pub fn render(&self, colour: bool) -> String {
        if self.message.is_empty() {
            return String::new();
        }
        let (red, cyan, off) = if colour { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error:{off} {}\n", plain(self.message.trim_end()));
        if let Some(help) = &self.help {
            text.push_str(&format!("  {cyan}help:{off} {}\n", plain(help)));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let status = match fault.code {
            FaultCode::NotConfigured => status::CONFIG,
            FaultCode::Internal | FaultCode::Panicked => status::SOFTWARE,
            FaultCode::Busy | FaultCode::Unavailable => status::LATER,
            _ => status::FAILED,
        };
        Self { status, message: fault.message, help: fault.help }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // Whoever read the output has seen enough.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::said(0);
        }
        Self::new(status::IO, error.to_string())
    }
}

/// What to do about an answer of an unknown form.
pub const UNKNOWN_FORM: &str =
    "client and daemon may be of different releases: `drupe restart` after an upgrade";

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(status::SOFTWARE, format!("the daemon's answer has an unknown form: {error}"))
            .help(UNKNOWN_FORM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_happened_and_what_to_do() {
        let failure = Failure::new(1, "there is no agent `x`").help("did you mean `y`?");
        assert_eq!(failure.render(false), "error: there is no agent `x`\n  help: did you mean `y`?\n");
        assert!(failure.render(true).contains("\x1b[1;31merror:\x1b[0m"));
        assert_eq!(Failure::said(1).render(true), "");
    }

    #[test]
    fn what_others_wrote_in_a_failure_cannot_command_the_terminal() {
        let failure = Failure::new(1, "a\x1b]0;x\x07\nb").help("c\u{9b}2J");
        assert_eq!(failure.render(false), "error: a]0;x\nb\n  help: c2J\n");
        let painted = failure.render(true);
        assert_eq!(painted.matches('\x1b').count(), 4, "ours alone: {painted:?}");
    }

    #[test]
    fn what_cannot_be_made_for_want_of_room_may_go_better_later() {
        let failed = |kind| Failure::unmade(&io::Error::from(kind), "x".into()).status;
        assert_eq!(failed(io::ErrorKind::StorageFull), 75);
        assert_eq!(failed(io::ErrorKind::QuotaExceeded), 75);
        assert_eq!(failed(io::ErrorKind::PermissionDenied), 73);
    }

    #[test]
    fn the_exit_status_follows_from_the_kind_of_fault() {
        let check =
            |code, status| assert_eq!(Failure::from(Fault::new(code, "x")).status, status, "{code:?}");
        check(FaultCode::NotFound, 1);
        check(FaultCode::Denied, 1);
        check(FaultCode::NotConfigured, 78);
        check(FaultCode::Unavailable, 75);
        check(FaultCode::Internal, 70);
    }
}
