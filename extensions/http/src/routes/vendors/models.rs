//! Agents as models, in the form of whichever vendor's client asks.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
    http::HeaderMap,
};
use drupe_extension_api::control::{AgentStatus, method};
use drupe_http_compat::{
    ORCHESTRATOR, Rejection, Vendor,
    models::{ModelPage, ServedModel, anthropic_list, openai_list},
};
use serde_json::Value;

use super::{Rejected, refused};
use crate::routes::parts::Path;
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

pub async fn list(
    State(server): State<Arc<Server>>,
    bearer: Result<Bearer, HttpFault>,
    headers: HeaderMap,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Json<Value>, Rejected> {
    let vendor = vendor(&headers);
    let models = served(&server, bearer).await.map_err(|rejection| Rejected(vendor, rejection))?;
    let list = match vendor {
        Vendor::OpenAi => Ok(openai_list(&models)),
        Vendor::Anthropic => {
            ModelPage::parse(query.iter().map(|(key, value)| (key.as_str(), value.as_str())))
                .and_then(|page| anthropic_list(&models, &page))
        }
    };
    list.map(Json).map_err(|rejection| Rejected(vendor, rejection))
}

pub async fn show(
    State(server): State<Arc<Server>>,
    bearer: Result<Bearer, HttpFault>,
    headers: HeaderMap,
    id: Result<Path, HttpFault>,
) -> Result<Json<Value>, Rejected> {
    let vendor = vendor(&headers);
    let models = served(&server, bearer).await.map_err(|rejection| Rejected(vendor, rejection))?;
    let Path(id) = id.map_err(|failure| Rejected(vendor, refused(&failure)))?;
    let model = models.iter().find(|model| model.id == id);
    let model = model.ok_or_else(|| Rejected(vendor, Rejection::no_such_model(&id)))?;
    Ok(Json(model.body(vendor)))
}

/// Those that whoever asks reaches.
async fn served(server: &Server, bearer: Result<Bearer, HttpFault>) -> Result<Vec<ServedModel>, Rejection> {
    let bearer = bearer.map_err(|failure| refused(&failure))?;
    let agents: Result<Vec<AgentStatus>, _> = server.control(&bearer, method::AGENTS_LIST, ()).await;
    let agents = agents.map_err(|fault| Rejection::from(&fault))?;
    // Whoever reaches some agents only does not reach the one that chooses among all of them.
    let orchestrator = bearer
        .who
        .agents
        .is_empty()
        .then(|| ServedModel { id: ORCHESTRATOR.to_owned(), name: "drupe".to_owned() });
    let others = agents.into_iter().map(|agent| ServedModel { id: agent.id.to_string(), name: agent.name });
    Ok(orchestrator.into_iter().chain(others).collect())
}

fn vendor(headers: &HeaderMap) -> Vendor {
    Vendor::of(|name| headers.get(name).and_then(|value| value.to_str().ok()))
}
