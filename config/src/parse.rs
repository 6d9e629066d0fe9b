//! From YAML text to a tree of values with their places.
//!
//! The parser's events are turned into the tree with a stack of our own: serde would descend once per level and
//! run out of a worker thread's stack long before the bound on depth. Duplicate keys come through, so that all
//! of them can be reported together with everything else. Scalars follow the core schema of YAML 1.2: `yes` and
//! `on` are text.

use std::{collections::HashMap, sync::Arc};

use serde_yaml::granit_parser::{self, Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::{
    Diagnostics,
    source::{At, Source},
    tree::{Entry, Node, Yaml, shorten},
};

/// Deeper than any sensible file, shallow enough to be walked on a small stack.
const MAX_DEPTH: usize = 64;
/// A file of a mebibyte that holds sensible text has far fewer values.
const MAX_VALUES: usize = 20_000;
/// Values that are copied for aliases, in all: a bomb lives from this number.
const MAX_COPIES: usize = 10_000;
/// Text that is copied for aliases, in bytes: as much as a whole file may hold.
const MAX_COPIED_BYTES: usize = 1024 * 1024;
/// A key stands in the name of everything below it. Long texts belong into values.
const MAX_KEY_BYTES: usize = 256;

/// Parses one document. A file that cannot be parsed is one fault; there is no telling what follows it.
pub(crate) fn document(source: &Arc<Source>, faults: &mut Diagnostics) -> Option<Node> {
    beginning(source, source.text.len(), faults)
}

/// The same of the part before `end`, which lies between characters.
pub(crate) fn beginning(source: &Arc<Source>, end: usize, faults: &mut Diagnostics) -> Option<Node> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        disallow_directives: true,
    };
    let mut builder = Builder::new(source);
    for event in Parser::new_from_str_with_options(&source.text[..end], options) {
        let fault = match event {
            Ok((event, span)) => match builder.take(event, &span) {
                Ok(()) => continue,
                Err(reason) => (builder.at(&span), reason),
            },
            Err(error) => (point(source, error.marker()), NotValid::yaml(&error)),
        };
        let (at, reason) = fault;
        faults.error("syntax", &at, "", format!("not valid here: {reason}")).help(
            "look at the indentation, quotes and brackets of this line and the one before; \
             text with `: ` or ` #` in it needs quotes",
        );
        return None;
    }
    Some(builder.root.unwrap_or_else(|| Node { value: Yaml::Null, at: At::start_of(source) }))
}

/// Why a text is refused.
#[derive(Debug, thiserror::Error)]
enum NotValid {
    #[error("{0}")]
    Yaml(String),
    #[error("a second document begins, and a file holds one")]
    SecondDocument,
    #[error("more than {MAX_DEPTH} levels are nested")]
    TooDeep,
    #[error("an alias cannot stand within what it names")]
    AliasWithin,
    #[error("the file holds more than {MAX_VALUES} values")]
    TooManyValues,
    #[error("anchors and aliases stand for more than {MAX_COPIES} values")]
    TooManyCopies,
    #[error("anchors and aliases stand for more than {} KiB", MAX_COPIED_BYTES / 1024)]
    TooManyCopiedBytes,
    #[error("a key must be text, not a list or a map")]
    KeyIsNoText,
    #[error("a key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong,
    /// Tags would change what a value is; only those that say what it is already are taken.
    #[error("the tag `{0}` means nothing here")]
    Tag(String),
}

impl NotValid {
    fn yaml(error: &ScanError) -> Self {
        let text = shorten(&error.info());
        Self::Yaml(if text.is_empty() { "this is no YAML".into() } else { text })
    }
}

fn point(source: &Arc<Source>, marker: &Marker) -> At {
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    At {
        source: source.clone(),
        line: number(marker.line()).max(1),
        column: number(marker.col()).saturating_add(1),
        start: marker.byte_offset().unwrap_or(0),
        len: 0,
    }
}

/// A collection that is still open.
struct Open {
    at: At,
    anchor: usize,
    collected: Collected,
    size: Size,
}

/// What copying a value costs.
#[derive(Clone, Copy)]
struct Size {
    values: usize,
    bytes: usize,
    height: usize,
}

impl Size {
    const ONE: Self = Self { values: 1, bytes: 0, height: 1 };

    fn of_text(text: &str) -> Self {
        Self { bytes: text.len(), height: 0, ..Self::ONE }
    }

