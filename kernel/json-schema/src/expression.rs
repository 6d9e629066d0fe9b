//! Regular expressions that authors write, bounded one by one and together.
//!
//! An expression of ten letters can compile to a mebibyte, and a file holds many. What each one costs is found by
//! compiling it under growing limits, and all of a file draw on one budget.

use regex::{Regex, RegexBuilder};

/// Nobody reads a longer one, and its groups alone would cost.
const MAX_BYTES: usize = 4096;
/// Brackets within brackets; the parser's own stack is heap, and it grows with them.
const MAX_NESTING: u32 = 50;
/// Sizes to try. Most expressions fit the first; `\w{40}`, with all its letters, needs the last.
const LIMITS: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const LARGEST: usize = LIMITS[LIMITS.len() - 1];
/// What all expressions of a file may take together: one of the largest, or hundreds of usual ones. To match a text takes
/// time by its length and by this.
const BUDGET: usize = 1 << 20;

/// What is left for the expressions of one file.
pub struct Expressions {
    left: usize,
}

impl Default for Expressions {
    fn default() -> Self {
        Self { left: BUDGET }
    }
}

impl Expressions {
    /// Compiles an expression, or says in a few words why not.
    pub fn compile(&mut self, text: &str) -> Result<Regex, ExpressionFault> {
        if text.len() > MAX_BYTES {
            return Err(ExpressionFault::TooLong);
        }
        for limit in LIMITS {
            if limit > self.left {
                return Err(ExpressionFault::TooLargeTogether);
            }
            match RegexBuilder::new(text).size_limit(limit).nest_limit(MAX_NESTING).build() {
                Ok(regex) => {
                    self.left -= limit;
                    return Ok(regex);
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    // To parse it took time all the same.
                    self.left -= limit;
                    return Err(ExpressionFault::Invalid(last_line(&error.to_string())));
                }
            }
        }
        self.left -= LARGEST;
        Err(ExpressionFault::TooLarge)
    }

    /// The same for a pattern of JSON Schema, whose `\w` and `\d` are ASCII. What is no expression at all is left to
    /// the engine, which knows the dialect.
    pub fn admit_pattern(&mut self, pattern: &str) -> Result<(), ExpressionFault> {
        match self.compile(&ascii_classes(pattern)) {
            Err(ExpressionFault::Invalid(_)) => {
                // What does not compile here may there, at whatever cost.
                self.left = self.left.saturating_sub(LARGEST);
                Ok(())
            }
            admitted => admitted.map(drop),
        }
    }
}

/// Why an expression is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ExpressionFault {
    #[error("{0}")]
    Invalid(String),
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("it needs more than {} KiB when compiled", LARGEST >> 10)]
    TooLarge,
    #[error("the expressions of the file are too large together")]
    TooLargeTogether,
}

/// The parser's reason stands below a picture of the expression.
fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

fn ascii_classes(pattern: &str) -> String {
    let mut output = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            output.push(next);
            continue;
        }
        match chars.next() {
            Some('w') => output.push_str("[0-9A-Za-z_]"),
            Some('W') => output.push_str("[^0-9A-Za-z_]"),
            Some('d') => output.push_str("[0-9]"),
            Some('D') => output.push_str("[^0-9]"),
            other => {
                output.push('\\');
                output.extend(other);
            }
        }
    }
    output
}
