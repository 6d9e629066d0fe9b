//! The table: what was measured, beside what it should be.

use std::io::Write;

/// One line of the table.
pub struct Row {
    what: String,
    result: String,
    target: String,
    met: Option<bool>,
    beside: String,
}

/// Units of a figure, and how many digits are worth showing.
#[derive(Clone, Copy)]
pub enum Unit {
    Micros,
    Millis,
    Megabytes,
    Kilobytes,
    Bytes,
    Times,
    PerSecond,
}

impl Unit {
    /// A figure for people.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Micros => format!("{value:.2} µs"),
            Self::Millis if value < 1.0 => format!("{value:.3} ms"),
            Self::Millis if value < 10.0 => format!("{value:.2} ms"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Megabytes => format!("{value:.1} MB"),
            Self::Kilobytes => format!("{value:.1} KB"),
            Self::Bytes => format!("{value:.0} bytes"),
            Self::Times => format!("{value:.2} ×"),
            Self::PerSecond => format!("{value:.0} turns/s"),
        }
    }
}

impl Row {
    /// A figure that has no target.
    pub fn plain(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self {
            what: what.into(),
            result: unit.show(value),
            target: String::new(),
            met: None,
            beside: String::new(),
        }
    }

    /// A figure that should be at most so much.
    pub fn most(what: impl Into<String>, value: f64, unit: Unit, limit: f64) -> Self {
        let target = format!("≤ {}", unit.show(limit).replace(".00", "").replace(".0", ""));
        Self { target, met: Some(value <= limit), ..Self::plain(what, value, unit) }
    }

    /// A figure that should be at least so much.
    pub fn least(what: impl Into<String>, value: f64, unit: Unit, limit: f64) -> Self {
        let target = format!("≥ {}", unit.show(limit).replace(".00", "").replace(".0", ""));
        Self { target, met: Some(value >= limit), ..Self::plain(what, value, unit) }
    }

    /// What else was seen.
    pub fn beside(mut self, text: impl Into<String>) -> Self {
        self.beside = text.into();
        self
    }

    /// A row that could not be measured.
    pub fn failed(name: &str, error: &anyhow::Error) -> Self {
        Self {
            what: name.to_owned(),
            result: "failed".to_owned(),
            target: String::new(),
            met: Some(false),
            beside: format!("{error:#}").replace(['\n', '|'], " "),
        }
    }

    /// Prints it.
    pub fn print(&self) {
        let met = match self.met {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        line(&format!("| {} | {} | {} | {met} | {} |", self.what, self.result, self.target, self.beside));
    }
}

/// Prints the table's head.
pub fn head() {
    line("| what | result | target | met | beside it |");
    line("|---|---|---|---|---|");
}

/// A reader that has gone away needs no table.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The middle one; of an even number, the upper of the two.
pub fn median(mut values: Vec<f64>) -> f64 {
    part(&mut values, 0.5)
}

/// The value below which that part of the values lies.
pub fn part(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    // Truncation is the point: a position.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a position among measurements"
    )]
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(last)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_and_a_part_its_place() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        let mut hundred: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((part(&mut hundred, 0.99) - 99.0).abs() < f64::EPSILON);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_row_says_whether_its_target_is_met() {
        for (row, met) in [
            (Row::most("a", 5.0, Unit::Millis, 5.0), Some(true)),
            (Row::most("a", 5.1, Unit::Millis, 5.0), Some(false)),
            (Row::least("a", 5.1, Unit::PerSecond, 5.0), Some(true)),
            (Row::plain("a", 5.1, Unit::Bytes), None),
        ] {
            assert_eq!(row.met, met);
        }
    }
}
