//! The frames, without I/O.
//!
//! A frame is one JSON object, `{"frame": "<name>", …}`. Unknown fields are skipped and an unknown name makes the
//! frame one that the receiver ignores, so that the two sides may be of different releases while a daemon is
//! upgraded.

use drupe_extension_api::control::{ExitRecord, ExtensionStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of this form, which the supervisor says first. It is raised by a change that one of an earlier version cannot do
/// without. A new field or frame that whoever does not know it may skip is no such change.
pub const VERSION: u32 = 1;

/// The longest frame in bytes. A few hundred extensions fit, and a default socket buffer holds three of them, so
/// that neither side waits for the other.
pub const MAX_FRAME: usize = 64 * 1024;

/// From the kernel to its supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Up {
    /// The first frame: the process runs and has read nothing yet.
    Hello {
        /// The kernel's own process id.
        pid: u32,
        version: String,
    },
    /// The kernel serves, and accepts on the control socket from now on. Sent again after each
    /// [`Down::Reload`], whether the new configuration was accepted or refused.
    Ready {
        /// How long a drain may take, in milliseconds; the supervisor waits a little longer than that.
        drain_timeout_ms: u64,
        /// The text of the `drupe.yaml` that is in force, kept as the last good one; a comment where there is no
        /// file.
        config: String,
        model: Option<String>,
        #[serde(default)]
        notices: Vec<String>,
        /// Names the set of extensions that works; none where it was not kept.
        #[serde(default)]
        extensions: Option<String>,
        /// Why what the operator has written is not in force, where it is refused.
        #[serde(default)]
        config_refused: Option<String>,
    },
    /// The process of an extension has crashed, which the supervisor counts.
    Crashed(Crashed),
    /// An extension is to be counted as new: the operator released it, or its content has changed.
    Released {
        extension: String,
        /// For the log.
        reason: String,
    },
    /// The runtime and the main loop still turn. Never sent from a thread of its own.
    Beat,
    /// The journal has just carried a transaction out, or said that its disk has no room for one: it is not stuck. Sent as
    /// often as [`Down::Start`] asks for it.
    Proof,
    /// What the kernel does before it is ready, where nobody knows how long that takes, such as the check of a large
    /// journal. Sent with each beat until it is done.
    Progress {
        /// For people, to be read after the kernel's name: `checks the journal`.
        doing: String,
        /// How far it came: a number that grows as long as something is done, and stands where nothing is.
        steps: u64,
    },
    /// What `status` answers while no kernel serves. Sent when it changes.
    Status {
        sessions: u64,
        queued_turns: u64,
        extensions: Vec<ExtensionStatus>,
        /// How many extensions were left out because the frame has a bound.
        #[serde(default)]
        unlisted: u64,
    },
    /// A client was told that the daemon stops: whatever becomes of this process, no other kernel follows. Sent before
    /// the client is answered.
    StopAgreed,
    /// Where the log goes beside the standard error stream; nowhere else without it. Sent once, by each kernel that could
    /// read its configuration.
    Log {
        #[serde(default)]
        file: Option<LogFileSpec>,
    },
    /// Intake is closed; running turns end.
    Draining,
    /// The last frame of a clean stop; status 0 follows.
    Stopping,
    /// The last frame of a restart; status 0 follows.
    Restart {
        /// For the log.
        reason: String,
        /// Nobody asked for it: the kernel cannot go on with its journal. It undoes nothing that crashes led to.
        #[serde(default)]
        unasked: bool,
    },
}

/// A log in a file of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFileSpec {
    /// A file that would be larger is put aside.
    pub max_bytes: u64,
    /// How many of those are kept.
    pub keep: u32,
}

/// From the supervisor to its kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Down {
    /// The first frame; the kernel does nothing before it, and ends where it is of another version.
    Start {
        /// Which [`VERSION`] the supervisor speaks.
        #[serde(default = "first")]
        link: u32,
        /// Number of this start in this home, from 1.
        generation: u64,
        /// Whether to leave third-party extensions out.
        safe_mode: bool,
        supervisor_pid: u32,
        /// Restarts since the supervisor began.
        restarts: u32,
        /// The last ends of kernels of this home, newest first.
        #[serde(default)]
        exits: Vec<ExitRecord>,
        /// Remarks for the operator, such as a configuration that was refused.
        #[serde(default)]
        notices: Vec<String>,
        /// What must not be loaded, and what only in a process of its own.
        #[serde(default)]
        verdicts: Verdicts,
        /// The set of extensions to return to, because starts with the present one did not become ready.
        #[serde(default)]
        fallback: Option<String>,
        /// How often the kernel is to prove that its journal writes, in milliseconds; none where nobody asks.
        #[serde(default)]
        proof_ms: Option<u64>,
    },
    Verdicts(Verdicts),
    /// Drain, then end with [`Up::Stopping`] and status 0.
    Stop,
    /// Drain, then end with [`Up::Restart`] and status 0.
    Restart {
        /// For the log.
        reason: String,
    },
    Reload,
}

