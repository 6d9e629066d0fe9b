//! How a person comes to the page: a link from the terminal, which is good once, and a cookie after that.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    FaultCode,
    control::{Named, TokenMade, method},
};
use serde::Deserialize;

use crate::routes::parts::Query;
use crate::{
    credentials::{Bearer, COOKIE, cookie},
    failure::HttpFault,
    server::Server,
};

/// How long the browser keeps the cookie, in seconds; `drupe token revoke` ends it before.
const KEPT: u32 = 30 * 24 * 3600;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SignIn {
    /// The code of the link.
    code: String,
}

/// Gives the token that was promised to the bearer of the code, in a cookie.
pub async fn enter(
    State(server): State<Arc<Server>>,
    Query(SignIn { code }): Query<SignIn>,
) -> Result<Response, HttpFault> {
    let made: TokenMade = server.host.control(method::TOKENS_REDEEM, Named { id: code }).await?;
    Ok(home(&server, &made.token, KEPT))
}

/// Ends the token in the cookie, and has the browser forget it. A token that a program shows is left as it is.
pub async fn leave(
    State(server): State<Arc<Server>>,
    _: Bearer,
    headers: HeaderMap,
) -> Result<Response, HttpFault> {
    if let Some(token) = cookie(&headers) {
        match server.host.control_for::<()>(Some(token), method::TOKENS_LEAVE, ()).await {
            // Somebody else may have ended it meanwhile.
            Err(fault) if fault.code != FaultCode::Unauthenticated => return Err(fault.into()),
            _ => {}
        }
    }
    Ok(home(&server, "", 0))
}

fn home(server: &Server, token: &str, seconds: u32) -> Response {
    let secure = if server.settings.behind_proxy { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    let headers = [
        (header::LOCATION, "/".to_owned()),
        (header::SET_COOKIE, cookie),
        // The link itself is worth nothing any more, and is not to be told to anybody all the same.
        (header::REFERRER_POLICY, "no-referrer".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}
