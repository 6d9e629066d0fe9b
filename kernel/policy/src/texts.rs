//! Patterns, and the ways in which a text that may be a path can be read.

/// Whether a pattern holds of a text as it stands, or of what it is as a path.
pub(crate) fn any_reading(pattern: &str, text: &str) -> bool {
    matches(pattern, text) || matches(pattern, &as_path(text))
}

/// Whether it holds of both.
pub(crate) fn all_readings(pattern: &str, text: &str) -> bool {
    matches(pattern, text) && matches(pattern, &as_path(text))
}

/// Whether a text is as the pattern says, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // There is at least one; it may be empty.
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.split_once(part) {
            Some((_, behind)) => text = behind,
            None => return false,
        }
    }
    text.len() >= last.len() && text.ends_with(last)
}

/// A text as a path without `.`, `..` and doubled slashes, and as the address of one where it begins like that. What leads out
/// of where it begins keeps its `..`.
pub(crate) fn as_path(text: &str) -> String {
    let (before, path) = match text.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find('/').unwrap_or(rest.len());
            text.split_at(scheme.len() + "://".len() + host)
        }
        None => ("", text),
    };
    let is_absolute = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if is_absolute => {}
            part => parts.push(part),
        }
    }
    format!("{before}{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, holds) in [
            ("kv_get", "kv_get", true),
            ("kv_get", "kv_get ", false),
            ("kv_*", "kv_", true),
            ("kv_*", "xkv_get", false),
            ("*", "", true),
            ("**", "anything\nat all", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("*ab", "aab", true),
            // What one part took is not there for the next.
            ("ab*ba", "aba", false),
            ("*é*", "caf\u{e9}s", true),
        ] {
            assert_eq!(matches(pattern, text), holds, "{pattern} {text}");
        }
    }

    #[test]
    fn a_path_is_read_without_what_hides_where_it_leads() {
        for (text, path) in [
            ("notes/./a//b", "notes/a/b"),
            ("notes/../secret", "secret"),
            ("../../x", "../../x"),
            ("a/../../x", "../x"),
            ("/a/../..", "/"),
            ("https://docs.rs/a/../../b//c", "https://docs.rs/b/c"),
            ("https://docs.rs", "https://docs.rs"),
            ("plain words", "plain words"),
        ] {
            assert_eq!(as_path(text), path);
        }
        assert!(any_reading(".git/*", "src/../.git/config") && !all_readings("src/*", "src/../.git/config"));
        assert!(
            all_readings("src/*", "src/lib.rs") && all_readings("https://docs.rs/*", "https://docs.rs/serde")
        );
        assert!(!all_readings("https://docs.rs/*", "https://docs.rs@example.org/serde"));
    }
}
