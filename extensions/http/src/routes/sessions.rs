//! Sessions and their turns.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    AgentId, Fault, ResponseStatus, SessionId, TurnId,
    control::{
        DeletedSession, Named, Persona, SessionDetail, SessionPersonas, SessionSelect, SessionShow,
        SessionStatus, TurnArgument, TurnResult, method,
    },
    wire::{QueueMode, Submit, Submitted},
};
use serde::{Deserialize, Serialize};

use super::{
    body::Body,
    run::{external_id, fresh, wait},
};
use crate::routes::parts::{Path, Query};
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

/// A session that is to be.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Its id; one that nobody has without it.
    #[serde(default)]
    id: Option<SessionId>,
    /// The agent that answers in it.
    #[serde(default)]
    agent: Option<AgentId>,
    /// Agents that it alone has.
    #[serde(default)]
    personas: Vec<Persona>,
}

/// Which turns of a session are wanted.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TurnsAfter {
    /// Only turns behind this place, which an earlier answer named as its `next`.
    #[serde(default)]
    after: Option<u64>,
}

/// A message for a session.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    #[cfg_attr(test, schemars(regex(pattern = r"\S")))]
    text: String,
    #[serde(default)]
    agent: Option<AgentId>,
    #[cfg_attr(test, schemars(regex(pattern = drupe_extension_api::schema::MODEL)))]
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    queue: Option<QueueMode>,
    /// Whether the answer is waited for; else it is accepted, and read later.
    #[serde(default)]
    wait: bool,
}

/// A message that was accepted.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AcceptedMessage {
    pub session: SessionId,
    #[serde(flatten)]
    pub submitted: Submitted,
}

impl IntoResponse for AcceptedMessage {
    fn into_response(self) -> Response {
        let location = [(header::LOCATION, format!("/v1/turns/{}", self.submitted.turn))];
        (StatusCode::ACCEPTED, location, Json(self)).into_response()
    }
}

/// The name of a session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Made {
    id: SessionId,
}

/// How many turns were stopped.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StoppedTurns {
    stopped: u64,
}

/// What was said in a session.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SaidMessages {
    session: SessionId,
    messages: Vec<SaidMessage>,
    /// Where further messages follow; asked for with it as `after`.
    next: Option<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum SaidMessage {
    User { turn: TurnId, content: String },
    Assistant { turn: TurnId, content: String, status: ResponseStatus },
}

pub async fn list(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
) -> Result<Json<Vec<SessionStatus>>, HttpFault> {
    Ok(Json(server.control(&bearer, method::SESSIONS_LIST, ()).await?))
}

/// A session comes to be with its first message, or with the agent that was chosen for it: where there is none, this gives a
/// name that nobody has.
pub async fn create(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    body: Body,
) -> Result<Response, HttpFault> {
    let NewSession { id, agent, personas } = body.optional()?.unwrap_or_default();
    let session = match id {
        Some(id) => id,
        None => fresh(&bearer.who)?,
    };
    if !personas.is_empty() {
        let given = SessionPersonas { session: session.clone(), personas };
        server.control::<()>(&bearer, method::SESSION_PERSONAS, given).await?;
    }
    if agent.is_some() {
        let select = SessionSelect { session: session.clone(), agent };
        server.control::<()>(&bearer, method::SESSION_SELECT, select).await?;
    }
    let location = [(header::LOCATION, format!("/v1/sessions/{session}"))];
    Ok((StatusCode::CREATED, location, Json(Made { id: session })).into_response())
}

pub async fn show(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path,
    Query(TurnsAfter { after }): Query<TurnsAfter>,
) -> Result<Json<SessionDetail>, HttpFault> {
    let ask = SessionShow { id, after, brief: true };
    Ok(Json(server.control(&bearer, method::SESSIONS_SHOW, ask).await?))
}

/// What was said: each message with its answer, as far as there is one.
pub async fn messages(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path,
    Query(TurnsAfter { after }): Query<TurnsAfter>,
) -> Result<Json<SaidMessages>, HttpFault> {
    let ask = SessionShow { id, after, brief: true };
    let detail: SessionDetail = server.control(&bearer, method::SESSIONS_SHOW, ask).await?;
    let said = |TurnResult { turn, input, content, status, .. }: TurnResult| {
        let answered = status.map(|status| SaidMessage::Assistant { turn: turn.clone(), content, status });
        [Some(SaidMessage::User { turn, content: input }), answered]
    };
    let messages = detail.turns.into_iter().flat_map(said).flatten().collect();
    Ok(Json(SaidMessages { session: detail.status.id, messages, next: detail.next }))
}

pub async fn submit(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(session): Path,
    body: Body,
) -> Result<Response, HttpFault> {
    let NewMessage { text, agent, model, queue, wait } = body.json()?;
    let session = SessionId::new(session).map_err(Fault::from)?;
    let submit = Submit { agent, model, queue, ..Submit::new(session, external_id(&headers)?, text) };
    answer(&server, &bearer, submit, wait).await
}

pub async fn stop(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path,
) -> Result<Json<StoppedTurns>, HttpFault> {
    let stopped = server.control(&bearer, method::SESSIONS_STOP, Named { id }).await?;
    Ok(Json(StoppedTurns { stopped }))
}

/// Deletes a session for good.
pub async fn delete(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path,
) -> Result<Json<DeletedSession>, HttpFault> {
    Ok(Json(server.control(&bearer, method::SESSIONS_DELETE, Named { id }).await?))
}

/// Hands the last message in once more.
pub async fn retry(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(id): Path,
) -> Result<Response, HttpFault> {
    let mut after = None;
    let (session, last) = loop {
        let ask = SessionShow { id: id.clone(), after, brief: true };
        let mut detail: SessionDetail = server.control(&bearer, method::SESSIONS_SHOW, ask).await?;
        match detail.next {
            Some(_) => after = detail.next,
            None => break (detail.status.id, detail.turns.pop()),
        }
    };
    let last =
        last.ok_or_else(|| Fault::not_found(format!("session `{session}` has no message to send again")))?;
    let submit = Submit::new(session, external_id(&headers)?, last.input);
    answer(&server, &bearer, submit, false).await
}

pub async fn turn(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(turn): Path,
) -> Result<Json<TurnResult>, HttpFault> {
    let turn = TurnId::new(turn).map_err(Fault::from)?;
    Ok(Json(wait(&server, &bearer, turn).await?))
}

pub async fn stop_turn(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(turn): Path,
) -> Result<StatusCode, HttpFault> {
    let turn = TurnId::new(turn).map_err(Fault::from)?;
    server.control::<()>(&bearer, method::TURN_STOP, TurnArgument::brief(turn)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn answer(
    server: &Arc<Server>,
    bearer: &Bearer,
    submit: Submit,
    wanted: bool,
) -> Result<Response, HttpFault> {
    let session = submit.session.clone();
    let submitted: Submitted = server.control(bearer, method::TURN_SUBMIT, submit).await?;
    if wanted {
        return Ok(Json(wait(server, bearer, submitted.turn).await?).into_response());
    }
    Ok(AcceptedMessage { session, submitted }.into_response())
}
