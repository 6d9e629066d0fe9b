//! One operation of the document: what a route takes and what it can answer.

use axum::http::Method;
use serde_json::{Map, Value, json};

/// How a client shows who it is. A request needs one of these.
const CREDENTIALS: [&str; 3] = ["bearer", "key", "cookie"];

/// What can come of every request that needs a credential.
const ALWAYS: &[u16] = &[401, 403, 500, 503];

/// What can come of one that has a body, besides.
const WITH_BODY: &[u16] = &[400, 408, 413, 415];

pub struct ApiOperation {
    pub method: Method,
    /// The path of the document. That of the route is the same, or has a variable where this has a word.
    pub path: String,
    pub route: &'static str,
    value: Map<String, Value>,
    failure: Value,
}

impl ApiOperation {
    /// One whose faults have this form. `does` is one sentence.
    pub fn new(method: Method, path: &'static str, tag: &str, does: &str, failure: &Value) -> Self {
        let credentials: Vec<_> = CREDENTIALS.iter().map(|name| json!({ *name: [] })).collect();
        let Value::Object(value) = json!({
            "tags": [tag], "summary": does, "operationId": name(&method, path),
            "security": credentials, "responses": {},
        }) else {
            unreachable!("it is an object")
        };
        let new = Self { method, path: path.to_owned(), route: path, value, failure: failure.clone() };
        new.faults(ALWAYS).variables()
    }

    /// Under a path whose variable is a certain word.
    pub fn at(mut self, path: String) -> Self {
        self.value.insert("operationId".into(), name(&self.method, &path).into());
        self.value.remove("parameters");
        self.path = path;
        self
    }

    /// One that needs no credential.
    pub fn open(mut self) -> Self {
        self.value.insert("security".into(), json!([]));
        self.responses().remove("401");
        self
    }

    /// One whose credential is its signature.
    pub fn signed(mut self) -> Self {
        self.value.insert("security".into(), json!([]));
        self.gives_nothing(401, "").faults(&[401])
    }

    pub fn detail(mut self, text: &str) -> Self {
        self.value.insert("description".into(), text.into());
        self
    }

    /// An answer whose body is JSON.
    pub fn gives(self, status: u16, says: &str, schema: Value) -> Self {
        self.gives_as(status, says, "application/json", schema)
    }

    pub fn gives_as(mut self, status: u16, says: &str, media: &str, schema: Value) -> Self {
        let at = self.responses().entry(status.to_string()).or_insert_with(|| json!({}));
        at["description"] = says.into();
        let before = at["content"][media]["schema"].take();
        at["content"][media]["schema"] = match before {
            Value::Null => schema,
            // A status of which either can come.
            other => json!({ "anyOf": [other, schema] }),
        };
        self
    }

    /// An answer without a body.
    pub fn gives_nothing(mut self, status: u16, says: &str) -> Self {
        self.responses().insert(status.to_string(), json!({ "description": says }));
        self
    }

    pub fn header(mut self, status: u16, name: &str, says: &str) -> Self {
        let response = &mut self.responses()[&status.to_string()];
        response["headers"][name] = json!({ "description": says, "schema": { "type": "string" } });
        self
    }

    /// Failures that can come of it, besides those that can come of everything.
    pub fn faults(mut self, statuses: &[u16]) -> Self {
        let failure = self.failure.clone();
        for status in statuses {
            let (says, header) = told(*status);
            self = self.gives(*status, says, failure.clone());
            if let Some((name, says)) = header {
                self = self.header(*status, name, says);
            }
        }
        self
    }

    pub fn body(self, required: bool, schema: Value) -> Self {
        self.body_as(required, "application/json", schema)
    }

    pub fn body_as(mut self, required: bool, media: &str, schema: Value) -> Self {
        let body = json!({ "required": required, "content": { media: { "schema": schema } } });
        self.value.insert("requestBody".into(), body);
        self.faults(WITH_BODY)
    }

    pub fn query(self, name: &str, required: bool, says: &str, schema: Value) -> Self {
        self.parameter("query", name, required, says, schema)
    }

    /// A parameter for each field of a type that is read from the query.
    pub fn queries(mut self, fields: &Value) -> Self {
        let required = fields["required"].as_array().cloned().unwrap_or_default();
        for (name, schema) in fields["properties"].as_object().into_iter().flatten() {
            let mut schema = schema.clone();
            let says = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let says = says.and_then(|says| says.as_str().map(str::to_owned));
            let says = says.unwrap_or_else(|| panic!("`{name}` of {} is not described", self.path));
            self = self.query(name, required.contains(&json!(name)), &says, present(schema));
        }
        self
    }

