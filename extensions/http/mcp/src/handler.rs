//! What the protocol's methods give.
#![expect(
    deprecated,
    reason = "clients of the older revision, whose subscriptions and logging are not deprecated, are served too"
)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use drupe_extension_api::{
    Fault, FaultCode,
    control::{AgentDetail, AgentStatus, Named, SessionStatus, method},
    sdk::Host,
};
use http::request::Parts;
use parking_lot::Mutex;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CompletionInfo,
        Extensions, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
        PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, Reference, ResourceContents, ServerCapabilities, ServerConfig,
        SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
        UnsubscribeRequestParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    McpCaller, calls,
    changes::{self, FollowedSessions, ListChanges, Listener},
    prompts, sessions, tools,
};

/// Entries of one page of a list.
const PAGE: usize = 100;

/// Answers for one client.
pub struct Agents {
    pub host: Host,
    /// Who asks, where requests do not say so themselves: on a connection that is somebody's.
    caller: Option<McpCaller>,
    changes: Arc<ListChanges>,
    followed: FollowedSessions,
    /// Whether the client is told of changed lists, which it is once, however often it says that it is ready.
    is_told: AtomicBool,
    /// From which level on the client of a session wants to see a log.
    level: Mutex<Option<LoggingLevel>>,
    /// Over when the session is.
    lives: CancellationToken,
    _ends: DropGuard,
}

impl Agents {
    pub fn new(changes: &Arc<ListChanges>, host: Host, caller: Option<McpCaller>) -> Self {
        let lives = CancellationToken::new();
        Self {
            host,
            caller,
            changes: Arc::clone(changes),
            followed: FollowedSessions::default(),
            is_told: AtomicBool::new(false),
            level: Mutex::default(),
            _ends: lives.clone().drop_guard(),
            lives,
        }
    }

    /// From which level on the client of a session wants to see a log.
    pub fn level(&self) -> Option<LoggingLevel> {
        *self.level.lock()
    }

