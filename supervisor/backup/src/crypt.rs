//! Encryption by the program `age`, to which bytes are piped: nothing of it is in this program.
//!
//! What is encrypted is a file of age, which `age --decrypt` opens without drupe.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{BackupError, error::At};

/// How a file of age begins (<https://age-encryption.org/v1>, read 2026-11-27).
const MAGIC: &[u8] = b"age-encryption.org/";
/// The same where it is written as text.
const ARMOR: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";

/// How keys of recipients begin: the program's own, those of its plugins, and those of SSH.
const KEYS: [&str; 3] = ["age1", "ssh-ed25519 ", "ssh-rsa "];

pub(crate) fn is_encrypted(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC) || begin.starts_with(ARMOR)
}

/// A process that encrypts or decrypts.
pub(crate) struct Crypt {
    child: Child,
}

impl Crypt {
    /// Encrypts what is written to the pipe into `out`. A recipient is a key, or a file of keys.
    pub fn encrypt(recipients: &[String], out: File) -> Result<(Self, ChildStdin), BackupError> {
        let mut age = program();
        age.arg("--encrypt");
        for recipient in recipients {
            let is_key = KEYS.iter().any(|begin| recipient.starts_with(begin));
            let is_file = !recipient.starts_with('-') && Path::new(recipient).is_file();
            match (is_key, is_file) {
                (true, _) => age.arg("--recipient").arg(recipient),
                (false, true) => age.arg("--recipients-file").arg(recipient),
                (false, false) => return Err(BackupError::Recipient(recipient.clone())),
            };
        }
        let mut child = age.stdin(Stdio::piped()).stdout(out).spawn().map_err(BackupError::NoAge)?;
        let Some(pipe) = child.stdin.take() else { return Err(BackupError::Age("it has no input".into())) };
        Ok((Self { child }, pipe))
    }

    /// Decrypts a file with the key in `identity`.
    pub fn decrypt(file: File, identity: &Path) -> Result<(Self, ChildStdout), BackupError> {
        File::open(identity).at(identity)?;
        let mut age = program();
        age.arg("--decrypt").arg("--identity").arg(identity);
        let mut child = age.stdin(file).stdout(Stdio::piped()).spawn().map_err(BackupError::NoAge)?;
        let Some(pipe) = child.stdout.take() else { return Err(BackupError::Age("it has no output".into())) };
        Ok((Self { child }, pipe))
    }

    /// Waits for its end, after its pipe was closed or read to the end. What was read counts only if this succeeds.
    pub fn finish(mut self) -> Result<(), BackupError> {
        let mut said = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            // What cannot be read of its words is no reason to fail.
            let _ = stderr.take(4096).read_to_string(&mut said);
        }
        let ended = self.child.wait().map_err(BackupError::NoAge)?;
        match ended.success() {
            true => Ok(()),
            false => Err(BackupError::Age(said.lines().next().unwrap_or("it says nothing").to_owned())),
        }
    }
}

impl Drop for Crypt {
    fn drop(&mut self) {
        // One that has ended already is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the operator's own verb starts the operator's own program")]
fn program() -> Command {
    let mut age = Command::new("age");
    age.stderr(Stdio::piped());
    age
}

/// Reads as much of the beginning of a file as tells what it is.
pub(crate) fn beginning(file: &File) -> io::Result<Vec<u8>> {
    let mut begin = Vec::new();
    file.take(64).read_to_end(&mut begin)?;
    Ok(begin)
}
