//! One request and its streamed answer.
//!
//! Fails with a typed fault for every way in which the other side can misbehave: a refusal, silence, a connection
//! that breaks, data that is not an event, an answer without end. Nothing of a broken answer but text and reasoning
//! has been given out by then.

use std::{fmt::Display, sync::Arc};

use drupe_agent::{ModelEvent, ModelFault, ModelRequest};
use drupe_extension_api::FailureClass;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use reqwest::{
    Body, RequestBuilder, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
};
use tokio::time::{Duration, Instant, timeout, timeout_at};

use super::{Draft, Reader, ToolList, WireProvider, WireSource, draft, fault, frames::Frames};
use crate::source::{self, Broken, Progress, Whose};

/// The whole answer: far above what any bound on tokens allows, far below what hurts.
const LONGEST_ANSWER: usize = 64 << 20;
/// What is read of an error.
const LONGEST_ERROR: usize = 64 << 10;
/// How long an error is read. Its status alone says enough.
const ERROR_TIME: Duration = Duration::from_secs(5);
/// After the end mark: time for the connection's own end mark, without which it could not be used again.
const FAREWELL: Duration = Duration::from_millis(20);
/// After the reason to stop, where no end mark follows: time for the count of tokens. The answer is whole by then.
const AFTERWORD: Duration = Duration::from_secs(1);
/// Types of what is no stream of events. Anything else is read: some servers name none.
const NO_ANSWER: [&str; 3] = ["text/html", "text/plain", "application/json"];

pub(super) fn start(
    source: &WireSource,
    request: Arc<ModelRequest>,
    progress: Arc<Progress>,
) -> BoxStream<'static, Result<ModelEvent, Broken>> {
    let (stage, list) = match prepare(source, &request) {
        Ok((builder, list)) => (Stage::Sending(builder), list),
        Err(fault) => (Stage::Failed(fault.unused().into()), Arc::default()),
    };
    let exchange = Exchange {
        name: source.profile.name.clone(),
        origin: Arc::clone(&source.facts.origin),
        provider: Arc::clone(&source.provider),
        known: Arc::clone(&source.known),
        reader: source.provider.api().reader(),
        draft: Draft::default(),
        ready: Vec::new(),
        given: 0,
        received: 0,
        progress,
        request,
        list,
        stage,
    };
    stream::unfold(Box::new(exchange), |mut exchange| async move {
        exchange.next().await.map(|item| (item, exchange))
    })
    .boxed()
}

fn prepare(
    source: &WireSource,
    request: &ModelRequest,
) -> Result<(RequestBuilder, Arc<ToolList>), ModelFault> {
    let broken = |e: &dyn Display| {
        ModelFault::fatal(FailureClass::Internal, format!("no request could be written: {e}"))
    };
    let provider = &source.provider;
    let list = provider.lists.of(provider.api(), &request.tools).map_err(|e| broken(&e))?;
    let body = provider.api().body(&source.facts, request, &list).map_err(|e| broken(&e))?;
    // Wrapped, or the client keeps it for redirects and repetitions of its own, which there are none of, until the answer
    // comes.
    let body = Body::wrap(String::from_utf8(body).map_err(|e| broken(&e))?);
    Ok((provider.client()?.post(source.url.clone()).body(body), list))
}

struct Exchange {
    name: String,
    origin: Arc<str>,
    provider: Arc<WireProvider>,
    known: Arc<[String]>,
    request: Arc<ModelRequest>,
    list: Arc<ToolList>,
    reader: Box<dyn Reader>,
    draft: Draft,
    /// Events that can be given out, and how many of them were.
    ready: Vec<ModelEvent>,
    given: usize,
    /// Bytes of the answer.
    received: usize,
    progress: Arc<Progress>,
    stage: Stage,
}

enum Stage {
    Sending(RequestBuilder),
    Reading(Box<Reading>),
    /// The answer is whole, the connection not yet free.
    Leaving(Response),
    /// The last events are ready.
    Closing,
    Failed(Broken),
    Ended,
}

struct Reading {
    response: Response,
    frames: Frames,
}

