//! Whether the server is there, and whether the daemon behind it is.

use axum::Json;
use drupe_extension_api::control::Whoami;

use crate::credentials::Bearer;

/// Whether the server answers. Needs no token, and tells nothing else.
pub async fn alive() -> &'static str {
    "ok\n"
}

/// Whether the daemon answers, and to whom.
pub async fn ready(bearer: Bearer) -> Json<Whoami> {
    Json(bearer.who)
}
