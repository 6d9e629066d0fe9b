//! What an extension is given when it begins.

use std::{collections::BTreeMap, path::Path};

use drupe_config::Manifest;
use drupe_extension_api::{ToolSpec, wire::Initialize};
use drupe_wiring as wiring;
use serde_json::Value;

use crate::kernel::Kernel;

/// The payload of `initialize`.
pub fn initialize_payload(
    kernel: &Kernel,
    manifest: &Manifest,
    part: &wiring::Part,
    resolved_tools: Vec<ToolSpec>,
) -> Result<Initialize, String> {
    let config = manifest.effective_config(&kernel.config).map_err(|faults| faults.render(false))?;
    let secrets: BTreeMap<_, _> =
        manifest.resolve_secrets(&kernel.config.overlay).map_err(|faults| faults.render(false))?;
    let data = kernel.home.make_data(&manifest.id)?;
    Ok(Initialize {
        id: manifest.id.clone(),
        config,
        secrets: secrets.into_iter().map(|(name, secret)| (name, Value::from(secret.expose()))).collect(),
        data_folder: text(&data)?,
        folder: text(&manifest.folder)?,
        workspace: text(kernel.home.workspace())?,
        agent: part.is_agent().then(|| wiring::definition(part, &kernel.config)),
        resolved_tools,
        program_folders: program_folders(kernel, manifest),
    })
}

/// Where the folders are that its manifest names; an empty text for what has no meaning here, so that each keeps its place.
fn program_folders(kernel: &Kernel, manifest: &Manifest) -> Vec<String> {
    let environment = &kernel.settings.environment;
    let found = |named: &String| drupe_programs::resolve(named, environment);
    manifest
        .program_folders
        .iter()
        .map(|named| found(named).map_or(String::new(), |f| f.display().to_string()))
        .collect()
}

/// A path as extensions get it. One that cannot be written as text would lead them elsewhere.
fn text(path: &Path) -> Result<String, String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| {
        format!("the path `{}` is not UTF-8, so native code cannot be told of it", path.display())
    })
}
