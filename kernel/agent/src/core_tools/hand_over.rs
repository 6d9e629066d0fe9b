//! The tools by which a conversation goes from the orchestrator to an agent, and back. Each ends the run that calls it; who
//! answers next is decided by whoever runs the turn.

use std::sync::{Arc, LazyLock};

use drupe_extension_api::{
    AgentId, ControlTransfer, EffectClass, ToolAnnotations, ToolName, ToolSpec, ToolStatus,
};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    registry::{Registered, RegistryError},
    tool::{RunEnd, Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// The name of the tool that gives a conversation back.
pub const RETURN: &str = "return_control";

/// The most characters of a summary: each message of the user is answered with it in view.
const SUMMARY: usize = 4_000;

/// Hands the conversation to one agent.
struct HandOver {
    to: AgentId,
    spec: Arc<ToolSpec>,
}

#[derive(Deserialize)]
struct Handing {
    summary: String,
}

/// The tool of that name by which the orchestrator hands the conversation to `to`.
///
/// # Errors
/// A description that no tool may have.
pub fn tool(to: AgentId, name: ToolName, description: &str) -> Result<Arc<Registered>, RegistryError> {
    let description = format!(
        "Hands the conversation over: the agent answers this message of the user and those that follow, until it gives the \
         conversation back. {description}"
    );
    let spec = ToolSpec {
        name,
        description,
        input_schema: json!({
            "type": "object",
            "properties": {
                "summary": {
                    "type": "string", "minLength": 1, "maxLength": SUMMARY,
                    "description": "What the agent needs to know: it sees nothing of the conversation before this message.",
                },
            },
            "required": ["summary"],
            "additionalProperties": false,
        }),
        instructions: None,
        annotations: ToolAnnotations { effect: EffectClass::Pure, ..ToolAnnotations::default() },
    };
    Registered::new(Arc::new(HandOver { to, spec: Arc::new(spec) }))
}

impl Tool for HandOver {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        self.to.as_str()
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let Handing { summary } = serde_json::from_str(params.get())?;
            if !context.run.talks_with_the_user() || context.run.is_handed_over() {
                return Err(ToolError::failed("only who talks with the user can hand the conversation over"));
            }
            let transfer = ControlTransfer::HandOver { to: self.to.clone(), summary };
            let told = format!("`{}` has the conversation", self.to);
            Ok(ToolOutput {
                ends: Some(RunEnd::Transfer { transfer, content: String::new() }),
                ..ToolOutput::text(told)
            })
        })
    }
}

struct ReturnControl(Arc<ToolSpec>);

#[derive(Deserialize)]
struct Returning {
    summary: String,
    #[serde(default)]
    answer: Option<String>,
}

/// The tool by which an agent gives a conversation back that it has taken over.
pub fn return_control() -> Arc<Registered> {
    static TOOL: LazyLock<Arc<Registered>> = LazyLock::new(|| {
        let spec = ToolSpec {
            name: ToolName::new(RETURN).expect("the name has the form of one"),
            description:
                "Gives the conversation back to the main assistant, when your part is done or the user wants \
                          something that is not yours. Ends your work."
                    .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "summary": {
                        "type": "string", "minLength": 1, "maxLength": SUMMARY,
                        "description": "What came of your part: the main assistant has seen nothing of it.",
                    },
                    "answer": {
                        "type": "string",
                        "description": "Your last words to the user. Without them the main assistant answers this message.",
                    },
                },
                "required": ["summary"],
                "additionalProperties": false,
            }),
            instructions: None,
            annotations: ToolAnnotations {
                read_only: true,
                effect: EffectClass::Pure,
                ..ToolAnnotations::default()
            },
        };
        Registered::core(Arc::new(ReturnControl(Arc::new(spec)))).expect("the schema is valid")
    });
    Arc::clone(&TOOL)
}

impl Tool for ReturnControl {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let Returning { summary, answer } = serde_json::from_str(params.get())?;
            if !context.run.is_handed_over() {
                let message = "you have no conversation to give back: answer, and whoever called you goes on";
                return Err(ToolError { status: ToolStatus::Error, message: message.into() });
            }
            let content = answer.unwrap_or_default();
            let answered = !content.trim().is_empty();
            let transfer = ControlTransfer::Return { summary, answered };
            Ok(ToolOutput {
                ends: Some(RunEnd::Transfer { transfer, content }),
                ..ToolOutput::text("given back")
            })
        })
    }
}
