//! What an extension may add to the requests of others. What it says of its tools and its agent stands in each request of
//! whoever is offered them: without bounds, one extension breaks every turn, and nobody is blamed for it.

use drupe_extension_api::{Format, OutputSpec, ToolSpec, wire::ClientTool};
use serde_json::Value;

use crate::{Part, Schemas, names::CORE, portable};

/// Tools of one extension.
const TOOLS: usize = 256;

/// Bytes of what one tool, or one agent, says of itself.
const DESCRIPTION: usize = 16 * 1024;

/// Bytes of what one tool adds to the instructions of whoever has it.
const INSTRUCTIONS: usize = 16 * 1024;

/// Bytes of one schema, as JSON.
const SCHEMA: usize = 64 * 1024;

/// How deep a schema goes.
const DEPTH: usize = 32;

/// Capabilities, hooks and schedules of one extension, each.
const NAMED: usize = 64;

/// Bytes of the name of a capability. A remark shows the name if the capability is not known.
const CAPABILITY: usize = 128;

/// Bytes of all tools of one extension.
const ALL: u64 = 512 * 1024;

/// Tools that a client brings along, and their bytes.
const CLIENT_TOOLS: usize = 128;
const OF_CLIENT: usize = 256 * 1024;

/// Bytes that a tool adds to a request.
pub fn size(spec: &ToolSpec) -> u64 {
    let instructions = spec.instructions.as_ref().map_or(0, String::len);
    (spec.name.as_str().len() + spec.description.len() + length(&spec.input_schema) + instructions) as u64
}

/// Why what an extension says of itself cannot be offered to anybody.
pub(crate) fn exceeded(part: &Part, schemas: &Schemas) -> Option<String> {
    let said = &part.description;
    let tools = &said.tools;
    let named = [said.capabilities.len(), said.hooks.len(), said.schedules.len()];
    if let Some(many) = named.into_iter().find(|count| *count > NAMED) {
        return Some(format!(
            "it names {many} capabilities, hooks or schedules; an extension may have {NAMED} of each"
        ));
    }
    if let Some(long) = said.capabilities.iter().map(String::len).find(|len| *len > CAPABILITY) {
        return Some(format!("the name of a capability is {long} bytes long; it may have {CAPABILITY}"));
    }
    if tools.len() > TOOLS {
        return Some(format!("it provides {} tools; an extension may have {TOOLS}", tools.len()));
    }
    if let Some(why) = tools.iter().find_map(|spec| of_tool(spec, schemas)) {
        return Some(why);
    }
    let all: u64 = tools.iter().map(size).sum();
    if all > ALL {
        return Some(format!("its tools add {all} bytes to a request; an extension may add {ALL}"));
    }
    of_agent(part, schemas)
}

fn of_tool(spec: &ToolSpec, schemas: &Schemas) -> Option<String> {
    let name = &spec.name;
    let long = |what: &str, len: usize, most: usize| {
        (len > most).then(|| format!("{what} of its tool `{name}` is {len} bytes long; it may have {most}"))
    };
    long("the description", spec.description.len(), DESCRIPTION)
        .or_else(|| long("`instructions`", spec.instructions.as_ref().map_or(0, String::len), INSTRUCTIONS))
        .or_else(|| {
            Some(format!("the input schema of its tool `{name}` {}", of_schema(&spec.input_schema, schemas)?))
        })
}

fn of_agent(part: &Part, schemas: &Schemas) -> Option<String> {
    let described = part.description.agent.as_ref().map_or(0, |agent| agent.description.len());
    let len = part.manifest.description.len().max(described);
    if part.is_agent() && len > DESCRIPTION {
        return Some(format!(
            "its description is {len} bytes long; each request that offers the agent holds it, so it may have \
             {DESCRIPTION}"
        ));
    }
    let section = part.manifest.agent.as_ref()?;
    let input = section.input.as_ref().and_then(|input| of_schema(input.schema.as_ref()?, schemas));
    let output = || section.output.as_ref().and_then(|output| answer_fault(output, schemas));
    input.map(|why| format!("`agent.input.schema` {why}")).or_else(output)
}

/// What is wrong with the schema of an input, as the end of a sentence. It is looked at before anything compiles it.
fn of_schema(schema: &Value, schemas: &Schemas) -> Option<String> {
    let Value::Object(top) = schema else {
        return Some("is no object; write `{\"type\": \"object\"}` where anything may be given".into());
    };
    cost(schema, schemas).or_else(|| portable::refused(top))
}

/// Why tools of a client cannot be offered. They are looked at like those of an extension: what a provider refuses ends the
/// turn with words that nobody understands.
pub fn client_tools_fault(tools: &[ClientTool], schemas: &Schemas) -> Option<String> {
    if tools.len() > CLIENT_TOOLS {
        return Some(format!("there are {} tools of the client; there may be {CLIENT_TOOLS}", tools.len()));
    }
    for (position, ClientTool { name, description, input_schema }) in tools.iter().enumerate() {
        if tools[..position].iter().any(|other| other.name == *name) {
            return Some(format!("two tools of the client are named `{name}`; give each a name of its own"));
        }
        if CORE.contains(&name.as_str()) {
            return Some(format!(
                "`{name}` is the name of a tool of the loop; give the client's another one"
            ));
        }
        if description.len() > DESCRIPTION {
            let len = description.len();
            return Some(format!(
                "the description of the client's tool `{name}` is {len} bytes long; it may have {DESCRIPTION}"
            ));
        }
        if let Some(why) = of_schema(input_schema, schemas) {
            return Some(format!("the input schema of the client's tool `{name}` {why}"));
        }
    }
    let all: usize = tools.iter().map(|tool| tool.description.len() + length(&tool.input_schema)).sum();
    (all > OF_CLIENT).then(|| format!("the tools of the client have {all} bytes; they may have {OF_CLIENT}"))
}

