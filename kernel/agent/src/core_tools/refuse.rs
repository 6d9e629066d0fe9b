//! The tool by which a sub-agent declines a task.

use std::sync::{Arc, LazyLock};

use drupe_extension_api::{EffectClass, ToolAnnotations, ToolName, ToolSpec};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    registry::Registered,
    tool::{RunEnd, Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The tool's name.
pub const NAME: &str = "refuse";

struct Refuse(Arc<ToolSpec>);

#[derive(Deserialize)]
struct Parameters {
    reason: String,
}

/// The one instance of it.
pub fn tool() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(NAME).expect("the name has the form of one"),
            description: "Declines the task because it is not yours to do. Ends your work on it.".into(),
            input_schema: json!({
                "type": "object",
                "properties": {"reason": {"type": "string", "description": "Why, for the one who asked."}},
                "required": ["reason"],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
        };
        Registered::core(Arc::new(Refuse(Arc::new(spec)))).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

impl Tool for Refuse {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call(&self, params: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        let parsed = serde_json::from_str::<Parameters>(params.get());
        Box::pin(async move {
            let Parameters { reason } = parsed.map_err(|error| ToolError::failed(error.to_string()))?;
            Ok(ToolOutput { ends: Some(RunEnd::Refused(reason)), ..ToolOutput::text("refused") })
        })
    }
}
