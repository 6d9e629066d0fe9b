//! One agent of another assistant: from its file to a file of ours, with an id and with servers as we write them.

use std::path::Path;

use drupe_config::{AdoptedAgent, Config, Diagnostics, Loaded, Severity, adopt_agent, read_text_file};
use drupe_extension_api::ExtensionId;
use serde_json::{Map, Value, json};

use super::{forms, gather::NotImported, places::AgentForm, plan::LeftOut};

/// The longest name of a server of an agent.
const SERVER_NAME: usize = 24;

/// An agent that could be put where agents lie.
#[derive(Debug)]
pub struct TakenAgent {
    pub id: ExtensionId,
    pub adopted: AdoptedAgent,
    pub left_out: Vec<LeftOut>,
    pub notes: Vec<String>,
}

/// Why an agent does not come over.
#[derive(Debug)]
pub enum UnfitAgent {
    /// Its text is wrong, at these places.
    Faults(Diagnostics),
    Why(NotImported),
}

impl UnfitAgent {
    /// A sentence for a list.
    pub fn short(&self) -> String {
        match self {
            Self::Why(why) => why.0.clone(),
            Self::Faults(faults) => short(faults),
        }
    }
}

/// The first faults of a text; nothing where there are none.
pub fn short(faults: &Diagnostics) -> String {
    const SHOWN: usize = 3;
    let errors = faults.iter().filter(|one| one.severity == Severity::Error);
    let line = |line| if line == 0 { String::new() } else { format!("line {line}: ") };
    let said: Vec<String> = errors.map(|one| format!("{}{}", line(one.line), one.message)).collect();
    let more = match said.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    said[..said.len().min(SHOWN)].join("; ") + &more
}

impl From<NotImported> for UnfitAgent {
    fn from(why: NotImported) -> Self {
        Self::Why(why)
    }
}

/// Reads the file of an agent, in the form that its ending says.
pub fn read(path: &Path, form: AgentForm) -> Result<String, UnfitAgent> {
    let text = read_text_file(path).map_err(UnfitAgent::Faults)?;
    match form {
        AgentForm::Markdown => Ok(text),
        AgentForm::Toml => Ok(forms::frontmatter(&forms::toml(&text)?)),
    }
}

/// The form that a file's name says.
pub fn form_of(path: &Path) -> AgentForm {
    match path.extension().is_some_and(|ending| ending == "toml") {
        true => AgentForm::Toml,
        false => AgentForm::Markdown,
    }
}

/// An agent, from a text with frontmatter. Without an id it has that of its name, else of its file's.
pub fn adopt(
    origin: &Path,
    text: String,
    id: Option<ExtensionId>,
    config: &Config,
) -> Result<TakenAgent, UnfitAgent> {
    let stem = origin.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let stem = stem.strip_suffix(".agent").or(stem.strip_suffix(".chatmode")).unwrap_or(&stem).to_owned();
    // It stands for the name until that is known.
    let provisional = ExtensionId::new("agent").map_err(|error| NotImported(error.to_string()))?;
    let Loaded { value: mut adopted, warnings } =
        adopt_agent(origin, &provisional, text).map_err(UnfitAgent::Faults)?;
    let mut left_out: Vec<LeftOut> = Vec::new();
    for one in warnings.iter() {
        left_out.push(LeftOut::new(&one.field, one.message.clone()));
    }
    let name = adopted.manifest.get("name").and_then(Value::as_str).unwrap_or_default();
    let named = id.or_else(|| slug(name)).or_else(|| slug(&stem));
    let id = named.ok_or_else(|| {
        let file = origin.display();
        NotImported(format!("neither its name nor its file's gives an id: `drupe ext new agent --file {file} --id ID` names one"))
    })?;
    keep_known_models(&mut adopted, config, &mut left_out);
    let mut notes = Vec::new();
    take_servers(&mut adopted, &mut left_out, &mut notes);
    let has_tools =
        adopted.agent.get("uses_tools").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if !has_tools && !left_out.iter().any(|one| one.key == "tools") {
        left_out.push(LeftOut::new(
            "tools",
            "none is named: elsewhere it has all of them then, and here it has none; name some under `uses_tools`",
        ));
    }
    Ok(TakenAgent { id, adopted, left_out, notes })
}

/// A name as an id: small letters, digits, `_` and `-`. Of what is no letter of these, one `-` stays.
pub fn slug(name: &str) -> Option<ExtensionId> {
    let mut id = String::new();
    for letter in name.trim().chars() {
        match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9' | '_') => id.push(letter),
            _ if !id.ends_with('-') => id.push('-'),
            _ => {}
        }
    }
    let id = id.trim_start_matches(['-', '_']);
    let id = &id[..id.len().min(48)];
    ExtensionId::new(id.trim_end_matches('-')).ok()
}

