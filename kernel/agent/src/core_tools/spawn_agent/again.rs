//! A recorded call by which an agent was spawned, once more.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::{begin, read};
use crate::{
    registry::Registered,
    tool::{ToolContext, ToolError},
};

/// Spawns what a call with these parameters does, by `tool` in the place of the one that they name. How many work already does
/// not matter: that was decided when it was recorded.
///
/// # Errors
/// What the call gives in the place of a handle.
pub async fn spawn_by(
    params: &RawValue,
    tool: Arc<Registered>,
    context: &ToolContext,
) -> Result<(), ToolError> {
    match context.run.parts() {
        Some(parts) => begin(read(params)?, tool, parts, context).await.map(drop),
        None => Ok(()),
    }
}
