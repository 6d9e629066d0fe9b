//! Ids of traces and spans follow from those of turns and of what they are made of, so a trace that is sent twice is one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The id of a turn's trace: 32 hexadecimal digits. A turn's id is a UUID, and as many bytes, so whoever knows the one finds the other.
pub fn trace(turn: &str) -> String {
    let digits: String = turn.chars().filter(|letter| *letter != '-').collect();
    let is_uuid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    // All zeros are no id.
    if is_uuid && digits.bytes().any(|byte| byte != b'0') {
        return digits.to_ascii_lowercase();
    }
    hex(&Sha256::digest(turn.as_bytes())[..16])
}

/// The id of a span: 16 hexadecimal digits. `place` is unique within the turn.
pub fn span(turn: &str, place: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(turn.as_bytes());
    hash.update([0]);
    hash.update(place.as_bytes());
    hex(&hash.finalize()[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_found_by_the_id_of_its_turn_and_spans_are_their_turn_s_own() {
        assert_eq!(
            trace("0198C5F2-0000-7000-8000-00000000002a"),
            "0198c5f2000070008000000000 00002a".replace(' ', "")
        );
        for odd in ["t-1", "00000000-0000-0000-0000-000000000000", "0198c5f2-0000-7000-8000-00000000002g"] {
            let id = trace(odd);
            assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{odd}: {id}");
            assert!(id.bytes().any(|b| b != b'0'), "{odd}");
        }
        assert_eq!(span("t", "i-1.1.0"), span("t", "i-1.1.0"));
        assert_ne!(span("t", "i-1.1.0"), span("t", "i-1.1.1"));
        assert_ne!(span("t", "i-1"), span("u", "i-1"));
        assert_eq!(span("t", "i-1").len(), 16);
    }
}
