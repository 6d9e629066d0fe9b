//! An agent as a complete manifest with comments, to begin with: what `drupe agent template` prints.
//!
//! Each key stands there with the value that holds, or as a comment with its form. This crate reads the text to the same
//! definition, wherever it lies: what files hold stands in it itself.

use drupe_extension_api::{
    AgentId, Definition, Format, IntegrationMode, OfflineAction, OfflineRule, OfflineTrigger, OutputSpec,
    control::AgentTemplate,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AGENT, MANIFEST, Manifest, dialect::FOLDER_ONLY};
use crate::{
    AgentDefaults,
    shape::{Shape, Table},
    visible::acts,
};

/// An agent by its manifest and what it comes to; without a manifest it is one that is to be written. Whoever is shown it
/// sees the prompt. One with native code is no single file.
pub fn agent_template(
    manifest: Option<&Manifest>,
    definition: &Definition,
    defaults: &AgentDefaults,
) -> AgentTemplate {
    let Definition { id, instructions, .. } = definition;
    let (mut top, mut agent) = (map(&manifest), map(&manifest.map(|manifest| &manifest.agent)));
    top.extend(map(&json!({"id": id, "name": definition.name, "description": definition.description})));
    agent.extend(map(&json!({
        "model": definition.models,
        "instructions": instructions,
        "parameters": definition.parameters,
        "limits": definition.limits,
        "output": definition.output,
        "offline": definition.offline.iter().map(rule).collect::<Vec<_>>(),
        // A list would name files, and these are their texts.
        "context": Some(definition.context.join("\n\n")).filter(|text| !text.is_empty()),
    })));
    let section = manifest.and_then(|manifest| manifest.agent.as_ref());
    let takes = section.map_or(defaults.client_tools, |section| section.client_tools_over(defaults));
    agent.insert("client_tools".into(), json!(takes));
    if section.is_none_or(|section| section.integration_mode != IntegrationMode::Handoff) {
        // As a comment: it is refused with another mode.
        agent.insert("handoff".into(), Value::Null);
    }
    if manifest.is_none() {
        agent.insert("usage".into(), json!("an example of a task"));
    }

    let mut folder = format!("# An agent as a folder: extensions/{id}/manifest.yaml\n");
    table(&mut folder, &MANIFEST, &top, "", &["agent"]);
    folder.push_str("# makes the extension an agent\nagent:\n");
    table(&mut folder, &AGENT, &agent, "  ", &[]);

    let file = || {
        let below = stands_below(instructions);
        let prompt: &[&str] = if below { &["instructions"] } else { &[] };
        let mut file = format!("---\n# An agent as a single file: extensions/{id}.md\n");
        table(&mut file, &MANIFEST, &top, "", &FOLDER_ONLY);
        table(&mut file, &AGENT, &agent, "", prompt);
        file + "---\n" + if below { instructions } else { "" }
    };
    let single = manifest.is_none_or(|manifest| manifest.entrypoint.is_none());
    AgentTemplate { frontmatter: single.then(file), manifest: folder }
}

/// Whether a prompt reads the same below the frontmatter, where white space around it is not kept.
pub(super) fn stands_below(instructions: &str) -> bool {
    !instructions.is_empty()
        && !instructions.starts_with(char::is_whitespace)
        && !instructions.contains(|letter| acts(letter) && letter != '\n')
}

/// An agent that is to be written.
pub fn new_agent(defaults: &AgentDefaults) -> Definition {
    Definition {
        id: AgentId::new("my_agent").expect("it is an id"),
        name: "My agent".into(),
        description: "What it does, when to use it, and when not to.".into(),
        instructions: "You are …\n\nSay what it is to do, and what its answers look like.\n".into(),
        context: Vec::new(),
        models: defaults.models.clone(),
        parameters: defaults.parameters.clone(),
        output: Some(OutputSpec { format: Format::default(), schema: None }),
        limits: defaults.limits.clone(),
        offline: Vec::new(),
    }
}

