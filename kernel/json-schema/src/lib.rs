//! JSON Schemas that others write: what one may cost, and what does not fit it.
//!
//! Everybody compiles a schema here, so that one that was taken once is taken everywhere, under the same bounds. Nothing is
//! fetched: a reference that leads out of the schema is refused. Patterns are matched in time linear in the text.
//!
//! It is a crate of its own because configuration and loop both compile schemas, and neither knows the other.

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

    /// What does not fit in a value, where anything does not, in one line: the first three things, since more help no model; of a large value the first.
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
        Some(self.faults(value, TOLD, told).join("; ")).filter(|told| !told.is_empty())
    }

    /// Everything in a value that does not fit, without showing it: it may be secret. Of a large value under a large schema
    /// the first thing only; where even that would take too long, why it is not tried.
    pub fn unfit_secret(&self, value: &Value) -> Result<Vec<Unfit>, SchemaFault> {
        if self.work(value) > MAX_WORK {
            return Err(SchemaFault::TooMuchWork(MAX_WORK));
        }
        let masked = |error: ValidationError<'_>| Unfit {
            pointer: error.instance_path().to_string(),
            reason: shorten(&error.masked().to_string()),
        };
        Ok(self.faults(value, usize::MAX, masked))
    }

    /// The first faults, of a large value under a large schema one: the engine makes all of them to give the first.
    fn faults<T>(&self, value: &Value, most: usize, tell: impl Fn(ValidationError<'_>) -> T) -> Vec<T> {
        match self.work(value) > MAX_ERRORS_WORK {
            true => self.validator.validate(value).err().map(tell).into_iter().collect(),
            false => self.validator.iter_errors(value).take(most).map(tell).collect(),
        }
    }

    /// Steps that it may take to find a value valid or not.
    fn work(&self, value: &Value) -> u64 {
        u64::from(self.steps).saturating_mul(count(value))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_is_told_the_first_faults_and_of_a_large_value_one() {
        let schema = Schema::new(&json!({"items": {"type": "string"}})).expect("a schema");
        let told =
            |values: Vec<Value>| schema.refusal(&json!(values)).map(|told| told.matches("; ").count() + 1);
        assert_eq!(told(vec![json!("a")]), None);
        assert_eq!(told(vec![json!(1); 9]), Some(TOLD));
        assert_eq!(told(vec![json!(1); 100_000]), Some(1));
    }
}
