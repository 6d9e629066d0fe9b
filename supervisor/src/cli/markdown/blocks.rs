//! The rows of a few blocks that are whole.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::{
    rows::{Face, Look, Row, Span, wrap},
    table::{Cell, Table},
};
use crate::cli::console::short;

/// What is understood besides CommonMark.
pub const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// Columns of a line that parts two texts.
const RULE: usize = 40;

/// Characters that tell the language of code.
const LANGUAGE: usize = 40;

/// Renders markdown; `number` is that of the first item, where it is not what is written there.
pub fn render(source: &str, number: Option<u64>, look: Look) -> Vec<Row> {
    let mut page = Page::new(source, number, look);
    for (event, at) in Parser::new_ext(source, OPTIONS).into_offset_iter() {
        page.event(event, at.start);
    }
    page.flush();
    page.rows
}

/// What a row stands in.
enum Around {
    Quote,
    /// Its mark, which the first row bears.
    Item(String, bool),
}

struct Page<'a> {
    source: &'a str,
    look: Look,
    number: Option<u64>,
    rows: Vec<Row>,
    around: Vec<Around>,
    /// The numbers of the next items, of each list that is open.
    lists: Vec<Option<u64>>,
    /// Text that has not become rows.
    inline: Vec<Span>,
    face: Face,
    /// Links that are open: where their text begins, and where they lead.
    links: Vec<(usize, String)>,
    code: Option<Code>,
    table: Option<Table>,
}

struct Code {
    fence: Option<String>,
    text: String,
}

impl<'a> Page<'a> {
    fn new(source: &'a str, number: Option<u64>, look: Look) -> Self {
        Self {
            source,
            look,
            number,
            rows: Vec::new(),
            around: Vec::new(),
            lists: Vec::new(),
            inline: Vec::new(),
            face: Face::default(),
            links: Vec::new(),
            code: None,
            table: None,
        }
    }

