//! Tools that the configuration, or a call, describes: of any name and any size.

use drupe_extension_api::prelude::*;
use serde_json::{Value, json};

/// A tool to be. What it does not say is short and in order.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct More {
    /// Its whole name.
    name: String,
    /// Bytes of its description.
    #[serde(default)]
    description: usize,
    /// Bytes of its instructions.
    #[serde(default)]
    instructions: usize,
    /// Keys of its schema.
    #[serde(default)]
    keys: usize,
    /// Its schema, in place of one that has `keys`.
    #[serde(default)]
    schema: Option<Value>,
}

impl More {
    pub(crate) fn spec(&self) -> Result<ToolSpec, Fault> {
        let keys: serde_json::Map<_, _> = (0..self.keys).map(|n| (format!("k{n}"), json!({}))).collect();
        let schema = self.schema.clone();
        Ok(ToolSpec {
            name: ToolName::new(&self.name)?,
            description: "x".repeat(self.description.max(1)),
            input_schema: schema.unwrap_or_else(|| json!({"type": "object", "properties": keys})),
            instructions: (self.instructions > 0).then(|| "x".repeat(self.instructions)),
            annotations: Default::default(),
        })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Announce {
    /// The tools that it has from now on, beside its own.
    tools: Vec<More>,
}

impl super::Faulty {
    pub(crate) async fn announce(&self, input: Announce, _: Call) -> Result<&'static str, Fault> {
        let before = std::mem::replace(&mut *self.more(), input.tools);
        match self.host.tools_changed().await {
            Ok(()) => Ok("announced"),
            Err(fault) => {
                *self.more() = before;
                Err(fault)
            }
        }
    }

    pub(crate) async fn answer(&self, _: Value, call: Call) -> Result<String, Fault> {
        let tool = call.tool().map(ToString::to_string).unwrap_or_default();
        Ok(format!("answered by {tool}"))
    }
}
