//! One task for one agent, and its answer.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    AgentId, Fault, FaultCode, Format, OutputSpec, ResponseStatus, SessionId, TurnId,
    control::{AgentDetail, Named, TurnArgument, TurnResult, Whoami, method},
    wire::{Submit, Submitted},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use uuid::Uuid;

#[cfg(test)]
use drupe_extension_api::schema::JsonSchemaText;

use super::body::Body;
use crate::routes::parts::{Path, Query};
use crate::{
    credentials::{Bearer, meant},
    failure::{HttpFault, soon, status_of_turn},
    server::Server,
};

/// The model that stands for whoever answers by itself.
const ORCHESTRATOR: [&str; 2] = ["drupe", "orchestrator"];

/// What the last part of the name of a session begins with whose answer was not to be kept.
const FLEETING: &str = "unstored-";

/// The header by which a request that is repeated is known.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A task in the query.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskByQuery {
    /// What is to be done, in words.
    #[cfg_attr(test, schemars(regex(pattern = r"\S")))]
    q: String,
    /// The form of the answer. JSON needs a schema, the request's or the agent's.
    #[serde(default)]
    format: Option<Format>,
    /// The JSON Schema of the answer, as text.
    #[cfg_attr(test, schemars(with = "Option<JsonSchemaText>"))]
    #[serde(default)]
    schema: Option<String>,
    /// A session that lasts; without it the task has one of its own, and is stopped when its client goes.
    #[serde(default)]
    session: Option<SessionId>,
}

/// A task in the body.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskByBody {
    #[cfg_attr(test, schemars(regex(pattern = r"\S")))]
    task: String,
    /// The form of the answer. JSON needs a schema, the request's or the agent's.
    #[serde(default)]
    format: Option<Format>,
    /// The JSON Schema of the answer.
    #[cfg_attr(test, schemars(with = "Option<JsonSchemaText>"))]
    #[serde(default)]
    schema: Option<Value>,
    /// A session that lasts; without it the task has one of its own, and is stopped when its client goes.
    #[serde(default)]
    session: Option<SessionId>,
    #[cfg_attr(test, schemars(regex(pattern = drupe_extension_api::schema::MODEL)))]
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    budget: TaskBudget,
}

/// What the task may take.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskBudget {
    /// Wall time in milliseconds; it can only make the limit smaller.
    #[serde(default)]
    time_ms: Option<u64>,
}

/// A task that was accepted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceptedTask {
    session: SessionId,
    turn: TurnId,
}

/// What came of a task.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TaskResult {
    #[serde(flatten)]
    turn: TurnResult,
    /// The answer as the JSON that it is, where it was to be that.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Value>,
}

pub async fn by_query(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(agent): Path,
    Query(TaskByQuery { q, format, schema, session }): Query<TaskByQuery>,
) -> Result<Response, HttpFault> {
    meant(&headers)?;
    let read = |text: String| {
        serde_json::from_str(&text).map_err(|error| Fault::invalid(format!("`schema` is no JSON: {error}")))
    };
    let schema = schema.map(read).transpose()?;
    let task = TaskByBody { task: q, format, schema, session, model: None, budget: TaskBudget::default() };
    run(&server, &bearer, &headers, &agent, task).await
}

pub async fn by_body(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(agent): Path,
    body: Body,
) -> Result<Response, HttpFault> {
    run(&server, &bearer, &headers, &agent, body.json()?).await
}

async fn run(
    server: &Arc<Server>,
    bearer: &Bearer,
    headers: &HeaderMap,
    agent: &str,
    task: TaskByBody,
) -> Result<Response, HttpFault> {
    let TaskByBody { task, format, schema, session, model, budget } = task;
    if task.trim().is_empty() {
        return Err(Fault::invalid("the task is empty")
            .help("it is `task` of the body, or `q` of the query")
            .into());
    }
    let agent = chosen(agent)?;
    let own = match (format, &schema) {
        (Some(Format::Json), None) => own_output(server, bearer, agent.as_ref()).await?,
        _ => None,
    };
    let output = OutputSpec::asked(format, schema, own.as_ref())?;
    let is_json = output.as_ref().is_some_and(|output| output.format == Format::Json);
    let lasts = session.is_some();
    let session = match session {
        Some(session) => session,
        None => fresh(&bearer.who)?,
    };
    let submit = Submit {
        agent,
        model,
        output,
        time_budget_ms: budget.time_ms,
        ..Submit::new(session.clone(), external_id(headers)?, task)
    };
    let is_asynchronous = asynchronous(headers);
    let (turn, mut leaving) = Leaving::hand_in(server, bearer, submit, lasts || is_asynchronous).await?;
    if is_asynchronous {
        let location = [(header::LOCATION, format!("/v1/turns/{turn}"))];
        return Ok((StatusCode::ACCEPTED, location, Json(AcceptedTask { session, turn })).into_response());
    }
    let result = wait(server, bearer, turn).await?;
    leaving.answered();
    Ok(told(result, is_json))
}

