//! The program of this process, however its file has been changed since.

use std::path::{Path, PathBuf};

/// By this name the system gives a process its own program's file. A forked process still runs the program of its parent,
/// so it starts the same file by this name.
const OWN: &str = "/proc/self/exe";

/// What the processes of drupe are called in lists of processes.
pub(crate) const NAME: &str = "drupe";

/// What to start so that it is the program that runs now. An upgrade exchanges the file at `path` while its old content
/// runs on; what is started from there would be of another release. `path` itself where the system does not tell.
pub fn own_program(path: &Path) -> PathBuf {
    let own = Path::new(OWN);
    if own.metadata().is_ok() { own.to_owned() } else { path.to_owned() }
}

/// What a program is called: by its file, but for drupe's own, whose file has no telling name here.
pub(crate) fn name(program: &Path) -> &Path {
    if program == Path::new(OWN) { Path::new(NAME) } else { program }
}

/// Takes the name of drupe, which the system would have taken from the file that was started.
pub fn take_name() {
    // Without it nothing is lost but readability.
    let _ = rustix::thread::set_name(c"drupe");
}
