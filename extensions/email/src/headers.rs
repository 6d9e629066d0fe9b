//! The head of a mail as it stands there: names and values in their order, each on one line. Pure.
//!
//! Whom a mail is from, and what the operator's server says of that, is read here and nowhere else, so that no two readers of one mail
//! can find different things in it.

/// More lines than a head has that somebody wants read.
const MOST: usize = 2_000;

pub struct MailHead(Vec<(String, String)>);

impl MailHead {
    /// The head of a mail: all before the first empty line. A line that is no header is left out.
    pub fn read(mail: &[u8]) -> Self {
        let mut found: Vec<(String, String)> = Vec::new();
        for line in mail.split(|byte| *byte == b'\n').take(MOST) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                break;
            }
            let line = String::from_utf8_lossy(line);
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = found.last_mut() {
                    value.push(' ');
                    value.push_str(line.trim_start_matches([' ', '\t']));
                }
            } else if let Some((name, value)) = line.split_once(':') {
                found.push((
                    name.trim_end_matches([' ', '\t']).to_ascii_lowercase(),
                    value.trim_start().to_owned(),
                ));
            } else {
                // What continues it belongs to it.
                found.push((String::new(), String::new()));
            }
        }
        Self(found)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The values of all headers of a name, the topmost first.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    pub fn first(&self, name: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The value of a header that is there once.
    pub fn only(&self, name: &str) -> Option<&str> {
        let mut all = self.iter().filter(|(known, _)| *known == name);
        let (_, first) = all.next()?;
        all.next().is_none().then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_line_by_line_and_ends_at_the_first_empty_one() {
        let mail = b"From: a\r\nSubject : b\r\n\tc\r\nodd line\r\n goes on\r\nTo:d\nX: \xff\n\nFrom: e\n";
        let head = MailHead::read(mail);
        assert_eq!(
            (head.only("from"), head.first("subject"), head.only("to")),
            (Some("a"), Some("b c"), Some("d"))
        );
        assert_eq!(head.only("x"), Some("\u{fffd}"));
        let twice = MailHead::read(b"From: a\nFROM: b\n");
        assert_eq!(
            (twice.only("from"), twice.first("from"), twice.all("from").count()),
            (None, Some("a"), 2)
        );
    }
}
