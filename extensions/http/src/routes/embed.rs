//! A chat in pages of other sites: the script that they load, and the frame that it opens.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use drupe_extension_api::Fault;
use drupe_http_page::policy_in_frames_of;

use super::page::given;
use crate::{failure::HttpFault, server::Server};

/// The script, which pages of any site may load: it does nothing there without a site of the configuration.
pub async fn script(headers: HeaderMap) -> Result<Response, HttpFault> {
    let mut response = given("/page/embed/embed.js", axum::http::StatusCode::OK, &headers)?;
    response.headers_mut().insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    Ok(response)
}

/// The frame, in which a visitor shows who they are.
pub async fn frame(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpFault> {
    let embed = server.embeds.get(&name).ok_or_else(|| {
        Fault::not_found(format!("there is no embed `{name}`"))
            .help("those that there are stand in `extensions.http.embeds` of drupe.yaml")
    })?;
    let policy = HeaderValue::try_from(policy_in_frames_of(&embed.origins)).map_err(Fault::internal)?;
    let mut response = given("/page/embed/index.html", axum::http::StatusCode::OK, &headers)?;
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}
