//! Words of others: in a line of a prompt, and whether there are any.

/// The text on one line, in at most `most` bytes: no line break, no control character and nothing invisible is left of it,
/// so that it cannot look like the beginning of anything else.
pub fn one_line(text: &str, most: usize) -> String {
    let mut line = String::with_capacity(text.len().min(most));
    let mut gap = false;
    for letter in text.chars() {
        if letter.is_whitespace() || letter.is_control() || is_invisible(letter) {
            gap = !line.is_empty();
            continue;
        }
        if line.len() + usize::from(gap) + letter.len_utf8() > most {
            line.push('…');
            break;
        }
        if std::mem::take(&mut gap) {
            line.push(' ');
        }
        line.push(letter);
    }
    line
}

/// Whether a person sees nothing of the text: it is empty, or all of it is space or invisible.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|letter| letter.is_whitespace() || letter.is_control() || is_invisible(letter))
}

/// Characters of Unicode's category Cf, and the other ones that show nothing: a model reads them where a person sees none.
fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}' | '\u{115f}'
        | '\u{1160}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_ends_a_line_or_hides_is_left_of_a_text() {
        for end in [
            "\n",
            "\r\n",
            "\u{b}",
            "\u{85}",
            "\u{2028}",
            "\u{2029}",
            "\0",
            "\u{1b}",
            "\u{200b}\n",
            "\u{e0041}",
            "\u{202e}",
        ] {
            assert_eq!(one_line(&format!("{end} a{end}{end}## b {end}"), 100), "a ## b", "{end:?}");
        }
        assert_eq!(one_line("  Grüße – 你好 🦀 ", 100), "Grüße – 你好 🦀");
    }

    #[test]
    fn a_text_of_which_nothing_is_seen_is_blank() {
        for nothing in ["", " \n\t", "\u{200b}\u{200d}\u{feff}", " \u{2060} \u{ad}", "\0", "\u{3164}\u{fe0f}"]
        {
            assert!(is_blank(nothing), "{nothing:?}");
        }
        for something in [".", "\u{200b}a", "👩\u{200d}🚀", "你", "\u{301}a"] {
            assert!(!is_blank(something), "{something:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_letters_with_a_sign() {
        assert_eq!(one_line("abc", 3), "abc");
        assert_eq!(one_line("abc d", 4), "abc…");
        assert_eq!(one_line(&"é".repeat(1000), 5), "éé…");
        assert_eq!(one_line("a\n\n\n", 1), "a");
    }
}
