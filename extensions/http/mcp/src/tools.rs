//! Agents as tools: what each takes and gives, and what a call says of its task.

use std::sync::Arc;

use drupe_extension_api::{Fault, Format, OutputSpec, control::AgentStatus};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The tool that stands for the orchestrator.
pub const ORCHESTRATOR: &str = "drupe";

/// What a call asks for.
#[derive(Debug, PartialEq)]
pub struct AskedTask {
    /// The message to the agent: words, or the JSON that the agent takes.
    pub text: String,
    /// The form of the answer, where the call asks for one.
    pub output: Option<OutputSpec>,
    /// The session in which the call goes on, where it is to last.
    pub session: Option<String>,
}

/// An agent as a tool.
pub fn tool(agent: &AgentStatus) -> Tool {
    let tool = described(agent.id.to_string(), &agent.name, &agent.description, parameters(Some(agent)));
    match own_answer(agent) {
        Some(schema) => tool.with_raw_output_schema(Arc::new(schema.clone())),
        None => tool,
    }
}

/// The tool that chooses among the agents.
pub fn orchestrator() -> Tool {
    let description = "Does a task, with the help of the agents that it chooses.";
    described(ORCHESTRATOR.to_owned(), ORCHESTRATOR, description, parameters(None))
}

fn described(name: String, title: &str, description: &str, parameters: JsonObject) -> Tool {
    // What an agent does depends on the tools that it has and on its task, so nothing is promised of it.
    let hints = ToolAnnotations::with_title(title)
        .read_only(false)
        .destructive(true)
        .idempotent(false)
        .open_world(true);
    Tool::new(name, description.to_owned(), parameters).with_title(title).with_annotations(hints)
}

/// The schema of an agent's JSON answer, which then is the tool's. Only an object may be one before revision 2026-07-28; the
/// library leaves out others where a client speaks an older one.
fn own_answer(agent: &AgentStatus) -> Option<&JsonObject> {
    let output = agent.output.as_ref().filter(|output| output.format == Format::Json)?;
    output.schema.as_ref()?.as_object()
}

/// What a call may say beside the task. An agent's own parameter of such a name is the agent's.
fn controls(agent: Option<&AgentStatus>) -> Map<String, Value> {
    let mut controls = Map::new();
    let mut add = |name: &str, schema: Value| {
        if agent.is_none_or(|agent| !takes(agent, name)) {
            controls.insert(name.to_owned(), schema);
        }
    };
    if agent.is_some_and(|agent| own_answer(agent).is_some()) {
        // Its answers fit the schema that is told of it, whatever a call may wish.
        add("format", json!({"type": "string", "enum": ["json"], "description": "The form of the answer."}));
    } else {
        add(
            "format",
            json!({
                "type": "string", "enum": ["text", "markdown", "json"],
                "description": "The form of the answer; `json` needs a `schema`.",
            }),
        );
        add("schema", json!({"type": "object", "description": "JSON Schema of the answer."}));
    }
    add(
        "session",
        json!({
            "type": "string",
            "description": "A conversation that lasts and goes on with each call that names it.",
        }),
    );
    controls
}

/// Whether an agent's own input has a parameter of that name.
fn takes(agent: &AgentStatus, name: &str) -> bool {
    let properties = agent.input.as_ref().and_then(|input| input.get("properties"));
    properties.is_some_and(|properties| properties.get(name).is_some())
}

/// The schema of a tool's input: the agent's own with what else a call may say, or a task in words.
fn parameters(agent: Option<&AgentStatus>) -> JsonObject {
    let own = agent.and_then(|agent| agent.input.as_ref()?.as_object().cloned());
    let mut schema = own.unwrap_or_else(|| {
        let task = json!({
            "type": "object",
            "properties": {"task": {"type": "string", "description": "What the agent is to do, in words."}},
            "required": ["task"],
            "additionalProperties": false,
        });
        task.as_object().cloned().unwrap_or_default()
    });
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.extend(controls(agent));
    }
    schema
}

/// Reads the arguments of a call.
pub fn read(
    name: &str,
    agent: Option<&AgentStatus>,
    own_output: Option<&OutputSpec>,
    mut given: JsonObject,
) -> Result<AskedTask, Fault> {
    let known = controls(agent);
    let mut taken: Map<String, Value> = Map::new();
    for control in ["format", "schema", "session"] {
        let of_call = known.contains_key(control) || agent.is_none_or(|agent| agent.input.is_none());
        if of_call && let Some(value) = given.remove(control) {
            taken.insert(control.to_owned(), value);
        }
    }
    let (format, schema) = (one(name, &mut taken, "format")?, one(name, &mut taken, "schema")?);
    let session = one(name, &mut taken, "session")?;
    let has_own = agent.is_some_and(|agent| own_answer(agent).is_some());
    if has_own && (schema.is_some() || format.is_some_and(|format| format != Format::Json)) {
        return Err(Fault::invalid(format!("`{name}` has a schema of its own for its answers"))
            .help("leave out `format` and `schema`"));
    }
    let text = match agent.and_then(|agent| agent.input.as_ref()) {
        // Whether it fits is asked where it is run, whoever asks for it.
        Some(_) => Value::Object(given).to_string(),
        None => words(name, given)?,
    };
    Ok(AskedTask { text, output: OutputSpec::asked(format, schema, own_output)?, session })
}

