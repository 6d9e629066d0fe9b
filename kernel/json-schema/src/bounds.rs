//! What an author's JSON Schema may cost.
//!
//! Alternatives that refer to alternatives that refer to alternatives cost a power of two at every value that is
//! validated, be it while the daemon starts. How often a schema can be applied is therefore counted before it is
//! compiled, as a graph in which a referenced part stands once. Whether it is a good schema is the engine's to say.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::expression::{ExpressionFault, Expressions};

/// A large schema for people has a few hundred.
const MAX_VALUES: usize = 2_000;
/// Applications of a part to a value or to one within it, along any way down.
const MAX_STEPS: u32 = 10_000;
/// As deep as a file may be, so that no value that it holds lies deeper.
const MAX_DEPTH: usize = 64;

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaFault {
    #[error("{0}")]
    NoSchema(String),
    #[error("it holds more than {MAX_VALUES} values")]
    TooLarge,
    #[error(
        "validating one value could take more than {MAX_STEPS} steps, as alternatives refer to alternatives"
    )]
    Multiplies,
    #[error("checking so much by this schema could take more than {0} steps")]
    TooMuchWork(u64),
    #[error("the pattern `{pattern}` is refused: {reason}")]
    Pattern { pattern: String, reason: ExpressionFault },
    #[error("a part of it has an `$id`, which would move the base of references")]
    InnerId,
    #[error("its dialect, draft 4, is too old")]
    OldDialect,
    #[error("`{0}` is not taken: write `$ref` with `#/$defs/…`")]
    DynamicReference(&'static str),
    #[error("the reference `{0}` does not lead to a part of it, as `#/$defs/…` would")]
    OuterReference(String),
    #[error("the reference `{0}` names nothing in it")]
    BrokenReference(String),
    #[error("it refers to itself for the same value")]
    Circle,
}

/// Refuses a schema that is too large, refers to what is not within it, or multiplies. Otherwise tells how often its parts
/// may be applied to one value and to those along one way down within it.
pub(crate) fn check(schema: &Value, expressions: &mut Expressions) -> Result<u32, SchemaFault> {
    let mut values = 0;
    walk(schema, true, &mut values, expressions)?;
    let steps = Graph::of(schema)?.steps()?;
    if steps > MAX_STEPS { Err(SchemaFault::Multiplies) } else { Ok(steps) }
}

/// Counts the values, and looks at every pattern and every base of references, used or not.
fn walk(
    value: &Value,
    root: bool,
    values: &mut usize,
    expressions: &mut Expressions,
) -> Result<(), SchemaFault> {
    *values += 1;
    if *values > MAX_VALUES {
        return Err(SchemaFault::TooLarge);
    }
    match value {
        Value::Array(list) => list.iter().try_for_each(|item| walk(item, false, values, expressions)),
        Value::Object(map) => {
            let pattern = map.get("pattern").and_then(Value::as_str).into_iter();
            let keys =
                map.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
            for pattern in pattern.chain(keys.map(String::as_str)) {
                expressions
                    .admit_pattern(pattern)
                    .map_err(|reason| SchemaFault::Pattern { pattern: crate::shorten(pattern), reason })?;
            }
            if !root && map.get("$id").is_some_and(Value::is_string) {
                return Err(SchemaFault::InnerId);
            }
            map.values().try_for_each(|part| walk(part, false, values, expressions))
        }
        _ => Ok(()),
    }
}

/// A part of the schema, with the parts that are applied to the same value and to those within it.
#[derive(Default)]
struct Part {
    same: Vec<usize>,
    /// Each group is applied to one item at most once; groups add up.
    items: Vec<Vec<usize>>,
    members: Vec<Vec<usize>>,
}

struct Graph<'a> {
    schema: &'a Value,
    /// By address: a value within the schema is one part, however it is reached.
    known: HashMap<*const Value, usize>,
    parts: Vec<Part>,
    waiting: Vec<(usize, &'a Value)>,
}

