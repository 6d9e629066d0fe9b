//! Agents' examples as prompts: with the task, or the parameters of the agent, for arguments.

use drupe_extension_api::control::AgentStatus;
use rmcp::{
    ErrorData,
    model::{GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role},
};
use serde_json::{Map, Value};

/// The argument of an agent that takes words.
const TASK: &str = "task";

/// The example of an agent, where it has one.
pub fn prompt(agent: &AgentStatus) -> Option<Prompt> {
    agent.usage.as_ref()?;
    let arguments = match properties(agent) {
        Some(properties) => {
            let required = |name: &str| {
                let all = agent.input.as_ref().and_then(|input| input.get("required")?.as_array());
                all.is_some_and(|all| all.iter().any(|one| one == name))
            };
            let argument = |(name, schema): (&String, &Value)| {
                let description = schema.get("description").and_then(Value::as_str);
                let argument = PromptArgument::new(name).with_required(required(name));
                description.map_or(argument.clone(), |text| argument.with_description(text))
            };
            properties.iter().map(argument).collect()
        }
        None => {
            let description = "What the agent is to do; its own example where it is left out.";
            vec![PromptArgument::new(TASK).with_description(description).with_required(false)]
        }
    };
    let prompt = Prompt::new(agent.id.to_string(), Some(agent.description.clone()), Some(arguments));
    Some(prompt.with_title(agent.name.clone()))
}

/// What the prompt of an agent says with these arguments.
pub fn filled(
    agent: &AgentStatus,
    usage: &str,
    given: Option<JsonObject>,
) -> Result<GetPromptResult, ErrorData> {
    let given = given.unwrap_or_default();
    let task = match properties(agent) {
        _ if given.is_empty() => usage.to_owned(),
        Some(properties) => {
            let mut task = Map::new();
            for (name, value) in given {
                let Some(schema) = properties.get(&name) else { return Err(unknown(agent, &name)) };
                task.insert(name, typed(schema, value));
            }
            Value::Object(task).to_string()
        }
        None => {
            if let Some(name) = given.keys().find(|name| *name != TASK) {
                return Err(unknown(agent, name));
            }
            given.get(TASK).and_then(Value::as_str).unwrap_or(usage).to_owned()
        }
    };
    let asked = PromptMessage::new_text(Role::User, format!("Ask the agent `{}`: {task}", agent.id));
    Ok(GetPromptResult::new(vec![asked]).with_description(agent.description.clone()))
}

/// What an argument may be that begins so, as far as the agent's schema says it.
pub fn completions(agent: &AgentStatus, name: &str, begun: &str) -> Result<Vec<String>, ErrorData> {
    let schema = match properties(agent) {
        Some(properties) => properties.get(name),
        None if name == TASK => return Ok(Vec::new()),
        None => None,
    };
    let schema = schema.ok_or_else(|| unknown(agent, name))?;
    let listed = ["enum", "examples"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
    let mut values: Vec<String> = listed.map(plain).collect();
    if schema.get("type").is_some_and(|kind| kind == "boolean") {
        values.extend(["true".to_owned(), "false".to_owned()]);
    }
    values.retain(|value| value.starts_with(begun));
    values.dedup();
    Ok(values)
}

fn unknown(agent: &AgentStatus, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("the prompt `{}` has no argument `{name}`", agent.id), None)
}

/// The parameters of an agent that takes JSON.
fn properties(agent: &AgentStatus) -> Option<&Map<String, Value>> {
    agent.input.as_ref()?.get("properties")?.as_object()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// An argument as the parameter that it stands for: the protocol knows texts alone.
fn typed(schema: &Value, value: Value) -> Value {
    let text = schema.get("type").is_none_or(|kind| kind == "string");
    match &value {
        Value::String(words) if !text => serde_json::from_str(words).unwrap_or(value),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(input: Option<Value>) -> AgentStatus {
        let mut agent = json!({
            "id": "a", "name": "A", "description": "Does.", "mode": "tool", "model": null, "tools": [],
            "infer": true, "usage": "an example",
        });
        if let Some(input) = input {
            agent["input"] = input;
        }
        serde_json::from_value(agent).expect("an agent")
    }

    fn said(agent: &AgentStatus, given: Value) -> String {
        let filled = filled(agent, "an example", given.as_object().cloned()).expect("it is filled");
        serde_json::to_value(filled).expect("a prompt")["messages"][0]["content"]["text"]
            .as_str()
            .expect("a text")
            .to_owned()
    }

    #[test]
    fn arguments_take_the_place_of_the_example() {
        let words = agent(None);
        assert_eq!(said(&words, json!({})), "Ask the agent `a`: an example");
        assert_eq!(said(&words, json!({"task": "this"})), "Ask the agent `a`: this");
        let json = agent(Some(json!({
            "type": "object", "required": ["city"],
            "properties": {"city": {"type": "string", "enum": ["Bern", "Basel", "Zug"]}, "days": {"type": "integer"}},
        })));
        assert_eq!(said(&json, json!({})), "Ask the agent `a`: an example");
        assert_eq!(
            said(&json, json!({"city": "Bern", "days": "3"})),
            "Ask the agent `a`: {\"city\":\"Bern\",\"days\":3}"
        );
        assert!(filled(&json, "", json!({"colour": "red"}).as_object().cloned()).is_err());
        let listed = prompt(&json).and_then(|prompt| prompt.arguments).expect("it has some");
        let required: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.required)).collect();
        assert_eq!(required, [("city", Some(true)), ("days", Some(false))]);
        assert_eq!(completions(&json, "city", "B").expect("it is known"), ["Bern", "Basel"]);
        assert!(completions(&json, "colour", "").is_err() && completions(&words, "colour", "").is_err());
    }
}