/// The task of an agent that takes words.
fn words(name: &str, mut given: JsonObject) -> Result<String, Fault> {
    let task = given.remove("task");
    if let Some(unknown) = given.keys().next() {
        return Err(Fault::invalid(format!("the arguments of `{name}`: there is no `{unknown}`")));
    }
    match task {
        Some(Value::String(task)) if !task.trim().is_empty() => Ok(task),
        Some(_) => {
            Err(Fault::invalid(format!("the arguments of `{name}`: `task` is a text that is not empty")))
        }
        None => Err(Fault::invalid(format!("the arguments of `{name}`: `task` is missing"))),
    }
}

fn one<T: DeserializeOwned>(
    name: &str,
    taken: &mut Map<String, Value>,
    control: &str,
) -> Result<Option<T>, Fault> {
    let Some(value) = taken.remove(control) else { return Ok(None) };
    serde_json::from_value(value)
        .map_err(|error| Fault::invalid(format!("the arguments of `{name}`: `{control}`: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(input: Value, output: Value) -> AgentStatus {
        let mut agent = json!({
            "id": "a", "name": "A", "description": "Does.", "mode": "tool", "model": null, "tools": [],
            "infer": true,
        });
        for (key, value) in [("input", input), ("output", output)] {
            if !value.is_null() {
                agent[key] = value;
            }
        }
        serde_json::from_value(agent).expect("an agent")
    }

    fn read_of(agent: &AgentStatus, given: Value) -> Result<AskedTask, String> {
        let given = given.as_object().cloned().expect("an object");
        read("a", Some(agent), agent.output.as_ref(), given).map_err(|fault| fault.message)
    }

    #[test]
    fn an_agents_own_input_is_the_tools_and_what_a_call_may_say_stands_beside_it() {
        let input = json!({
            "type": "object", "required": ["city"], "additionalProperties": false,
            "properties": {"city": {"$ref": "#/$defs/name"}, "session": {"type": "integer"}},
            "$defs": {"name": {"type": "string"}},
        });
        let agent = agent(input, Value::Null);
        let tool = serde_json::to_value(tool(&agent)).expect("a tool");
        let schema = &tool["inputSchema"];
        assert_eq!(schema["$defs"]["name"], json!({"type": "string"}), "references hold: {schema}");
        assert_eq!(schema["properties"]["session"], json!({"type": "integer"}), "the agent's own: {schema}");
        assert!(schema["properties"]["format"].is_object() && tool["outputSchema"].is_null(), "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], false, "{tool}");
        let task =
            read_of(&agent, json!({"city": "Bern", "session": 3, "format": "markdown"})).expect("it fits");
        assert_eq!(task.text, r#"{"city":"Bern","session":3}"#);
        assert_eq!(task.output.map(|output| output.format), Some(Format::Markdown));
        assert_eq!(task.session, None);
    }

    #[test]
    fn an_agent_with_an_answer_of_its_own_keeps_to_it() {
        let schema = json!({"type": "object", "required": ["a"]});
        let agent = agent(Value::Null, json!({"format": "json", "schema": schema}));
        let tool = serde_json::to_value(tool(&agent)).expect("a tool");
        assert_eq!(tool["outputSchema"], schema);
        assert!(tool["inputSchema"]["properties"]["schema"].is_null(), "{tool}");
        assert!(read_of(&agent, json!({"task": "x", "format": "json"})).is_ok());
        for given in
            [json!({"task": "x", "format": "text"}), json!({"task": "x", "schema": {"type": "object"}})]
        {
            let refused = read_of(&agent, given).expect_err("the answer would not fit what is told");
            assert!(refused.contains("of its own"), "{refused}");
        }
    }

    #[test]
    fn words_need_a_task_and_json_a_schema() {
        let agent = agent(Value::Null, Value::Null);
        for (given, words) in [
            (json!({}), "`task` is missing"),
            (json!({"task": " "}), "not empty"),
            (json!({"task": "x", "colour": 1}), "`colour`"),
            (json!({"task": "x", "format": "json"}), "has a schema"),
            (json!({"task": "x", "format": "text", "schema": {}}), "`format` is `json`"),
            (json!({"task": "x", "session": 1}), "`session`"),
        ] {
            let refused = read_of(&agent, given).expect_err("it is wrong");
            assert!(refused.contains(words), "{refused}");
        }
        let asked = read_of(&agent, json!({"task": "x", "schema": {"type": "object"}})).expect("it is right");
        assert_eq!(asked.output.map(|output| output.format), Some(Format::Json));
    }
}
