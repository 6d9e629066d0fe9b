//! From a call to a turn, and from what the turn tells to the answer.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    AgentResponse, Event, EventBody, Fault, FaultCode, Message, ResponseStatus, SessionId, ToolCallRequest,
    ToolSpec, TurnId,
    control::{EventsSubscribe, SessionDetail, SessionShow, TurnArgument, TurnResult, method},
    sdk::Items,
    wire::{Carried, ClientTool, QueueMode, Submit},
};
use drupe_http_compat::{
    Ask, ClientCall, Encoder, Rejection, ServedTurn, SseFrame, Thread, ToolChoice, Vendor,
};
use futures_util::stream;
use uuid::Uuid;

use super::{Rejected, named, of_fault, request_id};
use crate::{
    credentials::Bearer,
    routes::run::{Leaving, external_id, fleeting, fresh, is_fleeting, wait},
    server::Server,
};

/// How often a silent stream says that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The header by which a call joins a session that lasts.
const SESSION: &str = "x-drupe-session";

/// Answers a call, as it comes or whole.
pub async fn answer(
    server: &Arc<Server>,
    bearer: &Bearer,
    headers: &HeaderMap,
    vendor: Vendor,
    ask: &Ask,
    encoder: impl FnOnce(&ServedTurn) -> Encoder,
) -> Result<Response, Rejected> {
    let rejected = |rejection| Rejected(vendor, rejection);
    let (submit, lasts) = submit(server, bearer, headers, ask).await.map_err(rejected)?;
    let told = |fault: Fault| Rejected(vendor, of_fault(&fault, &ask.model));
    // Before the turn begins, so that nothing of it is missed.
    let events = events(server, bearer, submit.session.clone()).await.map_err(told)?;
    let (turn, leaving) = Leaving::hand_in(server, bearer, submit, lasts).await.map_err(told)?;
    let served = served(turn.clone());
    let mut exchange = Exchange {
        encoder: encoder(&served),
        ready: VecDeque::new(),
        leaving,
        bearer: bearer.clone(),
        server: Arc::clone(server),
        events,
        turn,
        calls: if ask.parallel_calls { usize::MAX } else { 1 },
    };
    let id = request_id();
    if ask.background {
        return Ok(named(Json(exchange.encoder.object()).into_response(), &id));
    }
    if ask.stream {
        exchange.ready.extend(exchange.encoder.begin());
        return Ok(named(exchange.stream(), &id));
    }
    while exchange.encoder.running() {
        exchange.step().await;
    }
    let body = exchange.encoder.answer().map_err(rejected)?;
    Ok(named(Json(body).into_response(), &id))
}

/// The message that a call is, and whether its session lasts.
async fn submit(
    server: &Server,
    bearer: &Bearer,
    headers: &HeaderMap,
    ask: &Ask,
) -> Result<(Submit, bool), Rejection> {
    let tools = passed_on(ask)?;
    let joined = match headers.get(SESSION).map(|session| session.to_str().unwrap_or_default()) {
        Some(session) => {
            let session = SessionId::new(session).map_err(|error| Rejection::from(&Fault::from(error)))?;
            Thread::Session(session)
        }
        None => ask.thread.clone(),
    };
    let ask = &Ask { thread: joined, ..ask.clone() };
    let (session, lasts) = match ask.thread.clone() {
        Thread::Stateless => {
            let session = if ask.store { fresh(&bearer.who) } else { fleeting(&bearer.who) };
            (session.map_err(|fault| Rejection::from(&fault))?, ask.background)
        }
        Thread::Session(session) => (session, true),
        Thread::After(turn) => {
            let earlier: TurnResult = server
                .control(bearer, method::TURN_WAIT, TurnArgument::brief(turn))
                .await
                .map_err(|fault| Rejection::from(&fault))?;
            if is_fleeting(&earlier.session) {
                return Err(Rejection::from(&Fault::not_found("the earlier answer was not to be kept")));
            }
            (earlier.session, true)
        }
    };
    // What its client keeps it sends whole each time; a session that lasts has it already.
    let (history, text) = match ask.thread == Thread::Stateless {
        true if has_calls(ask) => (Some(Vec::new()), ask.as_task()),
        true => {
            let (before, last) = parted(&ask.messages)?;
            (Some(history(&ask.instructions, before)), last)
        }
        false => (None, ask.as_task()),
    };
    let submit = Submit {
        agent: ask.agent.clone(),
        output: ask.output.clone(),
        queue: Some(QueueMode::Followup),
        carried: Some(Carried { history, parameters: ask.parameters.clone(), tools, ..Carried::default() }),
        ..Submit::new(session, external_id(headers).map_err(|fault| Rejection::from(&fault))?, text)
    };
    Ok((submit, lasts))
}

/// The client's tools that the turn is offered. One that must be called is the form of the answer, and no tool of the turn.
fn passed_on(ask: &Ask) -> Result<Vec<ClientTool>, Rejection> {
    if ask.tool_choice == ToolChoice::None || ask.forced().is_some() {
        return Ok(Vec::new());
    }
    if ask.tool_choice == ToolChoice::Required {
        let why = "an agent that has to call one of several tools may have to say something first; name the tool, or leave \
                   the choice to the agent";
        return Err(Rejection::unsupported("tool_choice", why));
    }
    let tool = |tool: &ToolSpec| ClientTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
    };
    Ok(ask.tools.iter().map(tool).collect())
}

