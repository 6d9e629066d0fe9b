//! An agent of another system as a file of ours: what somebody looks at before it is put where agents lie.

use std::path::Path;

use drupe_extension_api::ExtensionId;
use serde_json::{Map, Value};

use super::{
    AGENT, MANIFEST,
    agent_file::{add, parsed},
    dialect::Strange,
    template::{stands_below, yaml},
};
use crate::{
    Diagnostics, Loaded,
    read::Reading,
    shape::Table,
    source::{At, Source, SourceOrigin},
};

/// An agent in our own keys.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdoptedAgent {
    /// Of the manifest. There is no id: the file's name is one.
    pub manifest: Map<String, Value>,
    /// Of its `agent`, with the prompt as `instructions`.
    pub agent: Map<String, Value>,
    /// Its servers, as the other system writes them.
    pub servers: Option<Value>,
}

/// Reads an agent in the words of another system. What cannot be taken over is a warning `left_out`, whose field is the key.
///
/// `origin` is for messages; the text was read already.
///
/// # Errors
/// All faults at once.
pub fn adopt_agent(
    origin: &Path,
    id: &ExtensionId,
    text: String,
) -> Result<Loaded<AdoptedAgent>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let adopted = adopted(origin, id, text, &mut faults);
    let faults = faults.sorted();
    match adopted {
        Some(value) if !faults.has_errors() => Ok(Loaded { value, warnings: faults }),
        _ => Err(faults),
    }
}

fn adopted(origin: &Path, id: &ExtensionId, text: String, faults: &mut Diagnostics) -> Option<AdoptedAgent> {
    let source = Source::new(SourceOrigin::File(origin.to_owned()), text);
    let (mut top, agent) = parsed(&source, Strange::LeftOut, faults)?;
    // Its form is that of the other system, which another reader knows.
    let servers = match &mut top.value {
        crate::tree::Yaml::Map(entries) => {
            let place = entries.iter().position(|entry| entry.key == "mcp_servers");
            place.map(|place| entries.remove(place).value.to_json())
        }
        _ => None,
    };
    let manifest = top.to_json_map();
    for key in ["id", "name"] {
        add(&mut top, key, id.as_str(), &At::start_of(&source));
    }
    let mut reading = Reading { faults, variables: None };
    reading.typed::<super::Manifest>(&MANIFEST, &top, "")?;
    reading.typed::<super::AgentSection>(&AGENT, &agent, "")?;
    Some(AdoptedAgent { manifest, agent: agent.to_json_map(), servers })
}

impl AdoptedAgent {
    /// The `.md` file, in the order in which templates have the keys.
    #[must_use]
    pub fn file(&self) -> String {
        let prompt = self.agent.get("instructions").and_then(Value::as_str).unwrap_or_default();
        let below = stands_below(prompt);
        let mut file = "---\n".to_owned();
        write(&mut file, &MANIFEST, &self.manifest, &[]);
        write(&mut file, &AGENT, &self.agent, if below { &["instructions"] } else { &[] });
        file.push_str("---\n");
        if below {
            file.push_str(prompt.trim_end());
            file.push('\n');
        }
        file
    }
}

fn write(out: &mut String, of: &Table, values: &Map<String, Value>, left: &[&str]) {
    for key in of.keys.iter().filter(|key| !left.contains(&key.name)) {
        if let Some(value) = values.get(key.name).filter(|value| !value.is_null()) {
            out.push_str(&format!("{}:", key.name));
            yaml(out, value, "");
        }
    }
}