    fn add(&mut self, part: Self) {
        self.values += part.values;
        self.bytes += part.bytes;
        self.height = self.height.max(part.height + 1);
    }
}

enum Collected {
    List(Vec<Node>),
    Map(Vec<Entry>, Option<(String, At)>),
}

/// What an alias stands for.
struct Anchored {
    node: Node,
    size: Size,
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    root: Option<Node>,
    open: Vec<Open>,
    anchors: HashMap<usize, Anchored>,
    values: usize,
    copied: Size,
    documents: usize,
}

impl<'a> Builder<'a> {
    fn new(source: &'a Arc<Source>) -> Self {
        Self {
            source,
            root: None,
            open: Vec::new(),
            anchors: HashMap::new(),
            values: 0,
            copied: Size { values: 0, bytes: 0, height: 0 },
            documents: 0,
        }
    }

    fn at(&self, span: &Span) -> At {
        let len = span.byte_range().map_or(0, |range| range.len());
        At { len, ..point(self.source, &span.start) }
    }

    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), NotValid> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(NotValid::SecondDocument);
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = scalar(&text, style, tag.as_deref())?;
                let node = Node { value, at: self.at(span) };
                // A key keeps its spelling: `1: x` has the key "1".
                self.finish(node, anchor, Size::of_text(&text), Some(&text))
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(Collected::List(Vec::new()), anchor, tag.as_deref(), "seq", span)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(Collected::Map(Vec::new(), None), anchor, tag.as_deref(), "map", span)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            _ => Ok(()),
        }
    }

    fn begin(
        &mut self,
        collected: Collected,
        anchor: usize,
        tag: Option<&Tag>,
        kind: &str,
        span: &Span,
    ) -> Result<(), NotValid> {
        check_tag(tag, kind)?;
        if self.open.len() >= MAX_DEPTH {
            return Err(NotValid::TooDeep);
        }
        self.open.push(Open { at: self.at(span), anchor, collected, size: Size::ONE });
        Ok(())
    }

    fn end(&mut self, span: &Span) -> Result<(), NotValid> {
        let Some(mut open) = self.open.pop() else { return Ok(()) };
        if let Some(range) = span.byte_range() {
            open.at.len = range.end.saturating_sub(open.at.start);
        }
        let value = match open.collected {
            Collected::List(list) => Yaml::List(list),
            Collected::Map(entries, _) => Yaml::Map(entries),
        };
        self.finish(Node { value, at: open.at }, open.anchor, open.size, None)
    }

    /// A copy of what the anchor names, with the place of the alias.
    fn alias(&mut self, anchor: usize, span: &Span) -> Result<(), NotValid> {
        let at = self.at(span);
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(NotValid::AliasWithin);
        };
        let size = anchored.size;
        if self.open.len() + size.height > MAX_DEPTH {
            return Err(NotValid::TooDeep);
        }
        self.copied.add(size);
        check_copies(self.copied)?;
        let node = Node { at, ..anchored.node.clone() };
        let spelling = node.text().map(str::to_owned);
        self.finish(node, 0, size, spelling.as_deref())
    }

    /// Puts a finished value where it belongs: a key, a value, an item, or the whole document.
    fn finish(
        &mut self,
        node: Node,
        anchor: usize,
        size: Size,
        spelling: Option<&str>,
    ) -> Result<(), NotValid> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(NotValid::TooManyValues);
        }
        if anchor > 0 {
            self.copied.add(size);
            check_copies(self.copied)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        parent.size.add(size);
        match &mut parent.collected {
            Collected::List(list) => list.push(node),
            Collected::Map(entries, key) => match key.take() {
                Some((key, key_at)) => entries.push(Entry { key, key_at, value: node }),
                None => {
                    let name = spelling.ok_or(NotValid::KeyIsNoText)?;
                    if name.len() > MAX_KEY_BYTES {
                        return Err(NotValid::KeyTooLong);
                    }
                    *key = Some((name.to_owned(), node.at));
                }
            },
        }
        Ok(())
    }
}

fn check_copies(copied: Size) -> Result<(), NotValid> {
    if copied.values > MAX_COPIES {
        return Err(NotValid::TooManyCopies);
    }
    if copied.bytes > MAX_COPIED_BYTES {
        return Err(NotValid::TooManyCopiedBytes);
    }
    Ok(())
}

