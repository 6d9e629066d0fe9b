//! One request and its streamed answer.
//!
//! Fails with a typed fault for every way in which the other side can misbehave: a refusal, silence, a connection
//! that breaks, data that is not an event, an answer without end. Nothing of a broken answer but text and reasoning
//! has been given out by then.

use std::{borrow::Cow, fmt::Display, sync::Arc};

use drupe_agent::{ModelEvent, ModelFault, ModelRequest, Usage};
use drupe_extension_api::{FailureClass, ModelParameters};
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

use super::{
    Draft, Reader, ToolList, WireProvider, WireSource,
    body::{self, Begins},
    draft, fault,
    frames::{Frames, LONGEST_EVENT},
    halves, images,
    sent::Sent,
};
use crate::{
    alarm::{Alarm, Late},
    source::{self, Broken, Progress, Source, Whose},
};

/// All that the other side may send for one answer, with what is around it: far below what hurts.
const LONGEST_ANSWER: usize = 64 << 20;
/// How many times as much may come for the provider alone: seals and signatures have no bound that anybody tells, and some
/// repeat what they seal.
const OPAQUE: usize = 4;
/// How many times as much an answer may be that comes at once, and that is kept whole until it is read: its characters may
/// be escaped, and the request may be repeated in it.
const AT_ONCE: usize = 16;
/// What is read of an error.
const LONGEST_ERROR: usize = 64 << 10;
/// How long an error is read. Its status alone says enough.
const ERROR_TIME: Duration = Duration::from_secs(5);
/// After the end mark: time for the connection's own end mark, without which it could not be used again.
const FAREWELL: Duration = Duration::from_millis(20);
/// After the reason to stop, where no end mark follows: time for the count of tokens. The answer is whole by then.
const AFTERWORD: Duration = Duration::from_secs(1);
/// Bytes that one token of an answer has at least: as few are taken for one where nobody counted.
const BYTES_OF_A_TOKEN: usize = 3;
/// How much of what a provider says of a filter is passed on.
const LONGEST_SAYING: usize = 300;

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
        unread: 0,
        progress,
        request,
        list,
        stage,
        alarm: Alarm::default(),
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
    let sparing = request.sparing.then(|| sparing(source, request)).flatten();
    let request = sparing.as_ref().unwrap_or(request);
    let worded = images::shown(&source.facts, provider.api(), request);
    let request = worded.as_ref().unwrap_or(request);
    let body = provider.api().body(&source.facts, request, &list).map_err(|e| broken(&e))?;
    // Wrapped, or the client keeps it for redirects and repetitions of its own, which there are none of, until the answer
    // comes.
    let body = String::from_utf8(body).map_err(|e| broken(&e))?;
    let body = Body::wrap(Sent::new(body, &request.dispatch, &source.profile.name));
    Ok((provider.client()?.post(source.url.clone()).body(body), list))
}

/// The request with the least reasoning that the model lets itself be told, where that is known.
fn sparing(source: &WireSource, request: &ModelRequest) -> Option<ModelRequest> {
    let least = source.facts.least_reasoning().filter(|_| request.parameters.reasoning.is_none())?;
    let parameters = ModelParameters { reasoning: Some(least), ..(*request.parameters).clone() };
    // Other parameters may stand in its way.
    source.supports(&parameters).ok()?;
    Some(ModelRequest { parameters: Arc::new(parameters), ..request.clone() })
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
    received: usize,
    /// Those of them that could not be read.
    unread: usize,
    progress: Arc<Progress>,
    stage: Stage,
    /// Rings when the provider was silent for too long.
    alarm: Alarm,
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
    /// What the answer says that it is.
    kind: String,
    form: Form,
}

/// In which form an answer comes; its first bytes tell, whatever it says that it is.
enum Form {
    Events(Frames),
    /// The whole of it in JSON, as some gateways give it to those who ask for a stream, too.
    Whole(Vec<u8>),
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
                                self.progress.note(self.used(), empty);
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
        let response = self.alarm.wait(Instant::now() + self.provider.stall, builder.send()).await;
        let response = response.map_err(|Late| self.silence())?;
        let mut response = response.map_err(|e| fault::of_transport(&e))?;
        if !response.status().is_success() {
            let (status, headers) = (response.status(), response.headers().clone());
            let body = short_body(&mut response, self.provider.stall).await;
            let model = self.name.split_once('/').map_or("", |(_, model)| model);
            let known = (model, &*self.known);
            return Err(fault::of_response(status, &headers, &body, Timestamp::now(), known));
        }
        let header = |name: HeaderName| {
            response.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (encoding, kind) = (header(CONTENT_ENCODING), header(CONTENT_TYPE));
        if !matches!(encoding.as_str(), "" | "identity") {
            let text = format!(
                "it answered in {encoding}, which was not asked for (a proxy in between may do that)"
            );
            return Err(self.unreadable(&mut response, &text).await);
        }
        Ok(Stage::Reading(Box::new(Reading { response, kind, form: Form::Events(Frames::default()) })))
    }

