//! An agent as a tool: what every agent is to every other.

use std::sync::{Arc, LazyLock};

use drupe_extension_api::{
    AgentInvocationContext, AgentResponse, EffectClass, ResponseStatus, ToolAnnotations, ToolName, ToolSpec,
    ToolStatus,
};
use drupe_json_schema::Schema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::{
    agent::{Agent, Task},
    ids,
    run::Child,
    share,
    tool::{CalledAgent, Tool, ToolContext, ToolError, ToolFuture, ToolOutput},
};

/// Adapter from an agent to a tool.
pub struct AgentTool {
    agent: Arc<dyn Agent>,
    spec: Arc<ToolSpec>,
    /// The agent's own input schema is the tool's; the parameters are the task.
    own_input: bool,
}

#[derive(Deserialize)]
struct Parameters {
    task: String,
    #[serde(default)]
    context: Option<String>,
}

/// What the calling model reads.
#[derive(Serialize)]
struct Answer<'a> {
    status: ResponseStatus,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<drupe_extension_api::FailureClass>,
    remaining_tokens: u64,
}

/// The input of an agent without a schema of its own, and the same compiled.
static TASK_INPUT: LazyLock<(Value, Arc<Schema>)> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What the agent shall do, complete in itself."},
            "context": {"type": "string", "description": "What it needs to know of the conversation."},
        },
        "required": ["task"],
        "additionalProperties": false,
    });
    let compiled = Schema::new(&schema).expect("the schema is valid");
    (schema, Arc::new(compiled))
});

impl AgentTool {
    /// The agent under that name. Without an `input` schema it takes `{task, context?}`.
    pub fn new(agent: Arc<dyn Agent>, name: ToolName, description: String, input: Option<Value>) -> Self {
        let own_input = input.is_some();
        let input_schema = input.unwrap_or_else(|| TASK_INPUT.0.clone());
        let annotations = ToolAnnotations {
            // A run that was cut off goes on where its own records end, so calling it again is safe.
            effect: EffectClass::Idempotent,
            weight: share::AGENT,
            // Its own time budget ends it first, with a report.
            timeout_ms: Some(agent.limits().time_budget_ms.saturating_add(5_000)),
            ..ToolAnnotations::default()
        };
        let spec = Arc::new(ToolSpec { name, description, input_schema, instructions: None, annotations });
        Self { agent, spec, own_input }
    }

    fn task(&self, params: &RawValue, context: &ToolContext) -> Result<Task, ToolError> {
        let (text, summary) = if self.own_input {
            (params.get().to_owned(), None)
        } else {
            let Parameters { task, context } = serde_json::from_str(params.get())?;
            (task, context)
        };
        let scope = &context.run.scope;
        Ok(Task {
            text,
            context: AgentInvocationContext {
                conversation_summary: summary,
                user_message: Some(scope.user_message.clone()),
                correlation_id: Some(scope.correlation.clone()),
            },
            ..Task::default()
        })
    }
}

impl Tool for AgentTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    fn origin(&self) -> &str {
        self.agent.id().as_str()
    }

    fn agent(&self) -> Option<CalledAgent<'_>> {
        let (id, model) = (self.agent.id(), self.agent.language_model());
        Some(CalledAgent { id, takes_json: self.own_input, model })
    }

    fn schema(&self) -> Option<Arc<Schema>> {
        (!self.own_input).then(|| Arc::clone(&TASK_INPUT.1))
    }

    fn call(&self, params: Box<RawValue>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let task = self.task(&params, &context)?;
            let child = Child {
                id: ids::child_of_effect(&context.effect),
                cancel: context.cancel.clone(),
                share: Arc::clone(&context.share),
                time: context.time.clone(),
            };
            let response = context.run.invoke(&self.agent, task, child).await;
            Ok(output(&response, context.run.budget.remaining_tokens()))
        })
    }
}

/// An agent's response as its caller's model reads it.
pub fn output(response: &AgentResponse, remaining_tokens: u64) -> ToolOutput {
    let answer = Answer {
        status: response.status,
        content: &response.content,
        // The report of a failed run often is its error; once is enough.
        error: response.error.as_deref().filter(|e| *e != response.content),
        class: response.class,
        remaining_tokens,
    };
    let status = match response.status {
        ResponseStatus::Success => ToolStatus::Ok,
        ResponseStatus::Error => ToolStatus::Error,
        ResponseStatus::Refused => ToolStatus::Refused,
    };
    let content = serde_json::to_string(&answer).unwrap_or_else(|error| error.to_string());
    ToolOutput { status, ..ToolOutput::text(content) }
}
