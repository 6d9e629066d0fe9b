//! Short names that follow from texts. Pure.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The first digits of what texts come to, in hex. Texts that are cut elsewhere come to something else.
pub fn hex(texts: &[&str], digits: usize) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    let mut all = written(&hash.finalize());
    all.truncate(digits);
    all
}

/// What bytes come to, in hex.
pub fn hash(bytes: &[u8]) -> String {
    written(&Sha256::digest(bytes))
}

fn written(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "{byte:02x}");
        all
    })
}
