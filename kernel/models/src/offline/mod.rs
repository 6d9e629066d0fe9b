//! The offline model: rules and word matching in place of a language model.
//!
//! Deterministic: the same request has the same answer, in this process and the next. It does, in this order:
//!
//! 1. the agent's own rules; see the module `rules`;
//! 2. after a tool: say what the tool gave;
//! 3. a command, `tool_name {json}` or `tool_name key=value …`; see the module `command`;
//! 4. for an agent that people talk to: list what there is where it is asked to, else choose the tool whose name
//!    and description fit the sentence best; see the module `route`;
//! 5. for any other agent: say who it is, what it was asked, and that a language model is needed.
//!
//! It never pretends to be a language model, and never calls a tool whose parameters it would have to make up.

mod command;

mod route;

mod rules;

mod texts;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use drupe_agent::{
    ModelEvent, ModelFault, ModelProfile, ModelRequest, StopReason, Usage, long_work, prompt::task_of,
};
use drupe_extension_api::{
    FailureClass, Format, Message, ModelParameters, OutputSpec, ToolCallRequest, ToolSpec,
};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Map, Value, json};

use crate::{
    error::Unsupported,
    source::{self, Broken, Progress, Source},
};
use rules::Patterns;

/// The tool that looks up others.
const SEARCH: &str = "search_tools";
/// Tools of the loop itself, which no sentence of a person is about; called by name they work like any other.
const OF_THE_LOOP: [&str; 6] =
    ["load_skill", "read_output", "refuse", "return_control", "session_search", "update_plan"];

/// The offline model, under whatever name it was asked for.
pub(crate) struct OfflineSource {
    profile: ModelProfile,
    patterns: Patterns,
}

impl OfflineSource {
    pub(crate) fn new(profile: ModelProfile) -> Self {
        Self { profile, patterns: Patterns::default() }
    }

    fn events(&self, request: &ModelRequest) -> Result<Vec<Result<ModelEvent, Broken>>, ModelFault> {
        // Such requests are for a summary, which a sentence of ours is none of.
        if request.sparing {
            let text = format!("`{}` follows rules, and sums nothing up", self.profile.name);
            return Err(ModelFault::fatal(FailureClass::Config, text).unused());
        }
        let reply = reply(request, &self.patterns)?;
        let (event, stop) = match reply {
            Reply::Said(text) => (ModelEvent::Text(text), StopReason::End),
            Reply::Found(text) => {
                (ModelEvent::Text(formed(text, request.output.as_deref())), StopReason::End)
            }
            Reply::Call { tool, arguments } => {
                let call_id = format!("offline_{}", source::step(&request.messages));
                let arguments = Value::Object(arguments).to_string();
                (
                    ModelEvent::ToolCall(ToolCallRequest { call_id, name: tool, arguments }),
                    StopReason::ToolCalls,
                )
            }
        };
        let usage = Some(Usage {
            output_tokens: tokens(weight(&event)),
            input_tokens: input_tokens(request),
            ..Usage::default()
        });
        let done = ModelEvent::Done { usage, stop, model: self.profile.name.clone() };
        Ok(vec![Ok(event), Ok(done)])
    }
}

impl Source for OfflineSource {
    fn profile(&self) -> &ModelProfile {
        &self.profile
    }

    /// Temperature and the like have no meaning without chance: every agent runs here.
    fn supports(&self, _: &ModelParameters) -> Result<(), Unsupported> {
        Ok(())
    }

    fn attempt(
        &self,
        request: Arc<ModelRequest>,
        _: Arc<Progress>,
    ) -> BoxStream<'static, Result<ModelEvent, Broken>> {
        request.dispatch.goes_to(&self.profile.name);
        stream::iter(self.events(&request).unwrap_or_else(|fault| vec![Err(fault.into())])).boxed()
    }
}

/// What the offline model does.
#[derive(Debug, PartialEq)]
enum Reply {
    /// A rule's words, as they are.
    Said(String),
    /// Its own words, to be put into the form that the agent answers in.
    Found(String),
    Call {
        tool: String,
        arguments: Map<String, Value>,
    },
}

fn reply(request: &ModelRequest, patterns: &Patterns) -> Result<Reply, ModelFault> {
    let task = request.messages.iter().map(|message| match &**message {
        Message::User { content } => content.len(),
        _ => 0,
    });
    if let Some(reply) = long_work::over(task.sum(), || rules::apply(request, patterns))? {
        return Ok(reply);
    }
    Ok(match request.messages.last().map(|m| &**m) {
        Some(Message::Tool { name, status, content, .. }) => {
            Reply::Found(texts::outcome(name, *status, content))
        }
        Some(Message::User { content }) => asked(request, task_of(content)),
        _ => Reply::Found(texts::nothing(&tools(request))),
    })
}

