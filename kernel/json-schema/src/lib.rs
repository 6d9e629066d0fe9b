//! JSON Schemas that others write: what one may cost, and what does not fit it.
//!
//! Everybody compiles a schema here, so that one that was taken once is taken everywhere, under the same bounds. Nothing is
//! fetched: a reference that leads out of the schema is refused. Patterns are matched in time linear in the text.
//!
//! It is a crate of its own because the engine's code is generic: it is compiled once here, and not in each crate that
//! uses it.

mod bounds;
mod expression;

pub use bounds::SchemaFault;
pub use expression::{ExpressionFault, Expressions};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Steps in which one value may be found valid or not: some milliseconds.
const MAX_WORK: u64 = 1_000_000;
/// Steps of which each may leave an error behind, with a copy of what it is about.
const MAX_ERRORS_WORK: u64 = 40_000;
/// Of what does not fit, this many things are told to a model.
const TOLD: usize = 3;
/// The longest reason that quotes a value, in bytes: the value may be of any size.
const QUOTED: usize = 500;

/// A compiled schema. It takes many times the memory of its text.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    steps: u32,
}

/// A part of a value that does not fit a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Where, as a JSON pointer; empty for the whole value.
    pub pointer: String,
    /// Why it does not fit, as the end of a sentence.
    pub reason: String,
}

impl Schema {
    /// Compiles a schema that stands alone, such as that of a tool, or tells what is wrong with it or what it would cost.
    pub fn new(schema: &Value) -> Result<Self, SchemaFault> {
        Self::among(schema, &mut Expressions::default())
    }

    /// The same for one whose patterns draw on the budget of the file in which it stands.
    pub fn among(schema: &Value, expressions: &mut Expressions) -> Result<Self, SchemaFault> {
        let steps = bounds::check(schema, expressions)?;
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .build(schema)
            .map_err(|error| SchemaFault::NoSchema(shorten(&error.to_string())))?;
        Ok(Self { validator, steps })
    }

    /// What does not fit in a value, where anything does not, in one line: the first three things, since more help no model.
    /// Each quotes what it is about, up to a bound.
    pub fn refusal(&self, value: &Value) -> Option<String> {
        let told = |error: ValidationError<'_>| {
            let mut text = error.to_string();
            if text.len() > QUOTED {
                text.truncate(text.floor_char_boundary(QUOTED));
                text.push('…');
            }
            let pointer = error.instance_path().as_str();
            if pointer.is_empty() { text } else { format!("{pointer}: {text}") }
        };
        let told: Vec<_> = self.validator.iter_errors(value).take(TOLD).map(told).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Everything in a value that does not fit, without showing it: it may be secret. Of a large value under a large schema
    /// the first thing only; where even that would take too long, why it is not tried.
    pub fn unfit_secret(&self, value: &Value) -> Result<Vec<Unfit>, SchemaFault> {
        let work = u64::from(self.steps) * count(value);
        if work > MAX_WORK {
            return Err(SchemaFault::TooMuchWork(MAX_WORK));
        }
        let masked = |error: ValidationError<'_>| Unfit {
            pointer: error.instance_path().to_string(),
            reason: shorten(&error.masked().to_string()),
        };
        // Whoever asks for all faults makes them all, even to take one.
        Ok(match work > MAX_ERRORS_WORK {
            true => self.validator.validate(value).err().map(masked).into_iter().collect(),
            false => self.validator.iter_errors(value).map(masked).collect(),
        })
    }
}

/// How many values there are in one, itself included.
fn count(value: &Value) -> u64 {
    match value {
        Value::Array(list) => 1 + list.iter().map(count).sum::<u64>(),
        Value::Object(map) => 1 + map.values().map(count).sum::<u64>(),
        _ => 1,
    }
}

/// What fits into a sentence of a text that somebody else wrote.
fn shorten(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let short: String = line.chars().take(60).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
