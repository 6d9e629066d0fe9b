//! The schemas of the document, from the types that handlers read and write.
//!
//! What is read and what is written of one type differ: a field with a default need not be given and is always told. So there is
//! a schema for each direction, and where the two of a type are not the same, the one that is read has a name of its own.

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::{Contract, SchemaSettings},
};
use serde_json::{Map, Value, json};

/// Where the document has its schemas.
const PLACE: &str = "/components/schemas";

/// What the name of a type that is read ends with, where it is not written in the same form.
const READ: &str = "Input";

pub struct TypeSchemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
    /// Those that have no type, because they are written and read by hand.
    plain: Map<String, Value>,
}

impl TypeSchemas {
    pub fn new() -> Self {
        let of = |contract| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = PLACE.into();
            settings.meta_schema = None;
            settings.contract = contract;
            settings.into_generator()
        };
        Self { read: of(Contract::Deserialize), written: of(Contract::Serialize), plain: Map::new() }
    }

    /// What a client is told.
    pub fn written<T: JsonSchema>(&mut self) -> Value {
        self.written.subschema_for::<T>().to_value()
    }

    /// What a client sends. The reference is marked, until it is known what it refers to.
    pub fn read<T: JsonSchema>(&mut self) -> Value {
        marked(self.read.subschema_for::<T>().to_value())
    }

    /// The fields of a type that is read, for whoever has a place of its own for each.
    pub fn fields<T: JsonSchema>(&mut self) -> Value {
        marked(T::json_schema(&mut self.read).to_value())
    }

    /// A schema under a name of its own.
    pub fn plain(&mut self, name: &str, schema: Value) -> Value {
        self.plain.insert(name.to_owned(), schema);
        json!({ "$ref": format!("#{PLACE}/{name}") })
    }

    /// All of them by name, and the document with its references to them.
    pub fn place(mut self, document: &mut Value) -> Map<String, Value> {
        let mut all = self.written.take_definitions(true);
        let read: Map<_, _> = self
            .read
            .take_definitions(true)
            .into_iter()
            .map(|(name, schema)| (name, marked(schema)))
            .collect();
        // What is read as it is written is the same; all others keep the mark in their name.
        let mut same: Vec<String> = read.keys().cloned().collect();
        loop {
            let as_written = |schema: &Value| {
                let mut schema = schema.clone();
                rename(&mut schema, &same);
                schema
            };
            let kept: Vec<String> = same
                .iter()
                .filter(|name| all.get(*name).is_none_or(|written| *written == as_written(&read[*name])))
                .cloned()
                .collect();
            if kept.len() == same.len() {
                break;
            }
            same = kept;
        }
        for (name, mut schema) in read {
            rename(&mut schema, &same);
            let name = if same.contains(&name) { name } else { format!("{name}{READ}") };
            all.insert(name, schema);
        }
        for (name, schema) in self.plain {
            assert!(all.insert(name.clone(), schema).is_none(), "{name} is the name of two schemas");
        }
        rename(document, &same);
        tidy(document);
        all.sort_keys();
        all.values_mut().for_each(tidy);
        all
    }
}

/// With a mark at each reference to something that is read.
fn marked(mut schema: Value) -> Value {
    references(&mut schema, &mut |name| {
        name.push_str(READ);
    });
    schema
}

/// Without the mark where what is read is the same as what is written.
fn rename(schema: &mut Value, same: &[String]) {
    references(schema, &mut |name| {
        if let Some(plain) = name.strip_suffix(READ)
            && same.iter().any(|one| one == plain)
        {
            *name = plain.to_owned();
        }
    });
}

fn references(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(at) if key == "$ref" => {
                        if let Some(name) = at.strip_prefix('#').and_then(|at| at.strip_prefix(PLACE)) {
                            let mut name = name.trim_start_matches('/').to_owned();
                            change(&mut name);
                            *at = format!("#{PLACE}/{name}");
                        }
                    }
                    _ => references(value, change),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| references(item, change)),
        _ => {}
    }
}

/// Makes plain sentences of doc comments, which link to names of the code.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if key == "description" => *text = unlinked(text),
                    _ => tidy(value),
                }
            }
            // What a name of a format says alone nobody who reads the document need know.
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("uint64") => json!(u64::MAX),
                Some("int64") => json!(i64::MAX),
                Some("uint32") => json!(u32::MAX),
                _ => return,
            };
            fields.entry("maximum").or_insert(most);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

/// `text` with the name of each link in its place: `[name](where)` and `[name]` are links.
fn unlinked(text: &str) -> String {
    let (mut told, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        told.push_str(before);
        told.push('`');
        // The last part of a path of the code says enough.
        told.push_str(name.rsplit("::").next().unwrap_or(name));
        told.push('`');
        rest = after;
        if let Some((_, after)) = rest.strip_prefix('(').and_then(|link| link.split_once(')')) {
            rest = after;
        }
    }
    told + rest
}

#[test]
fn links_of_comments_become_their_names() {
    assert_eq!(unlinked("With [`a::b`](c::d) and [`e`], [1]."), "With `b` and `e`, [1].");
    assert_eq!(unlinked("[`open"), "[`open");
}
