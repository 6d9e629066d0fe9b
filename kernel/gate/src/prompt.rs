//! The texts of an agent, with what a template is told.

use drupe_config::{Config, Manifest};
use drupe_extension_api::ToolSpec;
use drupe_wiring::{Day, Prompt};
use serde_json::{Value, json};

/// Renders them; `tools` are those that `uses_tools` names. None where it is no agent.
pub fn of(
    config: &Config,
    manifest: &Manifest,
    tools: &[ToolSpec],
    day: Day,
) -> Result<Option<Prompt>, String> {
    let Some(section) = &manifest.agent else { return Ok(None) };
    let own = manifest.effective_config(config).map_err(|faults| faults.render(false))?;
    let mut variables = own.clone();
    let facts = json!({
        "config": own,
        "manifest": {"id": manifest.id, "name": manifest.name, "version": manifest.version.to_string(),
                     "summary": manifest.summary, "description": manifest.description},
        "agent": {"id": manifest.id, "name": manifest.name, "description": manifest.description},
        "tools": tools.iter().map(|t| json!({"name": t.name, "description": t.description})).collect::<Vec<_>>(),
        "user": config.overlay.get("USER").map_or("the user", |u| u.expose()),
    });
    if let Value::Object(facts) = facts {
        variables.extend(facts);
    }
    Prompt::of(section, &manifest.folder, variables, day).map(Some)
}
