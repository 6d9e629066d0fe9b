//! Addresses of people: the one of a `From` header, and the id under which the daemon knows whoever has it. Pure.

use std::fmt;

use drupe_extension_api::wire::{LONGEST_SENDER, Sender};

use crate::digest::hex;

/// The longest address (RFC 5321, 4.5.3.1.3 with the brackets of a path taken away; read on 2026-11-27).
const LONGEST: usize = 254;

/// An address in small letters, of ASCII alone: the forms that need quotation marks, and those of RFC 6531, are none here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailAddress {
    text: String,
    at: usize,
}

impl MailAddress {
    pub fn read(text: &str) -> Option<Self> {
        let (local, domain) = text.split_once('@')?;
        // `atext` of RFC 5322, 3.2.3.
        let atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
        let is_local = local.split('.').all(|part| !part.is_empty() && part.bytes().all(atom));
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let fits = text.len() <= LONGEST && local.len() <= 64;
        (fits && is_local && domain.split('.').all(is_label))
            .then(|| Self { text: text.to_ascii_lowercase(), at: local.len() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn domain(&self) -> &str {
        &self.text[self.at + 1..]
    }

    pub fn local(&self) -> &str {
        &self.text[..self.at]
    }

    /// The id of whoever has the address, which has its letters where it can: `ada_at_example.org`. Two addresses have two ids: `_` is the
    /// sign behind which something else stands, by its number or, of one that is too long, by what it comes to.
    pub fn sender_id(&self) -> String {
        let escaped = |part: &str| {
            part.bytes().fold(String::new(), |mut text, byte| {
                match byte {
                    b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' => text.push(char::from(byte)),
                    other => text.push_str(&format!("_{other:02x}")),
                }
                text
            })
        };
        let id = format!("{}_at_{}", escaped(self.local()), escaped(self.domain()));
        if id.len() <= LONGEST_SENDER {
            return id;
        }
        let hash = hex(&[self.as_str()], 32);
        let room = LONGEST_SENDER - hash.len() - "_h_".len();
        let readable = escaped(self.local());
        format!("{}_h_{hash}", &readable[..readable.len().min(room)])
    }

    /// Whoever has the address, under the name that they give themselves.
    pub fn sender(&self, name: Option<&str>) -> Sender {
        let name = match name {
            Some(name) if !name.trim().is_empty() => format!("{self} ({})", name.trim()),
            _ => self.to_string(),
        };
        Sender { id: self.sender_id(), name: Some(name) }
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The address of a `From` header that has one and is written without art. Whatever two programs could read in two ways is none: lists,
/// groups, routes, quoted local parts, more than one pair of brackets.
pub fn sole_author(value: &str) -> Option<MailAddress> {
    let mut outside = String::new();
    let mut bracketed: Option<String> = None;
    let mut has_quotes = false;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                has_quotes = true;
                skip_quoted(&mut letters)?;
            }
            '(' => {
                skip_comment(&mut letters)?;
                outside.push(' ');
            }
            '<' if bracketed.is_none() => {
                let mut within = String::new();
                loop {
                    match letters.next()? {
                        '>' => break,
                        letter => within.push(letter),
                    }
                }
                bracketed = Some(within);
            }
            '<' | '>' | ')' | ',' | ';' | ':' | '\\' => return None,
            letter if letter.is_control() && letter != '\t' => return None,
            // Behind the brackets stands nothing.
            letter if bracketed.is_some() && !letter.is_whitespace() => return None,
            letter => outside.push(letter),
        }
    }
    match bracketed {
        Some(within) => MailAddress::read(&within),
        None if has_quotes => None,
        None => MailAddress::read(outside.trim_matches([' ', '\t'])),
    }
}

/// Goes behind the end of what stands in quotation marks.
fn skip_quoted(letters: &mut std::str::Chars<'_>) -> Option<()> {
    loop {
        match letters.next()? {
            '"' => return Some(()),
            '\\' => drop(letters.next()?),
            _ => {}
        }
    }
}

/// Goes behind the end of a comment, which may hold others.
fn skip_comment(letters: &mut std::str::Chars<'_>) -> Option<()> {
    let mut depth = 1;
    while depth > 0 {
        match letters.next()? {
            '(' => depth += 1,
            ')' => depth -= 1,
            '\\' => drop(letters.next()?),
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> MailAddress {
        MailAddress::read(text).expect("an address")
    }

    #[test]
    fn an_author_is_one_who_is_written_without_art() {
        for (from, is) in [
            ("ada@example.org", "ada@example.org"),
            (" Ada <Ada.L@Example.ORG> ", "ada.l@example.org"),
            ("\"Lovelace, Ada <b@evil.example>\" <ada@example.org>", "ada@example.org"),
            ("=?utf-8?q?Ad=C3=A4?= <ada@example.org> (at work)", "ada@example.org"),
            ("ada@example.org (Ada \\) <b@evil.example>)", "ada@example.org"),
        ] {
            assert_eq!(sole_author(from).as_ref().map(MailAddress::as_str), Some(is), "{from}");
        }
        for from in [
            "",
            "Ada",
            "ada@example.org, b@evil.example",
            "ada@example.org b@evil.example",
            "b@evil.example, <ada@example.org>",
            "Friends: <ada@example.org>",
            "Friends: ada@example.org;",
            "<ada@example.org> <b@evil.example>",
            "<ada@example.org> b@evil.example",
            "<@evil.example:ada@example.org>",
            "\"ada\"@example.org",
            "ada@example.org\0@evil.example",
            "<ada@example.org",
            "ada@@example.org",
            "ada@evil.example@example.org",
            "<ada @example.org>",
            "ada@exämple.org",
            "(ada@example.org",
        ] {
            assert_eq!(sole_author(from), None, "{from}");
        }
    }

    #[test]
    fn an_id_can_be_read_and_is_never_that_of_another_address() {
        for (text, id) in [
            ("ada@example.org", "ada_at_example.org"),
            ("Ada@Example.org", "ada_at_example.org"),
            ("a_b+c@x.org", "a_5fb_2bc_at_x.org"),
            ("a_at_b@x.org", "a_5fat_5fb_at_x.org"),
        ] {
            assert_eq!(address(text).sender_id(), id);
        }
        let long = |end: char| address(&format!("{}{end}@example.org", "a".repeat(60))).sender_id();
        assert_eq!(long('x').len(), LONGEST_SENDER);
        assert_ne!(long('x'), long('y'));
        assert!(address("a@b").sender(None).is_sound());
    }

    proptest! {
        #[test]
        fn ids_are_sound_whatever_the_address(local in "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,64}", domain in "[a-z0-9]{1,30}\\.[a-z]{2,30}") {
            let address = address(&format!("{local}@{domain}"));
            prop_assert!(address.sender(Some("x")).is_sound());
        }

        #[test]
        fn no_header_makes_it_panic(from in "[\\x00-\\x7fä<>()\"@,;:]{0,60}") {
            let _ = sole_author(&from);
        }
    }
}
