//! What the protocol's methods give.

use drupe_extension_api::{
    Fault, FaultCode,
    control::{AgentDetail, AgentStatus, Named, SessionDetail, SessionShow, SessionStatus, method},
    sdk::Host,
};
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
        Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, Prompt, PromptMessage, ReadResourceRequestParams,
        ReadResourceResponse, ReadResourceResult, Resource, ResourceContents, ResourceTemplate, Role,
        ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{McpCaller, calls};

/// The tool that stands for the orchestrator.
pub const ORCHESTRATOR: &str = "drupe";

/// How the address of a session begins.
const SESSIONS: &str = "drupe://sessions/";

/// Entries of one page of a list.
const PAGE: usize = 100;

/// Answers for one client.
pub struct Agents {
    pub host: Host,
    /// Who asks, where requests do not say so themselves: on a connection that is somebody's.
    pub caller: Option<McpCaller>,
}

impl Agents {
    /// Whoever makes this very request.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<McpCaller, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let of_request = parts.and_then(|parts| parts.extensions.get::<McpCaller>());
        let caller = of_request.or(self.caller.as_ref()).cloned();
        caller.ok_or_else(|| ErrorData::internal_error("the request bears no token", None))
    }

    /// Calls a method of the control API for whoever asks.
    pub async fn control<R: DeserializeOwned>(
        &self,
        caller: &McpCaller,
        method: &str,
        params: impl Serialize + Send,
    ) -> Result<R, Fault> {
        self.host.control_for(Some(&caller.token), method, params).await
    }
}

/// A fault as an error of the protocol.
fn told(fault: &Fault) -> ErrorData {
    let message = match &fault.help {
        Some(help) => format!("{}; {help}", fault.message),
        None => fault.message.clone(),
    };
    match fault.code {
        FaultCode::NotFound => ErrorData::resource_not_found(message, None),
        FaultCode::Invalid | FaultCode::Denied | FaultCode::Unauthenticated => {
            ErrorData::invalid_params(message, None)
        }
        _ => ErrorData::internal_error(message, None),
    }
}

/// One page of a list, and where the next one begins. A cursor that is none of ours is refused.
fn page<T>(
    all: Vec<T>,
    asked: Option<PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let cursor = asked.and_then(|asked| asked.cursor);
    let from = match &cursor {
        Some(cursor) => cursor.parse().map_err(|_| {
            ErrorData::invalid_params(format!("`{cursor}` is no cursor of this server"), None)
        })?,
        None => 0,
    };
    let next = (all.len() > from + PAGE).then(|| (from + PAGE).to_string());
    Ok((all.into_iter().skip(from).take(PAGE).collect(), next))
}

/// What every agent is given.
fn parameters() -> JsonObject {
    let schema = json!({
        "type": "object",
        "properties": {
            "task": {"type": "string", "description": "What the agent is to do, in words."},
            "format": {
                "type": "string", "enum": ["text", "markdown", "json"],
                "description": "The form of the answer; `json` needs a schema, here or the agent's own.",
            },
            "schema": {"type": "object", "description": "JSON Schema of the answer."},
            "session": {
                "type": "string",
                "description": "A conversation that lasts and goes on with each call that names it.",
            },
        },
        "required": ["task"],
        "additionalProperties": false,
    });
    schema.as_object().cloned().unwrap_or_default()
}

fn tool(name: String, title: String, description: String) -> Tool {
    Tool::new(name, description, parameters()).with_title(title)
}

