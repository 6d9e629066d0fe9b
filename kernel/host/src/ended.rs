//! How the process of an extension ended, in words.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

/// Why a process is killed that goes on with what its caller gave up.
pub(crate) const OVERDUE: &str = "a cancelled call did not return";

/// The end of an extension's process that nobody asked for in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// `signal 11 (SIGSEGV)`, `exit status 0`, `killed: a cancelled call did not return`.
    pub how: String,
    /// The operation of the oldest call in flight, such as `tool.call`, or `load`; that of a service only where there is
    /// no other. Without one: `thread` if code of
    /// the extension must have run beside its calls, `idle` if something else ended it.
    pub operation: String,
    /// The last lines of its standard error stream, oldest first.
    pub stderr_tail: Vec<String>,
}

impl Ended {
    /// Whether it was killed since it went on with a call that its caller had given up.
    pub fn was_overdue(&self) -> bool {
        self.how.strip_prefix("killed: ") == Some(OVERDUE)
    }

    /// The operation to name where no call is in flight.
    pub(crate) fn without_call(how: &str) -> &'static str {
        let from_outside =
            how.starts_with("killed") || how.starts_with("signal 9 ") || how.starts_with("signal 15 ");
        if from_outside { "idle" } else { "thread" }
    }
}

/// The signal that ended a process. One that cannot die of its child's signal exits with 128 and the signal, as a shell
/// does.
pub(crate) fn signal(status: ExitStatus) -> Option<i32> {
    status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128))
}

/// How a process ended, as a phrase.
pub(crate) fn how(status: ExitStatus) -> String {
    match signal(status) {
        Some(signal) => signal_name(signal),
        None => format!("exit status {}", status.code().unwrap_or(-1)),
    }
}

/// A signal as a person knows it.
pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_told_in_words_also_where_a_reaper_stands_between() {
        for (raw, expected) in [
            (11, "signal 11 (SIGSEGV)"),
            ((128 + 11) << 8, "signal 11 (SIGSEGV)"),
            (0, "exit status 0"),
            (3 << 8, "exit status 3"),
            (35, "signal 35"),
        ] {
            assert_eq!(how(ExitStatus::from_raw(raw)), expected);
        }
    }

    #[test]
    fn without_a_call_a_crash_is_that_of_a_thread_and_a_kill_is_not() {
        assert_eq!(Ended::without_call("signal 11 (SIGSEGV)"), "thread");
        assert_eq!(Ended::without_call("exit status 0"), "thread");
        assert_eq!(Ended::without_call("signal 9 (SIGKILL)"), "idle");
        assert_eq!(Ended::without_call("killed: by hand"), "idle");
    }
}
