//! A feed as a list of its entries.

use std::{fmt::Write as _, time::Instant};

use drupe_extension_api::{Fault, FaultCode};
use feed_rs::{model::Text, parser};
use url::Url;

use super::{ReadText, html, late};
use crate::clean;

/// Entries that are shown; feeds that readers follow have some ten.
const ENTRIES: usize = 200;
/// Characters of an entry's summary.
const SUMMARY: usize = 400;

pub fn read(text: &str, url: &Url, until: Instant, reading: &mut ReadText) -> Result<(), Fault> {
    let parser = parser::Builder::new().base_uri(Some(url.as_str())).build();
    let feed = parser.parse(text.as_bytes()).map_err(|error| {
        let why = clean::line(&error.to_string(), 200);
        Fault::new(FaultCode::Other, format!("it is no feed that can be read: {why}"))
    })?;
    let plain = |text: &Option<Text>, most| {
        text.as_ref().map(|text| html::plain(&text.content, most, until)).unwrap_or_default()
    };
    reading.title = plain(&feed.title, 300);
    let mut out = String::new();
    let about = plain(&feed.description, SUMMARY);
    if !about.is_empty() {
        let _ = writeln!(out, "{about}\n");
    }
    for entry in feed.entries.iter().take(ENTRIES) {
        if Instant::now() > until {
            return Err(late());
        }
        let title = plain(&entry.title, 300);
        let title = if title.is_empty() { "(no title)" } else { &title };
        let link = entry.links.iter().find(|link| link.rel.as_deref().is_none_or(|rel| rel == "alternate"));
        let _ = match link.or(entry.links.first()) {
            Some(link) => write!(out, "- [{title}]({})", clean::line(&link.href, 500)),
            None => write!(out, "- {title}"),
        };
        if let Some(day) = entry.published.or(entry.updated) {
            let _ = write!(out, ", {}", day.format("%Y-%m-%d"));
        }
        out.push('\n');
        let body = entry.content.as_ref().and_then(|content| content.body.as_deref());
        let summary = match plain(&entry.summary, SUMMARY) {
            summary if summary.is_empty() => {
                body.map(|body| html::plain(body, SUMMARY, until)).unwrap_or_default()
            }
            summary => summary,
        };
        if !summary.is_empty() {
            let _ = writeln!(out, "  {summary}");
        }
    }
    if feed.entries.len() > ENTRIES {
        reading.notes.push(format!("the first {ENTRIES} of {} entries are listed", feed.entries.len()));
    }
    reading.text = out;
    Ok(())
}
