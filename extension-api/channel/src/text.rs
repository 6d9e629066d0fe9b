//! Texts as messages of a service: within its length, and of a part of an answer what fits. Pure.

/// A text in parts that each have at most so many units, cut where a paragraph, a line or a word ends if there is such a place in the second half.
pub fn parts(text: &str, longest: usize, units: fn(char) -> usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let fits = fitting(rest, longest, units);
        let at = if fits == rest.len() { fits } else { break_before(rest, fits) };
        parts.push(rest[..at].trim_end());
        rest = rest[at..].trim_start();
    }
    parts
}

/// The beginning of a text that fits, with a sign that more follows.
pub(crate) fn preview(text: &str, longest: usize, units: fn(char) -> usize) -> String {
    const MORE: &str = " …";
    let text = text.trim();
    let fits = fitting(text, longest - MORE.chars().map(units).sum::<usize>(), units);
    format!("{}{MORE}", text[..fits].trim_end())
}

/// How many bytes of a text have at most so many units.
fn fitting(text: &str, most: usize, units: fn(char) -> usize) -> usize {
    let mut sum = 0;
    for (at, letter) in text.char_indices() {
        sum += units(letter);
        if sum > most {
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

    const LONGEST: usize = 4096;

    /// As a service counts that escapes some letters.
    fn escaping(letter: char) -> usize {
        match letter {
            '&' => 5,
            '<' | '>' => 4,
            other => other.len_utf16(),
        }
    }

    #[test]
    fn a_long_text_comes_in_parts_that_fit_and_lose_nothing() {
        let words = "word ".repeat(3_000);
        let lines = "a line of some length\n".repeat(700);
        for text in [
            "short",
            &words,
            &lines,
            &"x".repeat(9_000),
            &"𝄞".repeat(5_000),
            &"ä\u{301} ".repeat(4_000),
            &"a<b && c>d ".repeat(2_000),
        ] {
            let parts = parts(text, LONGEST, escaping);
            let length = |part: &&str| part.chars().map(escaping).sum::<usize>();
            assert!(parts.iter().all(|part| (1..=LONGEST).contains(&length(part))));
            let whole = |text: &str| text.split_whitespace().collect::<String>();
            assert_eq!(whole(&parts.concat()), whole(text));
        }
        assert!(parts(&lines, LONGEST, escaping)[0].ends_with("length"), "a line stays whole");
        assert!(parts(" \n", LONGEST, escaping).is_empty());
    }

    #[test]
    fn a_preview_fits_with_the_sign_that_more_follows() {
        assert_eq!(preview("so far ", LONGEST, escaping), "so far …");
        assert_eq!(preview(&"𝄞".repeat(5_000), LONGEST, escaping).encode_utf16().count(), LONGEST);
        assert_eq!(preview(&"&".repeat(5_000), 3_000, escaping).len(), 599 + " …".len());
    }
}