    /// Whoever makes this very request.
    fn caller(&self, extensions: &Extensions) -> Result<McpCaller, ErrorData> {
        let parts = extensions.get::<Parts>();
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

    async fn agents(&self, caller: &McpCaller) -> Result<Vec<AgentStatus>, ErrorData> {
        self.control(caller, method::AGENTS_LIST, ()).await.map_err(|fault| told(&fault))
    }

    async fn sessions(&self, caller: &McpCaller) -> Result<Vec<SessionStatus>, ErrorData> {
        self.control(caller, method::SESSIONS_LIST, ()).await.map_err(|fault| told(&fault))
    }

    /// The agent whose example a prompt is.
    async fn of_prompt(&self, caller: &McpCaller, name: &str) -> Result<(AgentStatus, String), ErrorData> {
        let none = || ErrorData::invalid_params(format!("there is no prompt `{name}`"), None);
        let shown = self.control(caller, method::AGENTS_SHOW, Named { id: name.to_owned() }).await;
        let AgentDetail { status, .. } = shown.map_err(|_| none())?;
        let usage = status.usage.clone().ok_or_else(none)?;
        Ok((status, usage))
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

/// One page of a list, and where the next one begins: behind the entry that the cursor names. So what comes and goes before
/// it moves nothing. A cursor that names no entry is refused.
fn page<T>(
    all: Vec<T>,
    name: impl Fn(&T) -> &str,
    asked: Option<PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let from = match asked.and_then(|asked| asked.cursor) {
        Some(cursor) => {
            let found = all.iter().position(|one| name(one) == cursor).ok_or_else(|| {
                let message = format!("`{cursor}` is no cursor of this list, or no more; begin anew");
                ErrorData::invalid_params(message, None)
            })?;
            found + 1
        }
        None => 0,
    };
    let more = all.len() > from + PAGE;
    let page: Vec<T> = all.into_iter().skip(from).take(PAGE).collect();
    let next = page.last().filter(|_| more).map(|last| name(last).to_owned());
    Ok((page, next))
}

impl ServerHandler for Agents {
    fn get_info(&self) -> ServerConfig {
        let offered = ServerCapabilities::builder()
            .enable_logging()
            .enable_completions()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed();
        ServerConfig::new(offered.build())
            .with_server_info(Implementation::new("drupe", env!("CARGO_PKG_VERSION")).with_title("drupe"))
            .with_instructions(
                "Each tool is an agent that does a task by itself; `drupe` chooses among them. What is said in a `session` lasts.",
            )
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let named = crate::NAMED.try_with(Option::clone).ok().flatten();
        named.filter(|tool| tool.name == name)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let Ok(caller) = self.caller(&context.extensions) else { return };
        if self.is_told.swap(true, Ordering::AcqRel) {
            return;
        }
        let (lives, changes) = (self.lives.clone(), self.changes.follow());
        let listener = Listener::Session(context.peer);
        let tell = changes::tell(self.host.clone(), caller, changes, listener, SubscriptionFilter::new());
        // Where nothing can be begun any more, everything ends.
        let _ = self.host.spawn(async move {
            lives.run_until_cancelled(tell).await;
        });
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let mut all = Vec::new();
        if caller.who.agents.is_empty() {
            all.push(tools::orchestrator());
        }
        all.extend(self.agents(&caller).await?.iter().map(tools::tool));
        let (tools, next_cursor) = page(all, |tool| &tool.name, request)?;
        Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(tools) })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        calls::call(self, &caller, request, &context).await.map(CallToolResponse::from)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let all = self.sessions(&self.caller(&context.extensions)?).await?;
        let (sessions, next_cursor) = page(all, |session| session.id.as_str(), request)?;
        let resources = sessions.into_iter().map(sessions::resource).collect();
        Ok(ListResourcesResult { next_cursor, ..ListResourcesResult::with_all_items(resources) })
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(vec![sessions::template()]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let id = sessions::of_uri(&request.uri)?;
        let read = sessions::read(self, &caller, id).await;
        let text = read.map_err(|fault| sessions::about(&request.uri, told(&fault)))?.to_string();
        let contents = ResourceContents::text(text, request.uri).with_mime_type(sessions::JSON);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let (uri, session) = (&request.uri, sessions::of_uri(&request.uri)?);
        let added = self.followed.add(&self.changes, &caller, uri, session, Listener::Session(context.peer));
        added.await.map_err(|fault| told(&fault))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.followed.remove(&request.uri).await;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        let uris = accepted.resource_subscriptions.iter_mut();
        uris.for_each(|uris| uris.retain(|uri| sessions::of_uri(uri).is_ok()));
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = self.caller(&context.request_context().extensions)?;
        let (listener, wanted) = (Listener::Request(context.sink().clone()), context.accepted().clone());
        let followed = FollowedSessions::default();
        for uri in wanted.resource_subscriptions.iter().flatten() {
            let session = sessions::of_uri(uri)?;
            let added = followed.add(&self.changes, &caller, uri, session, listener.clone());
            added.await.map_err(|fault| told(&fault))?;
        }
        let changes = self.changes.follow();
        tokio::select! {
            () = changes::tell(self.host.clone(), caller, changes, listener, wanted) => {}
            () = context.cancelled() => {}
        }
        Ok(())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let agents = self.agents(&self.caller(&context.extensions)?).await?;
        let all = agents.iter().filter_map(prompts::prompt).collect();
        let (prompts, next_cursor) = page(all, |prompt| &prompt.name, request)?;
        Ok(ListPromptsResult { next_cursor, ..ListPromptsResult::with_all_items(prompts) })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let (agent, usage) = self.of_prompt(&caller, &request.name).await?;
        prompts::filled(&agent, &usage, request.arguments).map(GetPromptResponse::from)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let caller = self.caller(&context.extensions)?;
        let (name, begun) = (&request.argument.name, &request.argument.value);
        let mut values = match &request.r#ref {
            Reference::Prompt(prompt) => {
                let (agent, _) = self.of_prompt(&caller, &prompt.name).await?;
                prompts::completions(&agent, name, begun)?
            }
            Reference::Resource(template) if template.uri == sessions::template_uri() && name == "id" => {
                let all = self.sessions(&caller).await?.into_iter().map(|session| session.id.to_string());
                all.filter(|id| id.starts_with(begun)).collect()
            }
            other => {
                let kind = other.reference_type();
                let message = format!("this `{kind}` has no argument `{name}`, or there is none");
                return Err(ErrorData::invalid_params(message, None));
            }
        };
        let (all, most) = (values.len(), CompletionInfo::MAX_VALUES);
        values.truncate(most);
        let info = CompletionInfo::with_pagination(values, u32::try_from(all).ok(), all > most);
        info.map(CompleteResult::new).map_err(|error| ErrorData::internal_error(error, None))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // The newer revision has each request name its level.
        if context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.level.lock() = Some(request.level);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_behind_what_the_cursor_names() {
        let all: Vec<String> = (0..250).map(|number| format!("{number:03}")).collect();
        let asked =
            |cursor: &str| Some(PaginatedRequestParams::default().with_cursor(Some(cursor.to_owned())));
        let (first, next) = page(all.clone(), |one| one, None).expect("a page");
        assert_eq!((first.len(), next.as_deref()), (PAGE, Some("099")));
        let shifted: Vec<String> = std::iter::once("new".to_owned()).chain(all).collect();
        let (second, next) = page(shifted.clone(), |one| one, asked("099")).expect("a page");
        assert_eq!((second[0].as_str(), next.as_deref()), ("100", Some("199")));
        let (third, next) = page(shifted.clone(), |one| one, asked("199")).expect("a page");
        assert_eq!((third.len(), next), (50, None));
        assert!(page(shifted, |one| one, asked("nothing")).is_err());
    }
}