/// Whether calls of tools are a part of the conversation, which the daemon's own history has no place for.
fn has_calls(ask: &Ask) -> bool {
    ask.messages.iter().any(|message| match message {
        Message::Assistant { tool_calls, .. } => !tool_calls.is_empty(),
        Message::Tool { .. } => true,
        Message::User { .. } => false,
    })
}

/// The conversation, and the text that is to be answered.
fn parted(messages: &[Message]) -> Result<(&[Message], String), Rejection> {
    let from =
        messages.iter().rposition(|message| !matches!(message, Message::User { .. })).map_or(0, |at| at + 1);
    let (before, last) = messages.split_at(from);
    let texts: Vec<&str> = last
        .iter()
        .filter_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        })
        .collect();
    let text = texts.join("\n\n");
    match text.trim().is_empty() {
        true => Err(Rejection::invalid(Some("messages".into()), "the last message is empty")),
        false => Ok((before, text)),
    }
}

/// The client's instructions are words of a user to an agent that has its own.
fn history(instructions: &str, before: &[Message]) -> Vec<Message> {
    let first = (!instructions.is_empty()).then(|| Message::User { content: instructions.to_owned() });
    first.into_iter().chain(before.iter().cloned()).collect()
}

/// What happens in a session from now on.
async fn events(server: &Server, bearer: &Bearer, session: SessionId) -> Result<Items<Event>, Fault> {
    let ask = SessionShow { id: session.to_string(), after: Some(SessionShow::BEHIND_ALL), brief: true };
    let known = server.control::<SessionDetail>(bearer, method::SESSIONS_SHOW, ask).await;
    let after = match known {
        Ok(detail) => detail.last_seq,
        Err(fault) if fault.code == FaultCode::NotFound => 0,
        Err(fault) => return Err(fault),
    };
    server.events(bearer, EventsSubscribe { session, after, follow: true }).await
}

/// A turn, and the answer that is being made of it.
struct Exchange {
    server: Arc<Server>,
    bearer: Bearer,
    turn: TurnId,
    events: Items<Event>,
    encoder: Encoder,
    /// Calls that the client takes with one answer.
    calls: usize,
    ready: VecDeque<SseFrame>,
    leaving: Leaving,
}

impl Exchange {
    /// The answer as it comes.
    fn stream(self) -> Response {
        let frames = stream::unfold(self, |mut exchange| async move {
            loop {
                if let Some(frame) = exchange.ready.pop_front() {
                    return Some((Ok::<_, Infallible>(Bytes::from(frame.text())), exchange));
                }
                if !exchange.encoder.running() {
                    return None;
                }
                if tokio::time::timeout(HEARTBEAT, exchange.step()).await.is_err() {
                    exchange.ready.extend(exchange.encoder.ping());
                }
            }
        });
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        (headers, Body::from_stream(frames)).into_response()
    }

    /// Takes the next event, and the end with the last of them. Nothing is lost where this is dropped on the way.
    async fn step(&mut self) {
        let ended = match self.events.next().await {
            Ok(Some(event)) => {
                let frames = self.encoder.event(&event);
                self.ready.extend(frames);
                event.turn.as_ref() == Some(&self.turn)
                    && matches!(event.body, EventBody::TurnCompleted { .. })
            }
            // The daemon goes on with the turn after a restart; this answer cannot.
            Ok(None) => return self.fail(&Fault::new(FaultCode::Unavailable, "the daemon restarts")),
            Err(fault) => return self.fail(&fault),
        };
        if !ended {
            return;
        }
        match wait(&self.server, &self.bearer, self.turn.clone()).await {
            Ok(result) => {
                self.leaving.answered();
                let frames = finish(&mut self.encoder, result, self.calls);
                self.ready.extend(frames);
            }
            Err(fault) => self.fail(&fault),
        }
    }

    fn fail(&mut self, fault: &Fault) {
        let frames = self.encoder.fail(&Rejection::from(fault));
        self.ready.extend(frames);
    }
}

/// A turn, with the time at which it was accepted, which its id tells.
pub fn served(turn: TurnId) -> ServedTurn {
    let id = Uuid::parse_str(turn.as_str()).ok();
    let created = id.and_then(|id| id.get_timestamp()).map_or(0, |time| time.to_unix().0);
    ServedTurn { created: i64::try_from(created).unwrap_or(0), turn }
}

/// Writes the end of a turn, with at most so many calls for the client. Their ids are ours: those of providers may come again
/// in the next turn, and one conversation holds both.
pub fn finish(encoder: &mut Encoder, result: TurnResult, most: usize) -> Vec<SseFrame> {
    let TurnResult { turn, status, content, error, class, client_calls, spend, .. } = result;
    let mut frames = Vec::new();
    for (at, call) in client_calls.iter().take(most).enumerate() {
        let call = ToolCallRequest { call_id: format!("call_{turn}_{at}"), ..call.clone() };
        frames.extend(match ClientCall::try_from(&call) {
            Ok(call) => encoder.call(call),
            Err(fault) => encoder.fail(&Rejection::from(&fault)),
        });
    }
    // What is kept as the answer tells later turns of the calls, which the client has as calls.
    let content = if client_calls.is_empty() { content } else { String::new() };
    let status = status.unwrap_or(ResponseStatus::Error);
    let response = AgentResponse {
        status,
        content,
        error,
        class,
        tokens_used: None,
        turns_used: None,
        client_calls,
        transfer: None,
    };
    frames.extend(encoder.end(&response, spend.usage));
    frames
}
