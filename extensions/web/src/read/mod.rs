//! From a body to text. Everything here blocks and computes, works on what strangers sent, and ends by itself.

mod feed;
mod html;
mod sink;

use std::time::{Duration, Instant};

use drupe_extension_api::{Fault, FaultCode};
use drupe_pdf_text::is_pdf;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use url::Url;

pub use html::plain;

use crate::{
    clean,
    exchange::{self, Reply},
};

/// How long a body may be worked on; what is honest takes well below a second.
pub const TIME: Duration = Duration::from_secs(8);
/// The longest title that is shown.
const TITLE: usize = 300;

/// What was read, with what is told above it.
#[derive(Debug, Default)]
pub struct ReadText {
    /// Where it is from in the end.
    pub address: String,
    pub title: String,
    /// What it is: its type, as it was said or found.
    pub kind: String,
    /// Bytes of the body, decompressed.
    pub bytes: usize,
    /// The moment it was fetched.
    pub fetched: String,
    pub text: String,
    /// What was done to it, for whoever reads the text.
    pub notes: Vec<String>,
}

impl ReadText {
    /// What it takes in memory.
    pub fn size(&self) -> usize {
        self.text.len() + self.title.len() + self.address.len()
    }
}

/// How a body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    Html,
    Feed,
    /// A feed, or as it is.
    Xml,
    /// As it is, without what shows nothing.
    Text,
    /// By a confined program, before it comes here.
    Pdf,
    /// By its first bytes, which say what it is.
    Unknown,
}

impl BodyKind {
    /// By its type; none for what is not read.
    pub fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "application/rss+xml"
            | "application/atom+xml"
            | "application/rdf+xml"
            | "application/feed+json" => Self::Feed,
            "text/xml" | "application/xml" => Self::Xml,
            "application/pdf" | "application/x-pdf" => Self::Pdf,
            "" | "application/octet-stream" | "binary/octet-stream" => Self::Unknown,
            "application/json"
            | "application/javascript"
            | "application/x-javascript"
            | "application/x-ndjson"
            | "application/yaml"
            | "application/x-yaml"
            | "application/toml"
            | "application/sql"
            | "application/x-sh"
            | "application/x-tex"
            | "application/graphql" => Self::Text,
            other if other.starts_with("text/") => Self::Text,
            other if other.ends_with("+json") || other.ends_with("+yaml") => Self::Text,
            other if other.ends_with("+xml") && !other.starts_with("image/") => Self::Xml,
            _ => return None,
        })
    }

    fn guess(body: &[u8]) -> Option<Self> {
        let start = body.trim_ascii_start();
        let lower = start[..start.len().min(64)].to_ascii_lowercase();
        if lower.starts_with(b"<!doctype html") || lower.starts_with(b"<html") {
            return Some(Self::Html);
        }
        if lower.starts_with(b"<?xml") {
            return Some(Self::Xml);
        }
        if is_pdf(body) {
            return Some(Self::Pdf);
        }
        let text = !body.contains(&0) && std::str::from_utf8(body).is_ok();
        text.then_some(Self::Text)
    }
}

/// What became of a body.
pub enum ReadBody {
    Text(ReadText),
    /// It is a PDF, of these bytes: its text is found by another program, and then [`finished`].
    Pdf(ReadText, Vec<u8>),
}

/// Reads a body. Blocks for [`TIME`] at most, as far as that is in our hands.
pub fn read(mut reply: Reply, url: &Url, most: usize) -> Result<ReadBody, Fault> {
    let until = Instant::now() + TIME;
    exchange::decompress(&mut reply, most)?;
    let said = reply.kind();
    let unread = || Fault::new(FaultCode::Unsupported, "it says no type that is read, and is no text");
    let kind = match BodyKind::of(&said).ok_or_else(unread)? {
        BodyKind::Unknown => BodyKind::guess(&reply.body).ok_or_else(unread)?,
        kind => kind,
    };
    let mut reading = ReadText { address: url.to_string(), bytes: reply.body.len(), ..ReadText::default() };
    reading.kind = if said.is_empty() { "no type".to_owned() } else { clean::line(&said, 100) };
    if kind == BodyKind::Pdf {
        return Ok(ReadBody::Pdf(reading, reply.body));
    }
    let text = decode(&reply, kind);
    drop(std::mem::take(&mut reply.body));
    match kind {
        BodyKind::Html => html::read(&text, url, until, &mut reading)?,
        BodyKind::Feed | BodyKind::Xml => match feed::read(&text, url, until, &mut reading) {
            Ok(()) => {}
            Err(fault) if kind == BodyKind::Feed => return Err(fault),
            Err(_) => reading.text = text,
        },
        BodyKind::Text | BodyKind::Unknown | BodyKind::Pdf => reading.text = text,
    }
    Ok(ReadBody::Text(finished(reading)))
}

/// The same without what shows nothing.
pub fn finished(mut reading: ReadText) -> ReadText {
    let cleaned = clean::visible(&reading.text);
    if cleaned.left_out > 0 {
        reading.notes.push(format!("{} characters that show nothing were left out", cleaned.left_out));
    }
    reading.text = clean::tidy(&cleaned.text);
    reading.title = clean::line(&reading.title, TITLE);
    reading
}

/// The fault of a body that took too long.
fn late() -> Fault {
    Fault::new(FaultCode::Other, "it was not read: it takes too long")
}

/// As text: by the mark at its beginning, else by what its head or the page itself says, else as UTF-8.
fn decode(reply: &Reply, kind: BodyKind) -> String {
    let head = reply.header(hyper::header::CONTENT_TYPE).unwrap_or_default();
    let said = label(head.as_bytes()).or_else(|| match kind {
        BodyKind::Html | BodyKind::Xml | BodyKind::Feed => label(&reply.body[..reply.body.len().min(1024)]),
        _ => None,
    });
    let fallback = match std::str::from_utf8(&reply.body) {
        Err(error) if error.error_len().is_some() => WINDOWS_1252,
        _ => UTF_8,
    };
    said.unwrap_or(fallback).decode(&reply.body).0.into_owned()
}

/// The encoding behind the first `charset=` or `encoding=` that names one.
fn label(text: &[u8]) -> Option<&'static Encoding> {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let mut found = ["charset", "encoding"].into_iter().filter_map(|key| {
        let (_, after) = text.split_once(key)?;
        let value = after.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let end =
            value.find(|c: char| !c.is_ascii_alphanumeric() && !"-_:.".contains(c)).unwrap_or(value.len());
        Encoding::for_label(&value.as_bytes()[..end])
    });
    found.next()
}