impl Exchange {
    async fn next(&mut self) -> Option<Result<ModelEvent, Broken>> {
        loop {
            if let Some(event) = self.ready.get_mut(self.given) {
                self.given += 1;
                // What is left behind is never looked at again.
                return Some(Ok(std::mem::replace(event, ModelEvent::Text(String::new()))));
            }
            self.ready.clear();
            self.given = 0;
            self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Sending(builder) => self.send(builder).await.unwrap_or_else(Stage::Failed),
                Stage::Reading(reading) => {
                    let stage = self.read(reading).await.unwrap_or_else(Stage::Failed);
                    match stage {
                        Stage::Failed(Broken { fault, whose }) if self.turned_away(&fault) => {
                            self.progress.forget();
                            Stage::Failed(Broken { fault: fault.unused(), whose })
                        }
                        stage => {
                            if self.received > 0 {
                                let empty = !self.draft.is_begun() && !self.draft.has_reasoned();
                                self.progress.note(self.draft.usage, empty);
                            }
                            stage
                        }
                    }
                }
                Stage::Leaving(response) => {
                    farewell(response).await;
                    self.close().unwrap_or_else(Stage::Failed)
                }
                Stage::Closing | Stage::Ended => return None,
                Stage::Failed(Broken { fault, whose }) => {
                    let fault = self.provider.named(&self.name, fault);
                    return Some(Err(Broken { fault, whose }));
                }
            };
        }
    }

    async fn send(&mut self, builder: RequestBuilder) -> Result<Stage, Broken> {
        let response = timeout(self.provider.stall, builder.send()).await.map_err(|_| self.silence())?;
        let response = response.map_err(|e| fault::of_transport(&e))?;
        if !response.status().is_success() {
            let (status, headers) = (response.status(), response.headers().clone());
            let body = short_body(response, self.provider.stall).await;
            let model = self.name.split_once('/').map_or("", |(_, model)| model);
            let known = (model, &*self.known);
            return Err(fault::of_response(status, &headers, &body, Timestamp::now(), known));
        }
        let header = |name: HeaderName| {
            response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
        };
        let encoding = header(CONTENT_ENCODING);
        if !matches!(encoding.as_str(), "" | "identity") {
            let text = format!(
                "it answered in {encoding}, which was not asked for (a proxy in between may do that)"
            );
            return Err(ModelFault::fatal(FailureClass::Config, text).into());
        }
        let kind = header(CONTENT_TYPE);
        if NO_ANSWER.iter().any(|other| kind.starts_with(other)) {
            let body = short_body(response, self.provider.stall).await;
            // Some gateways say that all is well and then what is not.
            return Err(fault::in_place_of_answer(&body).unwrap_or_else(|| {
                let text =
                    format!("it answered with {kind} and not with a stream of events (look at base_url)");
                ModelFault::fatal(FailureClass::Config, text).into()
            }));
        }
        Ok(Stage::Reading(Box::new(Reading { response, frames: Frames::default() })))
    }

    /// Takes what one read of the network gives.
    async fn read(&mut self, mut reading: Box<Reading>) -> Result<Stage, Broken> {
        let whole = self.draft.whole();
        let patience = if whole { self.provider.stall.min(AFTERWORD) } else { self.provider.stall };
        let bytes = match timeout(patience, reading.response.chunk()).await {
            Ok(Ok(bytes)) => bytes,
            // Nothing is missing but what nobody needs.
            _ if whole => return self.close(),
            Ok(Err(error)) => return Err(fault::of_transport(&error)),
            Err(_) => return Err(self.silence().into()),
        };
        let Some(bytes) = bytes else {
            if let Some(data) = reading.frames.rest() {
                self.reader.take(draft::text(data)?, &mut self.draft, &mut self.ready)?;
            }
            return self.close();
        };
        self.received += bytes.len();
        reading.frames.push(&bytes);
        if self.received > LONGEST_ANSWER {
            return Err(too_long().into());
        }
        while !self.draft.ended
            && let Some(data) = reading.frames.next().map_err(|_| too_long())?
        {
            // What came before a fault in the same packet is void with the attempt.
            self.reader.take(draft::text(data)?, &mut self.draft, &mut self.ready)?;
        }
        Ok(if self.draft.ended { Stage::Leaving(reading.response) } else { Stage::Reading(reading) })
    }

    /// The stream is over: the calls and the end, if the answer is whole.
    fn close(&mut self) -> Result<Stage, Broken> {
        if !self.draft.whole() {
            let text = "the answer broke off before its end";
            return Err(ModelFault::transient(FailureClass::Network, text).into());
        }
        let step = source::step(&self.request.messages);
        let finished = self
            .draft
            .finish(&self.origin, step, &self.list.names, &self.request.deferred)
            .map_err(|fault| Broken { fault, whose: Whose::Request })?;
        self.ready.extend(finished.calls.into_iter().map(ModelEvent::ToolCall));
        self.ready.extend(finished.items.map(ModelEvent::ProviderItems));
        let (usage, stop) = (self.draft.usage, finished.stop);
        self.ready.push(ModelEvent::Done { usage, stop, model: self.name.clone() });
        Ok(Stage::Closing)
    }

    /// Whether a fault within the answer says that the request was turned away, before there was anything of an answer:
    /// some providers say so only once the stream is open.
    fn turned_away(&self, fault: &ModelFault) -> bool {
        let by_kind =
            matches!(fault.class, FailureClass::Auth | FailureClass::Config | FailureClass::RateLimit);
        by_kind && self.draft.usage.is_none() && !self.draft.is_begun() && !self.draft.has_reasoned()
    }

    fn silence(&self) -> ModelFault {
        let text = format!("nothing came for {} ms", self.provider.stall.as_millis());
        ModelFault::transient(FailureClass::Timeout, text)
    }
}

/// The body of what is no answer, as far as it comes in time.
async fn short_body(mut response: Response, stall: Duration) -> Vec<u8> {
    let deadline = Instant::now() + stall.min(ERROR_TIME);
    let mut body = Vec::new();
    while body.len() < LONGEST_ERROR
        && let Ok(Ok(Some(bytes))) = timeout_at(deadline, response.chunk()).await
    {
        body.extend_from_slice(&bytes);
    }
    body.truncate(LONGEST_ERROR);
    body
}

fn too_long() -> ModelFault {
    ModelFault::transient(FailureClass::Model, "it sent more than an answer can hold")
}

async fn farewell(mut response: Response) {
    let _ = timeout(FAREWELL, async {
        let mut left = 4;
        while left > 0 && matches!(response.chunk().await, Ok(Some(_))) {
            left -= 1;
        }
    })
    .await;
}
