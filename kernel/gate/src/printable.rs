//! Words of others in what the operator is asked and told: whoever wrote them must not be able to make them look like
//! anything else.

/// Characters of one such text at either end; what lies between is left out, and counted.
const END: usize = 100;

/// The text with a visible stand-in for each character that a terminal acts on or that shows nothing; of a long one the
/// beginning and the end.
pub fn shown(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let Some(left_out) = letters.len().checked_sub(2 * END).filter(|left_out| *left_out > 0) else {
        return letters.iter().copied().map(visible).collect();
    };
    let end = |letters: &[char]| letters.iter().copied().map(visible).collect::<String>();
    format!("{}…({left_out} characters)…{}", end(&letters[..END]), end(&letters[letters.len() - END..]))
}

/// The same of a text that is bounded already and is agreed to as a whole: nothing of it is left out.
pub fn whole(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn visible(letter: char) -> String {
    match letter {
        '\'' | '"' | '\\' => letter.to_string(),
        _ => letter.escape_debug().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_or_hides_is_shown_as_a_stand_in() {
        assert_eq!(shown("Bob's \"größe\" 你好 \\ 🦀"), "Bob's \"größe\" 你好 \\ 🦀");
        assert_eq!(
            shown("a\nb\r\u{1b}[2J\u{85}\u{202e}\u{200b}\u{2028}\u{feff}\u{e0041}"),
            "a\\nb\\r\\u{1b}[2J\\u{85}\\u{202e}\\u{200b}\\u{2028}\\u{feff}\\u{e0041}"
        );
    }

    #[test]
    fn of_a_long_text_both_ends_are_shown_and_how_much_is_left_out() {
        let path = format!("/first/{}/last.md", "é".repeat(4_000));
        let told = shown(&path);
        assert!(told.starts_with("/first/é") && told.ends_with("é/last.md"), "{told}");
        assert!(told.contains("…(3815 characters)…"), "{told}");
        assert_eq!(shown(&"x".repeat(200)), "x".repeat(200));
    }
}