    /// Something came that cannot be read, and the provider has worked for it.
    async fn unreadable(&mut self, response: &mut Response, text: &str) -> Broken {
        self.unread += short_body(response, self.provider.stall).await.len();
        self.progress.note(self.used(), true);
        self.progress.tell(ModelFault::fatal(FailureClass::Config, text)).into()
    }

    /// Takes what one read of the network gives.
    async fn read(&mut self, mut reading: Box<Reading>) -> Result<Stage, Broken> {
        let whole = self.draft.whole();
        let patience = if whole { self.provider.stall.min(AFTERWORD) } else { self.provider.stall };
        let bytes = match self.alarm.wait(Instant::now() + patience, reading.response.chunk()).await {
            Ok(Ok(bytes)) => bytes,
            // Nothing is missing but what nobody needs.
            _ if whole => return self.close(),
            Ok(Err(error)) => return Err(fault::of_transport(&error)),
            Err(Late) => return Err(self.silence().into()),
        };
        let Some(bytes) = bytes else {
            match &mut reading.form {
                Form::Events(frames) => {
                    if let Some(data) = frames.rest() {
                        self.take(data)?;
                    }
                }
                Form::Whole(body) => self.take_whole(body, &reading.kind)?,
            }
            self.keep_bound()?;
            return self.close();
        };
        if self.received == 0 && !self.begins(&mut reading, &bytes).await? {
            return Ok(Stage::Reading(reading));
        }
        self.received += bytes.len();
        if self.received > LONGEST_ANSWER {
            return Err(too_long().into());
        }
        match &mut reading.form {
            Form::Whole(body) => {
                body.extend_from_slice(&bytes);
                // Until it is whole.
                self.unread = body.len();
                if body.len() > self.longest().saturating_mul(AT_ONCE).max(LONGEST_EVENT) {
                    return Err(self.past_its_bound());
                }
            }
            Form::Events(frames) => {
                frames.push(&bytes);
                self.take_events(frames)?;
            }
        }
        Ok(if self.draft.ended { Stage::Leaving(reading.response) } else { Stage::Reading(reading) })
    }

    /// Tells by the first bytes in which form the answer comes; false where they are blanks.
    async fn begins(&mut self, reading: &mut Reading, bytes: &[u8]) -> Result<bool, Broken> {
        let text = || body::no_answer(&reading.kind);
        match body::begins_as(bytes, &reading.kind) {
            Begins::Nothing => return Ok(false),
            Begins::Events => {}
            Begins::Json => reading.form = Form::Whole(Vec::new()),
            // Of a model nothing was made.
            Begins::Page => return Err(ModelFault::fatal(FailureClass::Config, text()).into()),
            Begins::Else => {
                self.unread += bytes.len();
                let text = text();
                return Err(self.unreadable(&mut reading.response, &text).await);
            }
        }
        Ok(true)
    }

    /// Takes the events that are whole.
    fn take_events(&mut self, frames: &mut Frames) -> Result<(), Broken> {
        while !self.draft.ended {
            match frames.next() {
                // What came before a fault in the same packet is void with the attempt.
                Ok(Some(data)) => {
                    self.take(data)?;
                    self.keep_bound()?;
                }
                Ok(None) => break,
                Err(_) => {
                    self.unread += frames.waiting();
                    return Err(too_long().into());
                }
            }
        }
        Ok(())
    }

    /// Bytes that the answer may have.
    fn longest(&self) -> usize {
        source::longest(self.request.max_output_tokens)
    }

