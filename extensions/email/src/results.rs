//! Whether the operator's own mail server found that a mail is from whom it says. Pure.
//!
//! `From` is what the sender wrote. The server writes what it found of it into `Authentication-Results` (RFC 8601, read on 2026-11-27), and so can
//! whoever sends a mail: it counts under the operator's name alone, and only where nobody but the operator's servers can have written.

use crate::{address::MailAddress, headers::MailHead};

const RESULTS: &str = "authentication-results";

/// Where the results of the operator's server stand.
#[derive(Debug, Clone)]
pub struct OwnResults {
    /// The name under which they are written.
    pub authserv_id: String,
    /// How many `Received` headers of the operator's servers stand above them.
    pub received_above: usize,
}

/// One method of a result: what it came to, and what it is about.
#[derive(Debug, Default, PartialEq)]
struct MethodResult {
    method: String,
    result: String,
    properties: Vec<(String, String)>,
}

impl MethodResult {
    fn is(&self, method: &str, result: &str) -> bool {
        self.method == method && self.result == result
    }

    fn property(&self, name: &str) -> Option<&str> {
        self.properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl OwnResults {
    /// Whether the server says that a mail is from an address: whoever wrote it signed in there under it (section 2.7.4), or the domain stands
    /// by it.
    pub fn vouch_for(&self, head: &MailHead, from: &MailAddress) -> bool {
        let found = self.found(head);
        let is_domain =
            |value: Option<&str>| value.is_some_and(|value| value.eq_ignore_ascii_case(from.domain()));
        let dmarc = |came_to: &str| {
            let is_it = |result: &MethodResult| {
                result.is("dmarc", came_to) && is_domain(result.property("header.from"))
            };
            found.iter().any(is_it)
        };
        let signed = |result: &MethodResult| {
            let identity = || result.property("header.i").and_then(|identity| identity.rsplit('@').next());
            result.is("dkim", "pass") && is_domain(result.property("header.d").or_else(identity))
        };
        let signed_in = |result: &MethodResult| {
            let user = result.property("smtp.auth").unwrap_or_default();
            result.is("auth", "pass") && user.eq_ignore_ascii_case(from.as_str())
        };
        found.iter().any(signed_in) || (!dmarc("fail") && (dmarc("pass") || found.iter().any(signed)))
    }

    /// What the operator's server says. Above the last of its own `Received` nobody else writes. Below it its results are the first of their
    /// name, where it writes them to each mail: whatever follows may be the sender's.
    fn found(&self, head: &MailHead) -> Vec<MethodResult> {
        let (mut found, mut passed, mut is_found) = (Vec::new(), 0, false);
        for (name, value) in head.iter() {
            if name == "received" {
                passed += 1;
                if passed > self.received_above {
                    break;
                }
            } else if name == RESULTS
                && let Some((id, results)) = read(value)
                && id.eq_ignore_ascii_case(&self.authserv_id)
                && (!is_found || passed < self.received_above.max(1))
            {
                is_found = true;
                found.extend(results);
            }
        }
        found
    }
}

/// The name of the server that wrote a header, and what it says. None where it is not written as it must be.
fn read(value: &str) -> Option<(String, Vec<MethodResult>)> {
    let plain = without_comments(value)?;
    let mut parts = split(&plain, |letter| letter == ';').into_iter();
    let head = parts.next()?;
    let id = unquoted(split(&head, char::is_whitespace).first()?);
    let results = parts.filter_map(|part| method(&part)).collect();
    Some((id, results))
}

/// Reads one result, in the form `method[/version]=result ptype.property=value …`.
fn method(part: &str) -> Option<MethodResult> {
    let mut pairs = split(&tight(part), char::is_whitespace).into_iter().filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_ascii_lowercase(), unquoted(value)))
    });
    let (method, result) = pairs.next()?;
    let method = method.split('/').next()?.to_owned();
    Some(MethodResult { method, result: result.to_ascii_lowercase(), properties: pairs.collect() })
}

/// The same text without what stands in parentheses outside of quotation marks.
fn without_comments(value: &str) -> Option<String> {
    let (mut plain, mut depth, mut is_quoted) = (String::new(), 0_u32, false);
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let next = letters.next()?;
                if depth == 0 {
                    plain.extend([letter, next]);
                }
                continue;
            }
            '"' if depth == 0 => is_quoted = !is_quoted,
            '(' if !is_quoted => depth += 1,
            ')' if !is_quoted => {
                depth = depth.checked_sub(1)?;
                plain.push(' ');
                continue;
            }
            _ => {}
        }
        if depth == 0 {
            plain.push(letter);
        }
    }
    (depth == 0 && !is_quoted).then_some(plain)
}

