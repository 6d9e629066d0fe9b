//! What the process of an extension may do.

use std::{collections::BTreeMap, ffi::OsString, path::Path};

use drupe_confine::{Limits, Profile};

use crate::HostProcess;

/// Lets its name resolution use TCP: other sockets are denied to a confined process.
const RESOLVE: (&str, &str) = ("RES_OPTIONS", "use-vc");

/// Open files of one process; of one that is handed sockets, each of whose connections is a file. The system may allow less.
const FILES: u64 = 1024;
const FILES_WITH_SOCKETS: u64 = 16 * 1024;

/// Processes and threads: a runtime that blocks on files keeps up to 512 threads for that.
const TASKS: u64 = 2048;

/// What the process of an extension may do, beyond what any program needs.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// drupe's own program.
    pub exe: &'a Path,
    pub read: &'a [&'a Path],
    /// What it may write; it begins in the first of these.
    pub write: &'a [&'a Path],
    /// Memory of each of its processes, and of all together, in bytes.
    pub memory: u64,
    /// Whether it may use TCP.
    pub network: bool,
    /// Whether it is handed sockets.
    pub sockets: bool,
    /// Whether to refuse where the system cannot confine as asked.
    pub strict: bool,
}

impl HostProcess {
    /// A process with these bounds.
    #[must_use]
    pub fn confined(bounds: &Bounds<'_>) -> Self {
        let limits = Limits {
            data: Some(bounds.memory),
            tree_memory: Some(bounds.memory),
            tree_tasks: Some(TASKS),
            open_files: Some(if bounds.sockets { FILES_WITH_SOCKETS } else { FILES }),
            ..Limits::default()
        };
        let mut profile =
            Profile { limits, network: bounds.network, strict: bounds.strict, ..Profile::program() };
        for path in bounds.read {
            profile = profile.read(*path);
        }
        for path in bounds.write {
            profile = profile.write(*path);
        }
        let mut env = BTreeMap::new();
        if bounds.network {
            env.insert(RESOLVE.0.to_owned(), OsString::from(RESOLVE.1));
        }
        let directory = bounds.write.first().copied().unwrap_or(Path::new("/")).to_owned();
        Self { exe: bounds.exe.to_owned(), profile, env, directory }
    }
}
