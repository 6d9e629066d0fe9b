//! Long texts in pages: where one ends and the next begins.

/// A text in pieces of at most so many bytes, cut behind a line where that leaves no piece half empty, else behind a word,
/// else between two characters. All pieces together are the text; an empty text is one empty piece.
pub fn cut(text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > most {
        let longest = &rest[..rest.floor_char_boundary(most)];
        let behind =
            |at: char| longest.rfind(at).map(|found| found + 1).filter(|end| *end > longest.len() / 2);
        let (piece, after) = rest.split_at(behind('\n').or_else(|| behind(' ')).unwrap_or(longest.len()));
        pieces.push(piece);
        rest = after;
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_behind_lines_words_or_characters_and_nothing_is_lost() {
        for (text, most, expected) in [
            ("", 8, vec![""]),
            ("12345678", 8, vec!["12345678"]),
            ("12345\n789", 8, vec!["12345\n", "789"]),
            ("1\n345 789", 8, vec!["1\n345 ", "789"]),
            ("123456789", 8, vec!["12345678", "9"]),
            ("ääääää", 5, vec!["ää", "ää", "ää"]),
        ] {
            let pieces = cut(text, most);
            assert_eq!(pieces, expected);
            assert_eq!(pieces.concat(), text);
        }
    }
}
