//! Which parts of a mail are files, and where each stands. Pure.

use std::{collections::HashSet, ops::Range};

use drupe_extension_api::wire::MOST_FILES;
use mail_parser::{Message, MessagePart, MimeHeaders, PartType};

use crate::thread::one_line;

/// What of a name is handed on, in bytes: the daemon makes one of it that is fit to be a file's.
const LONGEST_NAME: usize = 500;
/// The same where one is told that is not taken.
const LONGEST_TOLD: usize = 100;

/// A file of a mail.
#[derive(Debug, Clone, PartialEq)]
pub struct MailFile {
    /// What whoever sent it calls it.
    pub name: String,
    /// Where it stands in the mail.
    pub body: Range<usize>,
    pub coding: Coding,
    /// Whether it is a picture that the mail shows between its words, such as one below a signature.
    pub is_shown: bool,
}

/// How the bytes of a part were written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coding {
    Plain,
    Base64,
    QuotedPrintable,
}

/// The files of a mail, and what is said of those that are not taken. `is_whole` is false where its end was left out.
pub fn files(mail: &Message<'_>, is_whole: bool) -> (Vec<MailFile>, Vec<String>) {
    let words: HashSet<u32> = mail.text_body.iter().chain(&mail.html_body).copied().collect();
    let (mut found, mut notes, mut over) = (Vec::new(), Vec::new(), Vec::new());
    for (at, part) in (0_u32..).zip(&mail.parts).filter(|(at, part)| is_file(part, words.contains(at))) {
        let name = name(part);
        let (begin, end) = (part.offset_body as usize, part.offset_end as usize);
        let is_cut = end < begin || (!is_whole && end >= mail.raw_message.len());
        if is_cut {
            notes.push(format!(
                "[A file came with this mail, {:?}, and was not taken: its end is missing]",
                told(&name)
            ));
        } else if found.len() == MOST_FILES {
            over.push(at);
        } else {
            found.push(MailFile { body: begin..end, coding: coding(part), is_shown: is_shown(part), name });
        }
    }
    if !over.is_empty() {
        let parts = over.iter().take(MOST_FILES).filter_map(|at| mail.part(*at));
        let mut names: Vec<_> = parts.map(|part| format!("{:?}", told(&name(part)))).collect();
        if over.len() > MOST_FILES {
            names.push(format!("{} more", over.len() - MOST_FILES));
        }
        let names = names.join(", ");
        notes.push(format!("[Of the files of this mail these were not taken, since a message has at most {MOST_FILES}: {names}]"));
    }
    (found, notes)
}

fn told(name: &str) -> String {
    one_line(name, LONGEST_TOLD)
}

/// Whether a part is a file: nothing that is read as words already, or as another form of them, and nothing that only proves something.
fn is_file(part: &MessagePart<'_>, is_read: bool) -> bool {
    let named = part.attachment_name().is_some();
    let is_attached = is_attached(part);
    let is_words = match part.body {
        PartType::Multipart(_) => true,
        PartType::Text(_) | PartType::Html(_) => {
            is_read || !(named || is_attached || part.is_content_type("text", "calendar"))
        }
        _ => false,
    };
    let is_proof = ["pgp-signature", "pgp-encrypted", "pkcs7-signature", "x-pkcs7-signature"];
    let is_proof = is_proof.iter().any(|kind| part.is_content_type("application", kind))
        || part.attachment_name().is_some_and(|name| name.to_ascii_lowercase().ends_with(".p7s"));
    // A picture without a name is drawn into a page, or tells who looks at that.
    !is_words && !is_proof && (named || !is_shown(part))
}

fn is_attached(part: &MessagePart<'_>) -> bool {
    part.content_disposition().is_some_and(|disposition| disposition.is_attachment())
}

fn is_shown(part: &MessagePart<'_>) -> bool {
    let is_picture = part.content_type().is_some_and(|kind| kind.ctype().eq_ignore_ascii_case("image"));
    is_picture && part.content_id().is_some() && !is_attached(part)
}

fn name(part: &MessagePart<'_>) -> String {
    let given = one_line(part.attachment_name().unwrap_or_default(), LONGEST_NAME);
    if !given.is_empty() {
        return given;
    }
    let usual = if matches!(part.body, PartType::Message(_)) {
        "mail.eml"
    } else if part.is_content_type("text", "calendar") {
        "calendar.ics"
    } else {
        "file"
    };
    usual.to_owned()
}

fn coding(part: &MessagePart<'_>) -> Coding {
    let said = part.content_transfer_encoding().unwrap_or_default().trim();
    if said.eq_ignore_ascii_case("base64") {
        Coding::Base64
    } else if said.eq_ignore_ascii_case("quoted-printable") {
        Coding::QuotedPrintable
    } else {
        Coding::Plain
    }
}