impl ServerHandler for Agents {
    fn get_info(&self) -> ServerConfig {
        let offered = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
        ServerConfig::new(offered.build())
            .with_server_info(Implementation::new("drupe", env!("CARGO_PKG_VERSION")).with_title("drupe"))
            .with_instructions(
                "Each tool is an agent that does a task by itself; `drupe` chooses among them. What is said in a `session` lasts.",
            )
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context)?;
        let agents: Vec<AgentStatus> =
            self.control(&caller, method::AGENTS_LIST, ()).await.map_err(|fault| told(&fault))?;
        let mut tools = Vec::with_capacity(agents.len() + 1);
        if caller.who.agents.is_empty() {
            let description = "Does a task, with the help of the agents that it chooses.".to_owned();
            tools.push(tool(ORCHESTRATOR.to_owned(), "drupe".to_owned(), description));
        }
        let each = |agent: AgentStatus| tool(agent.id.to_string(), agent.name, agent.description);
        tools.extend(agents.into_iter().map(each));
        let (tools, next_cursor) = page(tools, request)?;
        Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(tools) })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context)?;
        calls::call(self, &caller, request, &context).await.map(CallToolResponse::from)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let sessions: Vec<SessionStatus> = self
            .control(&self.caller(&context)?, method::SESSIONS_LIST, ())
            .await
            .map_err(|fault| told(&fault))?;
        let each = |session: SessionStatus| {
            Resource::new(format!("{SESSIONS}{}", session.id), session.id.to_string())
                .with_description(session.title)
                .with_mime_type("application/json")
        };
        let (resources, next_cursor) = page(sessions.into_iter().map(each).collect(), request)?;
        Ok(ListResourcesResult { next_cursor, ..ListResourcesResult::with_all_items(resources) })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let session = ResourceTemplate::new(format!("{SESSIONS}{{id}}"), "session")
            .with_description("What was said in a conversation, and how each turn ended.")
            .with_mime_type("application/json");
        Ok(ListResourceTemplatesResult::with_all_items(vec![session]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let Some(id) = request.uri.strip_prefix(SESSIONS) else {
            let message = format!("there is no resource `{}`; sessions are `{SESSIONS}…`", request.uri);
            return Err(ErrorData::resource_not_found(message, None));
        };
        let (mut turns, mut after) = (Vec::new(), None);
        loop {
            let ask = SessionShow { id: id.to_owned(), after, brief: true };
            let part: SessionDetail =
                self.control(&caller, method::SESSIONS_SHOW, ask).await.map_err(|fault| told(&fault))?;
            turns.extend(part.turns.into_iter().map(|turn| {
                json!({
                    "turn": turn.turn, "input": turn.input, "status": turn.status, "content": turn.content,
                    "error": turn.error,
                })
            }));
            after = part.next;
            if after.is_none() {
                break;
            }
        }
        let text = json!({"session": id, "turns": turns}).to_string();
        let contents = ResourceContents::text(text, request.uri).with_mime_type("application/json");
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let caller = self.caller(&context)?;
        let agents: Vec<AgentStatus> =
            self.control(&caller, method::AGENTS_LIST, ()).await.map_err(|fault| told(&fault))?;
        let mut prompts = Vec::new();
        for agent in agents {
            let id = agent.id.to_string();
            let detail: AgentDetail = self
                .control(&caller, method::AGENTS_SHOW, Named { id: id.clone() })
                .await
                .map_err(|fault| told(&fault))?;
            if detail.usage.is_some() {
                prompts.push(Prompt::new(id, Some(agent.description), None).with_title(agent.name));
            }
        }
        let (prompts, next_cursor) = page(prompts, request)?;
        Ok(ListPromptsResult { next_cursor, ..ListPromptsResult::with_all_items(prompts) })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let caller = self.caller(&context)?;
        let none = || ErrorData::invalid_params(format!("there is no prompt `{}`", request.name), None);
        let detail: AgentDetail = self
            .control(&caller, method::AGENTS_SHOW, Named { id: request.name.clone() })
            .await
            .map_err(|_| none())?;
        let usage = detail.usage.ok_or_else(none)?;
        let asked = PromptMessage::new_text(Role::User, format!("Ask the agent `{}`: {usage}", request.name));
        Ok(GetPromptResult::new(vec![asked]).with_description(detail.status.description).into())
    }
}
