//! What a confined program may do, and what of it the kernel enforces.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a confined program may do. The default may read, write and reach nothing, and cannot even start: it needs
/// its own file and libraries readable.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Files and folders that it may read and execute, with all beneath them. One that does not exist is skipped.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may also change, with all beneath them.
    pub write: Vec<PathBuf>,
    /// Whether it may use TCP.
    pub network: bool,
    /// Bounds on what it uses.
    pub limits: Limits,
    /// Refuse to start it where the kernel cannot enforce all of the above. Without it as much as possible is
    /// enforced and reported.
    pub strict: bool,
}

impl Profile {
    /// Reads everything, writes nothing, no TCP.
    pub fn read_only() -> Self {
        Self { read: vec![PathBuf::from("/")], ..Self::default() }
    }
}

/// Bounds on what each process of a confined program uses. `None` leaves what is inherited; a bound above the
/// inherited one is lowered to that. No process writes a core dump: it would hold secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of CPU time.
    pub cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub address_space: Option<u64>,
    /// Open files.
    pub open_files: Option<u64>,
    /// Bytes of the longest file that it may write.
    pub file_size: Option<u64>,
    /// Processes of the whole user, the ones outside included.
    pub processes: Option<u64>,
}

/// What the running kernel enforces for one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    /// Files are out of reach but for those of the profile.
    pub files: bool,
    /// TCP is denied, or the profile allows it.
    pub network: bool,
    /// Processes outside cannot be signalled, nor their abstract sockets reached.
    pub scope: bool,
    /// The version of Landlock in the kernel; 0 where there is none.
    pub landlock: i32,
}

impl Enforcement {
    /// Whether everything that a [`Profile`] says is enforced.
    pub fn complete(&self) -> bool {
        self.files && self.network && self.scope
    }
}
