//! The first chat service of a home: one that ships, whose writers the operator lets in, and that needs nothing but secrets.

use drupe_config::{BoundSecret, Config, Manifest, load_manifest};
use drupe_folders::discovery::Layout;
use serde_json::json;

use super::{Keys, text};
use crate::cli::{
    Context,
    failure::{Failure, status},
    secret_trial::{TriedSecret, try_all},
};

const NONE: &str = "none";

/// The service that is turned on, with the names of the secrets that it needs. `chosen` is what the option says.
///
/// # Errors
/// There is no such service.
pub fn chosen(chosen: Option<&str>, context: &Context) -> Result<Option<Manifest>, Failure> {
    let services = services(context);
    let names: Vec<_> =
        std::iter::once(NONE).chain(services.iter().map(|service| service.id.as_str())).collect();
    let name = match chosen {
        Some(name) => name.to_owned(),
        None if services.is_empty() => return Ok(None),
        None => {
            let title = "Chat service from which it can be reached, beside terminal and page";
            text(
                "channel",
                json!({"type": "string", "title": title, "enum": names, "default": NONE}),
                "--channel NAME",
            )?
        }
    };
    if name == NONE {
        return Ok(None);
    }
    let named = services.iter().find(|service| service.id.as_str() == name).cloned();
    named.map(Some).ok_or_else(|| {
        Failure::new(
            status::FAILED,
            format!("there is no chat service `{name}`; choose one of {}", names.join(", ")),
        )
    })
}

/// Asks for its secrets, in the order of its manifest, where they are not there yet; not for those without which it works as it is set up here.
pub fn secrets(service: &Manifest, keys: &mut Keys<'_>) -> Result<(), Failure> {
    // One that can be tried belongs to the way in which it is set up here, though there is another without it.
    let needed = |secret: &&BoundSecret| !secret.optional || secret.trial.is_some();
    let bound = service.bound_secrets.iter().filter(needed).map(|secret| &secret.name);
    service.secrets.iter().chain(bound).try_for_each(|name| keys.need(&[name]))
}

/// Has the service look at its secrets, where its manifest says how; what it said of each.
///
/// # Errors
/// It does not take one, or cannot be asked.
pub fn tried(service: &Manifest, config: &Config) -> Result<String, Failure> {
    let mut said = String::new();
    for (name, tried) in try_all(service, config) {
        let failure =
            |message: String, help: &str| Failure::new(status::FAILED, message).help(help.to_owned());
        match tried {
            TriedSecret::Taken => said += &format!("{} takes `{name}`\n", service.name),
            TriedSecret::Refused(why) => {
                let message = format!("{} does not take `{name}`, so nothing is kept: {why}", service.name);
                return Err(failure(message, "mend it and try again; `--untried` keeps it all the same"));
            }
            TriedSecret::Unknown(why) => {
                let message = format!(
                    "{} cannot be asked whether it takes `{name}`, so nothing is kept: {why}",
                    service.name
                );
                return Err(failure(
                    message,
                    "try again when it can be reached; `--untried` keeps it all the same",
                ));
            }
        }
    }
    Ok(said)
}

/// Those that ship and are off, and whose other settings all have a default.
fn services(context: &Context) -> Vec<Manifest> {
    let home = context.home().path();
    let (Some(shipped), _) = Layout::new(&context.exe, home, &[]).shipped() else { return Vec::new() };
    let folders = std::fs::read_dir(shipped).into_iter().flatten().flatten();
    let mut services: Vec<_> = folders
        .filter_map(|folder| Some(load_manifest(&folder.path(), home).ok()?.value))
        .filter(|manifest| manifest.senders == drupe_config::Senders::Known && !manifest.enabled)
        .filter(needs_secrets_alone)
        .collect();
    services.sort_by(|one, other| one.id.cmp(&other.id));
    services
}

fn needs_secrets_alone(manifest: &Manifest) -> bool {
    let required = manifest.config_schema.as_ref().and_then(|schema| schema["required"].as_array());
    required
        .into_iter()
        .flatten()
        .all(|key| key.as_str().is_some_and(|key| manifest.config.contains_key(key)))
}
