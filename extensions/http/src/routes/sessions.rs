//! Sessions and their turns.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    AgentId, Fault, SessionId, TurnId,
    control::{
        Named, SessionDetail, SessionSelect, SessionShow, SessionStatus, TurnArgument, TurnResult, method,
    },
    wire::{QueueMode, Submit, Submitted},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    body::Body,
    run::{external_id, fresh, wait},
};
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

/// A session that is to be.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewSession {
    /// Its id; one that nobody has without it.
    #[serde(default)]
    id: Option<String>,
    /// The agent that answers in it.
    #[serde(default)]
    agent: Option<AgentId>,
}

/// Which turns.
#[derive(Debug, Deserialize)]
pub struct TurnsAfter {
    #[serde(default)]
    after: Option<u64>,
}

/// A message for a session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    text: String,
    #[serde(default)]
    agent: Option<AgentId>,
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
struct Accepted {
    session: SessionId,
    #[serde(flatten)]
    submitted: Submitted,
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
    let NewSession { id, agent } = body.optional()?.unwrap_or_default();
    let session = match id {
        Some(id) => SessionId::new(id).map_err(Fault::from)?,
        None => fresh(&bearer.who)?,
    };
    if agent.is_some() {
        let select = SessionSelect { session: session.clone(), agent };
        server.control::<()>(&bearer, method::SESSION_SELECT, select).await?;
    }
    let location = [(header::LOCATION, format!("/v1/sessions/{session}"))];
    Ok((StatusCode::CREATED, location, Json(json!({ "id": session }))).into_response())
}

pub async fn show(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path<String>,
    Query(TurnsAfter { after }): Query<TurnsAfter>,
) -> Result<Json<SessionDetail>, HttpFault> {
    let ask = SessionShow { id, after, brief: true };
    Ok(Json(server.control(&bearer, method::SESSIONS_SHOW, ask).await?))
}

/// What was said: each message with its answer, as far as there is one.
pub async fn messages(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(id): Path<String>,
    Query(TurnsAfter { after }): Query<TurnsAfter>,
) -> Result<Json<Value>, HttpFault> {
    let ask = SessionShow { id, after, brief: true };
    let detail: SessionDetail = server.control(&bearer, method::SESSIONS_SHOW, ask).await?;
    let said = |turn: &TurnResult| {
        let asked = json!({ "role": "user", "turn": turn.turn, "content": turn.input });
        let answered = turn.status.map(|status| {
            json!({ "role": "assistant", "turn": turn.turn, "content": turn.content, "status": status })
        });
        [Some(asked), answered]
    };
    let messages: Vec<_> = detail.turns.iter().flat_map(said).flatten().collect();
    Ok(Json(json!({ "session": detail.status.id, "messages": messages, "next": detail.next })))
}

pub async fn submit(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(session): Path<String>,
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
    Path(id): Path<String>,
) -> Result<Json<Value>, HttpFault> {
    let stopped: u64 = server.control(&bearer, method::SESSIONS_STOP, Named { id }).await?;
    Ok(Json(json!({ "stopped": stopped })))
}

/// Hands the last message in once more.
pub async fn retry(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    headers: HeaderMap,
    Path(id): Path<String>,
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
    Path(turn): Path<String>,
) -> Result<Json<TurnResult>, HttpFault> {
    let turn = TurnId::new(turn).map_err(Fault::from)?;
    Ok(Json(wait(&server, &bearer, turn).await?))
}

pub async fn stop_turn(
    State(server): State<Arc<Server>>,
    bearer: Bearer,
    Path(turn): Path<String>,
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
    let location = [(header::LOCATION, format!("/v1/turns/{}", submitted.turn))];
    Ok((StatusCode::ACCEPTED, location, Json(Accepted { session, submitted })).into_response())
}