/// The version of those that said none.
fn first() -> u32 {
    1
}

/// What the supervisor knows of extensions that crash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    /// Left out until they change or are released.
    #[serde(default)]
    pub quarantined: Vec<Quarantined>,
    /// One of these ended a kernel: they run in processes of their own until it is known which.
    #[serde(default)]
    pub suspects: Vec<String>,
}

/// An extension that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    pub extension: String,
    /// The hash of the content that crashed.
    pub hash: String,
    /// What it did, for people.
    pub reason: String,
    pub since: Timestamp,
}

/// A crash of an extension in a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crashed {
    pub extension: String,
    pub hash: String,
    pub operation: String,
    pub how: String,
    /// Whether it was not active yet.
    pub loading: bool,
}

/// What can be sent over a link.
pub trait Frame: Serialize + DeserializeOwned {
    /// Gives up the least important part of a frame that is too large. Returns false when nothing is left to
    /// give up.
    fn shorten(&mut self) -> bool;

    /// The bytes of the frame; none if it does not fit even when shortened.
    fn encode(&self) -> Option<Vec<u8>>
    where
        Self: Clone,
    {
        let bytes = serde_json::to_vec(self).ok()?;
        if bytes.len() <= MAX_FRAME {
            return Some(bytes);
        }
        let mut shorter = self.clone();
        while shorter.shorten() {
            let bytes = serde_json::to_vec(&shorter).ok()?;
            if bytes.len() <= MAX_FRAME {
                return Some(bytes);
            }
        }
        None
    }

    /// Reads a frame; none if it is not one that this release knows.
    fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_FRAME {
            return None;
        }
        serde_json::from_slice(bytes).ok()
    }
}

impl Frame for Up {
    fn shorten(&mut self) -> bool {
        match self {
            // Without a copy there is no last good configuration, but the kernel is ready all the same.
            Self::Ready { config, notices, .. } if !config.is_empty() || !notices.is_empty() => {
                if config.is_empty() {
                    notices.pop();
                } else {
                    config.clear();
                }
                true
            }
            Self::Status { extensions, unlisted, .. } if !extensions.is_empty() => {
                let kept = extensions.len() / 2;
                *unlisted += (extensions.len() - kept) as u64;
                extensions.truncate(kept);
                true
            }
            Self::Crashed(crashed) => halve(&mut crashed.how) || halve(&mut crashed.operation),
            Self::Restart { reason, .. } | Self::Released { reason, .. } => halve(reason),
            Self::Progress { doing, .. } => halve(doing),
            _ => false,
        }
    }
}

impl Frame for Down {
    fn shorten(&mut self) -> bool {
        let (exits, notices, verdicts) = match self {
            Self::Start { exits, notices, verdicts, .. } => (exits, notices, verdicts),
            Self::Verdicts(verdicts) => return verdicts.shorten(),
            Self::Restart { reason } => return halve(reason),
            Self::Stop | Self::Reload => return false,
        };
        // The oldest log lines go first: the newest exit is what a person asks about.
        if let Some(exit) = exits.iter_mut().rev().find(|exit| !exit.last_lines.is_empty()) {
            exit.last_lines.clear();
            return true;
        }
        exits.pop().is_some() || notices.pop().is_some() || verdicts.shorten()
    }
}

impl Verdicts {
    /// Gives up reasons, and never a name: what is left out must stay left out.
    fn shorten(&mut self) -> bool {
        let longest =
            self.quarantined.iter_mut().map(|found| &mut found.reason).max_by_key(|text| text.len());
        longest.is_some_and(halve)
    }
}