    fn event(&mut self, event: Event<'_>, at: usize) {
        match event {
            Event::Start(tag) => self.start(tag, at),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.text.push_str(&text),
                None => self.text(&text),
            },
            Event::Code(text) => {
                let before = self.face;
                self.mark("`", |face| face.code = true);
                self.text(&text);
                self.unmark("`", |face| *face = before);
            }
            Event::InlineHtml(html) if html.starts_with("<br") => self.text("\n"),
            Event::Html(text) | Event::InlineHtml(text) => self.text(&text),
            Event::SoftBreak | Event::HardBreak => self.text("\n"),
            Event::Rule => {
                self.part(at);
                let columns = self.look.prose(self.before()).min(RULE);
                let line = self.look.sign("─", "-").repeat(columns);
                self.row(Row::of(&line, Face::DIM));
            }
            Event::TaskListMarker(done) => self.text(if done { "[x] " } else { "[ ] " }),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, at: usize) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.part(at),
            Tag::Heading { level, .. } => {
                self.part(at);
                let marks = format!("{} ", "#".repeat(level as usize));
                self.mark(&marks, |face| {
                    face.bold = true;
                    face.underlined = level == HeadingLevel::H1;
                });
            }
            Tag::BlockQuote(_) => {
                self.part(at);
                self.around.push(Around::Quote);
            }
            Tag::List(first) => {
                self.flush();
                let first = self.number.take().filter(|_| self.lists.is_empty()).or(first);
                self.lists.push(first);
            }
            Tag::Item => {
                self.part(at);
                let mark = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => self.look.sign("• ", "- ").to_owned(),
                };
                self.around.push(Around::Item(mark, true));
            }
            Tag::CodeBlock(kind) => {
                self.part(at);
                let fence = match kind {
                    CodeBlockKind::Fenced(language) => Some(format!("```{}", short(&language, LANGUAGE))),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some(Code { fence, text: String::new() });
            }
            Tag::Table(alignments) => {
                self.part(at);
                self.table = Some(Table::new(alignments));
            }
            Tag::TableRow => self.cells(|table| table.rows.push(Vec::new())),
            Tag::Emphasis => self.mark("*", |face| face.italic = true),
            Tag::Strong => self.mark("**", |face| face.bold = true),
            Tag::Strikethrough => self.mark("~~", |face| face.struck = true),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((self.inline.len(), dest_url.into_string()));
                self.face.underlined = true;
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.face = Face::default();
                self.flush();
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.around.pop();
            }
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Item => {
                self.flush();
                // One without a text has its mark all the same.
                if matches!(self.around.last(), Some(Around::Item(_, true))) {
                    self.row(Row::default());
                }
                self.around.pop();
            }
            TagEnd::CodeBlock => self.code(),
            TagEnd::TableCell => {
                let cell: Cell = std::mem::take(&mut self.inline);
                self.cells(|table| table.add(cell));
            }
            TagEnd::TableHead => self.cells(|table| table.headed = true),
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let rows = table.render(self.look, self.before());
                    rows.into_iter().for_each(|row| self.row(row));
                }
            }
            TagEnd::Emphasis => self.unmark("*", |face| face.italic = false),
            TagEnd::Strong => self.unmark("**", |face| face.bold = false),
            TagEnd::Strikethrough => self.unmark("~~", |face| face.struck = false),
            TagEnd::Link | TagEnd::Image => self.link(),
            _ => {}
        }
    }

    /// Where a link leads stands behind its text, unless that says so itself.
    fn link(&mut self) {
        self.face.underlined = false;
        let Some((from, url)) = self.links.pop() else { return };
        let shown: String = self.inline[from..].iter().map(|span| span.text.as_str()).collect();
        match shown.as_str() {
            _ if url.is_empty() => {}
            "" => self.inline.push(Span::new(&url, Face { underlined: true, ..self.face })),
            shown if url == shown || url.strip_prefix("mailto:") == Some(shown) => {}
            _ => self.inline.push(Span::new(&format!(" ({url})"), Face::DIM)),
        }
    }

    fn text(&mut self, text: &str) {
        self.inline.push(Span::new(text, self.face));
    }

    /// Changes the look; where there is none, its mark is shown.
    fn mark(&mut self, mark: &str, change: impl Fn(&mut Face)) {
        if !self.look.colour {
            self.text(mark);
        }
        change(&mut self.face);
    }

    fn unmark(&mut self, mark: &str, change: impl Fn(&mut Face)) {
        change(&mut self.face);
        if !self.look.colour {
            self.text(mark);
        }
    }

    fn cells(&mut self, change: impl FnOnce(&mut Table)) {
        if let Some(table) = &mut self.table {
            change(table);
        }
    }

    fn code(&mut self) {
        let Some(Code { fence, text }) = self.code.take() else { return };
        let indent = if fence.is_some() { "" } else { "    " };
        if let Some(fence) = &fence {
            self.row(Row::of(fence, Face::DIM));
        }
        for line in text.lines() {
            self.row(Row::of(format!("{indent}{line}").trim_end(), Face::default()));
        }
        if fence.is_some() {
            self.row(Row::of("```", Face::DIM));
        }
    }

    /// Text that waits becomes rows.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.inline);
        if text.is_empty() {
            return;
        }
        let mut rows = wrap(&text, self.look.prose(self.before()));
        // The end of the last line of markup of others.
        while rows.len() > 1 && rows.last().is_some_and(|row| row.0.is_empty()) {
            rows.pop();
        }
        rows.into_iter().for_each(|row| self.row(row));
    }

    /// Something begins: after an empty row, where its source stands after an empty line.
    fn part(&mut self, at: usize) {
        self.flush();
        let line = self.source[..at].rfind('\n').unwrap_or(0);
        let before = self.source[..line].rsplit('\n').next().unwrap_or_default();
        let first = matches!(self.around.last(), Some(Around::Item(_, true)));
        if line > 0 && !first && before.trim_matches([' ', '>']).is_empty() && !self.rows.is_empty() {
            self.row(Row::default());
        }
    }

    fn row(&mut self, row: Row) {
        let dim = |text: &str| Span { text: text.to_owned(), face: Face::DIM };
        let mut spans = Vec::new();
        for around in &mut self.around {
            match around {
                Around::Quote => spans.push(dim(self.look.sign("│ ", "> "))),
                Around::Item(mark, first) => match std::mem::take(first) {
                    true => spans.push(dim(mark)),
                    false => spans.push(dim(&" ".repeat(mark.chars().count()))),
                },
            }
        }
        spans.extend(row.0);
        self.rows.push(Row(spans));
    }

    /// Columns of what a row stands in.
    fn before(&self) -> usize {
        let columns = |around: &Around| match around {
            Around::Quote => 2,
            Around::Item(mark, _) => mark.chars().count(),
        };
        self.around.iter().map(columns).sum()
    }
}
