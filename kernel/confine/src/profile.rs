//! What a confined program may do, and what of it the kernel enforces.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::system;

/// What a confined program may do. The default may read, write and reach nothing, and cannot even start: it needs
/// its own file and libraries readable. [`program`](Self::program) is where most begin:
///
/// ```
/// # use drupe_confine::{Limits, Profile};
/// let limits = Limits { data: Some(512 << 20), ..Limits::default() };
/// let profile = Profile { network: true, limits, strict: true, ..Profile::program() }
///     .read("/opt/tool")
///     .write("/var/lib/tool");
/// ```
///
/// What no profile allows, whatever it says: local sockets but for connected pairs, UDP and any other protocol than
/// TCP, memory and descriptors of other processes, signals to processes outside, `io_uring`, namespaces, mounts,
/// shared memory and queues by number, keys, changes of limits, capabilities (also of root), more rights by a setuid
/// file, 32-bit code, watches on folders. One thing no profile can hinder: a program sees *that* a file exists, with size,
/// mode and times.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Profile {
    /// Files and folders that it may read and execute, with all beneath them. One that does not exist is skipped.
    /// A file that is replaced later by another of its name is not readable then; a folder's contents are.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may also change, with all beneath them.
    pub write: Vec<PathBuf>,
    /// The same as `read`, for a path on which there must be no link: where there is one when it is opened, nothing is started.
    /// For a path that somebody else can exchange between the moment at which it was judged and that one.
    pub read_unlinked: Vec<PathBuf>,
    /// The same as `write`, in this way.
    pub write_unlinked: Vec<PathBuf>,
    /// What stays as it is, with all beneath, although it lies in what may be changed. There must be no link on the way, and
    /// a path that does not exist is an error. Enforced by a mount, which not every system lets users have.
    pub keep: Vec<PathBuf>,
    /// Whether it may use TCP, in either direction. Names are looked up by UDP usually; set `RES_OPTIONS=use-vc` in
    /// its environment, and the C library of GNU does it by TCP.
    pub network: bool,
    /// Whether it may change modes, owners, times and extended attributes of files by their path. Compilers and
    /// unpackers must. Where the system lets users have mounts, this holds for what it may write; elsewhere nothing binds it to a
    /// folder, and it holds for every file of its user, read or not.
    pub attributes: bool,
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

    /// What any dynamically linked program needs to run: the system's programs and libraries, its names, hosts,
    /// certificates and time zone, harmless devices, and figures about the machine. No home, no folder for temporary
    /// files, no network.
    ///
    /// Of `/proc` only single files are in it. The folder as a whole would show the arguments of every process. (Their
    /// memory, environment, descriptors and root stay hidden also then: Landlock keeps a confined process from what a
    /// debugger could see.) `/proc/self` cannot be had without the rest, but for what needs no reading, like the link
    /// `/proc/self/exe`.
    pub fn program() -> Self {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        Self { read: paths(system::READ), write: paths(system::WRITE), ..Self::default() }
    }

    /// Also reads and executes this file, or what is beneath this folder.
    #[must_use]
    pub fn read(mut self, path: impl Into<PathBuf>) -> Self {
        self.read.push(path.into());
        self
    }

    /// Also changes this file, or what is beneath this folder.
    #[must_use]
    pub fn write(mut self, path: impl Into<PathBuf>) -> Self {
        self.write.push(path.into());
        self
    }

    /// Also reads and executes what is beneath this folder, which is reached by no link.
    #[must_use]
    pub fn read_unlinked(mut self, path: impl Into<PathBuf>) -> Self {
        self.read_unlinked.push(path.into());
        self
    }

    /// Also changes what is beneath this folder, which is reached by no link.
    #[must_use]
    pub fn write_unlinked(mut self, path: impl Into<PathBuf>) -> Self {
        self.write_unlinked.push(path.into());
        self
    }

    /// Keeps this file, or what is beneath this folder, as it is.
    #[must_use]
    pub fn keep(mut self, path: impl Into<PathBuf>) -> Self {
        self.keep.push(path.into());
        self
    }
}

/// Bounds on what each process of a confined program uses. `None` leaves what is inherited; a bound above the
/// inherited one is lowered to that. The program cannot change them. No process writes a core dump: it would hold
/// secrets.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Seconds of CPU time.
    pub cpu_seconds: Option<u64>,
    /// Bytes of memory of its own that can be written: heap, stacks of threads, private mappings. Beyond it an
    /// allocation fails, which ends most programs. This is the bound on memory to use. Memory that it does not count is
    /// refused where it can be told: shared without a file, in files without a name, stacks that grow by themselves. What
    /// is made read-only after it was written is not counted either: `tree_memory` is for that.
    pub data: Option<u64>,
    /// Bytes of address space, with libraries, mapped files and what is only reserved. Runtimes that reserve far more
    /// than they use (Go, JavaScript, sanitizers) do not start under a bound that would mean something; it is for
    /// programs that map files without end.
    pub address_space: Option<u64>,
    pub open_files: Option<u64>,
    /// Bytes of the longest file that it may write.
    pub file_size: Option<u64>,
    /// Processes of the whole user, the ones outside included.
    pub processes: Option<u64>,
    /// Bytes of memory of all its processes together: what they have written or share without a file, swapped out or
    /// not, and the tables for it. It is looked at four times a second while the program works, within a second else where it
    /// has run or has started others, and all of them are killed for it: what is taken between two looks is seen late. It also refuses shared memory without a file, as `data` does.
    pub tree_memory: Option<u64>,
    /// Processes and threads, of all that it started and its own, looked at and enforced in the same way. Of users but root the
    /// system also refuses more than twice as many beside those that the user had when it was started.
    pub tree_tasks: Option<u64>,
    /// How much it gives way to other processes, 0 to 19, as `nice` has it; never less than what is inherited.
    pub nice: Option<u8>,
}

impl Limits {
    /// Whether memory is bounded, so that what escapes a bound must be refused.
    pub(crate) fn memory(&self) -> bool {
        self.data.is_some() || self.tree_memory.is_some()
    }

    /// Whether all processes together are bounded, so that somebody must look at them.
    pub(crate) fn of_the_tree(&self) -> bool {
        self.tree_memory.is_some() || self.tree_tasks.is_some()
    }
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
    pub syscalls: bool,
    /// What is to stay as it is cannot be changed, or the profile names nothing.
    pub kept: bool,
    /// The version of Landlock in the kernel; 0 where there is none.
    pub landlock: i32,
}

impl Enforcement {
    /// Whether everything that a [`Profile`] says is enforced.
    pub fn complete(&self) -> bool {
        self.open().is_empty()
    }

    /// What stays open, in words.
    pub(crate) fn open(&self) -> Vec<&'static str> {
        let all = [
            (self.files, "files"),
            (self.network, "TCP"),
            (self.scope, "signals"),
            (self.syscalls, "system calls"),
            (self.kept, "what is to stay as it is"),
        ];
        all.into_iter().filter(|(enforced, _)| !enforced).map(|(_, name)| name).collect()
    }
}
