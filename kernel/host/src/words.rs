//! Words of extensions that the kernel keeps: they have bounds, since they go into states, events and the journal.

/// The most bytes of a fault's message, and of its help.
pub(crate) const FAULT: usize = 16 * 1024;

/// The most bytes of a line that an extension writes into the log.
pub const LOG_LINE: usize = 8 * 1024;

/// The most bytes of how an extension says that it is, and of why it asks for a restart.
pub const REASON: usize = 2 * 1024;

/// The most bytes of a piece of progress: those who watch slowly have many of them waiting.
pub const PROGRESS: usize = 16 * 1024;

/// The text, cut where it is longer than that many bytes, which it then says.
pub fn cut(mut text: String, most: usize) -> String {
    let size = text.len();
    if size > most {
        text.truncate(text.floor_char_boundary(most));
        text.shrink_to_fit();
        text.push_str(&format!("… [cut here: the whole text has {size} bytes]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters_and_says_how_long_it_was() {
        assert_eq!(cut("äöü".into(), 6), "äöü");
        assert_eq!(cut("äöü".into(), 5), "äö… [cut here: the whole text has 6 bytes]");
        assert!(cut("x".repeat(1 << 20), 10).capacity() < 1 << 10, "the rest is given back");
    }
}
