//! How a person comes to the page: a link from the terminal, which is good once, and a cookie after that.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::control::{Named, TokenMade, method};
use serde::Deserialize;

use crate::routes::parts::Query;
use crate::{
    credentials::{Bearer, COOKIE},
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

/// Has the browser forget the cookie. What the token may do ends with `drupe token revoke`.
pub async fn leave(State(server): State<Arc<Server>>, _: Bearer) -> Response {
    home(&server, "", 0)
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
