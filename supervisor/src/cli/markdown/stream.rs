//! A text that comes in pieces: blocks that have ended are given once and for ever, the last one is shown as it stands.
//!
//! Only whole lines end a block, one by one, so that the pieces in which a text comes make no difference.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

use super::{
    blocks::{self, OPTIONS},
    rows::{Face, Look, Row, Span, wrap},
};

/// Bytes of a block that are held back; of a longer one the beginning is given as it stands. A screen shows less.
const MOST: usize = 8 * 1024;

/// A text up to now.
#[derive(Debug, Default, Clone)]
pub struct Stream {
    /// What has not been given.
    pending: String,
    /// The code block that its beginning is in, whose lines need not wait for its end.
    fence: Option<Fence>,
    /// The number of the next item, where the beginning is in a numbered list.
    number: Option<u64>,
    /// Whether something was given.
    begun: bool,
    /// Whether there was an empty line before what is pending.
    gap: bool,
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
    /// Columns that it stands to the right, as its lines do.
    indent: usize,
}

impl Fence {
    fn of(line: &str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = text.chars().take_while(|c| *c == mark).count();
        Some(Self { mark, length, indent: line.len() - text.len() })
    }

    /// As the specification has it: at most three spaces, at least as many marks, nothing behind them.
    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let marks = text.trim_end();
        line.len() - text.len() <= 3
            && marks.chars().all(|c| c == self.mark)
            && marks.chars().count() >= self.length
    }

    fn code(self, line: &str) -> &str {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        line[spaces.min(self.indent)..].trim_end_matches(['\n', '\r'])
    }
}

/// What stands at the top of a text.
struct Part {
    at: Range<usize>,
    kind: Kind,
}

enum Kind {
    Fenced,
    /// An item of a list; the first number of a numbered one.
    Item(Option<u64>),
    Block,
    /// What is no block: definitions of links.
    Bare,
}

impl Stream {
    /// Takes a piece in; what has ended by it.
    pub fn push(&mut self, text: &str, look: Look) -> Vec<Row> {
        let mut rows = Vec::new();
        for line in text.split_inclusive('\n') {
            let mut line = line;
            while !line.is_empty() {
                let room = MOST.saturating_sub(self.pending.len()).max(4);
                let (now, later) = line.split_at(line.floor_char_boundary(room));
                self.pending.push_str(now);
                line = later;
                if now.ends_with('\n') || self.pending.len() + 4 > MOST {
                    self.settle(look, false, &mut rows);
                }
            }
        }
        rows
    }

    /// What has not ended, as it stands, in rows that fit.
    pub fn live(&self, look: Look) -> Vec<Row> {
        let rows = self.clone().finish(look);
        rows.iter().flat_map(|row| row.fold(look.columns)).collect()
    }

    /// The text is at its end; what was held back. The next one begins anew.
    pub fn finish(&mut self, look: Look) -> Vec<Row> {
        let mut rows = Vec::new();
        self.settle(look, true, &mut rows);
        *self = Self::default();
        rows
    }

    /// Gives what has ended: with `whole`, everything.
    fn settle(&mut self, look: Look, whole: bool, rows: &mut Vec<Row>) {
        while self.step(look, whole, rows) {}
    }

