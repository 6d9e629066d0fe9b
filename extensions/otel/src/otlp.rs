//! OTLP as JSON: the part of it that traces need.
//!
//! Forms as in <https://github.com/open-telemetry/opentelemetry-proto> (`trace.proto`, `trace_service.proto`, and `specification.md` on the
//! encoding: ids are hexadecimal, 64-bit numbers are texts, enumerations numbers), read on 2026-11-27.

use serde::{Deserialize, Serialize, Serializer};

/// Bytes of a text that a span keeps when it has to become smaller.
const SHORT: usize = 256;

/// `ExportTraceServiceRequest`: what a collector is sent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRequest<'a> {
    pub resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpans<'a> {
    pub resource: Resource,
    pub scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
pub struct Resource {
    pub attributes: Attributes,
}

#[derive(Debug, Serialize)]
pub struct ScopeSpans<'a> {
    pub scope: SpanScope,
    pub spans: &'a [OtlpSpan],
}

#[derive(Debug, Serialize)]
pub struct SpanScope {
    pub name: &'static str,
    pub version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtlpSpan {
    pub trace_id: String,
    pub span_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_span_id: String,
    pub name: String,
    pub kind: SpanKind,
    #[serde(serialize_with = "as_text")]
    pub start_time_unix_nano: u64,
    #[serde(serialize_with = "as_text")]
    pub end_time_unix_nano: u64,
    pub attributes: Attributes,
    #[serde(skip_serializing_if = "is_none")]
    pub dropped_attributes_count: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<SpanEvent>,
    #[serde(skip_serializing_if = "is_none")]
    pub dropped_events_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SpanStatus>,
}

impl OtlpSpan {
    /// Bytes that it has when it is sent.
    pub fn size(&self) -> Result<usize, serde_json::Error> {
        serde_json::to_vec(self).map(|bytes| bytes.len())
    }

    /// The same without events and long texts, which are counted in it; none where it has neither.
    pub fn lighter(mut self) -> Option<Self> {
        let events = std::mem::take(&mut self.events).len();
        let before = self.attributes.0.len();
        self.attributes.0.retain(|one| one.value.is_short());
        let attributes = before - self.attributes.0.len();
        let add = |to: &mut u32, count| *to = to.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        add(&mut self.dropped_events_count, events);
        add(&mut self.dropped_attributes_count, attributes);
        (events + attributes > 0).then_some(self)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to it")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    Internal = 1,
    Client = 3,
}

impl Serialize for SpanKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(*self as u8)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpanEvent {
    #[serde(serialize_with = "as_text")]
    pub time_unix_nano: u64,
    pub name: String,
    pub attributes: Attributes,
}

/// That a span failed; one that did not has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpanStatus {
    code: u8,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl SpanStatus {
    /// One with `STATUS_CODE_ERROR` for its code.
    pub fn error(message: String) -> Self {
        Self { code: 2, message }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Attributes(pub Vec<KeyValue>);

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyValue {
    pub key: &'static str,
    pub value: AnyValue,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum AnyValue {
    #[serde(rename = "stringValue")]
    Text(String),
    #[serde(rename = "intValue", serialize_with = "as_text")]
    Count(u64),
    #[serde(rename = "doubleValue")]
    Number(f64),
    #[serde(rename = "arrayValue")]
    List { values: Vec<AnyValue> },
}

impl AnyValue {
    /// Whether it is one of those that tell what a span is, and not what was said in it.
    fn is_short(&self) -> bool {
        match self {
            Self::Text(text) => text.len() <= SHORT,
            Self::List { values } => values.len() <= SHORT && values.iter().all(Self::is_short),
            Self::Count(_) | Self::Number(_) => true,
        }
    }
}

impl Attributes {
    pub fn text(&mut self, key: &'static str, value: impl Into<String>) {
        self.0.push(KeyValue { key, value: AnyValue::Text(value.into()) });
    }

    /// The largest number that the receiver's signed 64 bits hold stands for any that is larger.
    pub fn count(&mut self, key: &'static str, value: u64) {
        self.0.push(KeyValue { key, value: AnyValue::Count(value.min(i64::MAX as u64)) });
    }

    pub fn number(&mut self, key: &'static str, value: f64) {
        // JSON has no word for what is no number.
        if value.is_finite() {
            self.0.push(KeyValue { key, value: AnyValue::Number(value) });
        }
    }

    pub fn texts(&mut self, key: &'static str, values: impl IntoIterator<Item = String>) {
        let values = values.into_iter().map(AnyValue::Text).collect();
        self.0.push(KeyValue { key, value: AnyValue::List { values } });
    }
}

/// `ExportTraceServiceResponse`. Whatever else a collector says is passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExportResponse {
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartialSuccess {
    /// A number, as a text or as it is.
    rejected_spans: serde_json::Value,
    pub error_message: String,
}

impl PartialSuccess {
    pub fn rejected(&self) -> u64 {
        match &self.rejected_spans {
            serde_json::Value::String(text) => text.parse().unwrap_or_default(),
            other => other.as_u64().unwrap_or_default(),
        }
    }
}

/// `google.rpc.Status`: what comes with a failure.
#[derive(Debug, Deserialize)]
pub struct FailureStatus {
    pub message: String,
}

/// 64-bit numbers are texts, since JSON's own lose their last digits in many readers.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references to it")]
fn as_text<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(number)
}
