//! What an extension is given when it begins, and what it says of itself then.

use std::{collections::BTreeMap, io, path::Path, sync::Arc, time::Duration};

use drupe_config::{Manifest, Right, Secret};
use drupe_extension_api::{
    Fault, FaultCode, ToolSpec,
    wire::{Description, Initialize, Listening, op},
};
use drupe_folders::{content::Content, discovery::Found};
use drupe_host::Header;
use drupe_prompts::{Prompt, apart};
use drupe_wiring::{self as wiring, Part};
use serde_json::{Map, Value};

use super::{Roster, load::LOAD, state::Out};

pub const INITIALIZE: Duration = Duration::from_secs(30);

/// Renders its texts and gives it its context.
pub async fn initialize(roster: &Arc<Roster>, manifest: &Arc<Manifest>, mut part: Part) -> Result<Part, Out> {
    let Some(instance) = part.instance.clone() else {
        return declared(roster, manifest).await.map_err(Out::Failed);
    };
    let tools = listed_tools(roster, manifest);
    part.prompt = prompt(roster, manifest, tools.clone()).await.map_err(Out::Failed)?;
    let payload = payload(roster, manifest, &part, tools).map_err(Out::Failed)?;
    let header = Header { timeout: Some(INITIALIZE), ..Header::default() };
    instance.call::<serde_json::Value>(op::INITIALIZE, &payload, header).await.map_err(
        |fault| match fault.code {
            FaultCode::NotConfigured => Out::Disabled(format!("not configured: {fault}")),
            _ => Out::Failed(format!("`initialize` failed: {fault}")),
        },
    )?;
    part.description = described(&part).await.map_err(|fault| Out::Failed(fault.to_string()))?;
    Ok(part)
}

/// An agent without code, with its texts.
pub async fn declared(roster: &Arc<Roster>, manifest: &Arc<Manifest>) -> Result<Part, String> {
    let prompt = prompt(roster, manifest, listed_tools(roster, manifest)).await?;
    Ok(Part { manifest: Arc::clone(manifest), description: Description::default(), instance: None, prompt })
}

/// Why the texts of an agent may not be those that its content had when it was looked at, and agreed to. They are read after
/// that.
pub fn exchanged(
    roster: &Roster,
    found: &Found,
    manifest: &Manifest,
    seen: Option<&Content>,
) -> Option<String> {
    manifest.agent.as_ref()?;
    let now = roster.eyes().content(found, manifest).map(|content| content.hash);
    let same = now.is_ok_and(|now| seen.is_some_and(|seen| seen.hash == now));
    (!same).then(|| "its files were changed while it was taken in; `drupe ext release` tries again".into())
}

/// What an extension says of itself now. Its own code names its tools, so it gets a deadline.
pub async fn described(part: &Part) -> Result<Description, Fault> {
    let Some(instance) = &part.instance else { return Ok(part.description.clone()) };
    let described = tokio::time::timeout(LOAD, instance.describe()).await;
    let late =
        || Fault::new(FaultCode::Timeout, format!("extension `{}` did not describe itself", part.id()));
    described.unwrap_or_else(|_| Err(late()))
}

async fn prompt(
    roster: &Roster,
    manifest: &Arc<Manifest>,
    tools: Vec<ToolSpec>,
) -> Result<Option<Prompt>, String> {
    Ok(apart::prompt(&roster.base.start.exe, &roster.base.config, manifest, tools, roster.base.day()).await?)
}

/// The tools that `uses_tools` names, sorted, as far as they are there; wiring complains about the rest.
fn listed_tools(roster: &Roster, manifest: &Manifest) -> Vec<ToolSpec> {
    let mut selectors = manifest.agent.iter().flat_map(|a| &a.uses_tools).peekable();
    if selectors.peek().is_none() {
        return Vec::new();
    }
    let parts = roster.extensions.parts();
    let tools = selectors.flat_map(|selector| {
        let part = parts.iter().find(|p| *p.id() == selector.extension);
        let all = part.into_iter().flat_map(|p| p.description.tools.clone());
        all.filter(|t| selector.tool.as_ref().is_none_or(|name| *name == t.name))
    });
    let mut tools: Vec<ToolSpec> = tools.collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools
}

/// The payload of `initialize`.
fn payload(
    roster: &Roster,
    manifest: &Manifest,
    part: &wiring::Part,
    resolved_tools: Vec<ToolSpec>,
) -> Result<Initialize, String> {
    let config = manifest.effective_config(&roster.base.config).map_err(|faults| faults.render(false))?;
    let secrets: BTreeMap<_, _> =
        manifest.resolve_secrets(&roster.base.config.overlay).map_err(|faults| faults.render(false))?;
    roster.base.redactor.learn(secrets.values().map(Secret::expose));
    let bound = manifest.resolve_bound(&roster.base.config.overlay);
    roster.base.redactor.learn(bound.map(|(_, secret)| secret.expose()));
    roster.base.redactor.learn_named(&config);
    let data = roster.base.home.make_data(&manifest.id)?;
    let listening = listening(manifest, part, &config).map_err(|error| error.to_string())?;
    Ok(Initialize {
        id: manifest.id.clone(),
        config,
        secrets: secrets.into_iter().map(|(name, secret)| (name, Value::from(secret.expose()))).collect(),
        data_folder: text(&data)?,
        folder: text(&manifest.folder)?,
        workspace: text(roster.base.home.workspace())?,
        agent: part.is_agent().then(|| wiring::definition(part, &roster.base.config)),
        resolved_tools,
        program_folders: program_folders(roster, manifest),
        embedding_model: manifest
            .rights
            .contains(&Right::Embed)
            .then(|| roster.wired.models.embedding().map(|model| model.profile().name.clone()))
            .flatten(),
        listening,
    })
}

/// Where the folders are that its manifest names; an empty text for what has no meaning here, so that each keeps its place.
fn program_folders(roster: &Roster, manifest: &Manifest) -> Vec<String> {
    let environment = &roster.base.sources.environment;
    let found = |named: &String| drupe_programs::resolve(named, environment);
    manifest
        .program_folders
        .iter()
        .map(|named| found(named).map_or(String::new(), |f| f.display().to_string()))
        .collect()
}

/// The sockets that its code was handed, by the keys of its configuration.
fn listening(manifest: &Manifest, part: &Part, config: &Map<String, Value>) -> io::Result<Vec<Listening>> {
    let open = part.instance.iter().flat_map(|instance| instance.listening());
    let named = manifest.listen.iter().filter(|key| config.contains_key(*key)).zip(open);
    let named = named.map(|(key, (socket, descriptor))| {
        Ok(Listening { key: key.clone(), address: socket.local_addr()?, descriptor })
    });
    named.collect()
}

/// A path as extensions get it. One that cannot be written as text would lead them elsewhere.
fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        format!("the path `{}` is not UTF-8, so native code cannot be told of it", path.display())
    })
}
