//! A mail as it came, as what somebody wants, or why it is not taken. Pure.
//!
//! Programs write mails, too, and answer them. None of those is answered (RFC 3834, read on 2026-11-27), so that two of them cannot go on for ever.

use mail_parser::{Addr, Message, MessageParser, PartType, decoders::html::html_to_text};

use crate::{
    address::{MailAddress, sole_author},
    body,
    digest::hex,
    files::{MailFile, files},
    headers::MailHead,
    results::OwnResults,
    thread::{MailThread, one_line, thread},
};

const LONGEST_NAME: usize = 100;

/// A mail of somebody of whom the operator's server says that they are who they say.
#[derive(Debug)]
pub struct HeardMail {
    pub from: MailAddress,
    /// What they call themselves, which proves nothing.
    pub name: Option<String>,
    pub subject: String,
    /// The same mail again has the same, wherever it lies.
    pub external_id: String,
    pub thread: MailThread,
    pub text: String,
    pub files: Vec<MailFile>,
}

/// Why a mail is nobody's.
#[derive(Debug, PartialEq)]
pub struct IgnoredMail(pub String);

/// Reads a mail. `is_whole` is false where its end was left out.
pub fn read(
    mail: &[u8],
    is_whole: bool,
    own: &MailAddress,
    results: &OwnResults,
) -> Result<HeardMail, IgnoredMail> {
    let head = MailHead::read(mail);
    let no = |why: &str| Err(IgnoredMail(why.to_owned()));
    let Some(from) = head.only("from") else {
        return no("it has no `From`, or more than one");
    };
    let Some(from) = sole_author(from) else {
        return no("its `From` is not one plain address");
    };
    if from == *own {
        return no("it is from the address of the assistant itself");
    }
    if let Some(why) = automatic(&head, &from) {
        return Err(IgnoredMail(format!("a program wrote it, by its {why}")));
    }
    if !results.vouch_for(&head, &from) {
        return Err(IgnoredMail(format!(
            "nothing of `{}` says that it is from {}",
            results.authserv_id,
            one_line(from.as_str(), LONGEST_NAME)
        )));
    }
    let Some(parsed) = MessageParser::default().parse(mail).map(ParsedMail) else {
        return no("it cannot be read");
    };
    let parsed = &parsed.0;
    if !is_for(own, &head, parsed) {
        return Err(IgnoredMail(format!("it does not name {own} in the one `To` that a mail has")));
    }
    let subject = parsed.subject().map(|subject| one_line(subject, 500)).unwrap_or_default();
    let header = |name| head.first(name).unwrap_or_default();
    let whole = words(parsed);
    let id = header("message-id").trim();
    let date = header("date");
    // Programs that use an id for several mails write other dates.
    let external_id = match id.is_empty() {
        false => hex(&["id", id, date], 40),
        true => hex(&["whole", from.as_str(), date, &subject, &whole], 40),
    };
    let root = if id.is_empty() { &external_id } else { id };
    let thread = thread(root, header("in-reply-to"), header("references"), &subject, own.domain());
    let mut text = body::bounded(&body::own_words(&whole, thread.answers.is_some()));
    if text.is_empty() {
        text.clone_from(&subject);
    }
    let (files, notes) = files(parsed, is_whole);
    let cut = (!is_whole).then(|| "[The mail is too large to be read whole]".to_owned());
    for note in notes.into_iter().chain(cut) {
        text.push_str(if text.is_empty() { "" } else { "\n\n" });
        text.push_str(&note);
    }
    if text.trim().is_empty() && files.is_empty() {
        return no("there is nothing in it");
    }
    let name = parsed.from().and_then(|from| from.first()).and_then(|from| from.name.as_deref());
    let name = name.map(|name| one_line(name, LONGEST_NAME));
    Ok(HeardMail { from, name, subject, external_id, thread, text, files })
}

/// Whether whoever wrote a mail wrote it to an address. What somebody signed and sent to others can be sent on by these, and is still from them;
/// `To` is signed with it, and a second one would not be. `Cc` often is not there, and can be added.
fn is_for(own: &MailAddress, head: &MailHead, mail: &Message<'_>) -> bool {
    let to = head.only("to").and_then(|_| mail.to());
    let is_own = |to: &Addr<'_>| to.address().is_some_and(|to| to.eq_ignore_ascii_case(own.as_str()));
    to.is_some_and(|to| to.iter().any(is_own))
}

