//! Texts as messages of the service: within its length, and of a part of an answer what fits. Pure.

/// The longest text of a message, in units of UTF-16, as the service counts what it shows
/// (<https://core.telegram.org/bots/api#sendmessage>, read on 2026-11-27).
pub const LONGEST: usize = 4096;

/// A text in parts that each fit a message, cut where a paragraph, a line or a word ends if there is such a place in the second half.
pub fn parts(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let fits = fitting(rest, LONGEST);
        let at = if fits == rest.len() { fits } else { break_before(rest, fits) };
        parts.push(rest[..at].trim_end());
        rest = rest[at..].trim_start();
    }
    parts
}

/// The beginning of a text that fits, with a sign that more follows.
pub fn preview(text: &str) -> String {
    const MORE: &str = " …";
    let text = text.trim();
    let fits = fitting(text, LONGEST - MORE.encode_utf16().count());
    format!("{}{MORE}", text[..fits].trim_end())
}

/// How many bytes of a text have at most so many units.
fn fitting(text: &str, most: usize) -> usize {
    let mut units = 0;
    for (at, letter) in text.char_indices() {
        units += letter.len_utf16();
        if units > most {
            return at;
        }
    }
    text.len()
}

fn break_before(text: &str, end: usize) -> usize {
    let head = &text[..end];
    let found = ["\n\n", "\n", " "].iter().filter_map(|gap| head.rfind(gap).map(|at| at + gap.len()));
    found
        .filter(|at| *at > end / 2)
        .max_by_key(|at| usize::from(head[..*at].ends_with('\n')) * end + at)
        .unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_comes_in_parts_that_fit_and_lose_nothing() {
        let words = "word ".repeat(3_000);
        let lines = "a line of some length\n".repeat(700);
        for text in
            ["short", &words, &lines, &"x".repeat(9_000), &"𝄞".repeat(5_000), &"ä\u{301} ".repeat(4_000)]
        {
            let parts = parts(text);
            assert!(parts.iter().all(|part| (1..=LONGEST).contains(&part.encode_utf16().count())));
            let whole = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(whole(&parts.concat()), whole(text));
        }
        assert!(parts(&lines)[0].ends_with("length"), "a line stays whole");
        assert!(parts(" \n").is_empty());
    }

    #[test]
    fn a_preview_fits_with_the_sign_that_more_follows() {
        assert_eq!(preview("so far "), "so far …");
        assert_eq!(preview(&"𝄞".repeat(5_000)).encode_utf16().count(), LONGEST);
    }
}
