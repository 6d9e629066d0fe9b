//! What stands in a path and in a query. What cannot be read is told as every other fault is.

use axum::{
    extract::{FromRequestParts, rejection::QueryRejection},
    http::request::Parts,
};
use drupe_extension_api::Fault;
use serde::de::DeserializeOwned;

use crate::failure::HttpFault;

/// The one variable part of a path, decoded.
pub struct Path(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Path {
    type Rejection = HttpFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpFault> {
        let given = axum::extract::Path::from_request_parts(parts, state).await;
        let axum::extract::Path(text) = given.map_err(|rejected| Fault::invalid(rejected.body_text()))?;
        Ok(Self(text))
    }
}

pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = HttpFault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpFault> {
        let given: Result<axum::extract::Query<T>, QueryRejection> =
            axum::extract::Query::from_request_parts(parts, state).await;
        let axum::extract::Query(read) = given.map_err(|rejected| {
            Fault::invalid(format!("the query cannot be read: {}", rejected.body_text()))
        })?;
        Ok(Self(read))
    }
}
