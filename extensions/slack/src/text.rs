//! Texts as messages of the service and back: its marks, and its lengths. Pure.
//!
//! Three characters mark what the service reads anew, such as who is called by a message; in what goes out they are written so that nothing of
//! a model's text is such a mark (<https://docs.slack.dev/messaging/formatting-message-text>, read on 2026-11-27).

/// The longest text of a message, in units of UTF-16 as it is sent: above it the service cuts a message in pieces or refuses a change
/// (<https://docs.slack.dev/reference/methods/chat.postMessage>, "Truncating content", read on 2026-11-27).
pub const LONGEST: usize = 4000;

/// The longest text of a section (<https://docs.slack.dev/reference/block-kit/blocks/section-block>, read on 2026-11-27).
pub const LONGEST_SECTION: usize = 3000;

/// A text as it is sent, so that it says what it says and calls nobody.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// How much of the length of a message a letter takes as it is sent.
pub fn units(letter: char) -> usize {
    match letter {
        '&' => "&amp;".len(),
        '<' | '>' => "&lt;".len(),
        other => other.len_utf16(),
    }
}

/// Whether a text names somebody.
pub fn names(text: &str, user: &str) -> bool {
    text.contains(&format!("<@{user}>")) || text.contains(&format!("<@{user}|"))
}

/// What somebody wrote, as a person reads it: marks of the service become what they show. `bot` is left out where the text begins with its name.
pub fn plain(text: &str, bot: &str) -> String {
    let mut text = text.trim_start();
    for name in [format!("<@{bot}>"), format!("<@{bot}|")] {
        if let Some(rest) = text.strip_prefix(&name) {
            let rest =
                if name.ends_with('|') { rest.split_once('>').map_or("", |(_, rest)| rest) } else { rest };
            text = rest.trim_start_matches([' ', ',', ':', '\n', '\u{a0}']);
        }
    }
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        whole.push_str(before);
        let Some((mark, behind)) = after.split_once('>') else {
            whole.push('<');
            rest = after;
            continue;
        };
        whole.push_str(&shown(mark));
        rest = behind;
    }
    whole.push_str(rest);
    // What was written with these three is the last that is read, so that no mark comes of it.
    whole.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// What a mark of the service shows a person.
fn shown(mark: &str) -> String {
    let (what, label) = mark.split_once('|').map_or((mark, None), |(what, label)| (what, Some(label)));
    let label = label.filter(|label| !label.is_empty());
    match what.split_at_checked(1) {
        Some(("@", id)) => format!("@{}", label.unwrap_or(id)),
        Some(("#", id)) => format!("#{}", label.unwrap_or(id)),
        Some(("!", special)) => match label {
            Some(label) => label.to_owned(),
            None => format!("@{}", special.split('^').next_back().unwrap_or_default()),
        },
        _ => match label {
            Some(label) if label != what && !what.ends_with(label) => format!("{label} ({what})"),
            _ => what.strip_prefix("mailto:").unwrap_or(what).to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_takes_what_is_sent_for_it() {
        for text in ["a<b && c>d", "𝄞ä\u{301} "] {
            assert_eq!(text.chars().map(units).sum::<usize>(), escaped(text).encode_utf16().count());
        }
    }

    #[test]
    fn nothing_that_a_model_says_calls_anybody() {
        assert_eq!(escaped("<!channel> & <@U1>"), "&lt;!channel&gt; &amp; &lt;@U1&gt;");
    }

    #[test]
    fn what_somebody_wrote_is_read_as_it_is_shown() {
        for (sent, read) in [
            ("<@UBOT> what now", "what now"),
            ("<@UBOT|plum>: what now", "what now"),
            ("ask <@UBOT> about <@U7>", "ask @UBOT about @U7"),
            ("see <#C1|general> and <#C2>", "see #general and #C2"),
            ("<!here> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @team today"),
            ("<https://a.example/x?y=1&amp;z=2>", "https://a.example/x?y=1&z=2"),
            ("<https://a.example|the page>", "the page (https://a.example)"),
            ("<http://a.example|a.example>", "http://a.example"),
            ("<mailto:ann@a.example|ann@a.example>", "ann@a.example"),
            ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
            ("&lt;@U1&gt;", "<@U1>"),
            ("1 < 2", "1 < 2"),
            ("<>", ""),
            ("<@UBOT>", ""),
            ("<ä|ö>", "ö (ä)"),
        ] {
            assert_eq!(plain(sent, "UBOT"), read, "{sent}");
        }
    }
}
