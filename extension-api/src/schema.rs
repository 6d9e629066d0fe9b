//! JSON Schemas of the contract's types, for documents that describe an API made of them. Only what reads such a document
//! switches the feature `schema` on: extensions and the kernel are built without it.
//!
//! Types of plain data derive theirs where they stand. Here are those that check their form by a constructor.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{AgentId, CorrelationId, EffectId, ExtensionId, InvocationId, SessionId, ToolName, TurnId};

/// The form that `ids::slug` lets through.
const SLUG: &str = "^[a-z0-9][a-z0-9_-]{0,47}$";

/// The form that `ids::tool_name` lets through.
const TOOL_NAME: &str = "^[A-Za-z0-9_.-]{1,64}$";

/// The form that `ids::opaque` lets through.
const OPAQUE: &str = "^[A-Za-z0-9_.:-]{1,96}$";

/// The names of models that `is_model_name` lets through. Letters of other scripts, which it does as well, are left out.
pub const MODEL: &str = "^[!-~]{1,256}$";

macro_rules! text {
    ($($name:ident: $pattern:expr, $says:literal;)*) => {
        $(impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $says })
            }
        })*
    };
}

text! {
    ExtensionId: SLUG, "The id of an extension.";
    AgentId: SLUG, "The id of an agent.";
    ToolName: TOOL_NAME, "The name of a tool.";
    SessionId: OPAQUE, "One conversation.";
    TurnId: OPAQUE, "What one message sets off, until its final answer.";
    InvocationId: OPAQUE, "One run of an agent within a turn.";
    EffectId: OPAQUE, "One tool call that was meant to happen.";
    CorrelationId: OPAQUE, "Links everything that one turn sets off.";
}

/// A JSON Schema: as much of one as says what it looks like. Which keywords there are beyond these is the standard's business.
pub struct JsonSchemaText;

impl JsonSchema for JsonSchemaText {
    fn schema_name() -> Cow<'static, str> {
        "JsonSchema".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Self>();
        let kinds = ["array", "boolean", "integer", "null", "number", "object", "string"];
        json_schema!({
            "type": ["object", "boolean"],
            "description": "A JSON Schema, draft 2020-12.",
            "properties": {
                "type": { "enum": kinds }, "description": { "type": "string" },
                "properties": { "type": "object", "additionalProperties": one },
                "required": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
                "items": one, "enum": { "type": "array", "minItems": 1 },
            },
        })
    }
}
