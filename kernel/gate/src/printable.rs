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

/// JSON anew, each key and each item on a line of its own. White space that stood between them would push what follows out
/// of sight, and an escape would spell a word that nobody reads. Numbers stay as they are written.
pub fn one_a_line(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut rest, mut depth) = (json.trim_start(), 0usize);
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        let closes = matches!(c, '}' | ']');
        let empty = text.ends_with(['{', '[']);
        if closes {
            depth = depth.saturating_sub(1);
        }
        if empty != closes || text.ends_with(',') {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", depth));
        }
        match c {
            '"' => {
                taken = string(rest);
                let read = serde_json::from_str::<String>(&rest[..taken]).map(serde_json::Value::String);
                text.push_str(&read.map_or_else(|_| rest[..taken].to_owned(), |read| read.to_string()));
            }
            ':' => text.push_str(": "),
            _ => text.push(c),
        }
        if matches!(c, '{' | '[') {
            depth += 1;
        }
        rest = rest[taken..].trim_start();
    }
    text
}

/// The bytes of the string with which this begins, quotes and all.
fn string(json: &str) -> usize {
    let mut escaped = false;
    let end = json.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |(at, _)| at + 1)
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

    #[test]
    fn parameters_stand_on_lines_of_their_own_however_they_were_written() {
        for (written, shown) in [
            ("{}", "{}"),
            (" { \n } ", "{}"),
            (
                r#"{"a":[],"b":[1,{"c":-1.50e+3}],"d":true}"#,
                "{\n  \"a\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": -1.50e+3\n    }\n  ],\n  \"d\": true\n}",
            ),
            (r#"{"\u0061":"\u0072m {, [\" \\"}"#, "{\n  \"a\": \"rm {, [\\\" \\\\\"\n}"),
            (r#"{"a":1,"a":2}"#, "{\n  \"a\": 1,\n  \"a\": 2\n}"),
            (r#"{"a": "b"#, "{\n  \"a\": \"b"),
        ] {
            assert_eq!(one_a_line(written), shown, "{written}");
        }
        let far = format!("{{\"a\": 1,{}\"b\": 2}}", "\n ".repeat(10_000));
        assert_eq!(one_a_line(&far), "{\n  \"a\": 1,\n  \"b\": 2\n}");
    }
}