/// All tools that may be called, sorted by name. Those that a language model would have to look up first are there
/// like the others, for their schemas cost nothing here; so there is nothing to look up.
fn tools(request: &ModelRequest) -> Cow<'_, [Arc<ToolSpec>]> {
    if request.deferred.is_empty() {
        return Cow::Borrowed(&request.tools);
    }
    let all = request.tools.iter().chain(request.deferred.iter());
    let all: BTreeMap<&str, &Arc<ToolSpec>> = all.map(|tool| (tool.name.as_str(), tool)).collect();
    all.into_iter().filter(|(name, _)| *name != SEARCH).map(|(_, tool)| Arc::clone(tool)).collect()
}

fn asked(request: &ModelRequest, task: &str) -> Reply {
    let tools = &*tools(request);
    match command::parse(task, tools) {
        Some(Ok((tool, arguments))) => return Reply::Call { tool, arguments },
        Some(Err(text)) => return Reply::Found(text),
        None => {}
    }
    if !request.agent.root {
        return Reply::Found(texts::identity(&request.agent, task));
    }
    if asks_for_help(task) {
        return Reply::Found(texts::abilities(tools));
    }
    let routed: Vec<_> =
        tools.iter().filter(|tool| !OF_THE_LOOP.contains(&tool.name.as_str())).cloned().collect();
    match route::best(task, &routed) {
        Some(tool) => use_tool(tool, task),
        None => Reply::Found(texts::nothing(tools)),
    }
}

/// Calls a tool with what the sentence holds: the sentence itself for an agent, `key=value` for the others.
fn use_tool(tool: &ToolSpec, task: &str) -> Reply {
    let mut arguments = command::pairs(task, tool);
    if let Some(name) = TASKS.iter().find(|name| requires_text(tool, name)) {
        arguments.entry(*name).or_insert_with(|| json!(task));
    }
    match command::missing(tool, &arguments).is_empty() {
        true => Reply::Call { tool: tool.name.as_str().to_owned(), arguments },
        false => Reply::Found(texts::how_to_call(tool)),
    }
}

/// What agents are told in, as the tools of others see them: by a task, and where they take the conversation over by a summary.
const TASKS: [&str; 2] = ["task", "summary"];

fn requires_text(tool: &ToolSpec, name: &str) -> bool {
    let schema = &tool.input_schema;
    schema.pointer(&format!("/properties/{name}/type")).and_then(Value::as_str) == Some("string")
        && schema.get("required").and_then(Value::as_array).is_some_and(|r| r.iter().any(|p| p == name))
}

fn asks_for_help(task: &str) -> bool {
    let plain: String = task.chars().filter(|c| c.is_alphanumeric() || c.is_whitespace()).collect();
    let words: Vec<String> = plain.split_whitespace().map(str::to_lowercase).collect();
    matches!(
        words.join(" ").as_str(),
        "" | "help"
            | "what can you do"
            | "what can i do"
            | "what do you do"
            | "what tools do you have"
            | "list tools"
            | "list agents"
    )
}

/// A JSON agent's answer is an object with the text under `answer`, if its schema takes that.
fn formed(text: String, output: Option<&OutputSpec>) -> String {
    match output {
        Some(OutputSpec { format: Format::Json, schema }) if schema.as_ref().is_none_or(takes_answer) => {
            json!({"answer": text}).to_string()
        }
        _ => text,
    }
}

fn takes_answer(schema: &Value) -> bool {
    let answer = schema.pointer("/properties/answer/type");
    let open = schema.get("additionalProperties").is_none_or(|p| p != &Value::Bool(false));
    let is_object = schema.get("type").is_none_or(|t| t == "object");
    let alone =
        schema.get("required").and_then(Value::as_array).is_none_or(|r| r.iter().all(|p| p == "answer"));
    is_object
        && alone
        && answer.map_or(open && schema.pointer("/properties/answer").is_none(), |t| t == "string")
}

/// A token is taken for four bytes: near enough for budgets to mean something, and always the same.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

fn weight(event: &ModelEvent) -> usize {
    match event {
        ModelEvent::Text(text) => text.len(),
        ModelEvent::ToolCall(call) => call.name.len() + call.arguments.len(),
        _ => 0,
    }
}

fn input_tokens(request: &ModelRequest) -> u64 {
    let messages = request.messages.iter().map(|m| match &**m {
        Message::User { content } | Message::Tool { content, .. } => content.len(),
        Message::Assistant { content, tool_calls, .. } => {
            content.len() + tool_calls.iter().map(|c| c.name.len() + c.arguments.len()).sum::<usize>()
        }
    });
    tokens(request.system.len() + messages.sum::<usize>())
}

#[cfg(test)]
mod tests;