/// A mail with all its parts. Mails that lie within mails, a hundred thousand deep, are let go one after another and not each within the one
/// around it, which would take more of the stack than there is.
struct ParsedMail<'a>(Message<'a>);

impl Drop for ParsedMail<'_> {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.0.parts);
        while let Some(part) = left.pop() {
            if let PartType::Message(mut within) = part.body {
                left.append(&mut within.parts);
            }
        }
    }
}

/// The header by which a mail is one that nobody answers.
fn automatic(head: &MailHead, from: &MailAddress) -> Option<&'static str> {
    let first_word = |value: &str| {
        value.trim().split([' ', '\t', ';', '(']).next().unwrap_or_default().to_ascii_lowercase()
    };
    let is_null = |path: &str| path.replace([' ', '\t'], "") == "<>";
    let report = |value: &str| first_word(value) == "multipart/report";
    if head.all("auto-submitted").any(|value| first_word(value) != "no") {
        Some("`Auto-Submitted`")
    } else if head
        .all("precedence")
        .any(|value| ["bulk", "list", "junk"].contains(&first_word(value).as_str()))
    {
        Some("`Precedence`")
    } else if head.first("list-id").is_some() {
        Some("`List-Id`")
    } else if head.first("return-path").is_some_and(is_null) {
        Some("`Return-Path`")
    } else if head.all("content-type").any(report) {
        Some("`Content-Type`")
    } else if from.local() == "mailer-daemon" {
        Some("`From`")
    } else {
        None
    }
}

