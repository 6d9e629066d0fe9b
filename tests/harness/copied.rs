//! Copies of programs that a test starts.

#![expect(clippy::disallowed_methods, reason = "a test starts the processes that it is about")]

use std::{path::Path, process::Command};

/// Copies a program with its mode, by a process of its own. Had this process the copy open for writing, a child that another
/// thread starts at that moment would have it, too, and nobody could start what it holds.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("there is `cp`").success(), "{} is copied", from.as_ref().display());
}
