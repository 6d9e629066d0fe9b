//! Texts as the service takes them: within its length, and in headers of ASCII. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use drupe_extension_api::SessionId;

/// The longest message in bytes; of a longer one the service makes a file that is gone after some hours
/// (<https://docs.ntfy.sh/publish/#limitations> and `DefaultMessageSizeLimit` of its source, read on 2026-11-27).
pub const LONGEST: usize = 4096;

/// Bytes of a text in one word of a header: such a word has at most 75 characters (RFC 2047, section 2).
const WORD: usize = 45;

/// A text that fits. What is left out is where the text is, which is said.
pub fn fitting(text: &str, session: &SessionId) -> String {
    let text = text.trim();
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let rest = format!("\n\n… The whole text is in the session `{session}`.");
    format!("{}{rest}", text[..text.floor_char_boundary(LONGEST - rest.len())].trim_end())
}

/// What stands above a message: the name of the schedule whose run it is of, or the session.
pub fn title(session: &SessionId) -> &str {
    let run = session.as_str().strip_prefix("schedule:").and_then(|run| run.rsplit_once(':'));
    run.map_or(session.as_str(), |(schedule, _day)| schedule)
}

/// A text for a header, in encoded words where it is not plain (RFC 2047). Nothing that is read as a placeholder is left in it.
pub fn header(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_.:,/".contains(&byte);
    if text.bytes().all(plain) {
        return text.to_owned();
    }
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, more) = rest.split_at(rest.floor_char_boundary(WORD));
        words.push(format!("=?UTF-8?B?{}?=", STANDARD.encode(word)));
        rest = more;
    }
    words.join(" ")
}

/// An address with the session in the place of `{session}`, escaped.
pub fn link(address: &str, session: &SessionId) -> String {
    address.replace("{session}", &session.as_str().replace(':', "%3A"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        id.parse().expect("a session")
    }

    #[test]
    fn a_long_text_is_cut_and_says_where_the_whole_is() {
        let main = session("main");
        assert_eq!(fitting(" short\n", &main), "short");
        assert_eq!(fitting(&"x".repeat(LONGEST), &main).len(), LONGEST);
        for long in ["x".repeat(LONGEST + 1), "𝄞".repeat(LONGEST)] {
            let cut = fitting(&long, &main);
            assert!(cut.len() <= LONGEST && cut.len() > LONGEST - 8, "{}", cut.len());
            assert!(cut.ends_with("… The whole text is in the session `main`."), "{cut}");
        }
    }

    #[test]
    fn a_title_names_the_schedule_and_goes_through_a_header() {
        assert_eq!(title(&session("schedule:news:morning:2026-11-27")), "news:morning");
        assert_eq!(title(&session("main")), "main");
        assert_eq!(header("schedule: news"), "schedule: news");
        assert_eq!(header("Äpfel"), "=?UTF-8?B?w4RwZmVs?=");
        assert!(!header("${NTFY_TOPIC}").contains("${"));
        let long = header(&"ä".repeat(60));
        assert!(long.split(' ').all(|word| word.len() <= 75) && long.split(' ').count() == 3, "{long}");
        assert_eq!(
            link("https://h.example/#/sessions/{session}", &session("a:b")),
            "https://h.example/#/sessions/a%3Ab"
        );
    }
}
