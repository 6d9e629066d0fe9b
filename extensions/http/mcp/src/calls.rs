//! A call of a tool: a turn of an agent, which ends with its client unless its session lasts.

use drupe_extension_api::{
    AgentId, Event, EventBody, Fault, FaultCode, Format, OutputSpec, ResponseStatus, SessionId, TurnId,
    control::{
        AgentDetail, EventsSubscribe, Named, SessionDetail, SessionShow, TurnArgument, TurnResult, method,
    },
    sdk::{Host, Items},
    wire::{Submit, Submitted},
};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, ProgressNotificationParam, ProgressToken},
    service::RequestContext,
};
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    McpCaller,
    handler::{Agents, ORCHESTRATOR},
};

/// A place behind all turns of a session.
const BEHIND_ALL: u64 = i64::MAX as u64;

/// What a client says of its task.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskArguments {
    task: String,
    #[serde(default)]
    format: Option<Format>,
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    session: Option<String>,
}

/// Runs a call to its end. What goes wrong in it is a result that says so, which the client's model can read; a tool that
/// is not there is an error of the protocol.
pub async fn call(
    agents: &Agents,
    caller: &McpCaller,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let id = match request.name.as_ref() {
        ORCHESTRATOR => "orchestrator",
        name => name,
    };
    let known: Result<AgentDetail, Fault> =
        agents.control(caller, method::AGENTS_SHOW, Named { id: id.to_owned() }).await;
    let detail = known.map_err(|fault| {
        ErrorData::invalid_params(format!("unknown tool `{}`: {}", request.name, fault.message), None)
    })?;
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let given = serde_json::from_value(arguments)
        .map_err(|error| Fault::invalid(format!("the arguments of `{}`: {error}", request.name)));
    let run = async {
        let given: TaskArguments = given?;
        let agent = (request.name != ORCHESTRATOR).then(|| detail.status.id.clone());
        run(agents, caller, agent, &detail, given, context).await
    };
    Ok(match run.await {
        Ok(result) => result,
        Err(fault) => {
            let help = fault.help.map(|help| format!("; {help}")).unwrap_or_default();
            CallToolResult::error(vec![ContentBlock::text(format!("{}{help}", fault.message))])
        }
    })
}

async fn run(
    agents: &Agents,
    caller: &McpCaller,
    agent: Option<AgentId>,
    detail: &AgentDetail,
    TaskArguments { task, format, schema, session }: TaskArguments,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, Fault> {
    let output = output(detail, format, schema)?;
    let is_json = output.as_ref().or(detail.output.as_ref()).is_some_and(|it| it.format == Format::Json);
    let lasts = session.is_some();
    let session = match session {
        Some(session) => SessionId::new(session)?,
        None => {
            let above = caller.who.sessions.as_deref().unwrap_or("mcp");
            SessionId::new(format!("{above}:{}", Uuid::now_v7().simple()))?
        }
    };
    let progress = match context.meta.get_progress_token() {
        Some(token) => Some((token, events(agents, caller, &session).await?)),
        None => None,
    };
    let external = Uuid::now_v7().simple().to_string();
    let submit = Submit { agent, output, ..Submit::new(session, external, task) };
    let Submitted { turn, .. } = agents.control(caller, method::TURN_SUBMIT, submit).await?;
    let mut leaving = Leaving {
        host: agents.host.clone(),
        token: caller.token.clone(),
        turn: (!lasts).then(|| turn.clone()),
    };
    let told = async {
        if let Some((token, items)) = progress {
            tell(items, &turn, token, context).await;
        }
    };
    let waited = async {
        let ask = TurnArgument::brief(turn.clone());
        let (result, ()) = tokio::join!(agents.control(caller, method::TURN_WAIT, ask), told);
        result
    };
    let result: TurnResult = tokio::select! {
        result = waited => result?,
        // Whoever takes a call back wants it stopped, whatever session it is in.
        () = context.ct.cancelled() => {
            leaving.turn = Some(turn);
            return Err(Fault::new(FaultCode::Cancelled, "the call was taken back"));
        }
    };
    leaving.turn = None;
    Ok(shown(result, is_json))
}

/// The form of the answer that a call asks for. JSON needs a schema, the caller's or the agent's.
fn output(
    detail: &AgentDetail,
    format: Option<Format>,
    schema: Option<Value>,
) -> Result<Option<OutputSpec>, Fault> {
    let own = || detail.output.clone().filter(|output| output.schema.is_some());
    match (format, schema) {
        (None, None) => Ok(None),
        (None | Some(Format::Json), Some(schema)) => {
            Ok(Some(OutputSpec { format: Format::Json, schema: Some(schema) }))
        }
        (Some(Format::Json), None) => own().map(Some).ok_or_else(|| {
            let id = &detail.status.id;
            Fault::invalid(format!("`format` is `json`, and neither the call nor agent `{id}` has a schema"))
                .help("give one in `schema`")
        }),
        (Some(format), None) => Ok(Some(OutputSpec { format, schema: None })),
        (Some(_), Some(_)) => Err(Fault::invalid("a `schema` is for an answer whose `format` is `json`")),
    }
}

fn shown(result: TurnResult, is_json: bool) -> CallToolResult {
    let text = |text: String| vec![ContentBlock::text(text)];
    match result.status {
        Some(ResponseStatus::Success) => {
            let structured = is_json.then(|| serde_json::from_str(&result.content).ok()).flatten();
            let mut shown = CallToolResult::success(text(result.content));
            shown.structured_content = structured;
            shown
        }
        _ => CallToolResult::error(text(result.error.unwrap_or(result.content))),
    }
}

/// What happens in a session from now on.
async fn events(agents: &Agents, caller: &McpCaller, session: &SessionId) -> Result<Items<Event>, Fault> {
    let ask = SessionShow { id: session.to_string(), after: Some(BEHIND_ALL), brief: true };
    // One that does not exist has none.
    let known = agents.control::<SessionDetail>(caller, method::SESSIONS_SHOW, ask).await;
    let after = known.map_or(0, |detail| detail.last_seq);
    let ask = EventsSubscribe { session: session.clone(), after, follow: true };
    agents.host.open_for(Some(&caller.token), method::EVENTS_SUBSCRIBE, ask).await
}

/// Tells what the turn begins, until it ends. Whoever does not hear it misses nothing of the result.
async fn tell(
    mut items: Items<Event>,
    turn: &TurnId,
    token: ProgressToken,
    context: &RequestContext<RoleServer>,
) {
    let mut steps = 0_u32;
    while let Ok(Some(event)) = items.next().await {
        if event.turn.as_ref() != Some(turn) {
            continue;
        }
        let message = match &event.body {
            EventBody::TurnCompleted { .. } => return,
            EventBody::ItemStarted { item } => item.name.clone(),
            _ => continue,
        };
        steps += 1;
        let mut progress = ProgressNotificationParam::new(token.clone(), steps.into());
        progress.message = message;
        if context.peer.notify_progress(progress).await.is_err() {
            return;
        }
    }
}

/// Stops a turn whose client goes before it has its answer.
struct Leaving {
    host: Host,
    token: String,
    turn: Option<TurnId>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        let (host, token) = (self.host.clone(), self.token.clone());
        let stop = async move {
            let stopped = host.control_for::<()>(Some(&token), method::TURN_STOP, TurnArgument::brief(turn));
            if let Err(fault) = stopped.await {
                host.warn(format!("a call whose client went is not stopped: {fault}"));
            }
        };
        // Where the extension ends, its client hears nothing more either way.
        let _ = self.host.spawn(stop);
    }
}