/// What stands between separators that are in no quotation marks, without what is empty.
fn split(text: &str, separates: impl Fn(char) -> bool) -> Vec<String> {
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for letter in text.chars() {
        if separates(letter) && !is_quoted {
            parts.push(String::new());
            continue;
        }
        is_quoted ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The same without spaces around the signs that join a name with its value.
fn tight(text: &str) -> String {
    let mut tight = String::new();
    for word in split(text, char::is_whitespace) {
        let joins = |word: &str| word.starts_with(['=', '/']) || word.is_empty();
        if !joins(&word) && !tight.ends_with(['=', '/']) {
            tight.push(' ');
        }
        tight.push_str(&word);
    }
    tight
}

fn unquoted(text: &str) -> String {
    let inner = text.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.map_or_else(|| text.trim().to_owned(), |inner| inner.replace('\\', ""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vouched(received_above: usize, head: &str) -> bool {
        let own = OwnResults { authserv_id: "mx.example.net".into(), received_above };
        let from = MailAddress::read("ada@example.org").expect("an address");
        own.vouch_for(&MailHead::read(head.as_bytes()), &from)
    }

    #[test]
    fn what_servers_write_is_read() {
        for value in [
            "mx.example.net; dmarc=pass header.from=example.org",
            "MX.example.net 1; spf=fail smtp.mailfrom=x@y.org; dmarc=pass (p=REJECT sp=NONE dis=NONE) header.from=Example.org",
            "mx.example.net; dkim=pass header.i=@example.org header.s=20230601 header.b=abc; dmarc=none header.from=example.org",
            "mx.example.net; dkim=pass (2048-bit key; unprotected) header.d=example.org header.i=@mail.example.org header.b=\"a/b\"",
            "mx.example.net;\r\n dkim=fail reason=\"a;b=c\" header.d=other.org;\r\n\tdkim = pass header.d = example.org",
            "\"mx.example.net\"; dmarc/1=pass header.from=\"example.org\"",
            "mx.example.net; auth=pass (plain) smtp.auth=ada@example.org smtp.mailfrom=ada@example.org",
        ] {
            assert!(vouched(0, &format!("Authentication-Results: {value}\r\nReceived: x\r\n")), "{value}");
        }
    }

    #[test]
    fn nothing_else_vouches_for_anybody() {
        for value in [
            "",
            "mx.example.net; none",
            "mx.example.net; spf=pass smtp.mailfrom=ada@example.org",
            "mx.example.net; dmarc=fail header.from=example.org; dkim=pass header.d=example.org",
            "mx.example.net; dmarc=pass header.from=evil.example",
            "mx.example.net; dmarc=pass",
            "mx.example.net; auth=pass smtp.auth=ada smtp.mailfrom=ada@example.org",
            "mx.example.net; auth=pass smtp.auth=ben@example.org",
            "mx.example.net; auth=fail smtp.auth=ada@example.org",
            "mx.example.net; dkim=pass header.d=evil.example header.i=@example.org",
            "mx.example.net; dkim=pass header.d=org",
            "mx.example.net; dkim=pass header.d=sub.example.org",
            "mx.evil.example; dmarc=pass header.from=example.org",
            "mx.example.net.evil.example; dmarc=pass header.from=example.org",
            "evil.example (mx.example.net; dmarc=pass header.from=example.org)",
            "mx.example.net; spf=pass (x; dmarc=pass header.from=example.org) smtp.mailfrom=a",
            "mx.example.net; spf=pass smtp.mailfrom=\"x; dmarc=pass header.from=example.org\"",
            "mx.example.net; spf=\"pass; dmarc=pass header.from=example.org",
            "mx.example.net; x=pass reason=\"\\\"; dmarc=pass header.from=example.org\"",
        ] {
            assert!(!vouched(0, &format!("Authentication-Results: {value}\r\n")), "{value}");
        }
    }

    #[test]
    fn results_count_where_the_operators_server_writes_alone() {
        let (good, none) = (
            "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\n",
            "Authentication-Results: mx.example.net; spf=none\n",
        );
        // Two of its programs write one each.
        assert!(vouched(0, &format!("{none}{good}Received: own\n")));
        assert!(!vouched(0, &format!("Received: own\n{good}")));
        // Of a server that writes them below its own `Received`, the first counts, whatever the sender wrote behind it.
        assert!(vouched(1, &format!("Received: own\n{good}")));
        assert!(!vouched(1, &format!("Received: own\n{none}{good}")));
        assert!(!vouched(1, &format!("Received: own\nReceived: own\n{good}")));
        assert!(vouched(2, &format!("Received: own\nX: y\nReceived: own\nReturn-Path: a\n{good}")));
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(value in "[\\x00-\\x7fä\"\\\\();=/. ]{0,80}") {
            let _ = read(&value);
        }
    }
}