impl<'a> Graph<'a> {
    fn of(schema: &'a Value) -> Result<Self, SchemaFault> {
        if let Some(dialect) = schema.get("$schema").and_then(Value::as_str)
            && dialect.contains("draft-04")
        {
            return Err(SchemaFault::OldDialect);
        }
        let mut graph = Self { schema, known: HashMap::new(), parts: Vec::new(), waiting: Vec::new() };
        graph.part(schema);
        while let Some((index, value)) = graph.waiting.pop() {
            if let Value::Object(map) = value {
                graph.parts[index] = graph.read(map)?;
            }
        }
        Ok(graph)
    }

    fn part(&mut self, value: &'a Value) -> usize {
        if let Some(index) = self.known.get(&std::ptr::from_ref(value)) {
            return *index;
        }
        let index = self.parts.len();
        self.parts.push(Part::default());
        self.known.insert(std::ptr::from_ref(value), index);
        self.waiting.push((index, value));
        index
    }

    fn read(&mut self, map: &'a Map<String, Value>) -> Result<Part, SchemaFault> {
        let mut part = Part::default();
        for key in ["$dynamicRef", "$recursiveRef"] {
            if map.get(key).is_some_and(Value::is_string) {
                return Err(SchemaFault::DynamicReference(key));
            }
        }
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            let target = self.target(reference)?;
            part.same.push(self.part(target));
        }
        for key in ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"] {
            part.same.extend(self.parts_of(map.get(key)));
        }
        for key in ["dependentSchemas", "dependencies"] {
            part.same.extend(self.values_of(map.get(key)));
        }
        // What is left over is only known once everything beside it was applied again.
        if map.contains_key("unevaluatedProperties") || map.contains_key("unevaluatedItems") {
            part.same.extend_from_within(..);
        }
        let mut places = Vec::new();
        for key in ["prefixItems", "items", "additionalItems", "unevaluatedItems"] {
            places.extend(self.parts_of(map.get(key)));
        }
        part.items = vec![places, self.parts_of(map.get("contains"))];
        let mut named = self.values_of(map.get("properties"));
        for key in ["additionalProperties", "unevaluatedProperties"] {
            named.extend(self.parts_of(map.get(key)));
        }
        part.members = vec![named, self.parts_of(map.get("propertyNames"))];
        part.members.extend(self.values_of(map.get("patternProperties")).into_iter().map(|one| vec![one]));
        Ok(part)
    }

    /// A schema, or a list of such.
    fn parts_of(&mut self, value: Option<&'a Value>) -> Vec<usize> {
        match value {
            Some(Value::Array(list)) => list.iter().map(|item| self.part(item)).collect(),
            Some(value) => vec![self.part(value)],
            None => Vec::new(),
        }
    }

    /// The schemas of a map by name.
    fn values_of(&mut self, value: Option<&'a Value>) -> Vec<usize> {
        let map = value.and_then(Value::as_object);
        map.into_iter().flat_map(Map::values).map(|part| self.part(part)).collect()
    }

    fn target(&self, reference: &str) -> Result<&'a Value, SchemaFault> {
        let shown = crate::shorten(reference);
        let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
        let within = pointer.filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = within else {
            return Err(SchemaFault::OuterReference(shown));
        };
        self.schema.pointer(pointer).ok_or(SchemaFault::BrokenReference(shown))
    }

    /// The parts so that each comes after those that it applies to the same value.
    fn order(&self) -> Result<Vec<usize>, SchemaFault> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        let mut marks = vec![Mark::New; self.parts.len()];
        let mut order = Vec::with_capacity(self.parts.len());
        for start in 0..self.parts.len() {
            let mut stack = vec![start];
            while let Some(&part) = stack.last() {
                match marks[part] {
                    Mark::New => {
                        marks[part] = Mark::Open;
                        for &next in &self.parts[part].same {
                            match marks[next] {
                                Mark::New => stack.push(next),
                                Mark::Open => return Err(SchemaFault::Circle),
                                Mark::Done => {}
                            }
                        }
                    }
                    Mark::Open => {
                        marks[part] = Mark::Done;
                        order.push(part);
                        stack.pop();
                    }
                    Mark::Done => {
                        stack.pop();
                    }
                }
            }
        }
        Ok(order)
    }

    /// The most applications that one value can cause, level by level from the innermost.
    fn steps(&self) -> Result<u32, SchemaFault> {
        let order = self.order()?;
        let count = self.parts.len();
        let mut deeper = vec![0; count];
        for _ in 0..MAX_DEPTH {
            let (mut list, mut map) = (vec![0_u32; count], vec![0_u32; count]);
            for &index in &order {
                let part = &self.parts[index];
                let sum = |kind: &[u32]| part.same.iter().fold(1_u32, |sum, &p| sum.saturating_add(kind[p]));
                list[index] = sum(&list).saturating_add(groups(&part.items, &deeper));
                map[index] = sum(&map).saturating_add(groups(&part.members, &deeper));
            }
            let next: Vec<u32> = list.iter().zip(&map).map(|(list, map)| *list.max(map)).collect();
            let settled = next == deeper;
            deeper = next;
            if settled || deeper[0] > MAX_STEPS {
                break;
            }
        }
        Ok(deeper[0])
    }
}