/// Why no answer can be asked for in that form.
pub fn answer_fault(output: &OutputSpec, schemas: &Schemas) -> Option<String> {
    let schema = output.schema.as_ref()?;
    let why = match output.format {
        Format::Json => cost(schema, schemas)?,
        Format::Text | Format::Markdown => "needs `format: json` beside it".into(),
    };
    Some(format!("the schema of the answer {why}"))
}

/// What a schema would cost whoever is sent it or compiles it, as the end of a sentence. Whoever wrote it is not trusted
/// with that.
fn cost(schema: &Value, schemas: &Schemas) -> Option<String> {
    // Before it is written down, or compiled.
    if depth(schema) > DEPTH {
        return Some(format!("is more than {DEPTH} levels deep"));
    }
    let len = length(schema);
    if len > SCHEMA {
        return Some(format!("is {len} bytes long; it may have {SCHEMA}"));
    }
    schemas.compiled(schema).err().map(|why| format!("cannot be used: {why}"))
}

/// What is read from JSON is at most 128 levels deep.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Array(elements) => 1 + elements.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

/// How long a value is as JSON, without writing it down.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value that is in memory always has a form in JSON.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use drupe_extension_api::{ToolAnnotations, ToolName};
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        ToolSpec {
            name: ToolName::new("words_count").expect("a name"),
            description: "Counts words.".into(),
            input_schema: json!({"type": "object", "properties": {"text": {"type": "string"}}}),
            instructions: None,
            annotations: ToolAnnotations::default(),
        }
    }

    fn check(change: impl FnOnce(&mut ToolSpec)) -> Option<String> {
        let mut spec = spec();
        change(&mut spec);
        of_tool(&spec, &Schemas::default())
    }

    #[test]
    fn a_tool_as_tools_are_is_within_bounds() {
        assert_eq!(check(|_| {}), None);
        assert_eq!(check(|spec| spec.input_schema = json!({})), None);
        assert_eq!(check(|spec| spec.description = "x".repeat(DESCRIPTION)), None);
    }

    #[test]
    fn texts_that_are_too_long_are_refused_with_their_length_and_the_bound() {
        let why = check(|spec| spec.description = "x".repeat(5 << 20)).expect("refused");
        assert!(why.contains("5242880") && why.contains("words_count") && why.contains("16384"), "{why}");
        let why = check(|spec| spec.instructions = Some("x".repeat(6 << 20))).expect("refused");
        assert!(why.contains("`instructions`") && why.contains("6291456"), "{why}");
    }

    #[test]
    fn a_schema_that_is_no_object_is_refused() {
        for schema in [
            json!(true),
            json!(false),
            json!([]),
            json!("object"),
            json!(null),
            json!({"type": "array"}),
            json!({"type": ["object", "null"]}),
            json!({"type": "object", "oneOf": [{}]}),
            json!({"anyOf": [{"required": ["a"]}]}),
        ] {
            let shown = schema.to_string();
            assert!(check(|spec| spec.input_schema = schema).is_some(), "{shown} was let through");
        }
    }

    #[test]
    fn a_schema_with_too_many_keys_or_levels_or_bytes_is_refused() {
        let keys = |count: usize| -> Value {
            let all: serde_json::Map<_, _> = (0..count).map(|n| (format!("k{n}"), json!({}))).collect();
            json!({"type": "object", "properties": all})
        };
        assert_eq!(check(|spec| spec.input_schema = keys(900)), None);
        let why = check(|spec| spec.input_schema = keys(200_000)).expect("refused");
        assert!(why.contains("bytes long"), "{why}");
        let why = check(|spec| spec.input_schema = keys(3_000)).expect("refused");
        assert!(why.contains("2000 values"), "{why}");
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"items": deep});
        }
        let why = check(|spec| spec.input_schema = json!({"properties": {"a": deep}})).expect("refused");
        assert!(why.contains("levels deep"), "{why}");
        let long = json!({"type": "object", "description": "x".repeat(SCHEMA)});
        let why = check(|spec| spec.input_schema = long).expect("refused");
        assert!(why.contains("bytes long"), "{why}");
    }

    #[test]
    fn a_schema_that_costs_too_much_or_is_none_is_refused() {
        let mut parts = serde_json::Map::new();
        for n in 0..40 {
            let next = json!({"$ref": format!("#/$defs/p{}", n + 1)});
            parts.insert(format!("p{n}"), json!({"anyOf": [next, {"allOf": [next]}]}));
        }
        parts.insert("p40".into(), json!({}));
        for (schema, says) in [
            (json!({"properties": {"a": {"$ref": "#/$defs/p0"}}, "$defs": parts}), "steps"),
            (json!({"properties": {"a": {"$ref": "https://example.com/a.json"}}}), "reference"),
            (json!({"properties": {"a": {"type": "nothing"}}}), "nothing"),
        ] {
            let why = check(|spec| spec.input_schema = schema).expect("refused");
            assert!(why.contains(says) && why.contains("words_count"), "{why}");
        }
    }

    #[test]
    fn the_size_of_a_tool_is_what_a_request_holds_of_it() {
        let spec = spec();
        let schema = spec.input_schema.to_string().len();
        assert_eq!(size(&spec), (11 + 13 + schema) as u64);
    }
}