/// Cuts a text to half its length; false when it is short anyway.
fn halve(text: &mut String) -> bool {
    if text.len() < 64 {
        return false;
    }
    text.truncate(text.floor_char_boundary(text.len() / 2));
    true
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::control::ExtensionState;
    use proptest::prelude::*;

    use super::*;

    fn extension(number: usize) -> ExtensionStatus {
        ExtensionStatus {
            id: format!("extension-{number}"),
            version: None,
            state: ExtensionState::Active,
            reason: None,
            capabilities: vec!["tool".into()],
            isolation: None,
            source: "x".repeat(100),
            since: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_long_list_of_extensions_is_cut_and_counted() {
        let status = Up::Status {
            sessions: 1,
            queued_turns: 0,
            extensions: (0..2_000).map(extension).collect(),
            unlisted: 0,
        };
        let bytes = status.encode().expect("it shortens to a frame");
        assert!(bytes.len() <= MAX_FRAME);
        let Some(Up::Status { extensions, unlisted, .. }) = Up::decode(&bytes) else { panic!("a status") };
        assert_eq!(extensions.len() as u64 + unlisted, 2_000);
        assert!(!extensions.is_empty());
    }

    #[test]
    fn a_start_gives_up_its_old_log_lines_first() {
        let exit = ExitRecord {
            time: Timestamp::UNIX_EPOCH,
            pid: 1,
            generation: 1,
            how: "signal 9 (SIGKILL)".into(),
            crash: true,
            last_lines: vec!["y".repeat(512); 40],
            blamed: vec![],
        };
        let start = Down::Start {
            link: VERSION,
            generation: 2,
            safe_mode: false,
            supervisor_pid: 1,
            restarts: 1,
            exits: vec![exit; 10],
            notices: vec![],
            verdicts: Verdicts::default(),
            fallback: None,
            proof_ms: None,
        };
        let bytes = start.encode().expect("it shortens to a frame");
        let Some(Down::Start { exits, .. }) = Down::decode(&bytes) else { panic!("a start") };
        assert_eq!(exits.len(), 10);
        assert!(!exits[0].last_lines.is_empty() && exits[9].last_lines.is_empty());
    }

    #[test]
    fn a_large_configuration_does_not_keep_a_kernel_from_being_ready() {
        let ready = Up::Ready {
            drain_timeout_ms: 1,
            config: "#".repeat(MAX_FRAME),
            model: None,
            notices: vec![],
            extensions: None,
            config_refused: None,
        };
        let bytes = ready.encode().expect("it shortens to a frame");
        assert!(matches!(Up::decode(&bytes), Some(Up::Ready { config, .. }) if config.is_empty()));
    }

    #[test]
    fn verdicts_give_up_their_reasons_and_no_name() {
        let quarantined = |number| Quarantined {
            extension: format!("{number:048}"),
            hash: "f".repeat(64),
            reason: "r".repeat(1_000),
            since: Timestamp::UNIX_EPOCH,
        };
        let verdicts = Verdicts {
            quarantined: (0..128).map(quarantined).collect(),
            suspects: (0..300).map(|number| format!("{number:048}")).collect(),
        };
        let start = Down::Start {
            link: VERSION,
            generation: 2,
            safe_mode: false,
            supervisor_pid: 1,
            restarts: 1,
            exits: vec![],
            notices: vec!["n".repeat(1_000)],
            verdicts: verdicts.clone(),
            fallback: Some("set".into()),
            proof_ms: Some(1_000),
        };
        for frame in [start, Down::Verdicts(verdicts.clone())] {
            let bytes = frame.encode().expect("it shortens to a frame");
            let (Some(Down::Start { verdicts: read, .. }) | Some(Down::Verdicts(read))) =
                Down::decode(&bytes)
            else {
                panic!("the frame that was sent")
            };
            assert_eq!(read.suspects, verdicts.suspects);
            let names = |list: &[Quarantined]| list.iter().map(|q| q.extension.clone()).collect::<Vec<_>>();
            assert_eq!(names(&read.quarantined), names(&verdicts.quarantined));
        }
    }

    #[test]
    fn frames_of_an_earlier_release_lack_what_is_new_and_are_read() {
        let start = br#"{"frame":"start","generation":1,"safe_mode":false,"supervisor_pid":1,"restarts":0}"#;
        let Some(Down::Start { link: 1, verdicts, fallback: None, proof_ms: None, .. }) = Down::decode(start)
        else {
            panic!("a start")
        };
        assert_eq!(verdicts, Verdicts::default());
        let ready = br#"{"frame":"ready","drain_timeout_ms":1,"config":"","model":null}"#;
        assert!(matches!(Up::decode(ready), Some(Up::Ready { extensions: None, .. })));
        let restart = br#"{"frame":"restart","reason":"r"}"#;
        assert!(matches!(Up::decode(restart), Some(Up::Restart { unasked: false, .. })));
    }

    #[test]
    fn what_a_later_release_added_is_skipped() {
        assert!(matches!(Up::decode(br#"{"frame":"beat","colour":"red"}"#), Some(Up::Beat)));
        assert!(Up::decode(br#"{"frame":"levitate"}"#).is_none());
        assert!(Down::decode(br#"{"frame":"beat"}"#).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_upset_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let _ = Up::decode(&bytes);
            let _ = Down::decode(&bytes);
        }
    }
}
