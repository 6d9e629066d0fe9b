//! Payloads of the operations that run programs.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::host;

/// A program that runs confined.
///
/// It reads the system's programs and libraries, the extension's own folder and data folder, what extensions are built
/// with, and what `read` and `skills` name; it writes what is beneath its data folder, and the workspace where it has that. Its environment is `PATH`, `HOME`, `TMPDIR` and `env`.
/// Whatever it starts ends with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// An absolute path, or a name that is looked up in `path`, then in the operator's `PATH`.
    pub program: String,
    #[serde(default)]
    pub args: Vec<String>,
    /// Where it runs: a folder beneath the data folder, or beneath the workspace where it has that.
    pub directory: String,
    /// Its environment, beside `PATH`, `HOME` and `TMPDIR`, or over them.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Folders before the operator's `PATH`, for the program and for those that it starts. They must be among what it
    /// may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// What it may read and execute beside the usual: folders that the manifest names under `programs`, or what is beneath
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// The folders beneath the data folder that it may use, beside one for temporary files: to read, and to change what is in
    /// them. The whole data folder where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// Whether it may read and change what is in the workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workspace: bool,
    /// Whether it may read and run what lies in the folders of skills: those of the operator's and, where it is started within a
    /// call of an agent, those of that agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skills: bool,
    /// What it cannot change although it lies in what it may: files and folders beneath the workspace or the data folder,
    /// which are no links. What is not there is passed over. A system that cannot keep them starts nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Whether it may use TCP. Needs the right `network`.
    #[serde(default)]
    pub network: bool,
    /// When it is killed, in milliseconds; at most an hour. [`host::PROCESS_RUN`] needs one; without one a program that is
    /// [opened](host::PROCESS_OPEN) runs until it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Memory of each of its processes, in mebibytes; all together may have three times as much. At most 4096, which it has
    /// where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Processes and threads of it and of all that it started. At most 8192, which it has where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// Runs it in a terminal of its own, of this size. Its standard output is then all that it writes to that, with control
    /// sequences and `\r\n`, and its standard error stream is empty. Its standard input is what is typed. Where that is closed,
    /// it reads the end of its input, again and again where it asks by lines; a program that takes each key is sent Ctrl-D a few
    /// times. Closing input and output both hangs the terminal up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal, 1 to 500 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TerminalSize {
    /// Characters in each of its lines.
    pub columns: u16,
    /// How many lines it has.
    pub rows: u16,
}

impl Default for TerminalSize {
    /// Wide enough for tables and long paths of most programs.
    fn default() -> Self {
        Self { columns: 120, rows: 40 }
    }
}

impl ProcessSpec {
    /// A program without arguments in a folder beneath the data folder, all of which it may change. It has no end, no
    /// network and no environment of its own; all of that can be set.
    pub fn new(program: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            directory: directory.as_ref().display().to_string(),
            env: BTreeMap::new(),
            path: Vec::new(),
            read: Vec::new(),
            folders: Vec::new(),
            workspace: false,
            skills: false,
            keep: Vec::new(),
            network: false,
            timeout_ms: None,
            memory_mb: None,
            tasks: None,
            terminal: None,
        }
    }
}

/// Payload of [`host::PROCESS_RUN`]: a program that runs to its end. When the call ends, so does every process that it
/// started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunProcess {
    /// What runs, and what it may do.
    #[serde(flatten)]
    pub spec: ProcessSpec,
    /// The most that is kept of each output stream, in bytes; at most 1 MiB. What is beyond is read and thrown away.
    pub max_output: u64,
}

impl RunProcess {
    /// A [program](ProcessSpec::new) that has a minute, of which 64 KiB of each output stream are kept.
    pub fn new(program: impl Into<String>, directory: impl AsRef<Path>) -> Self {
        let spec = ProcessSpec { timeout_ms: Some(60_000), ..ProcessSpec::new(program, directory) };
        Self { spec, max_output: 64 * 1024 }
    }
}

/// How a program ended that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessOutput {
    /// Its exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
    /// The beginning of its standard output; what is not UTF-8 is replaced.
    pub stdout: String,
    /// The beginning of its standard error stream.
    pub stderr: String,
}

/// The answer of [`host::PROCESS_OPEN`]: the handles of a program that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedProcess {
    /// Gives one item, [`ProcessExit`], when the program and all that it started have ended. Closing it kills them.
    pub exit: u64,
    /// Takes bytes for its standard input, which ends when this is closed. Putting waits while the program does not read.
    /// With a [terminal](ProcessSpec::terminal) they are typed.
    pub stdin: u64,
    /// Gives the bytes of its standard output. The program waits while nobody asks for them.
    pub stdout: u64,
    /// Gives the bytes of its standard error stream, in the same way.
    pub stderr: u64,
}

/// How a program ended that was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessExit {
    /// Its exit status; none if a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
    /// Which bound it was killed for, as the end of a sentence: `held more than 64 MiB of memory together`.
    pub exceeded: Option<String>,
}
