//! The main text of a page as markdown, with its links.

use std::time::Instant;

use dom_query::{Document, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};
use drupe_extension_api::Fault;
use url::Url;

use super::{ReadText, sink};
use crate::clean;

/// Levels of elements; what lies deeper is left out. Browsers stop at 512, and what walks the tree calls itself.
const DEPTH: usize = 200;
/// What a page's main part must have of the page's text to stand for it. A list of links, for one, has no main part.
const MAIN_PART: usize = 5;
/// The longest address of a link that is shown.
const LONGEST_LINK: usize = 500;

/// Nothing of these is text.
const NO_TEXT: &[&str] = &[
    "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "canvas", "video",
    "audio", "math", "head", "select", "datalist", "dialog",
];

/// Fills in title, text and notes.
pub fn read(html: &str, url: &Url, until: Instant, reading: &mut ReadText) -> Result<(), Fault> {
    let parsed = sink::parse(html, until)?;
    if !parsed.whole {
        reading.notes.push("only the beginning of the page was read, which has too many elements".to_owned());
    }
    let document = parsed.document;
    let base = base(&document, url);
    let title = document.select_single("title").text().to_string();
    let hidden = prune(&document.root(), &base);
    if hidden > 0 {
        reading.notes.push(format!("{hidden} elements that are not shown were left out"));
    }
    sink_time(until)?;
    let whole = document.md(Some(NO_TEXT)).to_string();
    sink_time(until)?;
    let config = Config { text_mode: TextMode::Markdown, disable_json_ld: true, ..Config::default() };
    let main = Readability::with_document(document, Some(base.as_str()), Some(config))
        .and_then(|mut readability| readability.parse());
    let (main, better_title) = match main {
        Ok(article) => (article.text_content.to_string(), article.title),
        // A page without a main part.
        Err(_) => (String::new(), String::new()),
    };
    reading.title = if better_title.trim().is_empty() { title } else { better_title };
    reading.text = if main.len() * MAIN_PART >= whole.len() && !main.trim().is_empty() {
        if main.len() < whole.len() / 2 {
            reading.notes.push("menus and what else stands beside the main text were left out".to_owned());
        }
        main
    } else {
        whole
    };
    Ok(())
}

/// The text of a piece of HTML, on one line.
pub fn plain(html: &str, most: usize, until: Instant) -> String {
    match sink::parse(&html[..html.floor_char_boundary(64 << 10)], until) {
        Ok(parsed) => {
            prune(&parsed.document.root(), &Url::parse("about:blank").unwrap_or_else(|_| unreachable!()));
            clean::line(&parsed.document.text(), most)
        }
        Err(_) => String::new(),
    }
}

fn sink_time(until: Instant) -> Result<(), Fault> {
    match Instant::now() > until {
        true => Err(super::late()),
        false => Ok(()),
    }
}

fn base(document: &Document, url: &Url) -> Url {
    let said = document.base_uri().and_then(|base| url.join(&base).ok());
    said.filter(|base| matches!(base.scheme(), "http" | "https")).unwrap_or_else(|| url.clone())
}

/// Takes out what is not shown and what lies too deep, makes addresses of links whole, and puts words in the place of
/// pictures. How many elements were not shown. Walks by a list of its own, however deep the tree is.
fn prune(root: &NodeRef<'_>, base: &Url) -> usize {
    let mut hidden = 0;
    let mut left: Vec<(NodeRef<'_>, usize)> = vec![(*root, 0)];
    while let Some((node, depth)) = left.pop() {
        if node.is_comment() || depth > DEPTH {
            node.remove_from_parent();
            continue;
        }
        if node.is_element() {
            let name = node.node_name().unwrap_or_default();
            if NO_TEXT.contains(&&*name) && &*name != "head" {
                node.remove_from_parent();
                continue;
            }
            if is_hidden(&node, &name) {
                node.remove_from_parent();
                hidden += 1;
                continue;
            }
            match &*name {
                "a" => link(&node, base),
                "img" => picture(&node),
                _ => {}
            }
        }
        left.extend(node.children_it(false).map(|child| (child, depth + 1)));
    }
    hidden
}

fn is_hidden(node: &NodeRef<'_>, name: &str) -> bool {
    if node.has_attr("hidden") || name == "input" && node.attr("type").is_some_and(|kind| &*kind == "hidden")
    {
        return true;
    }
    let Some(style) = node.attr("style") else { return false };
    let style: String =
        style.chars().filter(|character| !character.is_whitespace()).collect::<String>().to_ascii_lowercase();
    style.split(';').any(|rule| {
        let Some((property, value)) = rule.split_once(':') else { return false };
        let value = value.trim_end_matches("!important");
        match property {
            "display" => value == "none",
            "visibility" => matches!(value, "hidden" | "collapse"),
            "opacity" | "font-size" | "max-height" | "max-width" => is_zero(value),
            "clip" => value.starts_with("rect(0") || value.starts_with("rect(1px,1px,1px,1px"),
            "text-indent" | "left" | "top" => value.strip_prefix('-').is_some_and(far_away),
            _ => false,
        }
    })
}

fn is_zero(value: &str) -> bool {
    let number =
        value.trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == '%');
    number.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// Whether a length leads off every screen.
fn far_away(value: &str) -> bool {
    let number =
        value.trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == '%');
    number.parse::<f64>().is_ok_and(|number| number >= 900.0)
}

fn link(node: &NodeRef<'_>, base: &Url) {
    let whole = node.attr("href").and_then(|href| base.join(&href).ok());
    match whole.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto")) {
        Some(url) if url.as_str().len() <= LONGEST_LINK => node.set_attr("href", url.as_str()),
        // A script, or data: the words of the link stay.
        _ => node.rename("span"),
    }
    node.remove_attr("title");
}

/// A picture is what is written of it: an address that somebody's client could load would tell them that it was read.
fn picture(node: &NodeRef<'_>) {
    let alt = clean::line(&node.attr("alt").unwrap_or_default(), 200);
    if alt.is_empty() {
        node.remove_from_parent();
    } else {
        node.rename("span");
        node.remove_all_attrs();
        node.set_text(format!("(picture: {alt})"));
    }
}