fn map(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// A rule as manifests write it.
fn rule(OfflineRule { trigger, action }: &OfflineRule) -> Value {
    let (on, text) = match trigger {
        OfflineTrigger::When(text) => ("when", text),
        OfflineTrigger::After(text) => ("after", text),
    };
    match action {
        OfflineAction::Call { tool, with } => json!({on: text, "call": tool, "with": with}),
        OfflineAction::Say(said) => json!({on: text, "say": said}),
    }
}

/// The keys of a table but those `left` out, each after a comment with its meaning. What is `null` or has no value is a
/// comment itself. `margin` stands before each line; with a `#` in it all of them are comments.
fn table(out: &mut String, of: &'static Table, values: &Map<String, Value>, margin: &str, left: &[&str]) {
    for key in of.supported().filter(|key| !left.contains(&key.name)) {
        let value = values.get(key.name).cloned().or_else(|| key.default_in(None));
        let value = value.filter(|value| !value.is_null());
        let form = match key.shape {
            Shape::Integer { .. } | Shape::Number { .. } | Shape::Choice { .. } if value.is_some() => {
                format!("; {}", key.shape.expected())
            }
            _ => String::new(),
        };
        out.push_str(&format!("{margin}# {}{form}\n", key.doc()));
        let margin = if value.is_some() { margin.to_owned() } else { format!("{margin}# ") };
        out.push_str(&format!("{margin}{}:", key.name));
        match (&key.shape, value) {
            (Shape::Record(inner), value) => {
                out.push('\n');
                table(out, inner, &map(&value), &format!("{margin}  "), &[]);
            }
            (shape, None) => out.push_str(&format!(" {}\n", shape.expected())),
            (shape, Some(value)) => {
                yaml(out, &value, &margin);
                let empty = value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(Map::is_empty);
                if let Some(inner) = each(shape).filter(|_| empty) {
                    out.push_str(&format!("{margin}# each has:\n"));
                    table(out, inner, &Map::new(), &format!("{margin}#   "), &[]);
                }
            }
        }
    }
}

/// The keys of what a list or a map holds.
fn each(shape: &Shape) -> Option<&'static Table> {
    match shape {
        Shape::AtMost(_, inner) => each(inner),
        Shape::List(Shape::Record(table)) | Shape::Map { value: Shape::Record(table), .. } => Some(table),
        _ => None,
    }
}

/// A value after its key or the dash of its item.
pub(super) fn yaml(out: &mut String, value: &Value, margin: &str) {
    let deeper = format!("{margin}  ");
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            for (key, value) in map {
                out.push_str(&format!("{deeper}{}:", flow(&json!(key))));
                yaml(out, value, &deeper);
            }
        }
        Value::Array(list) if list.iter().any(|item| item.is_object() || item.is_array()) => {
            out.push('\n');
            for item in list {
                out.push_str(&format!("{deeper}-"));
                yaml(out, item, &deeper);
            }
        }
        Value::String(text) if is_block(text) => {
            out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in text.lines() {
                let line = if line.is_empty() { String::new() } else { format!("{deeper}{line}") };
                out.push_str(&format!("{line}\n"));
            }
        }
        value => out.push_str(&format!(" {}\n", flow(value))),
    }
}

/// Whether a text reads the same line by line, with at most one end of line behind it.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with("\n\n")
        && !text.contains(|letter| (acts(letter) && letter != '\n') || letter == '\u{feff}')
        && text.lines().all(|line| line.is_empty() || !line.trim().is_empty())
}

/// A value in one line: JSON, which is YAML, but for plain words. What a terminal would act upon is escaped.
fn flow(value: &Value) -> String {
    let plain = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_./-".contains(letter))
            && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
                .contains(&text.to_ascii_lowercase().as_str())
    };
    match value {
        Value::String(text) if plain(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(flow).collect::<Vec<_>>().join(", ")),
        value => {
            let escaped = |letter: char| match letter {
                letter if acts(letter) || letter == '\u{feff}' => format!("\\u{:04x}", u32::from(letter)),
                letter => letter.to_string(),
            };
            value.to_string().chars().map(escaped).collect()
        }
    }
}