    /// Failures that somebody else's library tells, in whatever form.
    pub fn foreign(mut self, statuses: &[u16]) -> Self {
        for status in statuses {
            self.responses().insert(
                status.to_string(),
                json!({ "description": "The protocol does not allow it, as a text or as JSON says." }),
            );
        }
        self
    }

    pub fn asks(self, name: &str, says: &str, schema: Value) -> Self {
        self.parameter("header", name, false, says, schema)
    }

    fn parameter(mut self, place: &str, name: &str, required: bool, says: &str, schema: Value) -> Self {
        let all = self.value.entry("parameters").or_insert_with(|| json!([]));
        let mut parameter = json!({ "in": place, "name": name, "required": required, "description": says });
        match schema["$ref"].as_str().is_some_and(|name| name.contains("/JsonSchema")) {
            // Written as JSON, since nothing else holds one.
            true => parameter["content"] = json!({ "application/json": { "schema": schema } }),
            false => parameter["schema"] = schema,
        }
        if let Value::Array(all) = all {
            all.push(parameter);
        }
        self
    }

    /// The variable of the path, with the form that its name has everywhere.
    fn variables(self) -> Self {
        let Some((_, name)) = self.route.split_once('{') else { return self };
        let Some((name, _)) = name.split_once('}') else { return self };
        let (says, schema) = variable(name);
        self.parameter("path", name.trim_start_matches('*'), true, says, schema)
    }

    fn responses(&mut self) -> &mut Map<String, Value> {
        match self.value.get_mut("responses") {
            Some(Value::Object(responses)) => responses,
            _ => unreachable!("it has an object of responses"),
        }
    }

    pub fn value(&self) -> Value {
        Value::Object(self.value.clone())
    }
}

/// A query has no `null`: what is not given is not there.
fn present(mut schema: Value) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|name, value| name != "default" || !value.is_null());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|one| one != "null");
        if let [only] = types.as_slice() {
            schema["type"] = only.clone();
        }
    }
    if let Some(Value::Array(any)) = schema.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [only] = any.as_slice() {
            return only.clone();
        }
    }
    schema
}

fn name(method: &Method, path: &str) -> String {
    let word = |part: &str| part.trim_matches(['{', '}', '*']).replace('.', "_");
    let words: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(word).collect();
    format!("{}_{}", method.as_str().to_ascii_lowercase(), words.join("_")).trim_end_matches('_').to_owned()
}

fn variable(name: &str) -> (&'static str, Value) {
    let id = json!({ "type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,96}$" });
    match name {
        "session" => ("A session that the token reaches.", id),
        "turn" => ("A turn of a session that the token reaches.", id),
        "agent" => (
            "An agent, or `drupe` for whoever answers by itself.",
            json!({ "type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,47}$" }),
        ),
        "model" => (
            "An agent, or `drupe` for whoever answers by itself.",
            json!({ "type": "string", "minLength": 1 }),
        ),
        "response" => ("An answer, by the `id` that it bears.", json!({ "type": "string", "minLength": 1 })),
        "embed" => ("An entry of `extensions.http.embeds`.", json!({ "type": "string", "minLength": 1 })),
        "*file" => ("A file of the page.", json!({ "type": "string", "minLength": 1 })),
        "name" => ("The hook.", json!({ "type": "string", "minLength": 1 })),
        // A word stands there: see [`ApiOperation::at`].
        "method" => ("", json!({})),
        other => panic!("`{other}` has no description"),
    }
}

/// What a status says, and the header that comes with it.
fn told(status: u16) -> (&'static str, Option<(&'static str, &'static str)>) {
    let later = Some(("Retry-After", "Seconds after which it is worth another try."));
    match status {
        400 => ("The request does not have the form that it needs, or asks for what cannot be.", None),
        401 => (
            "The request bears no token, or one that nobody was given; of a delivery: there is no such hook, or it is not signed as it must be.",
            None,
        ),
        402 => ("A limit of the operator is used up.", None),
        403 => ("The token may not do this, or a browser was led to send it.", None),
        404 => ("There is no such thing, or the token does not reach it.", None),
        408 => ("The body did not come within 60 s.", None),
        413 => ("The body is longer than `extensions.http.max_body_kb`.", None),
        415 => ("The body is packed.", None),
        422 => ("The agent refused the task, or its answer cannot be made to have its form.", None),
        426 => ("The request does not ask for the protocol that this path is for.", None),
        429 => ("A limit is used up, or a provider asks for a slower pace.", later),
        499 => ("The turn was cancelled.", None),
        500 => ("Something went wrong that is not the request's fault.", None),
        501 => ("The daemon does not know this.", None),
        502 => ("The model's provider failed.", None),
        503 => ("Not now: the daemon restarts, or too much waits already.", later),
        504 => ("It took too long.", None),
        529 => ("Not now: the daemon restarts, or too much waits already.", later),
        other => panic!("{other} has no description"),
    }
}