/// Models by names that this configuration knows. Another one would only fail.
fn keep_known_models(adopted: &mut AdoptedAgent, config: &Config, left_out: &mut Vec<LeftOut>) {
    let Some(named) = adopted.agent.get("model") else { return };
    let names: Vec<String> = match named {
        Value::String(name) => vec![name.clone()],
        list => serde_json::from_value(list.clone()).unwrap_or_default(),
    };
    let models = &config.models;
    let is_known = |name: &&String| {
        let provider = name.split_once('/').map(|(provider, _)| provider);
        models.aliases.contains_key(*name) || provider.is_some_and(|one| models.providers.contains_key(one))
    };
    let (known, others): (Vec<&String>, Vec<&String>) = names.iter().partition(is_known);
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
        let why = format!(
            "no model here is called {}; without one it has those of `agents.defaults`",
            others.join(", ")
        );
        left_out.push(LeftOut::new("model", why));
    }
    let known: Vec<Value> = known.into_iter().map(|name| name.as_str().into()).collect();
    match known.is_empty() {
        true => drop(adopted.agent.remove("model")),
        false => drop(adopted.agent.insert("model".into(), known.into())),
    }
}

/// Its servers in our form. The names of secrets take the place of their values, and the manifest lists them.
fn take_servers(adopted: &mut AdoptedAgent, left_out: &mut Vec<LeftOut>, notes: &mut Vec<String>) {
    const KEY: &str = "mcp_servers";
    let given = match adopted.servers.take() {
        None | Some(Value::Null) => return,
        Some(Value::Object(map)) => map,
        Some(Value::Array(list)) => {
            let mut all = Map::new();
            for one in list {
                match one {
                    Value::Object(map) => all.extend(map),
                    Value::String(name) => left_out.push(LeftOut::new(
                        KEY,
                        format!("`{name}` is of the other assistant's own list: name what it is, or import that list"),
                    )),
                    _ => left_out.push(LeftOut::new(KEY, "an entry is neither a name nor a server")),
                }
            }
            all
        }
        Some(_) => return left_out.push(LeftOut::new(KEY, "it is no map of servers")),
    };
    let Ok(read) = drupe_mcp_import::read(&json!({"mcpServers": given})) else { return };
    left_out.extend(read.notes.into_iter().map(|note| LeftOut::new(KEY, note)));
    let mut servers = Map::new();
    let mut secrets: Vec<Value> =
        adopted.manifest.get("secrets").and_then(Value::as_array).cloned().unwrap_or_default();
    for mut server in read.servers {
        let parts = server.name.split(['_', '-']).filter(|part| !part.is_empty());
        let name: String = parts.collect::<Vec<_>>().join("-").chars().take(SERVER_NAME).collect();
        let name = name.trim_end_matches('-').to_owned();
        if server.settings.remove("enabled").is_some() || servers.contains_key(&name) {
            left_out.push(LeftOut::new(
                KEY,
                format!("`{}` is turned off there, or has another's name", server.name),
            ));
            continue;
        }
        notes.append(&mut server.notes);
        secrets.extend(
            server
                .secrets
                .into_keys()
                .map(Value::from)
                .filter(|name| !secrets.contains(name))
                .collect::<Vec<_>>(),
        );
        servers.insert(name, server.settings.into());
    }
    for (key, value) in [(KEY, Value::from(servers)), ("secrets", secrets.into())] {
        let is_empty =
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if !is_empty {
            adopted.manifest.insert(key.into(), value);
        }
    }
}

impl TakenAgent {
    /// What is to be done before it can work: secrets that it needs and that have no value.
    pub fn lacks(&self, config: &Config) -> Option<String> {
        let secrets = self.adopted.manifest.get("secrets").and_then(Value::as_array).into_iter().flatten();
        let missing = secrets.filter_map(Value::as_str).filter(|name| config.overlay.get(name).is_none());
        let missing: Vec<String> = missing.map(|name| format!("`drupe secret set {name}`")).collect();
        (!missing.is_empty())
            .then(|| format!("it needs secrets that have no value: {}, then try again", missing.join(", ")))
    }

    /// Leaves out agents that it may call and that are not there.
    pub fn call_only(&mut self, is_there: impl Fn(&str) -> bool) {
        let Some(Value::Array(named)) = self.adopted.agent.get_mut("uses_agents") else { return };
        let gone: Vec<String> = named
            .iter()
            .filter_map(Value::as_str)
            .filter(|id| !is_there(id))
            .map(|id| format!("`{id}`"))
            .collect();
        named.retain(|id| id.as_str().is_some_and(&is_there));
        if named.is_empty() {
            self.adopted.agent.remove("uses_agents");
        }
        if !gone.is_empty() {
            let why = format!("there is no agent {}", gone.join(", "));
            self.left_out.push(LeftOut::new("uses_agents", why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_ids_that_lead_nowhere() {
        for (name, id) in [
            ("Release Notes Writer", Some("release-notes-writer")),
            ("../../etc/passwd", Some("etc-passwd")),
            ("a__b", Some("a__b")),
            ("--x--", Some("x")),
            ("größe", Some("gr-e")),
            ("..", None),
            ("日本", None),
            ("", None),
            (&"x".repeat(80), Some(&"x".repeat(48)[..])),
        ] {
            assert_eq!(slug(name).as_ref().map(ExtensionId::as_str), id, "{name}");
        }
    }
}
