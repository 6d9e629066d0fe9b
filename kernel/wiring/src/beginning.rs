//! What a kernel begins with: its models, and the orchestrator wired to them.
//!
//! Whoever asks whether a kernel could begin with a configuration does what a kernel does that begins: what only one of
//! the two checked, the other would find out too late.

use std::{path::PathBuf, sync::Arc};

use drupe_config::Config;
use drupe_models::Models;
use drupe_prompts::Day;

use crate::{Context, Lasting, Part, Snapshot, wire};

/// Makes the models and wires the orchestrator with `parts`, as far as these can be wired: an extension that cannot be is
/// left out, as a kernel does it.
///
/// # Errors
///
/// Why no kernel can begin with this configuration.
pub fn begin(
    config: &Config,
    workspace: &PathBuf,
    day: Day,
    parts: &[Part],
) -> Result<(Models, Arc<Lasting>, Snapshot), String> {
    let models = Models::new(crate::models(config)).map_err(|error| error.to_string())?;
    let orchestrator = drupe_prompts::orchestrator(config)?;
    let lasting = Arc::default();
    let context = Context {
        config,
        models: &models,
        lasting: &lasting,
        orchestrator: &orchestrator,
        workspace,
        day,
        away: &[],
    };
    let mut parts = parts.to_vec();
    loop {
        let fault = match wire(&parts, &context) {
            Ok(snapshot) => return Ok((models, lasting, snapshot)),
            Err(fault) => fault,
        };
        let all = parts.len();
        parts.retain(|part| Some(part.id()) != fault.extension.as_ref());
        if parts.len() == all {
            return Err(fault.reason);
        }
    }
}
