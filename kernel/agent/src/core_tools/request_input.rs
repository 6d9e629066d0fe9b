//! The tools by which a person is asked for something: a secret, which nobody but its person ever sees, or a few answers.
//!
//! Each call is a question like any other: a row that waits, survives a restart, and is answered once. The tools themselves
//! do nothing but pass on what came of it.

use std::sync::{Arc, LazyLock};

use drupe_extension_api::{EffectClass, EffectId, Fault, ToolAnnotations, ToolName, ToolPreview, ToolSpec};
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::{
    input_form::InputForm,
    registry::Registered,
    run::Run,
    tool::{Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The name of the tool that asks for a secret.
pub const SECRET: &str = "request_secure_input";

/// The name of the tool that asks for answers.
pub const ANSWERS: &str = "request_input";

/// A tool whose calls are what a person fills in.
struct RequestInput {
    spec: Arc<ToolSpec>,
    /// What is asked for, by the parameters of a call.
    asks: fn(&RawValue) -> Result<ToolPreview, Fault>,
    /// What the caller gets, by the parameters and by what was filled in.
    gives: fn(&RawValue, String) -> Result<String, Fault>,
}

#[derive(Deserialize)]
struct Secret {
    name: String,
    purpose: String,
}

#[derive(Deserialize)]
struct Input {
    message: String,
    schema: Value,
}

/// The one that asks for a secret.
pub fn secret() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {
                    "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                    "description": "The variable's name, such as WEATHER_API_KEY.",
                },
                "purpose": {
                    "type": "string", "minLength": 1, "maxLength": 500,
                    "description": "What it is for and where the user gets it, for the user.",
                },
            },
            "required": ["name", "purpose"],
            "additionalProperties": false,
        });
        let description = "Asks the user for a secret, such as an API key, and keeps it under a name for extensions \
                           that list it. You never see it. Never ask for secrets in the conversation.";
        let spec = spec(SECRET, description, schema);
        let tool = RequestInput { spec, asks: asks_for_a_secret, gives: says_that_it_is_kept };
        Registered::core(Arc::new(tool)).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

/// The one that asks for answers.
pub fn answers() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let schema = json!({
            "type": "object",
            "properties": {
                "message": {"type": "string", "minLength": 1, "maxLength": 4096},
                "schema": {"type": "object", "description": "JSON Schema of one flat object."},
            },
            "required": ["message", "schema"],
            "additionalProperties": false,
        });
        let description = "Asks the user to fill in a form. Gives what they filled in, as JSON.";
        let spec = spec(ANSWERS, description, schema);
        let tool = RequestInput { spec, asks: asks_for_answers, gives: |_, given| Ok(given) };
        Registered::core(Arc::new(tool)).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

fn spec(name: &str, description: &str, input_schema: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: ToolName::new(name).expect("the name has the form of one"),
        description: description.into(),
        input_schema,
        instructions: None,
        annotations: ToolAnnotations {
            // What was filled in stands in the question's row, where a call that runs again finds it.
            effect: EffectClass::Idempotent,
            needs_approval: true,
            needs_input: true,
            previews: true,
            ..ToolAnnotations::default()
        },
    })
}

fn read<'a, T: Deserialize<'a>>(params: &'a RawValue) -> Result<T, Fault> {
    serde_json::from_str(params.get()).map_err(|error| Fault::invalid(error.to_string()))
}

fn asks_for_a_secret(params: &RawValue) -> Result<ToolPreview, Fault> {
    let Secret { name, purpose } = read(params)?;
    let text = format!("A secret is asked for, to be kept as `{name}`: {purpose}");
    let input = json!({
        "type": "object",
        "properties": {name.clone(): {"type": "string", "writeOnly": true, "minLength": 1}},
        "required": [name],
        "additionalProperties": false,
    });
    Ok(ToolPreview { text, input: Some(input), seal: None })
}

fn says_that_it_is_kept(params: &RawValue, _: String) -> Result<String, Fault> {
    let Secret { name, .. } = read(params)?;
    Ok(format!(
        "`{name}` is kept. Extensions that list it under `secrets` get it when drupe has been restarted."
    ))
}

fn asks_for_answers(params: &RawValue) -> Result<ToolPreview, Fault> {
    let Input { message, schema } = read(params)?;
    if !InputForm::new(&schema)?.secrets().is_empty() {
        return Err(Fault::invalid(format!("it asks for a secret: that is what `{SECRET}` is for")));
    }
    Ok(ToolPreview { text: message, input: Some(schema), seal: None })
}

impl Tool for RequestInput {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn preview<'a>(
        &'a self,
        params: Box<RawValue>,
        _: EffectId,
        _: &'a Run,
    ) -> BoxFuture<'a, Result<ToolPreview, Fault>> {
        Box::pin(std::future::ready((self.asks)(&params)))
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        // There is nothing where the question could not say what it asks for.
        let given = context.agreement.given;
        let given = given.ok_or_else(|| ToolError::refused("the user was not shown what to fill in"));
        let gives = given.and_then(|given| Ok((self.gives)(&params, given)?));
        Box::pin(std::future::ready(gives.map(ToolOutput::text)))
    }
}
