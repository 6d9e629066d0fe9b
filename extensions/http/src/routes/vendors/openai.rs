//! OpenAI's Chat Completions and Responses.

use std::sync::Arc;

use axum::{Json, extract::State, http::HeaderMap};
use drupe_extension_api::{
    AgentId, Fault,
    control::{TurnArgument, TurnResult, method},
};
use drupe_http_compat::{ChatRequest, ORCHESTRATOR, Rejection, ResponsesRequest, Vendor, responses::turn_of};
use serde_json::{Value, json};

use super::{Rejected, exchange, refused};
use crate::routes::parts::Path;
use crate::{
    credentials::Bearer,
    failure::HttpFault,
    routes::{body::Body, run::is_fleeting},
    server::Server,
};

type Answer = Result<axum::response::Response, Rejected>;
type Known = Result<Bearer, HttpFault>;
type Named = Result<Path, HttpFault>;
type Sent = Result<Body, HttpFault>;

pub async fn chat(
    State(server): State<Arc<Server>>,
    bearer: Known,
    headers: HeaderMap,
    body: Sent,
) -> Answer {
    let bearer = bearer.map_err(told)?;
    let request = ChatRequest::parse(body.map_err(told)?.bytes()).map_err(rejected)?;
    exchange::answer(&server, &bearer, &headers, Vendor::OpenAi, &request.ask, |turn| request.encoder(turn))
        .await
}

pub async fn respond(
    State(server): State<Arc<Server>>,
    bearer: Known,
    headers: HeaderMap,
    body: Sent,
) -> Answer {
    let bearer = bearer.map_err(told)?;
    let request = ResponsesRequest::parse(body.map_err(told)?.bytes()).map_err(rejected)?;
    exchange::answer(&server, &bearer, &headers, Vendor::OpenAi, &request.ask, |turn| request.encoder(turn))
        .await
}

/// An answer that was given, or that is on its way.
pub async fn retrieve(
    State(server): State<Arc<Server>>,
    bearer: Known,
    response: Named,
) -> Result<Json<Value>, Rejected> {
    let (bearer, Path(response)) = (bearer.map_err(told)?, response.map_err(told)?);
    shown(&server, &bearer, &response).await
}

/// Stops an answer that is on its way, and shows what became of it.
pub async fn cancel(
    State(server): State<Arc<Server>>,
    bearer: Known,
    response: Named,
) -> Result<Json<Value>, Rejected> {
    let (bearer, Path(response)) = (bearer.map_err(told)?, response.map_err(told)?);
    let turn = turn_of(&response).ok_or_else(|| unknown(&response))?;
    let stopped = server.control::<()>(&bearer, method::TURN_STOP, TurnArgument::brief(turn.clone())).await;
    stopped.map_err(|fault| rejected(Rejection::from(&fault)))?;
    let ended: Result<TurnResult, Fault> =
        server.control(&bearer, method::TURN_WAIT, TurnArgument::brief(turn)).await;
    ended.map_err(|fault| rejected(Rejection::from(&fault)))?;
    shown(&server, &bearer, &response).await
}

async fn shown(server: &Server, bearer: &Bearer, response: &str) -> Result<Json<Value>, Rejected> {
    let turn = turn_of(response).ok_or_else(|| unknown(response))?;
    let ask = TurnArgument { turn: turn.clone(), now: true, brief: false };
    let result: TurnResult =
        server.control(bearer, method::TURN_WAIT, ask).await.map_err(|_| unknown(response))?;
    if is_fleeting(&result.session) {
        return Err(unknown(response));
    }
    let root = result.invocations.iter().find(|run| run.depth == 0).map(|run| &run.agent);
    let model = root.filter(|agent| agent.as_str() != "orchestrator").map_or(ORCHESTRATOR, AgentId::as_str);
    let request = json!({ "model": model, "input": result.input });
    let request = ResponsesRequest::parse(request.to_string().as_bytes()).map_err(rejected)?;
    let mut encoder = request.encoder(&exchange::served(turn));
    encoder.begin();
    if result.status.is_some() {
        exchange::finish(&mut encoder, result, usize::MAX);
    }
    Ok(Json(encoder.object()))
}

fn unknown(response: &str) -> Rejected {
    rejected(Rejection::from(&Fault::not_found(format!("there is no response `{response}`"))))
}

fn told(failure: HttpFault) -> Rejected {
    rejected(refused(&failure))
}

fn rejected(rejection: Rejection) -> Rejected {
    Rejected(Vendor::OpenAi, rejection)
}
