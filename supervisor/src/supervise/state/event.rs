//! What comes into the state machine and what goes out of it.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kernel serves, or has answered a reload.
    Ready {
        /// How long a drain may take.
        drain_timeout: Duration,
        /// Whether its configuration was kept as the last good one.
        good_config: bool,
        /// Whether the name of its set of extensions was kept as the last good one.
        good_extensions: bool,
    },
    /// The kernel was started from a file that is another program than the supervisor's by now.
    Exchanged,
    Hello,
    /// The kernel's runtime and its main loop turn.
    Beat,
    /// The kernel says how far it came with work that may take long, before it is ready.
    Progress(u64),
    /// The kernel has told a client that the daemon stops.
    StopAgreed,
    /// The kernel lets its turns end.
    Draining,
    /// The kernel says that it ends because it should.
    Stopping,
    /// The kernel says that it ends to be started again, and whether nobody asked for that.
    Restart {
        reason: String,
        unasked: bool,
    },
    /// The kernel process is gone.
    Exited {
        exit: Exit,
        /// Whether it is known of an extension that its code ran at the end, so that the status may be that one's.
        named: bool,
    },
    /// The crash that was recorded last is certainly one extension's fault.
    Convicted {
        /// Whether that extension is left out from now on.
        quarantined: bool,
    },
    /// The kernel process could not be made: why, with the file.
    SpawnFailed(String),
    /// Whether the control socket answered.
    Probe(bool),
    /// Clients did not find the listening socket, and there is a new one, which the kernel does not have.
    Relisted {
        /// The old one was shut down, which nobody outside of the kernel's process can do.
        shut: bool,
    },
    /// The home was moved or deleted.
    Homeless,
    /// The operator wants the daemon to end.
    Terminate,
    /// The operator wants the configuration to be read again.
    Reload,
    /// The supervisor itself was not running for this long: it, or the machine, was stopped.
    Overslept(Duration),
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Status(i32),
    Signal(i32),
}

/// Why the supervisor killed a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// It has stopped to beat.
    Silent,
    /// It never began to beat.
    Lifeless,
    /// It beats and does not become ready.
    Unready,
    /// It beats and does not serve.
    Unserving,
    /// It did not end in time.
    Undrained,
    /// The operator did not want to wait for its end.
    Impatient,
}

impl Killed {
    pub fn why(self) -> &'static str {
        match self {
            Self::Silent => "no beat for 10 s",
            Self::Lifeless => "it gave no sign of life for 60 s while it started",
            Self::Unready => "it was not ready, and came no further for 5 minutes",
            Self::Unserving => "it did not answer on the control socket",
            Self::Undrained => "it did not end in time",
            Self::Impatient => "the operator did not want to wait",
        }
    }

    /// Whether code that holds a thread explains it.
    pub fn hung(self) -> bool {
        match self {
            Self::Silent | Self::Lifeless | Self::Unready | Self::Undrained => true,
            Self::Unserving | Self::Impatient => false,
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Spawn(Launch),
    /// Tell the kernel to drain and stop.
    SendStop,
    /// Tell the kernel to drain and end so that another one takes its place.
    SendRestart,
    /// Tell the kernel to read its configuration again.
    SendReload,
    /// `SIGKILL` for the kernel.
    Kill,
    /// Write down how the kernel ended.
    Record(Ending),
    /// A remark for the operator.
    Note(String),
    TellReady,
    /// The configuration is being read again.
    TellReloading,
    TellStopping,
}

/// How to start a kernel; by default as the operator has set it up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Launch {
    pub safe_mode: bool,
    /// With the last good configuration in place of the operator's.
    pub good_config: bool,
    /// With the last good set of extensions in place of the present one.
    pub good_extensions: bool,
    /// From the supervisor's own program in place of the file from which it was started.
    pub own_program: bool,
}

/// How a kernel ended, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// `stopped`, `restart: …`, `exit status N`, `signal N (NAME)`, and why it was killed if it was.
    pub how: String,
    /// Whether it counts as a crash.
    pub crash: bool,
    /// How the process ended; none where it never began.
    pub exit: Option<Exit>,
    pub killed: Option<Killed>,
}
