//! The collector: one request and what became of it, as <https://opentelemetry.io/docs/specs/otlp/#otlphttp-response> has it (read on 2026-11-27).

use std::time::Duration;

use drupe_extension_api::prelude::*;

use crate::{
    otlp::{
        Attributes, ExportRequest, ExportResponse, FailureStatus, OtlpSpan, Resource, ResourceSpans,
        ScopeSpans, SpanScope,
    },
    settings::OtelSettings,
};

/// Time for a request and its answer; that of the exporters of OpenTelemetry.
const REQUEST_MS: u64 = 10_000;
/// The longest pause that a collector can ask for. One that wants more is asked again then.
const LONGEST_PAUSE: u64 = 3_600;
/// Bytes of spans in one request. The daemon takes a body of 1 MiB.
const MOST_BYTES: usize = 700 << 10;
/// The status of a request that is larger than the collector takes.
const TOO_LARGE: u16 = 413;

#[derive(Clone)]
pub struct Collector {
    host: Host,
    url: String,
    header: Option<String>,
    service_name: String,
}

/// Why the collector took no spans.
#[derive(Debug, PartialEq, Eq)]
pub enum Unsent {
    /// Nobody is there who could take anything.
    Away { why: String },
    /// It is to be tried again, after as long as the collector says.
    Later { why: String, after: Option<Duration> },
    /// Nothing says whose fault it is: the trace's own, that of the way to the collector, or that of the configuration.
    Unclear { why: String },
    /// The same spans are not to be sent again. `status` is what the collector answered with.
    Never { why: String, status: u16 },
    /// The collector takes less at once.
    TooLarge { why: String },
}

impl Collector {
    pub fn new(host: Host, settings: &OtelSettings) -> Self {
        Self {
            host,
            url: format!("{}/v1/traces", settings.endpoint.trim_end_matches('/')),
            header: settings.header.clone(),
            service_name: settings.service_name.clone(),
        }
    }

    /// Sends the spans of a trace, in as many requests as they need. What the collector has no room for is sent in halves, and a span alone
    /// without its events and long texts: the same request is not sent again, which a collector that answers 413 may not be asked to look at.
    /// One that has no room for such a span takes nothing of the trace.
    ///
    /// What the collector says beside taking them is given back.
    pub async fn send(&self, spans: Vec<OtlpSpan>) -> Result<Option<String>, Unsent> {
        let mut said = None;
        let mut waiting = parts(spans)?;
        waiting.reverse();
        while let Some(part) = waiting.pop() {
            match self.send_part(&part).await {
                Ok(more) => said = more.or(said),
                Err(Unsent::TooLarge { why }) => match smaller(part) {
                    Some(smaller) => waiting.extend(smaller.into_iter().rev()),
                    None => return Err(Unsent::Never { why, status: TOO_LARGE }),
                },
                Err(unsent) => return Err(unsent),
            }
        }
        Ok(said)
    }

    async fn send_part(&self, spans: &[OtlpSpan]) -> Result<Option<String>, Unsent> {
        let mut attributes = Attributes::default();
        attributes.text("service.name", &self.service_name);
        let scope = SpanScope { name: "drupe", version: env!("CARGO_PKG_VERSION") };
        let request = ExportRequest {
            resource_spans: [ResourceSpans {
                resource: Resource { attributes },
                scope_spans: [ScopeSpans { scope, spans }],
            }],
        };
        let body = serde_json::to_string(&request).map_err(unwritten)?;
        let mut request =
            OutwardRequest::new("POST", &self.url).header("content-type", "application/json").body(body);
        if let Some(header) = &self.header {
            request = request.header(header, "${OTEL_HEADER}");
        }
        request.timeout_ms = REQUEST_MS;
        match self.host.send(&request).await {
            Ok(response) => read(&response),
            Err(fault) => Err(unanswered(&fault)),
        }
    }
}

/// Spans in parts that a request has room for. One that has none by itself goes without its events and long texts.
fn parts(spans: Vec<OtlpSpan>) -> Result<Vec<Vec<OtlpSpan>>, Unsent> {
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for mut span in spans {
        let mut size = span.size().map_err(unwritten)?;
        if size > MOST_BYTES
            && let Some(lighter) = span.clone().lighter()
        {
            span = lighter;
            size = span.size().map_err(unwritten)?;
        }
        if bytes + size > MOST_BYTES && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        part.push(span);
        bytes += size;
    }
    parts.push(part);
    Ok(parts)
}