/// What the turn gave, when it has ended.
pub async fn wait(server: &Server, bearer: &Bearer, turn: TurnId) -> Result<TurnResult, Fault> {
    tokio::select! {
        result = server.control(bearer, method::TURN_WAIT, TurnArgument::brief(turn)) => result,
        () = server.closing() => Err(Fault::new(FaultCode::Unavailable, "the daemon restarts; the turn goes on")),
    }
}

/// The agent of a path; none for the one that chooses by itself.
fn chosen(agent: &str) -> Result<Option<AgentId>, Fault> {
    if ORCHESTRATOR.contains(&agent) {
        return Ok(None);
    }
    AgentId::new(agent).map(Some).map_err(|_| Fault::not_found(format!("there is no agent `{agent}`")))
}

/// The form that an agent gives its answers by itself.
async fn own_output(
    server: &Server,
    bearer: &Bearer,
    agent: Option<&AgentId>,
) -> Result<Option<OutputSpec>, Fault> {
    let id = agent.map_or(ORCHESTRATOR[1], AgentId::as_str).to_owned();
    let detail: AgentDetail = server.control(bearer, method::AGENTS_SHOW, Named { id }).await?;
    Ok(detail.status.output)
}

/// A session that nobody has, where whoever asks may have one.
pub fn fresh(who: &Whoami) -> Result<SessionId, Fault> {
    below(who, "")
}

/// The same, for an answer that is not to be found under its id: its session tells, since the daemon keeps it.
pub fn fleeting(who: &Whoami) -> Result<SessionId, Fault> {
    below(who, FLEETING)
}

pub fn is_fleeting(session: &SessionId) -> bool {
    session.as_str().contains(&format!(":{FLEETING}"))
}

fn below(who: &Whoami, kind: &str) -> Result<SessionId, Fault> {
    let above = who.sessions.as_deref().unwrap_or("http");
    Ok(SessionId::new(format!("{above}:{kind}{}", Uuid::now_v7().simple()))?)
}

/// By what the request is known, should it come again.
pub fn external_id(headers: &HeaderMap) -> Result<String, Fault> {
    match headers.get(IDEMPOTENCY_KEY).map(|key| key.to_str()) {
        Some(Ok(key)) if !key.is_empty() => Ok(key.to_owned()),
        Some(_) => Err(Fault::invalid("`Idempotency-Key` is to be printable ASCII, and not empty")),
        None => Ok(Uuid::now_v7().simple().to_string()),
    }
}

/// Whether the client would rather not wait.
fn asynchronous(headers: &HeaderMap) -> bool {
    let mut wishes = headers.get_all("prefer").iter().filter_map(|wish| wish.to_str().ok());
    wishes.any(|wish| wish.split(',').any(|one| one.trim().eq_ignore_ascii_case("respond-async")))
}

fn told(turn: TurnResult, is_json: bool) -> Response {
    let status = match (turn.status, turn.class) {
        (Some(ResponseStatus::Success) | None, _) => StatusCode::OK,
        (Some(ResponseStatus::Refused), _) => StatusCode::UNPROCESSABLE_ENTITY,
        (Some(ResponseStatus::Error), class) => {
            class.map_or(StatusCode::INTERNAL_SERVER_ERROR, status_of_turn)
        }
    };
    let output = is_json.then(|| serde_json::from_str(&turn.content).ok()).flatten();
    let mut response = (status, Json(TaskResult { turn, output })).into_response();
    soon(status, response.headers_mut());
    response
}

/// Stops a turn whose client goes before it has its answer.
pub struct Leaving {
    server: Arc<Server>,
    bearer: Bearer,
    turn: Option<TurnId>,
}

impl Leaving {
    /// Hands a message in, and gives its turn and what watches over that; one that lasts goes on without its client. A client
    /// may go while the daemon still takes the message in: so a task of its own waits for that, and what nobody takes from
    /// it any more is dropped and so stopped.
    pub async fn hand_in(
        server: &Arc<Server>,
        bearer: &Bearer,
        submit: Submit,
        lasts: bool,
    ) -> Result<(TurnId, Self), Fault> {
        let (tell, told) = oneshot::channel();
        let (server, bearer) = (Arc::clone(server), bearer.clone());
        let host = server.host.clone();
        host.spawn(async move {
            let submitted: Result<Submitted, _> = server.control(&bearer, method::TURN_SUBMIT, submit).await;
            let watched = submitted.map(|Submitted { turn, .. }| {
                (turn.clone(), Self { server, bearer, turn: (!lasts).then_some(turn) })
            });
            let _ = tell.send(watched);
        })?;
        told.await.unwrap_or_else(|_| Err(Fault::internal("the message was not handed in")))
    }

    pub fn answered(&mut self) {
        self.turn = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        // Its client did not go: it may ask again, by the same `Idempotency-Key`.
        if self.server.is_closing() {
            return;
        }
        let (server, bearer) = (Arc::clone(&self.server), self.bearer.clone());
        let stop = async move {
            let stopped = server.control::<()>(&bearer, method::TURN_STOP, TurnArgument::brief(turn));
            if let Err(fault) = stopped.await {
                server.host.debug(format!("a turn whose client went was not stopped: {fault}"));
            }
        };
        // Where nothing can be begun any more, everything ends.
        let _ = self.server.host.spawn(stop);
    }
}
