//! One request and its streamed answer.
//!
//! Fails with a typed fault for every way in which the other side can misbehave: a refusal, silence, a connection
//! that breaks, data that is not an event, an answer without end. Nothing of a broken answer but text and reasoning
//! has been given out by then.

use std::sync::Arc;

use drupe_agent::{ModelEvent, ModelFault, ModelRequest};
use drupe_extension_api::{FailureClass, ToolSpec};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use jiff::Timestamp;
use reqwest::{RequestBuilder, Response, header::CONTENT_TYPE};
use tokio::time::{Duration, timeout};

use super::{answer::Answer, body, client::Shared, fault, frames::Frames};
use crate::source::{self, Broken};

/// The whole answer: far above what any bound on tokens allows, far below what hurts.
const LONGEST_ANSWER: usize = 64 << 20;
/// What is read of an error.
const LONGEST_ERROR: usize = 64 << 10;
/// After the end mark: time for the connection's own end mark, without which it could not be used again.
const FAREWELL: Duration = Duration::from_millis(20);

pub(super) fn start(
    provider: Shared,
    model: &str,
    name: &str,
    request: &ModelRequest,
) -> BoxStream<'static, Result<ModelEvent, Broken>> {
    let stage = match prepare(&provider, model, request) {
        Ok(builder) => Stage::Sending(builder),
        Err(fault) => Stage::Failed(fault),
    };
    let exchange = Exchange {
        name: name.to_owned(),
        provider,
        tools: Arc::clone(&request.tools),
        answer: Answer::new(source::step(&request.messages)),
        ready: Vec::new(),
        given: 0,
        stage,
    };
    stream::unfold(Box::new(exchange), |mut exchange| async move {
        exchange.next().await.map(|item| (item, exchange))
    })
    .boxed()
}

fn prepare(provider: &Shared, model: &str, request: &ModelRequest) -> Result<RequestBuilder, ModelFault> {
    let broken = |e: serde_json::Error| {
        ModelFault::fatal(FailureClass::Internal, format!("no request could be written: {e}"))
    };
    let tools = provider.tools.json(&request.tools).map_err(broken)?;
    let body = body::write(model, request, tools.as_deref(), provider.dialect).map_err(broken)?;
    Ok(provider.client()?.post(provider.url.clone()).body(body))
}

struct Exchange {
    name: String,
    provider: Shared,
    tools: Arc<[Arc<ToolSpec>]>,
    answer: Answer,
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
                    return Some(Err(Broken { fault, usage: self.answer.usage }));
                }
            };
        }
    }

    async fn send(&self, builder: RequestBuilder) -> Result<Stage, ModelFault> {
        let response = timeout(self.provider.stall, builder.send()).await.map_err(|_| self.silence())?;
        let response = response.map_err(|e| fault::of_transport(&e))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        if kind.starts_with("text/html") || kind.starts_with("application/json") {
            let text = format!("it answered with {kind} and not with a stream of events: is base_url right?");
            return Err(ModelFault::fatal(FailureClass::Config, text));
        }
        Ok(Stage::Reading(Box::new(Reading { response, frames: Frames::default(), received: 0 })))
    }

    async fn refusal(&self, mut response: Response) -> ModelFault {
        let mut body = Vec::new();
        while body.len() < LONGEST_ERROR
            && let Ok(Ok(Some(bytes))) = timeout(self.provider.stall, response.chunk()).await
        {
            body.extend_from_slice(&bytes);
        }
        body.truncate(LONGEST_ERROR);
        fault::of_response(response.status(), response.headers(), &body, Timestamp::now())
    }

    /// Takes what one read of the network gives.
    async fn read(&mut self, mut reading: Box<Reading>) -> Result<Stage, ModelFault> {
        let bytes =
            timeout(self.provider.stall, reading.response.chunk()).await.map_err(|_| self.silence())?;
        let Some(bytes) = bytes.map_err(|e| fault::of_transport(&e))? else {
            if let Some(data) = reading.frames.rest() {
                self.answer.take(data, &mut self.ready)?;
            }
            return self.close();
        };
        reading.received += bytes.len();
        reading.frames.push(&bytes);
        if reading.received > LONGEST_ANSWER {
            return Err(too_long());
        }
        while !self.answer.ended()
            && let Some(data) = reading.frames.next().map_err(|_| too_long())?
        {
            // What came before a fault in the same packet is void with the attempt.
            self.answer.take(data, &mut self.ready)?;
        }
        Ok(if self.answer.ended() { Stage::Leaving(reading.response) } else { Stage::Reading(reading) })
    }

    /// The stream is over: the calls and the end, if the answer is whole.
    fn close(&mut self) -> Result<Stage, ModelFault> {
        if !self.answer.whole() {
            return Err(ModelFault::transient(FailureClass::Network, "the answer broke off before its end"));
        }
        let usage = self.answer.usage;
        let answer = std::mem::replace(&mut self.answer, Answer::new(0));
        self.answer.usage = usage;
        let (calls, stop) = answer.finish(&self.tools)?;
        self.ready.extend(calls.into_iter().map(ModelEvent::ToolCall));
        self.ready.push(ModelEvent::Done { usage, stop, model: self.name.clone() });
        Ok(Stage::Closing)
    }

    fn silence(&self) -> ModelFault {
        let text = format!("nothing came for {} ms", self.provider.stall.as_millis());
        ModelFault::transient(FailureClass::Timeout, text)
    }
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
