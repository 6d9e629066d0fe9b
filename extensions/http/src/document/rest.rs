//! Agents, sessions and turns.

use axum::http::Method;
use drupe_extension_api::{
    Event, SessionId,
    control::{AgentDetail, AgentStatus, DeletedSession, SessionDetail, SessionStatus, TurnResult},
};
use serde_json::{Value, json};

use super::{ApiOperation, TypeSchemas, get, post};
use crate::{
    failure::FaultBody,
    routes::{
        events::{EventsAfter, Which},
        run::{AcceptedTask, TaskByBody, TaskByQuery, TaskResult},
        sessions::{AcceptedMessage, Made, NewMessage, NewSession, SaidMessages, StoppedTurns, TurnsAfter},
    },
};

/// What a failed turn can be answered with, as well as a fault.
const FAILED: [(u16, &str); 5] = [
    (429, "A limit is used up, or a provider asks for a slower pace."),
    (500, "Something went wrong that is not the request's fault."),
    (502, "The model's provider failed."),
    (503, "Not now: the daemon restarts, too much waits already, or the turn was stopped."),
    (504, "It took too long."),
];

pub fn operations(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let mut all = agents(s);
    all.extend(sessions(s));
    all.extend(turns(s));
    all.extend(events(s));
    all
}

fn agents(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    let get = |path, does| get(path, "agents", does, &failure);
    let by_query = |operation: ApiOperation, s: &mut TypeSchemas| {
        let operation = operation.queries(&s.fields::<TaskByQuery>());
        ran(operation, s).detail(
            "With the page's cookie it needs the header `X-Drupe-Request`, unless the browser says that its user or our own \
             page asks.",
        )
    };
    vec![
        get("/v1/agents", "Lists the agents that the token reaches.")
            .gives(200, "They are these.", s.written::<Vec<AgentStatus>>()),
        get("/v1/agents/{agent}", "Shows an agent.")
            .gives(200, "It is so.", s.written::<AgentDetail>())
            .faults(&[400, 404]),
        by_query(get("/v1/agents/{agent}/run", "Gives an agent a task."), s),
        by_query(get("/v1/{agent}", "Gives an agent a task, in short."), s).detail(
            "As `/v1/agents/{agent}/run`. An agent whose id is also a path, such as `models`, has the long form alone.",
        ),
        ran(post("/v1/agents/{agent}/run", "agents", "Gives an agent a task.", &failure), s)
            .body(true, with_its_schema(s.read::<TaskByBody>()))
            .detail("A task without `session` has one of its own, and is stopped when its client goes."),
    ]
}

/// A task and what comes of it.
fn ran(operation: ApiOperation, s: &mut TypeSchemas) -> ApiOperation {
    let answer = s.written::<TaskResult>();
    let accepted = s.written::<AcceptedTask>();
    let mut operation = known(operation)
        .asks("Prefer", "With `respond-async` the answer is not waited for.", json!({ "type": "string" }))
        .gives(200, "The agent has answered.", answer.clone())
        .gives(202, "The task was accepted.", accepted)
        .header(202, "Location", "Where the answer will be.")
        .faults(&[400, 404, 429, 504])
        .gives(422, "The agent refused the task.", answer.clone());
    for (status, says) in FAILED {
        operation = operation.gives(status, says, answer.clone());
    }
    operation
}

fn known(operation: ApiOperation) -> ApiOperation {
    let key = json!({ "type": "string", "pattern": "^[\\x20-\\x7e]+$", "minLength": 1, "maxLength": 1024 });
    operation.asks("Idempotency-Key", "The same key of the same token is the same message.", key)
}