/// All that is text in it: as plain text where it is there so, else made of what it says for a page.
fn words(mail: &Message<'_>) -> String {
    let all = |count: usize, text: &dyn Fn(usize) -> Option<String>| {
        let parts = (0..count).filter_map(text).filter(|text| !text.trim().is_empty());
        parts.collect::<Vec<_>>().join("\n\n")
    };
    let plain = all(mail.text_body_count(), &|at| mail.body_text(at).map(std::borrow::Cow::into_owned));
    match plain.is_empty() {
        false => plain,
        true => all(mail.html_body_count(), &|at| mail.body_html(at).map(|html| html_to_text(&html))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str =
        "Authentication-Results: mx.example.net; dmarc=pass header.from=example.org\r\nReceived: x\r\n";

    fn heard(mail: impl AsRef<[u8]>) -> Result<HeardMail, IgnoredMail> {
        let own = MailAddress::read("plum@example.net").expect("an address");
        read(
            mail.as_ref(),
            true,
            &own,
            &OwnResults { authserv_id: "mx.example.net".into(), received_above: 0 },
        )
    }

    fn plain(more: &str) -> String {
        format!(
            "{GOOD}From: Ada <ada@example.org>\r\nTo: x@y, Plum <Plum@example.net>\r\nMessage-ID: <1@x>\r\nSubject: =?utf-8?q?L=C3=BCnch?=\r\n{more}\r\n"
        )
    }

    #[test]
    fn a_mail_is_what_somebody_wrote_in_whatever_letters() {
        let mail = heard(plain("Content-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe")).expect("taken");
        assert_eq!(
            (mail.text.as_str(), mail.subject.as_str(), mail.name.as_deref()),
            ("Grüße", "Lünch", Some("Ada"))
        );
        assert_eq!(mail.from.as_str(), "ada@example.org");
        let both = "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nplain\r\n--b\r\nContent-Type: text/html\r\n\r\n<b>page</b>\r\n--b--";
        assert_eq!(heard(plain(both)).expect("taken").text, "plain");
        let page = "Content-Type: text/html; charset=utf-8\r\n\r\n<p>Good <b>day</b></p><script>x()</script>";
        assert_eq!(heard(plain(page)).expect("taken").text.trim(), "Good day");
        let file = "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nsee\r\n--b\r\nContent-Type: application/pdf; name=\"a\\\"b.pdf\"\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b--";
        let mail = heard(plain(file)).expect("taken");
        assert_eq!((mail.text.as_str(), mail.files[0].name.as_str()), ("see", "a\"b.pdf"));
        let own = MailAddress::read("plum@example.net").expect("an address");
        let results = OwnResults { authserv_id: "mx.example.net".into(), received_above: 0 };
        let cut = read(plain("\r\nthe beginning").as_bytes(), false, &own, &results).expect("taken");
        assert_eq!(cut.text, "the beginning\n\n[The mail is too large to be read whole]");
        // One that has nothing but a subject says that.
        assert_eq!(heard(plain("\r\n")).expect("taken").text, "Lünch");
    }

    #[test]
    fn nobody_is_who_says_so_alone_and_no_program_is_answered() {
        for (mail, why) in [
            (plain("\r\nx").replace(GOOD, ""), "nothing of `mx.example.net` says"),
            (plain("From: ben@example.org\r\n\r\nx"), "more than one"),
            (plain("\r\nx").replace("From: Ada <ada@example.org>\r\n", ""), "no `From`"),
            (
                plain("\r\nx").replace("Ada <ada@example.org>", "ada@example.org, ben@example.org"),
                "not one plain address",
            ),
            (plain("\r\nx").replace("ada@example.org", "plum@example.net"), "assistant itself"),
            (plain("\r\nx").replace("Plum@example.net", "ben@example.net"), "in the one `To`"),
            (
                plain("\r\nx")
                    .replace("Plum <Plum@example.net>", "\"plum@example.net\" <ben@x> (plum@example.net)"),
                "in the one `To`",
            ),
            (
                plain("To: plum@example.net\r\n\r\nx").replace("Plum@example.net", "ben@example.net"),
                "in the one `To`",
            ),
            (
                plain("Cc: plum@example.net\r\n\r\nx").replace("Plum@example.net", "ben@example.net"),
                "in the one `To`",
            ),
            (plain("Auto-Submitted: auto-replied\r\n\r\nx"), "Auto-Submitted"),
            (plain("auto-submitted: auto-generated (vacation)\r\n\r\nx"), "Auto-Submitted"),
            (plain("Precedence: Bulk\r\n\r\nx"), "Precedence"),
            (plain("List-Id: <x.example.org>\r\n\r\nx"), "List-Id"),
            (plain("Return-Path: <>\r\n\r\nx"), "Return-Path"),
            (
                plain("Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\nx"),
                "Content-Type",
            ),
            (plain("\r\nx").replace("ada@example.org", "MAILER-DAEMON@example.org"), "`From`"),
        ] {
            let IgnoredMail(said) = heard(&mail).map(|mail| mail.text).expect_err(&mail);
            assert!(said.contains(why), "{said}: {mail}");
        }
        assert!(
            heard(plain(
                "Auto-Submitted: no\r\nPrecedence: normal\r\nReturn-Path: <ada@example.org>\r\n\r\nx"
            ))
            .is_ok()
        );
    }

    #[test]
    fn the_same_mail_is_known_again_and_another_is_another() {
        let id = |more: &str| heard(plain(more)).expect("taken").external_id;
        assert_eq!(id("Date: 1\r\n\r\nx"), id("X-Again: 1\r\nDate: 1\r\n\r\nx"));
        assert_ne!(id("Date: 1\r\n\r\nx"), id("Date: 2\r\n\r\nx"));
        let without = |text: &str| {
            heard(plain(&format!("\r\n{text}")).replace("Message-ID: <1@x>\r\n", ""))
                .expect("taken")
                .external_id
        };
        assert_eq!(without("x"), without("x"));
        assert_ne!(without("x"), without("y"));
    }

    #[test]
    fn parts_within_parts_without_end_are_read_or_left_out() {
        let levels = 4 * 1024 * 1024 / 80;
        let within: String = (0..levels)
            .map(|level| format!("Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n"))
            .collect();
        let messages = "Content-Type: message/rfc822\r\n\r\n".repeat(4 * 1024 * 1024 / 33);
        let page = format!("Content-Type: text/html\r\n\r\n{}", "<div><b>".repeat(512 * 1024));
        let comments = format!(
            "X: y\r\nDate: {}\r\nCc: {}\r\n\r\nx",
            "(".repeat(1024 * 1024),
            "\"a\" <a@b>,".repeat(100_000)
        );
        let encoded = format!("Subject: {}\r\n\r\nx", "=?utf-8?q?a?= ".repeat(100_000));
        for more in [within, messages, page, comments, encoded] {
            let begun = std::time::Instant::now();
            let _ = heard(plain(&more));
            assert!(
                begun.elapsed() < std::time::Duration::from_secs(20),
                "{:?}: {}",
                begun.elapsed(),
                &more[..60]
            );
        }
    }

    proptest! {
        #[test]
        fn no_mail_makes_it_panic(mail in prop::collection::vec(any::<u8>(), 0..400), more in ".{0,200}") {
            let _ = heard(&mail);
            let _ = heard(plain(&more));
            let _ = heard([plain("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n").as_bytes(), &mail].concat());
        }
    }
}
