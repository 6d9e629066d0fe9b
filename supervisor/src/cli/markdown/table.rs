//! A table whose columns line up; where it is too wide, its cells are wrapped, and in very few columns it is a list.

use pulldown_cmark::Alignment;

use super::rows::{Face, Look, Row, Span, padded, wrap};

/// Columns that a cell has at least in a table.
const LEAST: usize = 6;

pub type Cell = Vec<Span>;

pub struct Table {
    alignments: Vec<Alignment>,
    head: Vec<Cell>,
    pub rows: Vec<Vec<Cell>>,
    /// Whether its head is whole.
    pub headed: bool,
}

impl Table {
    pub fn new(alignments: Vec<Alignment>) -> Self {
        Self { alignments, head: Vec::new(), rows: Vec::new(), headed: false }
    }

    pub fn add(&mut self, mut cell: Cell) {
        if !self.headed {
            cell.iter_mut().for_each(|span| span.face.bold = true);
            self.head.push(cell);
        } else if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub fn render(&self, look: Look, before: usize) -> Vec<Row> {
        let count = self.head.len().max(1);
        let room = look.room(before).saturating_sub(3 * (count - 1));
        match self.widths(room) {
            Some(widths) => self.grid(&widths, look),
            None => self.list(look, before),
        }
    }

    /// How wide each column is; none where they have too little room.
    fn widths(&self, room: usize) -> Option<Vec<usize>> {
        let widest = |cell: &Cell| wrap(cell, usize::MAX).iter().map(Row::width).max().unwrap_or(0);
        let mut widths: Vec<usize> = self.head.iter().map(widest).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(widest(cell));
            }
        }
        // The widest gives way, down to where it is as wide as the next one.
        while widths.iter().sum::<usize>() > room {
            let most = widths.iter_mut().max()?;
            if *most <= LEAST {
                return None;
            }
            *most -= 1;
        }
        Some(widths)
    }

    fn grid(&self, widths: &[usize], look: Look) -> Vec<Row> {
        let line = look.sign("─", "-");
        let rule: Vec<String> = widths.iter().map(|width| line.repeat(*width)).collect();
        let rule = rule.join(look.sign("─┼─", "-+-"));
        let mut rows = self.lines(&self.head, widths, look);
        rows.push(Row::of(&rule, Face::DIM));
        rows.extend(self.rows.iter().flat_map(|row| self.lines(row, widths, look)));
        rows
    }

    /// The rows that one row of a table takes.
    fn lines(&self, cells: &[Cell], widths: &[usize], look: Look) -> Vec<Row> {
        let fit = |(cell, width): (&Cell, &usize)| -> Vec<Row> {
            wrap(cell, *width).iter().flat_map(|row| row.fold((*width).max(2))).collect()
        };
        let cells: Vec<Vec<Row>> = cells.iter().zip(widths).map(fit).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |at: usize| {
            let mut spans = Vec::new();
            for (column, width) in widths.iter().enumerate() {
                if column > 0 {
                    spans.push(Span { text: look.sign(" │ ", " | ").to_owned(), face: Face::DIM });
                }
                let row = cells.get(column).and_then(|cell| cell.get(at)).cloned().unwrap_or_default();
                let alignment = self.alignments.get(column).copied().unwrap_or(Alignment::None);
                let before = offset(alignment, row.width(), *width);
                // Nothing stands behind the last column.
                let most = if column + 1 < widths.len() { *width } else { 0 };
                spans.extend(padded(row, before, most).0);
            }
            Row(spans)
        };
        (0..height).map(line).collect()
    }

    /// A line for each cell, beginning with what its column is.
    fn list(&self, look: Look, before: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                rows.push(Row::default());
            }
            for (column, cell) in row.iter().enumerate() {
                let mut text = self.head.get(column).cloned().unwrap_or_default();
                text.push(Span { text: ": ".into(), face: Face::default() });
                text.extend(cell.iter().cloned());
                rows.extend(wrap(&text, look.prose(before)));
            }
        }
        rows
    }
}

/// Columns before what is that wide, in a column of a table.
fn offset(alignment: Alignment, wide: usize, most: usize) -> usize {
    let room = most.saturating_sub(wide);
    match alignment {
        Alignment::Right => room,
        Alignment::Center => room / 2,
        Alignment::None | Alignment::Left => 0,
    }
}
