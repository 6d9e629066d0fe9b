//! A tool that the client of a turn brings along and runs itself: the loop offers it, and a call of it ends the run.

use std::sync::Arc;

use drupe_extension_api::{EffectClass, ToolAnnotations, ToolSpec, wire};
use serde_json::value::RawValue;

use crate::{
    registry::{Registered, RegistryError},
    tool::{RunEnd, Tool, ToolContext, ToolFuture, ToolOutput},
};

/// Where such tools are from.
pub const ORIGIN: &str = "client";

struct ClientTool(Arc<ToolSpec>);

/// A tool of a client. It is offered like the loop's own: never deferred, since its client waits for it.
pub fn tool(given: &wire::ClientTool) -> Result<Arc<Registered>, RegistryError> {
    let spec = ToolSpec {
        name: given.name.clone(),
        description: given.description.clone(),
        input_schema: given.input_schema.clone(),
        instructions: None,
        // Here nothing is done: what it does elsewhere its client answers for.
        annotations: ToolAnnotations {
            read_only: true,
            effect: EffectClass::Pure,
            ..ToolAnnotations::default()
        },
    };
    Registered::core(Arc::new(ClientTool(Arc::new(spec))))
}

impl Tool for ClientTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        ORIGIN
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        let left = ToolOutput { ends: Some(RunEnd::LeftToClient), ..ToolOutput::text("left to the client") };
        Box::pin(async move { Ok(left) })
    }
}
