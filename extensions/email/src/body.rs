//! What somebody wrote in a mail, without what their program put behind it. Pure.
//!
//! Only what is surely not theirs is taken away: what the conversation has already, and a signature that is marked as one. Where it is not
//! sure the whole stays.

/// The longest text that is handed on, in bytes.
pub const LONGEST: usize = 64 * 1024;

/// The most lines of a signature. Netiquette wants four, companies write more; what is longer is no signature.
const LONGEST_SIGNATURE: usize = 12;
/// The most lines in which a program says whose words follow, and the longest they are together, in bytes.
const ATTRIBUTION: (usize, usize) = (3, 300);

/// What somebody wrote. Of an answer to a mail of the assistant what is quoted behind it is left out.
pub fn own_words(text: &str, is_answer: bool) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let mut kept = &lines[..];
    if is_answer {
        kept = without_history(kept);
    }
    kept = without_signature(kept);
    if is_answer {
        // Some programs put the signature above what they quote, others below.
        kept = without_history(kept);
    }
    let words = kept.join("\n");
    // Nobody writes nothing: what was taken away was theirs.
    if words.trim().is_empty() { text.trim().to_owned() } else { words.trim().to_owned() }
}

/// Without the signature below its mark (RFC 3676, 4.3; read on 2026-11-27).
fn without_signature<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    match lines.iter().rposition(|line| *line == "-- ") {
        Some(at) if lines.len() - at - 1 <= LONGEST_SIGNATURE => &lines[..at],
        _ => lines,
    }
}

/// Without what is quoted in the end, and the line that says of whom it is. Answers between quoted lines stay with them.
fn without_history<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    if let Some(at) = lines.iter().position(|line| is_divider(line)) {
        return &lines[..at];
    }
    let written = |line: &&str| !line.starts_with('>') && !line.trim().is_empty();
    let end = lines.iter().rposition(written).map_or(0, |at| at + 1);
    if !lines[end..].iter().any(|line| line.starts_with('>')) {
        return lines;
    }
    &lines[..end - attribution(&lines[..end])]
}

/// How many lines in the end say of whom follows what is quoted: a paragraph of its own that ends with a colon and has a date or an address.
fn attribution(lines: &[&str]) -> usize {
    let (most, longest) = ATTRIBUTION;
    let count = lines.iter().rev().take_while(|line| !line.trim().is_empty()).count();
    let paragraph = lines[lines.len() - count..].join(" ");
    let names_somebody = paragraph.contains('@') || paragraph.bytes().any(|byte| byte.is_ascii_digit());
    let is_one = (1..=most).contains(&count)
        && paragraph.len() <= longest
        && paragraph.trim_end().ends_with(':')
        && names_somebody;
    if is_one { count } else { 0 }
}

/// The line that Outlook puts above the mail that is answered.
fn is_divider(line: &str) -> bool {
    let inner = line.trim();
    let words = inner.trim_matches('-').trim();
    inner.starts_with("-----")
        && inner.ends_with("-----")
        && ["Original Message", "Ursprüngliche Nachricht"].contains(&words)
}

/// A text of at most so many bytes, which says where it is cut.
pub fn bounded(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(LONGEST);
    format!("{}\n\n[The mail goes on: it has {} bytes, and this is the beginning]", &text[..end], text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_behind_an_answer_and_a_signature_are_left_out() {
        for (text, words) in [
            (
                "Yes.\n\nOn Fri, 27 Nov 2026 at 10:00, Plum <plum@example.net> wrote:\n> Shall I?\n>\n> Plum\n",
                "Yes.",
            ),
            ("Yes.\r\n\r\nAm 27.11.2026 um 10:00 schrieb\r\nPlum:\r\n\r\n> Soll ich?\r\n", "Yes."),
            ("Yes.\n-- \nAda\n+49 1\n\nOn 1 May, Plum wrote:\n> Shall I?", "Yes."),
            ("Yes.\n\nOn 1 May, Plum wrote:\n> Shall I?\n\n-- \nAda", "Yes."),
            ("Yes.\n-----Original Message-----\nFrom: Plum\nSubject: x\n\nShall I?", "Yes."),
            ("allow e-1:2\n> Shall I?", "allow e-1:2"),
        ] {
            assert_eq!(own_words(text, true), words, "{text}");
        }
    }

    #[test]
    fn where_it_is_not_sure_the_whole_stays() {
        for text in [
            "Answers stand between:\n> One?\nYes.\n> Two?\nNo.",
            "A list:\n\n* one\n* two",
            "> only a quotation",
            "--\nnot marked as a signature",
            "The words of the 2 witnesses follow:\n\nhe said",
        ] {
            assert_eq!(own_words(text, true), text);
        }
        // What says of whom words follow may be a sentence of theirs.
        let sentence = "I quote:\n> a poem";
        assert_eq!(own_words(sentence, true), "I quote:");
        let forwarded = "Look at this.\n\n> a text of somebody\n-----Original Message-----\nFrom: Ben";
        assert_eq!(own_words(forwarded, false), forwarded);
        let long = format!("Words.\n-- \n{}", "line\n".repeat(20));
        assert_eq!(own_words(&long, false), long.trim());
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let cut = bounded(&"ä".repeat(LONGEST));
        assert!(cut.len() < LONGEST + 100 && cut.ends_with("this is the beginning]"), "{}", cut.len());
        assert_eq!(bounded("short"), "short");
    }
}
