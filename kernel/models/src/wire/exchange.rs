//! One request and its streamed answer.
//!
//! Fails with a typed fault for every way in which the other side can misbehave: a refusal, silence, a connection
//! that breaks, data that is not an event, an answer without end. Nothing of a broken answer but text and reasoning
//! has been given out by then.

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelFault, ModelRequest};
use drupe_extension_api::FailureClass;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use reqwest::{
    RequestBuilder, Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName},
};
use tokio::time::{Duration, timeout};

use super::{Draft, Reader, ToolList, WireProvider, WireSource, fault, frames::Frames};
use crate::source::{self, Broken};

/// The whole answer: far above what any bound on tokens allows, far below what hurts.
const LONGEST_ANSWER: usize = 64 << 20;
/// What is read of an error.
const LONGEST_ERROR: usize = 64 << 10;
/// After the end mark: time for the connection's own end mark, without which it could not be used again.
const FAREWELL: Duration = Duration::from_millis(20);
/// After the reason to stop, where no end mark follows: time for the count of tokens. The answer is whole by then.
const AFTERWORD: Duration = Duration::from_secs(1);

pub(super) fn start(
    source: &WireSource,
    request: Arc<ModelRequest>,
) -> BoxStream<'static, Result<ModelEvent, Broken>> {
    let (stage, list) = match prepare(source, &request) {
        Ok((builder, list)) => (Stage::Sending(builder), list),
        Err(fault) => (Stage::Failed(fault), Arc::default()),
    };
    let exchange = Exchange {
        name: source.profile.name.clone(),
        provider: Arc::clone(&source.provider),
        known: Arc::clone(&source.known),
        reader: source.provider.api().reader(),
        draft: Draft::default(),
        ready: Vec::new(),
        given: 0,
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
    let broken = |e: serde_json::Error| {
        ModelFault::fatal(FailureClass::Internal, format!("no request could be written: {e}"))
    };
    let provider = &source.provider;
    let list = provider.lists.of(provider.api(), &request.tools).map_err(broken)?;
    let body = provider.api().body(&source.facts, request, &list).map_err(broken)?;
    Ok((provider.client()?.post(source.url.clone()).body(body), list))
}

struct Exchange {
    name: String,
    provider: Arc<WireProvider>,
    known: Arc<[String]>,
    request: Arc<ModelRequest>,
    list: Arc<ToolList>,
    reader: Box<dyn Reader>,
    draft: Draft,
    /// Events that can be given out, and how many of them were.
    ready: Vec<ModelEvent>,
    given: usize,
    stage: Stage,
}

enum Stage {
    Sending(RequestBuilder),
    Reading(Box<Reading>),
    /// The answer is whole, the connection not yet free.
    Leaving(Response),
    /// The last events are ready.
    Closing,
    Failed(ModelFault),
    Ended,
}

struct Reading {
    response: Response,
    frames: Frames,
    received: usize,
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
                Stage::Reading(reading) => self.read(reading).await.unwrap_or_else(Stage::Failed),
                Stage::Leaving(response) => {
                    farewell(response).await;
                    self.close().unwrap_or_else(Stage::Failed)
                }
                Stage::Closing | Stage::Ended => return None,
                Stage::Failed(fault) => {
                    let fault = self.provider.named(&self.name, fault);
                    return Some(Err(Broken { fault, usage: self.draft.usage }));
                }
            };
        }
    }

    async fn send(&mut self, builder: RequestBuilder) -> Result<Stage, ModelFault> {
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
            let text =
                format!("it answered in {encoding}, which was not asked for: is there a proxy in between?");
            return Err(ModelFault::fatal(FailureClass::Config, text));
        }
        let kind = header(CONTENT_TYPE);
        if kind.starts_with("text/html") || kind.starts_with("application/json") {
            let body = short_body(response, self.provider.stall).await;
            // Some gateways say that all is well and then what is not.
            return Err(fault::in_place_of_answer(&body).unwrap_or_else(|| {
                let text =
                    format!("it answered with {kind} and not with a stream of events: is base_url right?");
                ModelFault::fatal(FailureClass::Config, text)
            }));
        }
        Ok(Stage::Reading(Box::new(Reading { response, frames: Frames::default(), received: 0 })))
    }

    /// Takes what one read of the network gives.
    async fn read(&mut self, mut reading: Box<Reading>) -> Result<Stage, ModelFault> {
        let whole = self.draft.whole();
        let patience = if whole { self.provider.stall.min(AFTERWORD) } else { self.provider.stall };
        let bytes = match timeout(patience, reading.response.chunk()).await {
            Ok(Ok(bytes)) => bytes,
            // Nothing is missing but what nobody needs.
            _ if whole => return self.close(),
            Ok(Err(error)) => return Err(fault::of_transport(&error)),
            Err(_) => return Err(self.silence()),
        };
        let Some(bytes) = bytes else {
            if let Some(data) = reading.frames.rest() {
                self.reader.take(data, &mut self.draft, &mut self.ready)?;
            }
            return self.close();
        };
        reading.received += bytes.len();
        reading.frames.push(&bytes);
        if reading.received > LONGEST_ANSWER {
            return Err(too_long());
        }
        while !self.draft.ended
            && let Some(data) = reading.frames.next().map_err(|_| too_long())?
        {
            // What came before a fault in the same packet is void with the attempt.
            self.reader.take(data, &mut self.draft, &mut self.ready)?;
        }
        Ok(if self.draft.ended { Stage::Leaving(reading.response) } else { Stage::Reading(reading) })
    }

    /// The stream is over: the calls and the end, if the answer is whole.
    fn close(&mut self) -> Result<Stage, ModelFault> {
        if !self.draft.whole() {
            return Err(ModelFault::transient(FailureClass::Network, "the answer broke off before its end"));
        }
        let step = source::step(&self.request.messages);
        let kind = self.provider.api().kind();
        let finished = self.draft.finish(kind, step, &self.list.names, &self.request.deferred)?;
        self.ready.extend(finished.calls.into_iter().map(ModelEvent::ToolCall));
        self.ready.extend(finished.items.map(ModelEvent::ProviderItems));
        let (usage, stop) = (self.draft.usage, finished.stop);
        self.ready.push(ModelEvent::Done { usage, stop, model: self.name.clone() });
        Ok(Stage::Closing)
    }

    fn silence(&self) -> ModelFault {
        let text = format!("nothing came for {} ms", self.provider.stall.as_millis());
        ModelFault::transient(FailureClass::Timeout, text)
    }
}

/// The body of what is no answer.
async fn short_body(mut response: Response, stall: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < LONGEST_ERROR
        && let Ok(Ok(Some(bytes))) = timeout(stall, response.chunk()).await
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