fn check_tag(tag: Option<&Tag>, kind: &str) -> Result<(), NotValid> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(kind) => Err(NotValid::Tag(tag.original().to_string())),
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Yaml, NotValid> {
    check_tag(tag, "str")?;
    if tag.is_some() || style != ScalarStyle::Plain {
        return Ok(Yaml::Text(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Yaml::Null,
        "true" | "True" | "TRUE" => Yaml::Bool(true),
        "false" | "False" | "FALSE" => Yaml::Bool(false),
        _ => integer(text).or_else(|| float(text)).unwrap_or_else(|| Yaml::Text(text.to_owned())),
    })
}

fn integer(text: &str) -> Option<Yaml> {
    let digits = |text: &str, radix| {
        // `from_str_radix` would take a second sign.
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        plain.then(|| i128::from_str_radix(text, radix).ok()).flatten().map(Yaml::Integer)
    };
    if let Some(hex) = text.strip_prefix("0x") {
        return digits(hex, 16);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    text.bytes().last()?.is_ascii_digit().then(|| text.parse().ok()).flatten().map(Yaml::Integer)
}

fn float(text: &str) -> Option<Yaml> {
    match text {
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Yaml::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Yaml::Float(f64::NEG_INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Yaml::Float(f64::NAN)),
        _ => {}
    }
    // Rust also takes words such as `infinity`, which are text in YAML.
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte))
        && text.bytes().any(|byte| byte.is_ascii_digit());
    numeric.then(|| text.parse().ok()).flatten().map(Yaml::Float)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;
    use crate::source::SourceOrigin;

    fn parse(text: &str) -> Result<Node, String> {
        let source = Source::new(SourceOrigin::CommandLine("test".into()), text.to_owned());
        let mut faults = Diagnostics::default();
        document(&source, &mut faults).ok_or_else(|| faults.to_string())
    }

    #[test]
    fn scalars_are_what_the_core_schema_says() {
        let check = |text: &str, expected: &str| {
            let node = parse(&format!("a: {text}")).unwrap();
            assert_eq!(node.get("a").unwrap().describe(), expected, "{text}");
        };
        for text in ["", "~", "null"] {
            check(text, "nothing");
        }
        for text in ["yes", "no", "on", "infinity", "1_000", "0x", "1-2", "e", "inf", "1.2.3", "+-1"] {
            check(text, &format!("text `{text}`"));
        }
        check("true", "`true`");
        check("'true'", "text `true`");
        check("!!str 12", "text `12`");
        check("-12", "the number -12");
        check("0x1F", "the number 31");
        check("0o17", "the number 15");
        check("007", "the number 7");
        check("1.5e3", "the number 1500.0");
        check(".5", "the number 0.5");
        check("-.inf", "the number -inf");
        check("[a]", "a list");
        check("|\n  x\n  y", "text `x…`");
    }

    #[test]
    fn every_value_knows_its_place_in_lines_characters_and_bytes() {
        let text = "é: ü\nlist:\n  - 'x'\n  - {k: v}\nalias: &a w\nthere: *a\n";
        let node = parse(text).unwrap();
        let check = |node: &Node, line: u32, column: u32, expected: &str| {
            assert_eq!((node.at.line, node.at.column), (line, column), "{expected}");
            assert_eq!(&text[node.at.start..node.at.start + node.at.len], expected);
        };
        check(node.get("é").unwrap(), 1, 4, "ü");
        let Yaml::List(list) = &node.get("list").unwrap().value else { panic!("no list") };
        check(&list[0], 3, 5, "'x'");
        check(&list[1], 4, 5, "{k: v}");
        check(list[1].get("k").unwrap(), 4, 9, "v");
        check(node.get("there").unwrap(), 6, 8, "*a");
        assert_eq!(node.get("there").unwrap().text(), Some("w"));
        assert_eq!(node.entries()[1].key_at.line, 2);
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_its_reason() {
        let check = |text: &str, reason: &str| {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        };
        check("a: &x [*x]", "within what it names");
        check("a: *nowhere", "");
        check("? [a]\n: b", "a key must be text");
        check("a: !custom b", "`!custom` means nothing here");
        check("a: !!int b", "`!!int` means nothing here");
        check("a: b\n---\nc: d", "a second document");
        check("%YAML 1.2\n---\na: b", "");
        check("a: [", "");
        let mut ladder = "a0: &a0 [x]\n".to_owned();
        for step in 1..70 {
            ladder.push_str(&format!("a{step}: &a{step} [*a{}]\n", step - 1));
        }
        check(&ladder, "levels are nested");
    }
}
