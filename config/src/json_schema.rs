//! JSON Schema: generated from the declared tables for editors, and compiled for the schemas that authors write.
//!
//! Compiling never fetches anything: a reference out of the document is a fault.

use drupe_extension_api::Format;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};

use crate::{
    Diagnostics,
    expression::Expressions,
    fields::Field,
    schema_bounds::{self, SchemaFault},
    shape::{Key, Shape, Table},
    tree::Yaml,
};

/// The schema of a file; `outer` has defaults that hold in it although another file says them.
pub(crate) fn of_file(table: &'static Table, title: &str, outer: &Value) -> Value {
    let mut schema = of_table(table, Some(outer));
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!(title));
    Value::Object(schema)
}

fn of_table(table: &'static Table, outer: Option<&Value>) -> Map<String, Value> {
    let key = |key: &'static Key| (key.name.to_owned(), of_key(key, key.default_in(outer)));
    let properties: Map<_, _> = table.supported().map(key).collect();
    let required: Vec<_> = table.supported().filter(|key| key.required).map(|key| key.name).collect();
    let mut schema = Map::new();
    schema.insert("type".into(), json!("object"));
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    match table.rest {
        Some((form, shape)) => {
            schema.insert("additionalProperties".into(), nullable(of_shape(shape, None), shape));
            if let Some(pattern) = form.pattern {
                schema.insert("propertyNames".into(), json!({"pattern": pattern}));
            }
        }
        None => {
            schema.insert("additionalProperties".into(), json!(false));
        }
    }
    schema
}

fn of_key(key: &'static Key, default: Option<Value>) -> Value {
    let mut schema = nullable(of_shape(&key.shape, default.as_ref()), &key.shape);
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".into(), json!(key.doc()));
        let is_own = !key.required && !matches!(key.shape, Shape::Record(_));
        if let Some(default) = default.filter(|default| is_own && !default.is_null()) {
            schema.insert("default".into(), default);
        }
    }
    schema
}

/// Collections may be left empty, as they are when all their items are commented out.
fn nullable(mut schema: Value, shape: &Shape) -> Value {
    if let Shape::AtMost(_, list) = shape {
        return nullable(schema, list);
    }
    let collection = matches!(shape, Shape::List(_) | Shape::Map { .. } | Shape::Record(_) | Shape::Open);
    if collection && let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind.take(), "null"]);
    }
    schema
}

fn of_shape(shape: &'static Shape, outer: Option<&Value>) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Text(form) => match form.pattern {
            Some(pattern) => json!({"type": "string", "pattern": pattern}),
            None => json!({"type": "string"}),
        },
        Shape::Integer { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
        Shape::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        Shape::Choice { known, .. } => json!({"enum": known}),
        Shape::List(item) => json!({"type": "array", "items": of_shape(item, None)}),
        Shape::AtMost(most, list) => {
            let mut schema = of_shape(list, None);
            if let Value::Object(schema) = &mut schema {
                schema.insert("maxItems".into(), json!(most));
            }
            schema
        }
        Shape::OneOrMany(item) => {
            let item = of_shape(item, None);
            json!({"anyOf": [item, {"type": "array", "items": item}]})
        }
        Shape::WordOrList { word, item } => {
            json!({"anyOf": [{"const": word}, {"type": ["array", "null"], "items": of_shape(item, None)}]})
        }
        Shape::Map { key, value } => json!({
            "type": "object",
            "propertyNames": {"pattern": key.pattern.unwrap_or("")},
            "additionalProperties": nullable(of_shape(value, None), value),
        }),
        Shape::Record(table) => Value::Object(of_table(table, outer)),
        Shape::Open => json!({"type": "object"}),
        Shape::Any => json!({}),
    }
}

/// Compiles an author's schema; the engine for patterns is the one that needs linear time.
pub(crate) fn compile(schema: &Value) -> Result<Validator, SchemaFault> {
    jsonschema::options()
        .offline()
        .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
        .build(schema)
        .map_err(|error| SchemaFault::NoSchema(crate::tree::shorten(&error.to_string())))
}

/// Steps in which one value may be found valid or not: some milliseconds.
const MAX_WORK: u64 = 1_000_000;
/// Steps of which each may leave an error behind, with a copy of what it is about.
const MAX_ERRORS_WORK: u64 = 40_000;

/// Everything that a schema refuses in a value; of a large value under a large schema, the first thing only. `report`
/// gets a JSON pointer to the place and a reason that shows no value.
///
/// # Errors
/// Why it is not even tried.
pub(crate) fn validate(
    schema: &Value,
    value: &Value,
    mut report: impl FnMut(&str, String),
) -> Result<(), SchemaFault> {
    let validator = compile(schema)?;
    let work = u64::from(schema_bounds::steps(schema)?) * count(value);
    if work > MAX_WORK {
        return Err(SchemaFault::TooMuchWork(MAX_WORK));
    }
    if validator.is_valid(value) {
        return Ok(());
    }
    let mut one = |error: jsonschema::ValidationError<'_>| {
        report(&error.instance_path().to_string(), crate::tree::shorten(&error.masked().to_string()));
    };
    if work > MAX_ERRORS_WORK {
        validator.validate(value).err().into_iter().for_each(one);
    } else {
        validator.iter_errors(value).for_each(&mut one);
    }
    Ok(())
}

/// How many values there are in one, itself included.
fn count(value: &Value) -> u64 {
    match value {
        Value::Array(list) => 1 + list.iter().map(count).sum::<u64>(),
        Value::Object(map) => 1 + map.values().map(count).sum::<u64>(),
        _ => 1,
    }
}

/// Why a schema that no file holds, such as that of a tool, cannot be used: what is wrong with it, or what it would cost.
pub fn schema_fault(schema: &Value) -> Option<String> {
    fault(schema, &mut Expressions::new()).err().map(|fault| fault.to_string())
}

fn fault(schema: &Value, expressions: &mut Expressions) -> Result<(), SchemaFault> {
    schema_bounds::check(schema, expressions).and_then(|()| compile(schema).map(drop))
}

/// Reports a field that is no schema, or one that costs too much.
pub(crate) fn check(field: &Field<'_>, expressions: &mut Expressions, faults: &mut Diagnostics) {
    if !matches!(field.node.value, Yaml::Map(_)) {
        return;
    }
    if let Err(reason) = fault(&field.node.to_json(), expressions) {
        let message = format!("`{}` is not a JSON Schema: {reason}", field.path);
        faults
            .error("invalid_schema", &field.node.at, &field.path, message)
            .help("references must stay within the schema, and patterns may not look around");
    }
}

/// A schema makes sense for JSON alone.
pub(crate) fn check_format(schema: &Field<'_>, format: Format, faults: &mut Diagnostics) {
    if format != Format::Json {
        let message = format!("`{}` needs `format: json` beside it", schema.path);
        faults
            .error("schema_without_json", &schema.node.at, &schema.path, message)
            .help("add `format: json`");
    }
}
