//! Markdown as HTML that a page may show, whoever wrote it.
//!
//! There are two walls. The parser's events are filtered first: HTML in the text is shown as text, an image becomes a link
//! to it, and what is nested too deeply is made flat. Then the result is cleaned as HTML by a list of what may stay, so
//! that a fault of the first wall, or of the parser, leads to nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

/// Levels of quotes, lists and emphasis that are kept. Readers see no difference beyond a few, while the cleaner looks
/// through all open elements for each new one.
const DEPTH: usize = 32;

/// The longest text that is read as markdown, in bytes; a longer one is shown as it is. An answer has a few thousand bytes,
/// and a browser that is given more markup than this hangs.
const LONGEST: usize = 2 * 1024 * 1024;

/// The text as clean HTML. Links lead to `http`, `https` and `mailto` alone, open in a tab of their own and tell nothing of
/// this page; there are no scripts, no styles and no images.
pub fn markdown(text: &str) -> String {
    let mut rendered = String::with_capacity(text.len() * 3 / 2);
    if text.len() > LONGEST {
        let plain = [Event::Start(Tag::Paragraph), Event::Text(text.into()), Event::End(TagEnd::Paragraph)];
        html::push_html(&mut rendered, plain.into_iter());
    } else {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        html::push_html(&mut rendered, Plain::of(Parser::new_ext(text, options)));
    }
    CLEANER.clean(&rendered).to_string()
}

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let tags = [
        "a",
        "blockquote",
        "br",
        "code",
        "del",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "li",
        "ol",
        "p",
        "pre",
        "strong",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
    ];
    let mut cleaner = Builder::empty();
    cleaner
        .tags(HashSet::from(tags))
        .generic_attributes(HashSet::new())
        .tag_attributes(HashMap::from([
            ("a", HashSet::from(["href"])),
            ("ol", HashSet::from(["start"])),
            ("code", HashSet::from(["class"])),
        ]))
        .attribute_filter(|element, attribute, value| {
            let language = value.strip_prefix("language-").is_some_and(|name| {
                (1..=32).contains(&name.len())
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'+' | b'#'))
            });
            ((element, attribute) != ("code", "class") || language).then(|| value.into())
        })
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_value("a", "target", "_blank");
    cleaner
});

/// The parser's events without HTML, without images, and no deeper than [`DEPTH`].
struct Plain<'a, I> {
    events: I,
    /// For each open element, whether it is shown.
    open: Vec<bool>,
    shown: usize,
    /// Elements that are links, of which none may stand in another.
    links: usize,
    next: Option<Event<'a>>,
}

impl<'a, I: Iterator<Item = Event<'a>>> Plain<'a, I> {
    fn of(events: I) -> Self {
        Self { events, open: Vec::new(), shown: 0, links: 0, next: None }
    }

    fn start(&mut self, tag: Tag<'a>) -> Option<Event<'a>> {
        let tag = match tag {
            Tag::Image { dest_url, title, id, .. } => {
                Tag::Link { link_type: LinkType::Inline, dest_url, title, id }
            }
            // The alignment would be a style in the markup.
            Tag::Table(alignments) => Tag::Table(vec![pulldown_cmark::Alignment::None; alignments.len()]),
            Tag::Heading { level, id, classes, attrs } => {
                Tag::Heading { level: below(level), id, classes, attrs }
            }
            other => other,
        };
        let link = matches!(tag, Tag::Link { .. });
        let flat = matches!(tag, Tag::HtmlBlock | Tag::MetadataBlock(_)) || (link && self.links > 0);
        // The parts of a table stand or fall with it: its rows and cells are no deeper than they are.
        let part = matches!(tag, Tag::TableHead | Tag::TableRow | Tag::TableCell);
        let shown = !flat && (self.shown < DEPTH || (part && self.open.last() == Some(&true)));
        self.open.push(shown);
        self.shown += usize::from(shown);
        self.links += usize::from(shown && link);
        shown.then_some(Event::Start(tag))
    }

    fn end(&mut self, end: TagEnd) -> Option<Event<'a>> {
        let end = match end {
            TagEnd::Image => TagEnd::Link,
            TagEnd::Heading(level) => TagEnd::Heading(below(level)),
            other => other,
        };
        let shown = self.open.pop().unwrap_or(false);
        self.shown -= usize::from(shown);
        self.links -= usize::from(shown && end == TagEnd::Link);
        shown.then_some(Event::End(end))
    }
}

impl<'a, I: Iterator<Item = Event<'a>>> Iterator for Plain<'a, I> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if let Some(next) = self.next.take() {
                return Some(next);
            }
            let event = match self.events.next()? {
                Event::Start(tag) => self.start(tag),
                Event::End(end) => self.end(end),
                // Models write this one in the cells of tables.
                Event::InlineHtml(html) if is_break(&html) => Some(Event::HardBreak),
                Event::Html(html) | Event::InlineHtml(html) => Some(Event::Text(html)),
                Event::TaskListMarker(done) => {
                    Some(Event::Text(CowStr::Borrowed(if done { "☑ " } else { "☐ " })))
                }
                other => Some(other),
            };
            if event.is_some() {
                return event;
            }
        }
    }
}

/// The page has headings of its own above each answer, which is a part of it.
fn below(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

fn is_break(html: &str) -> bool {
    let name = html.trim_start_matches('<').trim_end_matches('>').trim_end_matches('/').trim();
    name.eq_ignore_ascii_case("br")
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
