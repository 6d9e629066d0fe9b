//! JSON-RPC 2.0, a message a line, as the stdio transport of ACP has it
//! (<https://agentclientprotocol.com/protocol/v1/transports>, 2026-11-24).

use drupe_extension_api::{Fault, FaultCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// The longest line that is taken in: what the control API takes, and room for what is around it.
pub const MOST_LINE: usize = 5 * 1024 * 1024;

pub const PARSE_ERROR: i64 = -32700;
pub const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
/// ACP's own: who asks is not signed in, and what is named does not exist.
const AUTH_REQUIRED: i64 = -32000;
const RESOURCE_NOT_FOUND: i64 = -32002;

/// What the other side says.
#[derive(Debug, PartialEq)]
pub enum RpcMessage {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The answer to a request of ours.
    Answer {
        id: Value,
        result: Result<Value, Value>,
    },
}

/// An error on its way to the other side.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn no_method(method: &str) -> Self {
        Self::new(METHOD_NOT_FOUND, format!("there is no method `{method}`"))
    }

    pub fn params(message: impl std::fmt::Display) -> Self {
        Self::new(INVALID_PARAMS, message.to_string())
    }

    /// A turn that failed, with what is known of why.
    pub fn failed(message: impl Into<String>, data: Value) -> Self {
        Self { data: Some(data), ..Self::new(INTERNAL_ERROR, message) }
    }

    pub fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        error
    }
}

impl From<Fault> for RpcError {
    fn from(fault: Fault) -> Self {
        let code = match fault.code {
            FaultCode::Invalid => INVALID_PARAMS,
            FaultCode::NotFound => RESOURCE_NOT_FOUND,
            FaultCode::Unauthenticated => AUTH_REQUIRED,
            FaultCode::Unsupported => METHOD_NOT_FOUND,
            _ => INTERNAL_ERROR,
        };
        // Editors show the message alone.
        let help = fault.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
        Self { code, message: format!("{}{help}", fault.message), data: Some(json!(fault)) }
    }
}

/// A line as it comes; which keys it has says what it is.
#[derive(Deserialize)]
struct Line {
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

/// Tells `null` from what is not there.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Reads a line; the id that an error is to bear where it is no message.
pub fn parse(line: &[u8]) -> Result<RpcMessage, (Value, RpcError)> {
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        (Value::Null, RpcError::new(PARSE_ERROR, format!("the line is not JSON: {error}")))
    })?;
    let id = value.get("id").cloned().unwrap_or_default();
    let wrong = |what: &str| (id.clone(), RpcError::new(INVALID_REQUEST, what));
    if value.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(wrong("a message is an object with `\"jsonrpc\": \"2.0\"`"));
    }
    let line: Line = serde_json::from_value(value).map_err(|error| wrong(&error.to_string()))?;
    match line {
        Line { id: Some(id), method: Some(method), params, .. } if id.is_string() || id.is_number() => {
            Ok(RpcMessage::Request { id, method, params })
        }
        Line { id: None, method: Some(method), params, .. } => {
            Ok(RpcMessage::Notification { method, params })
        }
        Line { id: Some(id), method: None, error: Some(error), .. } => {
            Ok(RpcMessage::Answer { id, result: Err(error) })
        }
        Line { id: Some(id), method: None, result: Some(result), .. } => {
            Ok(RpcMessage::Answer { id, result: Ok(result) })
        }
        _ => Err(wrong("a message has a `method`, or the `id` and the `result` or `error` of an answer")),
    }
}

/// Reads the parameters of a method.
pub fn read<T: serde::de::DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|error| RpcError::params(format!("the parameters: {error}")))
}

/// Lines of bounded length. Dropping the future that reads one loses nothing.
pub struct RpcLines<R> {
    reader: R,
    line: Vec<u8>,
    /// Whether the line is longer than it may be: the rest of it is passed over.
    over: bool,
}

impl<R: AsyncBufRead + Unpin> RpcLines<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, line: Vec::new(), over: false }
    }

    /// The next line that is not empty; an error in place of one that is too long; none at the end.
    pub async fn next(&mut self) -> std::io::Result<Option<Result<Vec<u8>, RpcError>>> {
        loop {
            let some = self.reader.fill_buf().await?;
            if some.is_empty() {
                return Ok(None);
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let part = &some[..end.unwrap_or(some.len())];
            if self.line.len() + part.len() > MOST_LINE {
                self.over = true;
                self.line = Vec::new();
            }
            if !self.over {
                self.line.extend_from_slice(part);
            }
            let taken = end.map_or(some.len(), |end| end + 1);
            self.reader.consume(taken);
            if end.is_none() {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.over) {
                let error = format!("the line is longer than {MOST_LINE} bytes");
                return Ok(Some(Err(RpcError::new(INVALID_REQUEST, error))));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(Ok(line)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_a_notification_an_answer_or_refused_with_its_id() {
        let request = parse(br#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}"#);
        let params = json!({ "a": 1 });
        assert_eq!(request, Ok(RpcMessage::Request { id: json!(1), method: "m".into(), params }));
        let told = parse(br#"{"jsonrpc":"2.0","method":"m"}"#);
        assert_eq!(told, Ok(RpcMessage::Notification { method: "m".into(), params: Value::Null }));
        let answer = parse(br#"{"jsonrpc":"2.0","id":"x","result":null}"#);
        assert_eq!(answer, Ok(RpcMessage::Answer { id: json!("x"), result: Ok(Value::Null) }));
        let answer = parse(br#"{"jsonrpc":"2.0","id":"x","error":{"code":1}}"#);
        assert_eq!(answer, Ok(RpcMessage::Answer { id: json!("x"), result: Err(json!({ "code": 1 })) }));
        for (line, code, id) in [
            ("nonsense", PARSE_ERROR, Value::Null),
            ("[]", INVALID_REQUEST, Value::Null),
            ("7", INVALID_REQUEST, Value::Null),
            (r#"{"id":1,"method":"m"}"#, INVALID_REQUEST, json!(1)),
            (r#"{"jsonrpc":"2.0","id":2}"#, INVALID_REQUEST, json!(2)),
            (r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, INVALID_REQUEST, json!({})),
            (r#"{"jsonrpc":"2.0","id":3,"method":4}"#, INVALID_REQUEST, json!(3)),
        ] {
            let (of, error) = parse(line.as_bytes()).expect_err(line);
            assert_eq!((of, error.code), (id, code), "{line}");
        }
    }
}
