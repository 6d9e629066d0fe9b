//! A call of a tool: a turn of an agent, which ends with its client unless its session lasts.

use drupe_extension_api::{
    AgentId, Event, Fault, FaultCode, Format, OutputSpec, ResponseStatus, SessionId, TurnId,
    control::{
        AgentDetail, EventsSubscribe, Named, SessionDetail, SessionShow, TurnArgument, TurnResult, method,
    },
    sdk::{Host, Items},
    wire::{Submit, Submitted},
};
use rmcp::{
    ErrorData, RoleServer,
    model::{CallToolRequestParams, CallToolResult, ContentBlock},
    service::RequestContext,
};
use uuid::Uuid;

use crate::{
    McpCaller,
    handler::Agents,
    steps::Steps,
    tools::{self, AskedTask, ORCHESTRATOR},
};

/// Runs a call to its end. What goes wrong in it is a result that says so, which the client's model can read; a tool that
/// is not there is an error of the protocol.
pub async fn call(
    agents: &Agents,
    caller: &McpCaller,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let is_agent = request.name != ORCHESTRATOR;
    let id = if is_agent { request.name.to_string() } else { "orchestrator".to_owned() };
    let known: Result<AgentDetail, Fault> = agents.control(caller, method::AGENTS_SHOW, Named { id }).await;
    let agent = known.map_err(|fault| {
        ErrorData::invalid_params(format!("unknown tool `{}`: {}", request.name, fault.message), None)
    })?;
    let agent = agent.status;
    let given = request.arguments.unwrap_or_default();
    let own = agent.output.as_ref();
    let run = async {
        let task = tools::read(&request.name, is_agent.then_some(&agent), own, given)?;
        run(agents, caller, is_agent.then(|| agent.id.clone()), own, task, context).await
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
    own: Option<&OutputSpec>,
    AskedTask { text, output, session }: AskedTask,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResult, Fault> {
    let is_json = output.as_ref().or(own).is_some_and(|it| it.format == Format::Json);
    let lasts = session.is_some();
    let session = match session {
        Some(session) => SessionId::new(session)?,
        None => {
            let above = caller.who.sessions.as_deref().unwrap_or("mcp");
            SessionId::new(format!("{above}:{}", Uuid::now_v7().simple()))?
        }
    };
    let followed = match Steps::wanted(agents, context) {
        Some(steps) => Some((steps, events(agents, caller, &session).await?)),
        None => None,
    };
    let external = Uuid::now_v7().simple().to_string();
    let submit = Submit { agent, output, ..Submit::new(session, external, text) };
    let Submitted { turn, .. } = agents.control(caller, method::TURN_SUBMIT, submit).await?;
    let mut leaving = Leaving {
        host: agents.host.clone(),
        token: caller.token.clone(),
        turn: (!lasts).then(|| turn.clone()),
    };
    let told = async {
        if let Some((steps, items)) = followed {
            steps.tell(items, &turn, context).await;
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
    let ask = SessionShow { id: session.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
    // One that does not exist has none.
    let known = agents.control::<SessionDetail>(caller, method::SESSIONS_SHOW, ask).await;
    let after = known.map_or(0, |detail| detail.last_seq);
    let ask = EventsSubscribe { session: session.clone(), after, follow: true };
    agents.host.open_for(Some(&caller.token), method::EVENTS_SUBSCRIBE, ask).await
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
