//! The page: its files, and the markup of the markdown that it shows.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{Fault, FaultCode};
use drupe_http_page::{Asset, CONTENT_SECURITY_POLICY, asset};
use serde::Serialize;

use super::body::Body;
use crate::{credentials::Bearer, failure::HttpFault, server::Server};

/// What a reader is shown who is not signed in.
const SIGN_IN: &str = "/page/sign-in.html";

/// What that needs, which anybody may have.
const OPEN: [&str; 13] = [
    SIGN_IN,
    "/page/css/base.css",
    "/page/css/frame.css",
    "/page/js/theme.js",
    "/page/icon.svg",
    // In a frame of another site nobody is signed in.
    "/page/css/conversation.css",
    "/page/embed/chat.css",
    "/page/embed/chat.js",
    "/page/js/control.js",
    "/page/js/dom.js",
    "/page/js/markdown.js",
    "/page/js/stream.js",
    "/page/js/turns.js",
];

/// Markup that the page may show.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Markup {
    html: String,
}

/// The page, or how one comes to it.
pub async fn home(bearer: Result<Bearer, HttpFault>, headers: HeaderMap) -> Result<Response, HttpFault> {
    match bearer {
        Ok(_) => given("/", StatusCode::OK, &headers),
        Err(HttpFault { fault, .. }) if fault.code == FaultCode::Unauthenticated => {
            given(SIGN_IN, StatusCode::UNAUTHORIZED, &headers)
        }
        Err(fault) => Err(fault),
    }
}

/// A file of the page.
pub async fn file(
    bearer: Result<Bearer, HttpFault>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, HttpFault> {
    if !OPEN.contains(&uri.path()) {
        bearer?;
    }
    given(uri.path(), StatusCode::OK, &headers)
}

/// Makes markup of markdown, of which nothing runs and nothing is loaded.
pub async fn markdown(
    State(server): State<Arc<Server>>,
    _: Bearer,
    body: Body,
) -> Result<Json<Markup>, HttpFault> {
    let text = body.text()?.to_owned();
    let html = server.host.blocking(move || Ok(drupe_http_page::markdown(&text))).await?;
    Ok(Json(Markup { html }))
}

pub fn given(path: &str, status: StatusCode, headers: &HeaderMap) -> Result<Response, HttpFault> {
    let Some(Asset { body, content_type, etag }) = asset(path) else {
        return Err(Fault::not_found(format!("the page has no file `{path}`")).into());
    };
    let told: [(HeaderName, &str); 6] = [
        (header::CONTENT_TYPE, content_type),
        (header::ETAG, etag),
        // Asked for again each time, and sent only where it is another one.
        (header::CACHE_CONTROL, "no-cache"),
        (header::VARY, "Cookie"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag);
    Ok(match known && status == StatusCode::OK {
        true => (StatusCode::NOT_MODIFIED, told).into_response(),
        false => (status, told, body).into_response(),
    })
}