    /// Breaks an answer off that goes far past its bound, as only a server lets it that does not keep the bound: what it
    /// goes on to send would be paid for, kept and shown for nothing.
    fn keep_bound(&mut self) -> Result<(), Broken> {
        let longest = self.longest();
        if self.draft.bytes() <= longest && self.draft.opaque() <= longest.saturating_mul(OPAQUE) {
            return Ok(());
        }
        // What is not given out is counted here.
        let held = self.ready.drain(self.given..).map(|event| match event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.len(),
            _ => 0,
        });
        self.unread += held.sum::<usize>();
        Err(self.past_its_bound())
    }

    /// No repetition mends it: the same server would do the same again, for the same price.
    fn past_its_bound(&self) -> Broken {
        let text = format!(
            "its answer goes on past its bound of {} tokens: more than {} bytes came, so it was broken off. The server does \
             not keep `max_output_tokens`",
            self.request.max_output_tokens,
            self.longest(),
        );
        ModelFault::fatal(FailureClass::Model, text).into()
    }

    /// Takes the data of an event.
    fn take(&mut self, data: &[u8]) -> Result<(), Broken> {
        let text = draft::text(data).inspect_err(|_| self.unread += data.len())?;
        let text = halves::mark(text);
        self.draft.halved |= matches!(text, Cow::Owned(_));
        let taken = self.reader.take(&text, &mut self.draft, &mut self.ready);
        taken.inspect_err(|_| self.unread += if body::is_error(&text) { 0 } else { data.len() })
    }

    /// Takes an answer that came at once.
    fn take_whole(&mut self, body: &[u8], kind: &str) -> Result<(), Broken> {
        // Some gateways say that all is well and then what is not.
        if let Some(broken) = fault::in_place_of_answer(body) {
            (self.received, self.unread) = (0, 0);
            self.progress.forget();
            return Err(broken);
        }
        let text = halves::mark(draft::text(body)?);
        self.draft.halved |= matches!(text, Cow::Owned(_));
        let taken = self.reader.whole(&text, &mut self.draft, &mut self.ready);
        match taken {
            Ok(()) if self.draft.whole() => {
                self.unread = 0;
                Ok(())
            }
            Err(broken) if !draft::is_not_valid(&broken.fault) => Err(broken),
            _ if body::is_half(&text) => Err(broke_off_early().into()),
            _ => Err(ModelFault::fatal(FailureClass::Config, body::no_answer(kind)).into()),
        }
    }

    /// What is known of the attempt's cost: what the provider counted, and at least what came and was not given out.
    /// What was, is counted by whoever asked.
    fn used(&self) -> Option<Usage> {
        if self.unread + self.draft.kept() == 0 {
            return self.draft.usage;
        }
        let tokens = (self.unread + self.draft.bytes()).div_ceil(BYTES_OF_A_TOKEN) as u64;
        let counted = self.draft.usage.unwrap_or_default();
        let least = tokens.min(self.request.max_output_tokens.into());
        Some(Usage { output_tokens: counted.output_tokens.max(least), ..counted })
    }

    /// The stream is over: the calls and the end, if the answer is whole.
    fn close(&mut self) -> Result<Stage, Broken> {
        if !self.draft.whole() {
            return Err(broke_off_early().into());
        }
        let step = source::step(&self.request.messages);
        self.draft.rest(&mut self.ready);
        for call in &mut self.draft.calls {
            call.id = self.provider.shown(&call.id);
        }
        let mut finished = self
            .draft
            .finish(&self.origin, step, &self.list.names, &self.request.deferred)
            .map_err(|fault| Broken { fault, whose: Whose::Request })?;
        // What the provider says in its own name is shown as its messages are.
        let provider = &self.provider;
        if !self.draft.refusal.is_empty() {
            self.ready.push(ModelEvent::Text(provider.shown(&self.draft.refusal)));
        }
        let offered = |name: &str| {
            let all = self.request.tools.iter().chain(self.request.deferred.iter());
            all.into_iter().any(|spec| spec.name.as_str() == name)
        };
        for call in finished.calls.iter_mut().filter(|call| !offered(&call.name)) {
            call.name = provider.shown(&call.name);
        }
        if let Some(said) = self.draft.said.take() {
            self.ready.push(ModelEvent::Said(body::saying(&provider.shown(&said), LONGEST_SAYING)));
        }
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
        by_kind
            && self.unread == 0
            && self.draft.usage.is_none()
            && !self.draft.is_begun()
            && !self.draft.has_reasoned()
    }

    fn silence(&self) -> ModelFault {
        let text = format!("nothing came for {} ms", self.provider.stall.as_millis());
        ModelFault::transient(FailureClass::Timeout, text)
    }
}

/// The body of what is no answer, as far as it comes in time.
async fn short_body(response: &mut Response, stall: Duration) -> Vec<u8> {
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

fn broke_off_early() -> ModelFault {
    ModelFault::transient(FailureClass::Network, "the answer broke off before its end")
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
