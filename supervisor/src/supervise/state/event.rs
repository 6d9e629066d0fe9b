//! What comes into the state machine and what goes out of it.

use std::time::Duration;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kernel serves, or has answered a reload.
    Ready {
        /// How long a drain may take.
        drain_timeout: Duration,
        /// Whether its configuration was kept as the last good one.
        good_config: bool,
    },
    /// The kernel gave a sign of life.
    Beat,
    /// The kernel lets its turns end.
    Draining,
    /// The kernel says that it ends because it should.
    Stopping,
    /// The kernel says that it ends to be started again.
    Restart(String),
    /// The kernel process is gone.
    Exited(Exit),
    /// The kernel process could not be made.
    SpawnFailed(String),
    /// Whether the control socket answered.
    Probe(bool),
    /// The operator wants the daemon to end.
    Terminate,
    /// The operator wants the configuration to be read again.
    Reload,
    /// The supervisor itself was not running for this long: it, or the machine, was stopped.
    Overslept(Duration),
    /// Time has passed.
    Tick,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Status(i32),
    /// By a signal.
    Signal(i32),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Start a kernel.
    Spawn(Launch),
    /// Tell the kernel to drain and stop.
    SendStop,
    /// Tell the kernel to read its configuration again.
    SendReload,
    /// `SIGKILL` for the kernel.
    Kill,
    /// Write down how the kernel ended.
    Record(Ending),
    /// A remark for the operator.
    Note(String),
    /// The kernel serves.
    TellReady,
    /// The configuration is being read again.
    TellReloading,
    /// The daemon is ending.
    TellStopping,
}

/// How to start a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Without third-party extensions.
    pub safe_mode: bool,
    /// With the last good configuration in place of the operator's.
    pub good_config: bool,
}

/// How a kernel ended, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// `stopped`, `restart: …`, `exit status N`, `signal N (NAME)`, and why it was killed if it was.
    pub how: String,
    /// Whether it counts as a crash.
    pub crash: bool,
}