/// A part as smaller ones; none where it cannot be made smaller.
fn smaller(mut part: Vec<OtlpSpan>) -> Option<Vec<Vec<OtlpSpan>>> {
    if part.len() > 1 {
        let second = part.split_off(part.len() / 2);
        return Some(vec![part, second]);
    }
    part.pop()?.lighter().map(|span| vec![vec![span]])
}

fn unwritten(error: impl std::fmt::Display) -> Unsent {
    Unsent::Never { why: format!("it cannot be written: {error}"), status: 0 }
}

/// What a status says, by "Failures" and "Retryable Response Codes" there: 429, 502, 503 and 504 are tried again, and no other 4xx or 5xx is.
fn read(response: &OutwardResponse) -> Result<Option<String>, Unsent> {
    let status = response.status;
    if (200..300).contains(&status) {
        // A collector that says nothing, or something else, took them all the same.
        let answer: ExportResponse = serde_json::from_str(&response.body).unwrap_or_default();
        let partial = answer.partial_success.unwrap_or_default();
        return Ok(match (partial.rejected(), partial.error_message) {
            (0, message) if message.is_empty() => None,
            (0, message) => Some(line(&message)),
            (rejected, message) => Some(format!("{rejected} spans are refused: {}", line(&message))),
        });
    }
    let said = serde_json::from_str::<FailureStatus>(&response.body)
        .map_or_else(|_| response.body.clone(), |failure| failure.message);
    let why = format!("the collector answered with status {status}: {}", line(&said));
    match status {
        429 | 502 | 503 | 504 => {}
        TOO_LARGE => return Err(Unsent::TooLarge { why }),
        status => return Err(Unsent::Never { why, status }),
    }
    let header = response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
    let seconds = header.and_then(|(_, value)| value.trim().parse::<u64>().ok());
    Err(Unsent::Later {
        why,
        after: seconds.map(|seconds| Duration::from_secs(seconds.clamp(1, LONGEST_PAUSE))),
    })
}

/// What a collector says, fit for a log.
fn line(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// What was not answered may have been taken; sent again it is the same trace. What was not sent, since the configuration leads nowhere or the
/// secret is not there, goes out when that is mended.
fn unanswered(fault: &Fault) -> Unsent {
    let why = fault.to_string();
    match fault.code {
        FaultCode::Unavailable => Unsent::Away { why },
        _ => Unsent::Unclear { why },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, headers: &[(&str, &str)], body: &str) -> Result<Option<String>, Unsent> {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        read(&OutwardResponse { status, headers, body: body.to_owned() })
    }

    #[test]
    fn an_answer_says_whether_the_same_is_to_be_sent_again() {
        assert_eq!(answered(200, &[], "{}"), Ok(None));
        assert_eq!(answered(202, &[], ""), Ok(None));
        assert_eq!(answered(200, &[], r#"{"partialSuccess":{}}"#), Ok(None));
        for body in [
            r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#,
            r#"{"partialSuccess":{"rejectedSpans":3,"errorMessage":"too old"}}"#,
        ] {
            assert_eq!(answered(200, &[], body), Ok(Some("3 spans are refused: too old".to_owned())));
        }
        let warned = r#"{"partialSuccess":{"errorMessage":"soon full"}}"#;
        assert_eq!(answered(200, &[], warned), Ok(Some("soon full".to_owned())));
        for status in [429, 502, 503, 504] {
            assert!(matches!(answered(status, &[], ""), Err(Unsent::Later { after: None, .. })), "{status}");
        }
        for (value, seconds) in
            [("7", Some(7)), ("0", Some(1)), ("999999999", Some(3_600)), ("soon", None), ("-1", None)]
        {
            let Err(Unsent::Later { after, .. }) = answered(429, &[("Retry-After", value)], "") else {
                panic!("{value}")
            };
            assert_eq!(after.map(|after| after.as_secs()), seconds, "{value}");
        }
        for status in [301, 400, 401, 403, 404, 408, 500, 501] {
            assert!(matches!(answered(status, &[], "no"), Err(Unsent::Never { .. })), "{status}");
        }
        assert!(matches!(answered(413, &[], ""), Err(Unsent::TooLarge { .. })));
        let why = "the collector answered with status 400: bad spans".to_owned();
        for body in ["bad spans", r#"{"code":3,"message":"bad\n spans","details":[]}"#] {
            assert_eq!(answered(400, &[], body), Err(Unsent::Never { why: why.clone(), status: 400 }));
        }
    }
}
