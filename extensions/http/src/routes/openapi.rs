//! The document of the API, for programs that make clients and tests of it.
//!
//! It is made of the types that handlers read and write and of the list of routes, by the tests of this crate, which refuse one
//! that is older than these. So the schemas of all types are no part of what runs, and serving it costs nothing.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

use crate::credentials::Bearer;

/// In the form of OpenAPI 3.1.
const DOCUMENT: &str = include_str!("../../../../docs/reference/openapi.json");

pub async fn show(_: Bearer) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