    /// Whether something has ended.
    fn step(&mut self, look: Look, whole: bool, rows: &mut Vec<Row>) -> bool {
        if let Some(fence) = self.fence {
            return self.code(fence, whole, rows);
        }
        self.skip_empty();
        let full = self.pending.len() + 4 > MOST;
        let lines = self.pending.rfind('\n').map_or(0, |at| at + 1);
        let length = if whole || full && lines == 0 { self.pending.len() } else { lines };
        let source = &self.pending[..length];
        let parts = parts(source);
        let Some(first) = parts.first() else { return false };
        if matches!(first.kind, Kind::Fenced) {
            let end = source.find('\n').map_or(source.len(), |at| at + 1);
            let line = self.take(end, rows);
            self.fence = Fence::of(&line);
            rows.push(Row::of(line.trim(), Face::DIM));
            return true;
        }
        let next = parts.get(1).map(|part| part.at.start);
        let end = match next {
            Some(next) => next,
            None if whole || full => source.len(),
            None => return false,
        };
        let number = match &first.kind {
            Kind::Item(Some(number)) => Some(self.number.unwrap_or(*number)),
            _ => None,
        };
        let goes_on = matches!(parts.get(1), Some(Part { kind: Kind::Item(Some(_)), .. }));
        self.number = number.filter(|_| goes_on).map(|number| number.saturating_add(1));
        let bare = matches!(first.kind, Kind::Bare);
        let source = self.take(end, rows);
        if bare {
            rows.extend(wrap(&[Span::new(source.trim_end(), Face::default())], look.prose(0)));
        } else {
            rows.extend(blocks::render(source.trim_end_matches('\n'), number, look));
        }
        // Empty lines at its end are before what comes next.
        self.gap =
            source.ends_with("\n\n") || source.lines().last().is_some_and(|line| line.trim().is_empty());
        true
    }

    /// Lines of a code block.
    fn code(&mut self, fence: Fence, whole: bool, rows: &mut Vec<Row>) -> bool {
        let full = self.pending.len() + 4 > MOST;
        let end = match self.pending.find('\n') {
            Some(at) => at + 1,
            None if (whole || full) && !self.pending.is_empty() => self.pending.len(),
            None => return false,
        };
        let line: String = self.pending.drain(..end).collect();
        if fence.is_closed_by(line.trim_end_matches('\n')) {
            self.fence = None;
            rows.push(Row::of(line.trim(), Face::DIM));
        } else {
            rows.push(Row::of(fence.code(&line), Face::default()));
        }
        true
    }

    fn skip_empty(&mut self) {
        while let Some(at) = self.pending.find('\n')
            && self.pending[..at].trim().is_empty()
        {
            self.pending.drain(..=at);
            self.gap = true;
        }
    }

    /// Takes the beginning away, which follows on what was given.
    fn take(&mut self, end: usize, rows: &mut Vec<Row>) -> String {
        if self.gap && self.begun {
            rows.push(Row::default());
        }
        (self.begun, self.gap) = (true, false);
        self.pending.drain(..end).collect()
    }
}

/// What a text is made of at its top, each from the beginning of its line. Items of a list are parts of their own.
fn parts(source: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut depth = 0_usize;
    let mut list = None;
    let mut covered = 0;
    for (event, at) in Parser::new_ext(source, OPTIONS).into_offset_iter() {
        let kind = match (&event, depth, list) {
            (Event::Start(Tag::List(first)), 0, _) => {
                list = Some(*first);
                None
            }
            (Event::Start(Tag::Item), 1, Some(first)) => Some(Kind::Item(first)),
            (Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))), 0, _) => Some(Kind::Fenced),
            (Event::Start(_) | Event::Rule, 0, _) => Some(Kind::Block),
            _ => None,
        };
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            list = None;
        }
        if let Some(kind) = kind {
            let start = source[..at.start].rfind('\n').map_or(0, |at| at + 1);
            bare(source, covered..start, &mut parts);
            covered = at.end.max(start);
            parts.push(Part { at: start..at.end, kind });
        } else {
            covered = covered.max(at.end);
        }
    }
    bare(source, covered..source.len(), &mut parts);
    parts
}

fn bare(source: &str, at: Range<usize>, parts: &mut Vec<Part>) {
    let Some(text) = source.get(at.clone()) else { return };
    if let Some(first) = text.find(|c: char| !c.is_whitespace()) {
        let start = source[..at.start + first].rfind('\n').map_or(0, |at| at + 1);
        parts.push(Part { at: start..at.end, kind: Kind::Bare });
    }
}
