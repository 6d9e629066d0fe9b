//! The token of a home's control socket.
//!
//! The socket's file mode keeps other users out; the token keeps out the daemon's own confined children, which may
//! run as the same user but cannot read `HOME/run`.

use std::{fmt, fs, io, io::Write, os::unix::fs::OpenOptionsExt, path::Path};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::Home;

/// Half the length of a token in characters.
const BYTES: usize = 32;

/// The secret that a client presents in its first request. Its `Debug` does not show it.
#[derive(Clone)]
pub struct ControlToken(String);

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file does not hold one.
    #[error("`{0}` does not hold a token; restart the daemon to make a new one")]
    Malformed(String),
    /// The file or the system's randomness could not be read, or the file not be written.
    #[error("the token of the control socket is not available: {0}")]
    Io(#[from] io::Error),
}

impl ControlToken {
    /// Makes a new one and writes it to the home's token file, which only the owner can read.
    pub fn create(home: &Home) -> Result<Self, TokenError> {
        let token = Self(random()?);
        token.write(home)?;
        Ok(token)
    }

    /// Writes it to the home's token file, in place of whatever is there.
    pub fn write(&self, home: &Home) -> Result<(), TokenError> {
        let path = home.token();
        // Renamed into place, so that no reader sees half of it and no old file lends its mode.
        let fresh = path.with_extension("new");
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(self.0.as_bytes())?;
        Ok(fs::rename(&fresh, &path)?)
    }

    pub fn read(home: &Home) -> Result<Self, TokenError> {
        Self::read_from(&home.token())
    }

    fn read_from(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read_to_string(path)?;
        let text = text.trim();
        if !is_random(text) {
            return Err(TokenError::Malformed(path.display().to_string()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether `given` is this token. Takes the same time wherever they differ.
    pub fn matches(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let difference = own.iter().zip(given).fold(0, |difference, (a, b)| difference | (a ^ b));
        own.len() == given.len() && std::hint::black_box(difference) == 0
    }

    /// The text, for a client's first request.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ControlToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlToken(…)")
    }
}

/// What every named token begins with.
const NAMED: &str = "drupe_";

/// A new named token. The supervisor does not know them: what stands behind one is in the journal.
pub fn named_token() -> io::Result<String> {
    Ok(format!("{NAMED}{}", random()?))
}

/// Whether a text has the form of a named token, which may have the name of somebody behind it.
pub fn is_named_token(text: &str) -> bool {
    let token = text.split_once('/').map_or(text, |(token, _)| token);
    token.strip_prefix(NAMED).is_some_and(is_random)
}

fn random() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    // Up to 256 bytes come at once or not at all, so the whole array is filled.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(io::Error::from)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_random(text: &str) -> bool {
    text.len() == BYTES * 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what failed by its line")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::create(folder.path()).unwrap();
        (folder, home)
    }

    #[test]
    fn a_written_token_is_private_and_reads_back() {
        let (_folder, home) = home();
        fs::write(home.token(), "an old one that others may read").unwrap();
        let token = ControlToken::create(&home).unwrap();
        assert!(ControlToken::read(&home).unwrap().matches(token.reveal()));
        assert_eq!(fs::metadata(home.token()).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{token:?}").contains(token.reveal()));
    }

    #[test]
    fn only_the_same_text_matches() {
        let (_folder, home) = home();
        let token = ControlToken::create(&home).unwrap();
        let other = ControlToken::create(&home).unwrap();
        let right = token.reveal();
        for wrong in ["", &right[1..], &format!("{right}0"), &"0".repeat(64), other.reveal()] {
            assert!(!token.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_damaged_file_is_no_token() {
        let (_folder, home) = home();
        for damaged in ["", "abc", &"g".repeat(64)] {
            fs::write(home.token(), damaged).unwrap();
            assert!(matches!(ControlToken::read(&home), Err(TokenError::Malformed(_))), "{damaged:?}");
        }
    }
}
