//! JSON Schema: generated from the declared tables for editors, and checked where authors write one.

use drupe_extension_api::Format;
use drupe_json_schema::{Expressions, Schema};
use serde_json::{Map, Value, json};

use crate::{
    Diagnostics,
    fields::Field,
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
        Shape::SwitchOrText(_) => json!({"type": ["boolean", "string"]}),
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

/// Reports a field that is no schema, or one that costs too much.
pub(crate) fn check(field: &Field<'_>, expressions: &mut Expressions, faults: &mut Diagnostics) {
    if !matches!(field.node.value, Yaml::Map(_)) {
        return;
    }
    if let Err(reason) = Schema::among(&field.node.to_json(), expressions) {
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
