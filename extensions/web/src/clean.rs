//! Takes out of a text what nobody sees: it could tell a model what a person who looks at the page is not told.

/// A text without characters that show nothing, and how many were taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub text: String,
    pub left_out: usize,
}

/// Takes out control characters, those of direction, of no width, tags and selectors of variants. A joiner stays where
/// scripts and emoji need it: between two characters that are no ASCII.
pub fn visible(text: &str) -> Cleaned {
    let mut cleaned = Cleaned { text: String::with_capacity(text.len()), left_out: 0 };
    let mut characters = text.chars().peekable();
    let mut before = ' ';
    while let Some(character) = characters.next() {
        let kept = match character {
            '\n' | '\t' => true,
            // The end of a line of other systems; the line's own end follows, or stands for it.
            '\r' => {
                if characters.peek() != Some(&'\n') {
                    cleaned.text.push('\n');
                }
                continue;
            }
            '\u{200c}' | '\u{200d}' => {
                let joins = |character: char| !character.is_ascii() && !hidden(character);
                joins(before) && characters.peek().copied().is_some_and(joins)
            }
            other => !hidden(other),
        };
        if kept {
            cleaned.text.push(character);
        } else {
            cleaned.left_out += 1;
        }
        before = character;
    }
    cleaned
}

fn hidden(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Soft hyphen, joiner of graphemes, mark of Arabic letters, fillers of Hangul, separator of vowels.
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        // No width, marks of direction, embeddings, overrides, invisible operators, isolates.
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        // Tags, further selectors of variants.
        | '\u{e0000}'..='\u{e0fff}')
}

/// A text of strangers' on one line, of at most so many characters.
pub fn line(text: &str, most: usize) -> String {
    let text = visible(text).text;
    let mut line = String::new();
    for (count, word) in text.split_whitespace().enumerate() {
        if count > 0 {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > 4 * most {
            break;
        }
    }
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// A text with no more than one empty line in a row, and nothing behind the words of a line.
pub fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines() {
        let line = line.trim_end();
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            tidy.push_str(line);
            tidy.push('\n');
        }
    }
    tidy.trim_matches('\n').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_nothing_goes_and_what_scripts_need_stays() {
        let family = "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}";
        let persian = "می\u{200c}خواهم";
        for (text, expected, left_out) in [
            ("plain\ttext\n", "plain\ttext\n", 0),
            ("a\u{200b}b\u{202e}c\u{2066}d\u{feff}", "abcd", 4),
            ("tag\u{e0041}\u{e0042}s", "tags", 2),
            ("a\u{200d}b\u{200c}c", "abc", 2),
            (family, family, 0),
            (persian, persian, 0),
            ("ä\u{200d}\u{200d}\u{200d}ö", "äö", 3),
            ("one\r\ntwo\rthree", "one\ntwo\nthree", 0),
            ("\u{1b}[31mred\0", "[31mred", 2),
            ("heart \u{2764}\u{fe0f}", "heart \u{2764}\u{fe0f}", 0),
        ] {
            assert_eq!(visible(text), Cleaned { text: expected.to_owned(), left_out }, "{text:?}");
        }
    }

    #[test]
    fn a_line_is_one_line_and_not_longer_than_it_may_be() {
        assert_eq!(line(" a\n b\u{202e}\t c ", 10), "a b c");
        assert_eq!(line("ääää", 3), "äää…");
        assert_eq!(tidy("\n\na  \n\n\n\nb\n\n"), "a\n\nb");
    }
}
