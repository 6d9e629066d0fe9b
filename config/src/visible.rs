//! Text from a file as it may be shown: short, and without what would steer a terminal or turn the reading order.

/// Nobody reads a longer message.
const MAX_BYTES: usize = 1_000;

/// A text that others wrote parts of, cut, with a visible stand-in for each character that acts instead of showing.
/// Line ends stay where `lines` says so.
pub(crate) fn visible(text: &str, lines: bool) -> String {
    let cut = &text[..text.floor_char_boundary(MAX_BYTES)];
    let mut shown = String::with_capacity(cut.len());
    for letter in cut.chars() {
        if acts(letter) && !(lines && letter == '\n') {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    if cut.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The same for a line of a file, byte for byte, so that places within it stay what they are.
pub(crate) fn masked(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for letter in line.chars() {
        if acts(letter) && letter != '\t' {
            shown.extend(std::iter::repeat_n('?', letter.len_utf8()));
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Whether a terminal acts on a character in place of showing it: control characters, and those that turn the direction
/// of what follows.
pub fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_instead_of_done() {
        assert_eq!(
            visible("a\u{1b}[2Jb\u{7}\u{202e}c\nd é\u{1f980}", false),
            "a\\u{1b}[2Jb\\u{7}\\u{202e}c\\nd é\u{1f980}"
        );
        assert_eq!(visible("a\nb\r", true), "a\nb\\r");
        assert_eq!(masked("\ta\u{1b}b\u{85}c\u{202e}é"), "\ta?b??c???é");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let shown = visible(&"é".repeat(5_000), false);
        assert!(shown.len() <= MAX_BYTES + 3 && shown.ends_with('…'));
    }
}