fn sessions(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    let get = |path, does| get(path, "sessions", does, &failure);
    let post = |path, does| post(path, "sessions", does, &failure);
    let delete = |path, does| ApiOperation::new(Method::DELETE, path, "sessions", does, &failure);
    let after = s.fields::<TurnsAfter>();
    let accepted = s.written::<AcceptedMessage>();
    let message = |operation: ApiOperation| {
        known(operation)
            .gives(202, "The message was accepted.", accepted.clone())
            .header(202, "Location", "Where the answer will be.")
            .faults(&[400, 404, 429, 504])
    };
    vec![
        get("/v1/sessions", "Lists the sessions that the token reaches.")
            .gives(200, "They are these.", s.written::<Vec<SessionStatus>>()),
        post("/v1/sessions", "Names a new session.")
            .detail(
                "A session comes to be with its first message, or with the agent that is chosen for it here. Without an `id` it \
                 is given one that nobody has.",
            )
            .body(false, nullable(s.read::<NewSession>()))
            .gives(201, "This is its name.", s.written::<Made>())
            .header(201, "Location", "Where it is shown.")
            .faults(&[404]),
        get("/v1/sessions/{session}", "Shows a session with its turns.")
            .queries(&after)
            .gives(200, "It is so.", s.written::<SessionDetail>())
            .faults(&[400, 404]),
        delete("/v1/sessions/{session}", "Deletes a session for good.")
            .detail("Needs a token that was made with `--may operate`. Refused while a turn of it runs or waits.")
            .gives(200, "This went with it.", s.written::<DeletedSession>())
            .faults(&[400, 404]),
        get("/v1/sessions/{session}/messages", "Shows what was said in a session.")
            .queries(&after)
            .gives(200, "It was this.", s.written::<SaidMessages>())
            .faults(&[400, 404]),
        message(post("/v1/sessions/{session}/messages", "Says something in a session."))
            .body(true, s.read::<NewMessage>())
            .gives(200, "It was waited for the answer, and the turn has ended so.", s.written::<TurnResult>()),
        post("/v1/sessions/{session}/stop", "Stops what runs and what waits in a session.")
            .gives(200, "So many turns are stopped.", s.written::<StoppedTurns>())
            .faults(&[400, 404]),
        message(post("/v1/sessions/{session}/retry", "Says the last message of a session once more.")),
    ]
}

fn turns(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    vec![
        get("/v1/turns/{turn}", "sessions", "Waits for a turn's end, and shows it.", &failure)
            .gives(200, "It has ended so.", s.written::<TurnResult>())
            .faults(&[400, 404]),
        post("/v1/turns/{turn}/stop", "sessions", "Stops a turn.", &failure)
            .gives_nothing(204, "It is stopped, or had ended.")
            .faults(&[400, 404]),
    ]
}

fn events(s: &mut TypeSchemas) -> Vec<ApiOperation> {
    let failure = s.written::<FaultBody>();
    let event = s.written::<Event>();
    let stream = |operation: ApiOperation| {
        operation
            .detail(
                "Kept events come first, then those that happen, without an end: each frame has an event as its `data`, and as \
                 its `id` the event's `seq` where it is kept. A frame of the type `fault` ends it. With `Upgrade: websocket` each \
                 message is an event.",
            )
            .asks("Last-Event-ID", "The `seq` of the last event that the reader knows, before `after`.", json!({ "type": "string" }))
            .gives_nothing(101, "The events come over a WebSocket.")
            // What is in a frame has a schema of its own, which no `schema` of a text can say.
            .gives_as(200, "The events.", "text/event-stream", json!({ "type": "string", "contentSchema": event }))
            .faults(&[400, 404, 426])
    };
    vec![
        stream(
            get("/events", "sessions", "Follows a session that the query names.", &failure)
                .queries(&s.fields::<Which>()),
        ),
        stream(
            get("/v1/sessions/{session}/events", "sessions", "Follows a session.", &failure)
                .queries(&s.fields::<EventsAfter>()),
        ),
    ]
}

/// A schema is for an answer that is JSON.
fn with_its_schema(task: Value) -> Value {
    let other = json!({
        "required": ["format", "schema"],
        "properties": { "format": { "enum": ["text", "markdown"] }, "schema": { "type": ["object", "boolean"] } },
    });
    json!({ "allOf": [task, { "not": other }] })
}

/// An optional body may be `null`, which is as good as none.
pub fn nullable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

#[test]
fn a_session_has_the_form_that_its_type_checks() {
    let document = super::document();
    let form = &document["components"]["schemas"]["SessionId"]["pattern"];
    assert_eq!(form, "^[A-Za-z0-9_.:-]{1,96}$");
    assert!(SessionId::new("A.b:c-d_0").is_ok() && SessionId::new("a/b").is_err());
}
