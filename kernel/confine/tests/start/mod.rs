//! Starting the examples of this crate, confined or not.

#![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use drupe_confine::{Confined, Profile};

/// An example of this crate, which `cargo test` builds beside the test.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    test.ancestors().nth(2).expect("it is in target/PROFILE/deps").join("examples").join(name)
}

/// The narrowest profile under which the attempts can be started.
pub fn narrow() -> Profile {
    Profile { strict: true, ..Profile::program() }.read(example("attempt"))
}

/// An attempt that is still to be started.
pub fn prepared(profile: Profile, args: &[impl AsRef<str>]) -> Confined {
    let confined = Confined::new(example("confined"), profile, example("attempt"));
    confined.args(args.iter().map(|arg| arg.as_ref())).deadline(Duration::from_secs(20))
}

/// What the attempt prints when it is confined.
pub fn confined(profile: Profile, args: &[impl AsRef<str>]) -> String {
    let outcome = prepared(profile, args).run(64 * 1024).expect("it starts");
    let said = String::from_utf8_lossy(&outcome.stdout).trim().to_owned();
    if said.is_empty() { format!("nothing, and ended with {}", outcome.status) } else { said }
}

/// What the same attempt prints when nothing confines it: that it is denied otherwise proves something only if this
/// is another answer.
pub fn free(args: &[impl AsRef<str>]) -> String {
    said(&example("attempt"), args)
}

/// What a program prints that nothing confines.
pub fn said(program: &Path, args: &[impl AsRef<str>]) -> String {
    let mut command = Command::new(program);
    let output = command.args(args.iter().map(|arg| arg.as_ref())).stdin(Stdio::null()).output();
    String::from_utf8_lossy(&output.expect("it starts").stdout).trim().to_owned()
}
