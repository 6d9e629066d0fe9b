//! The client of HTTP below the protocol: each request to the server bears the token that is good at that moment, and one that
//! the server does not take is renewed, once.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use futures_util::stream::BoxStream;
use http::{HeaderName, HeaderValue};
use reqwest::Client;
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        StreamableHttpResponseLimits,
    },
};

use super::{BearerChallenge, SignIns, metadata::scopes};
use crate::config::ServerSettings;

type HttpError = StreamableHttpError<reqwest::Error>;

/// A server for which somebody may be signed in.
#[derive(Clone)]
pub struct Signed {
    pub signins: Arc<SignIns>,
    pub name: String,
    pub server: ServerSettings,
}

#[derive(Clone)]
pub struct SignedClient {
    pub web: Client,
    /// None where the operator gives a token by himself.
    pub signed: Option<Signed>,
}

impl SignedClient {
    async fn with_token<T, F>(&self, uri: &str, ask: impl Fn(Option<String>) -> F) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        // What a token was made for is this address alone.
        let signed = self.signed.as_ref().filter(|signed| signed.server.url.as_deref() == Some(uri));
        let Some(Signed { signins, name, server }) = signed else { return ask(None).await };
        let failed = |fault: drupe_extension_api::Fault| {
            StreamableHttpError::UnexpectedServerResponse(Cow::from(fault.message))
        };
        let token = signins.token(name, server).await.map_err(failed)?;
        let answer = ask(token.clone()).await;
        let answer = match (answer, token) {
            (Err(StreamableHttpError::AuthRequired(challenge)), Some(stale)) => {
                match signins.renewed(name, server, &stale).await.map_err(failed)? {
                    Some(token) => ask(Some(token)).await,
                    None => Err(StreamableHttpError::AuthRequired(challenge)),
                }
            }
            (answer, _) => answer,
        };
        if let Err(StreamableHttpError::InsufficientScope(error)) = &answer {
            let challenge = BearerChallenge::read(&error.www_authenticate_header);
            signins.wants(name, scopes(challenge.scope.as_deref()));
        }
        answer
    }
}

impl StreamableHttpClient for SignedClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session, None, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        self.with_token(&uri, |token| {
            let (uri, message, session) = (Arc::clone(&uri), message.clone(), session.clone());
            self.web.post_message_with_response_limits(uri, message, session, token, headers.clone(), limits)
        })
        .await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.with_token(&uri, |token| {
            self.web.delete_session(Arc::clone(&uri), Arc::clone(&session), token, headers.clone())
        })
        .await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<sse_stream::Sse, SseError>>, HttpError> {
        self.with_token(&uri, |token| {
            self.web.get_stream(Arc::clone(&uri), session.clone(), last.clone(), token, headers.clone())
        })
        .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        _: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
        most: usize,
    ) -> Result<BoxStream<'static, Result<sse_stream::Sse, SseError>>, HttpError> {
        self.with_token(&uri, |token| {
            let (uri, session, last) = (Arc::clone(&uri), session.clone(), last.clone());
            self.web.get_stream_with_max_sse_event_size(uri, session, last, token, headers.clone(), most)
        })
        .await
    }
}
