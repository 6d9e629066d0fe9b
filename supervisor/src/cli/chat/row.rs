//! The last row of a text on a terminal, so that it can be written anew after something below it was erased.

use unicode_width::UnicodeWidthChar;

/// What stands in the row with the end of an unfinished line.
#[derive(Debug, Default)]
pub struct Row {
    text: String,
    width: usize,
}

impl Row {
    /// Whether a line is unfinished.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Text was written where the row ends, on a terminal of so many columns.
    pub fn add(&mut self, text: &str, columns: usize) {
        for c in text.chars() {
            if c == '\n' {
                self.clear();
                continue;
            }
            let wide = c.width().unwrap_or(0);
            // A full row stays until a character has no room in it: terminals wrap that late.
            if self.width + wide > columns {
                self.clear();
            }
            self.text.push(c);
            self.width += wide;
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.width = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_is_what_a_terminal_shows_after_the_last_wrap() {
        let check = |texts: &[&str], expected: &str| {
            let mut row = Row::default();
            for text in texts {
                row.add(text, 4);
            }
            assert_eq!(row.text(), expected, "{texts:?}");
        };
        check(&[], "");
        check(&["ab", "cd"], "abcd");
        check(&["abcd", "e"], "e");
        check(&["abc\nx"], "x");
        check(&["abcd\n"], "");
        check(&["漢字", "漢"], "漢");
        check(&["a漢字"], "字");
        check(&["abcdefgh"], "efgh");
    }
}
