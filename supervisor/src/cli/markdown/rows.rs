//! Styled text, and the rows that it takes.

use unicode_width::UnicodeWidthChar;

use crate::cli::console::plain;

/// Columns that prose takes at most: longer rows are hard to read.
const PROSE: usize = 100;

/// Columns that are left to a text, however deep it stands.
const LEAST: usize = 10;

/// What a terminal can show.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub colour: bool,
    /// Whether it shows no more than ASCII.
    pub bare: bool,
    /// Columns that a row may take.
    pub columns: usize,
}

impl Look {
    /// Columns of prose that has something before it.
    pub fn prose(self, before: usize) -> usize {
        self.columns.min(PROSE).saturating_sub(before).max(LEAST)
    }

    /// Columns of what is no prose.
    pub fn room(self, before: usize) -> usize {
        self.columns.saturating_sub(before).max(LEAST)
    }

    /// A sign of ours, or what stands for it in ASCII.
    pub fn sign(self, sign: &'static str, ascii: &'static str) -> &'static str {
        if self.bare { ascii } else { sign }
    }
}

/// How a piece of text looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Face {
    pub bold: bool,
    pub dim: bool,
    pub italic: bool,
    pub underlined: bool,
    pub struck: bool,
    pub code: bool,
}

impl Face {
    pub const DIM: Self =
        Self { bold: false, dim: true, italic: false, underlined: false, struck: false, code: false };

    /// The parameters of the order that turns it on.
    fn codes(self) -> String {
        let all = [
            (self.bold, "1"),
            (self.dim, "2"),
            (self.italic, "3"),
            (self.underlined, "4"),
            (self.struck, "9"),
            (self.code, "36"),
        ];
        all.iter().filter(|(on, _)| *on).map(|(_, code)| *code).collect::<Vec<_>>().join(";")
    }
}

/// Text in one look. A line's end in it is a place where the row ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub text: String,
    pub face: Face,
}

impl Span {
    /// Text of others, without what a terminal would obey.
    pub fn new(text: &str, face: Face) -> Self {
        Self { text: plain(text).replace('\t', "    "), face }
    }
}

/// What stands in one row; wider ones than the terminal are wrapped by it, so that they can be copied whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row(pub Vec<Span>);

impl Row {
    pub fn of(text: &str, face: Face) -> Self {
        Self(vec![Span::new(&text.replace('\n', " "), face)])
    }

    pub fn width(&self) -> usize {
        self.0.iter().flat_map(|span| span.text.chars()).map(columns).sum()
    }

    /// As a terminal is to be sent it.
    pub fn paint(&self, look: Look) -> String {
        let paint = |span: &Span| match span.face.codes() {
            codes if look.colour && !codes.is_empty() => format!("\x1b[{codes}m{}\x1b[0m", span.text),
            _ => span.text.clone(),
        };
        self.0.iter().map(paint).collect()
    }

    /// The same in rows that are no wider than that.
    pub fn fold(&self, most: usize) -> Vec<Self> {
        let mut rows = vec![Rest::default()];
        for (c, face) in letters(&self.0) {
            let full = rows.last().is_some_and(|row| row.width + columns(c) > most);
            if full {
                rows.push(Rest::default());
            }
            if let Some(row) = rows.last_mut() {
                row.add(c, face);
            }
        }
        rows.into_iter().map(|row| Self(row.spans)).collect()
    }

    fn add(&mut self, c: char, face: Face) {
        add(&mut self.0, c, face);
    }
}

/// Columns of a character: at most, where what stands beside it changes that.
fn columns(c: char) -> usize {
    // Asks for the picture in place of the letter before it, which is a column wider.
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) }
}

fn letters(spans: &[Span]) -> impl Iterator<Item = (char, Face)> {
    spans.iter().flat_map(|span| span.text.chars().map(|c| (c, span.face)))
}

fn add(spans: &mut Vec<Span>, c: char, face: Face) {
    match spans.last_mut() {
        Some(span) if span.face == face => span.text.push(c),
        _ => spans.push(Span { text: c.into(), face }),
    }
}

/// A row, or a word, that is not at its end.
#[derive(Debug, Default)]
struct Rest {
    spans: Vec<Span>,
    width: usize,
}

impl Rest {
    fn add(&mut self, c: char, face: Face) {
        add(&mut self.spans, c, face);
        self.width += columns(c);
    }
}

/// Rows of words. A word that is wider than a row has one of its own.
pub fn wrap(spans: &[Span], most: usize) -> Vec<Row> {
    let mut lines = Lines { most, ..Lines::default() };
    for (c, face) in letters(spans) {
        match c {
            '\n' => lines.end(),
            ' ' => {
                lines.word();
                lines.spaces.push((c, face));
            }
            // Scripts without spaces are written in wide characters: a row ends behind any of them.
            c if columns(c) > 1 => {
                lines.word();
                lines.word.add(c, face);
                lines.word();
            }
            c => lines.word.add(c, face),
        }
    }
    lines.end();
    lines.rows
}

#[derive(Debug, Default)]
struct Lines {
    most: usize,
    rows: Vec<Row>,
    row: Rest,
    /// Between the row and the word: they go where a row ends.
    spaces: Vec<(char, Face)>,
    word: Rest,
}

impl Lines {
    fn word(&mut self) {
        let word = std::mem::take(&mut self.word);
        if word.spans.is_empty() {
            return;
        }
        let spaces = std::mem::take(&mut self.spaces);
        if self.row.width > 0 && self.row.width + spaces.len() + word.width > self.most {
            self.rows.push(Row(std::mem::take(&mut self.row).spans));
        } else if self.row.width > 0 {
            spaces.into_iter().for_each(|(c, face)| self.row.add(c, face));
        }
        letters(&word.spans).for_each(|(c, face)| self.row.add(c, face));
    }

    fn end(&mut self) {
        self.word();
        self.spaces.clear();
        self.rows.push(Row(std::mem::take(&mut self.row).spans));
    }
}

/// A row that something stands before, and that is filled up to a width.
pub fn padded(row: Row, before: usize, most: usize) -> Row {
    let after = most.saturating_sub(before + row.width());
    let mut filled = Row::default();
    (0..before).for_each(|_| filled.add(' ', Face::default()));
    filled.0.extend(row.0);
    (0..after).for_each(|_| filled.add(' ', Face::default()));
    filled
}
