//! What goes over the socket between a [`Child`](crate::Child) and its reaper: one [`Spec`] down, then [`Report`]s
//! up, a line each. When either end closes, the other side is gone.

use std::{collections::BTreeMap, ffi::OsString, os::fd::RawFd, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Enforcement, Profile};

/// The longest spec in bytes: it must fit into a socket buffer, because it is written before anybody reads.
pub const MAX_SPEC: usize = 128 * 1024;

#[derive(Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The process that must be the reaper's parent.
    pub parent: u32,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: BTreeMap<String, OsString>,
    pub directory: Option<PathBuf>,
    /// Descriptors for the program, under the numbers that they have in every process on the way.
    pub passed: Vec<RawFd>,
    pub deadline_ms: Option<u64>,
    /// Whether its standard streams are a terminal, which is to be its own.
    pub terminal: bool,
    pub profile: Profile,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The restrictions are in place; the program's file is executed next.
    Confined(Enforcement),
    Started {
        program: i32,
    },
    /// It could not be started.
    Failed(String),
    /// It did not end in time.
    TimedOut,
    /// It and what it started used more than they may together.
    Exceeded(String),
}