/// A value within is reached through one part of each group: the costliest.
fn groups(groups: &[Vec<usize>], deeper: &[u32]) -> u32 {
    let costliest = |group: &Vec<usize>| group.iter().map(|&part| deeper[part]).max().unwrap_or(0);
    groups.iter().map(costliest).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: Value, reason: &str) {
        let found = check(&schema, &mut Expressions::default()).expect_err("the schema is taken").to_string();
        assert!(found.contains(reason), "{found}");
    }

    #[track_caller]
    fn taken(schema: Value) {
        check(&schema, &mut Expressions::default()).expect("the schema is refused");
    }

    #[test]
    fn schemas_as_people_write_them_are_taken() {
        taken(json!(true));
        taken(json!({"type": "object", "properties": {"id": {"type": "string", "pattern": r"^\w{1,64}$"}}}));
        taken(
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://x/y", "definitions":
            {"a": {"enum": ["x"]}}, "items": {"$ref": "#/definitions/a"}}),
        );
        let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
            {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}});
        taken(tree);
        let json = json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}},
            {"type": "object", "additionalProperties": {"$ref": "#"}}]});
        taken(json);
    }

    #[test]
    fn what_multiplies_at_every_level_is_refused() {
        let twice = json!([{"$ref": "#"}, {"$ref": "#"}]);
        refused(json!({"items": {"anyOf": twice}}), "steps");
        refused(json!({"additionalProperties": {"allOf": twice}}), "steps");
        refused(json!({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}), "steps");
        refused(json!({"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}), "steps");
        let mut defs = Map::new();
        for step in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", step + 1)});
            defs.insert(format!("d{step}"), json!({"oneOf": [next, next]}));
        }
        defs.insert("d40".into(), json!({"type": "string"}));
        refused(json!({"$defs": defs, "$ref": "#/$defs/d0"}), "steps");
    }

    #[test]
    fn references_lead_to_a_part_of_the_schema_or_nowhere() {
        refused(json!({"$ref": "https://example.org/x"}), "does not lead");
        refused(json!({"$ref": "#name"}), "does not lead");
        refused(json!({"$ref": "#/$defs/missing"}), "names nothing");
        refused(json!({"$ref": "#"}), "itself");
        refused(json!({"allOf": [{"not": {"$ref": "#"}}]}), "itself");
        refused(json!({"$dynamicRef": "#x"}), "$dynamicRef");
        refused(json!({"$defs": {"a": {"$id": "b"}}}), "$id");
        taken(json!({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}));
    }

    #[test]
    fn the_number_of_values_and_the_size_of_patterns_are_bounded() {
        refused(json!({"enum": vec![1; 2_000]}), "2000 values");
        let costly: Vec<_> = (0..40).map(|_| json!({"pattern": "\\p{L}{9}"})).collect();
        refused(json!({"anyOf": costly}), "too large together");
        refused(json!({"pattern": "\\p{L}{1000}"}), "when compiled");
        let usual: Vec<_> = (0..200).map(|_| json!({"pattern": "^[a-z0-9_-]+$"})).collect();
        taken(json!({"anyOf": usual}));
    }
}
