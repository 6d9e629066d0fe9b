//! The trace of a turn as spans. Pure: the same turn gives the same spans, with the same ids, whenever it is asked.
//!
//! The turn is the root; below it are runs, and below those models, tools and what they set off, as the journal nests them. Remarks are events
//! of the span that they are in.

use drupe_extension_api::{
    FailureClass, ResponseStatus,
    control::{CallKind, TraceNode, TurnTrace},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    content::{TurnTexts, cut},
    ids, names,
    names::own,
    otlp::{Attributes, OtlpSpan, SpanEvent, SpanKind, SpanStatus},
};

const MILLISECOND: u64 = 1_000_000;
/// The tool whose call returns while the agent that it began works on.
const SPAWN: &str = "spawn_agent";
/// Events of one span. The first are kept, as by the libraries of OpenTelemetry, whose bound this is (`EventCountLimit` of
/// <https://opentelemetry.io/docs/specs/otel/trace/sdk/#span-limits>, read on 2026-11-27).
const MOST_EVENTS: usize = 128;
/// Bytes of what a remark or an error says.
const REMARK: usize = 1 << 10;

/// All spans of a turn that has ended, the root first.
pub fn of(trace: &TurnTrace, texts: &TurnTexts) -> Vec<OtlpSpan> {
    let turn = trace.turn.as_str();
    let began = nanos(trace.accepted);
    let mut attributes = Attributes::default();
    attributes.text(names::OPERATION, names::INVOKE_WORKFLOW);
    attributes.text(names::CONVERSATION, trace.session.as_str());
    attributes.text(names::AGENT, "turn");
    attributes.text(own::TURN, turn);
    if let Some(correlation) = &trace.correlation_id {
        attributes.text(own::CORRELATION, correlation.as_str());
    }
    if let Some(status) = trace.status {
        attributes.text(own::STATUS, word(status));
    }
    if let Some(started) = trace.started {
        attributes.count(own::QUEUED_MS, nanos(started).saturating_sub(began) / MILLISECOND);
    }
    if let Some((input, output)) = &texts.turn {
        attributes.text(names::INPUT_MESSAGES, message("user", input, None));
        attributes.text(names::OUTPUT_MESSAGES, message("assistant", output, Some("stop")));
    }
    let failed = trace.status.filter(|status| *status != ResponseStatus::Success);
    let lasted = trace.started.map_or(0, |_| trace.spend.elapsed_ms.saturating_mul(MILLISECOND));
    let root = OtlpSpan {
        trace_id: ids::trace(turn),
        span_id: ids::span(turn, "turn"),
        parent_span_id: String::new(),
        name: format!("{} turn", names::INVOKE_WORKFLOW),
        kind: SpanKind::Internal,
        start_time_unix_nano: began,
        end_time_unix_nano: nanos(trace.started.unwrap_or(trace.accepted)).saturating_add(lasted),
        attributes,
        dropped_attributes_count: 0,
        events: Vec::new(),
        dropped_events_count: 0,
        status: None,
    };
    let mut writer = Writer { trace, texts, spans: vec![root] };
    if let Some(status) = failed {
        let kind = trace.class.map_or_else(|| word(status), word);
        writer.fail(0, kind, "");
    }
    for node in &trace.nodes {
        writer.node(node, 0);
    }
    writer.spans
}

struct Writer<'a> {
    trace: &'a TurnTrace,
    texts: &'a TurnTexts,
    spans: Vec<OtlpSpan>,
}

impl Writer<'_> {
    fn node(&mut self, node: &TraceNode, above: usize) {
        if node.kind == CallKind::Note {
            return self.note(node, above);
        }
        let turn = self.trace.turn.as_str();
        let parent = &self.spans[above];
        // A clock that was set back in between must not turn the tree over.
        let began = nanos(node.started).max(parent.start_time_unix_nano);
        let lasted = node.elapsed_ms.unwrap_or_default().saturating_mul(MILLISECOND);
        let (operation, model) = match node.kind {
            CallKind::Run => (names::INVOKE_AGENT, None),
            CallKind::Tool => (names::EXECUTE_TOOL, None),
            _ => (model_operation(node), Some(node.name.split_once('/').unwrap_or(("", &node.name)))),
        };
        let name = model.map_or(node.name.as_str(), |(_, model)| model);
        let at = self.spans.len();
        let span = OtlpSpan {
            trace_id: parent.trace_id.clone(),
            span_id: ids::span(turn, &format!("{}:{}", word(node.kind), node.id)),
            parent_span_id: parent.span_id.clone(),
            name: format!("{operation} {name}"),
            kind: if model.is_some() { SpanKind::Client } else { SpanKind::Internal },
            start_time_unix_nano: began,
            end_time_unix_nano: began.saturating_add(lasted),
            attributes: self.attributes(node, operation, model),
            dropped_attributes_count: 0,
            events: Vec::new(),
            dropped_events_count: 0,
            status: None,
        };
        self.spans.push(span);
        if let Some(kind) = failure(node) {
            let said = node.outcome.as_deref().filter(|_| node.kind == CallKind::Model).unwrap_or_default();
            self.fail(at, kind, said);
        }
        for below in &node.nodes {
            self.node(below, at);
        }
        self.cover(above, node, at);
    }

    /// What is above lasted as long as what is below: durations are whole milliseconds from a moment that is a little earlier than what is
    /// recorded of it, a run is counted by each process anew, and what was cut off has no end. Agents that were spawned work on by themselves.
    fn cover(&mut self, above: usize, node: &TraceNode, at: usize) {
        let end = self.spans[at].end_time_unix_nano;
        let parent = &mut self.spans[above];
        let works_on =
            node.kind == CallKind::Run && parent.name == format!("{} {SPAWN}", names::EXECUTE_TOOL);
        if !works_on {
            parent.end_time_unix_nano = parent.end_time_unix_nano.max(end);
        }
    }

    fn fail(&mut self, at: usize, kind: String, said: &str) {
        let wanted = self.texts.are_wanted();
        let span = &mut self.spans[at];
        span.attributes.text(names::ERROR_TYPE, kind);
        span.status =
            Some(SpanStatus::error(if wanted { cut(said.to_owned(), REMARK) } else { String::new() }));
    }

    fn note(&mut self, node: &TraceNode, above: usize) {
        if self.spans[above].events.len() >= MOST_EVENTS {
            self.spans[above].dropped_events_count = self.spans[above].dropped_events_count.saturating_add(1);
            return;
        }
        let mut attributes = Attributes::default();
        if let Some(text) = node.outcome.as_ref().filter(|_| self.texts.are_wanted()) {
            attributes.text(own::TEXT, cut(text.clone(), REMARK));
        }
        let span = &mut self.spans[above];
        let time_unix_nano = nanos(node.started).max(span.start_time_unix_nano);
        span.events.push(SpanEvent { time_unix_nano, name: node.name.clone(), attributes });
    }

    fn attributes(&self, node: &TraceNode, operation: &str, model: Option<(&str, &str)>) -> Attributes {
        let mut all = Attributes::default();
        all.text(names::OPERATION, operation);
        all.text(names::CONVERSATION, self.trace.session.as_str());
        let agent = node.path.last().map(|agent| agent.as_str());
        if let Some(agent) = agent {
            all.text(names::AGENT, agent);
        }
        match (node.kind, model) {
            (CallKind::Run, _) => all.text(own::RUN, &node.id),
            (CallKind::Tool, _) => {
                all.text(names::TOOL, &node.name);
                all.text(names::TOOL_CALL, &node.id);
                let outcome = node.outcome.as_deref().unwrap_or("interrupted");
                all.text(own::OUTCOME, outcome);
            }
            (_, Some((provider, model))) => {
                all.text(names::PROVIDER, names::provider(provider));
                all.text(names::REQUEST_MODEL, model);
                let reason = node.outcome.as_deref().and_then(names::finish_reason);
                if reason.is_some() {
                    all.text(names::RESPONSE_MODEL, model);
                }
                if let Some(first_ms) = node.first_ms {
                    all.number(
                        names::FIRST_CHUNK,
                        f64::from(u32::try_from(first_ms).unwrap_or(u32::MAX)) / 1e3,
                    );
                }
                all.texts(names::FINISH_REASONS, [reason.unwrap_or("error").to_owned()]);
            }
            _ => {}
        }
        if let Some(usage) = node.usage {
            all.count(names::INPUT_TOKENS, usage.input_tokens);
            all.count(names::OUTPUT_TOKENS, usage.output_tokens);
            for (name, count) in [
                (names::CACHE_READ_TOKENS, usage.cached_tokens),
                (names::CACHE_WRITE_TOKENS, usage.cache_write_tokens),
                (names::REASONING_TOKENS, usage.reasoning_tokens),
            ] {
                if count > 0 {
                    all.count(name, count);
                }
            }
        }
        if let Some(usd) = node.cost_usd {
            all.number(own::COST_USD, usd);
        }
        for (name, bytes) in [(own::BYTES_IN, node.bytes_in), (own::BYTES_OUT, node.bytes_out)] {
            if let Some(bytes) = bytes {
                all.count(name, bytes);
            }
        }
        self.texts(node, &mut all);
        all
    }

    fn texts(&self, node: &TraceNode, to: &mut Attributes) {
        let Some(text) = self.texts.item(&node.id) else { return };
        if node.kind == CallKind::Tool {
            if let Some(arguments) = &text.input {
                to.text(names::TOOL_ARGUMENTS, arguments);
            }
            if let Some(result) = &text.output {
                to.text(names::TOOL_RESULT, result);
            }
        } else if let Some(output) = &text.output {
            let reason = node.outcome.as_deref().and_then(names::finish_reason).unwrap_or("error");
            to.text(names::OUTPUT_MESSAGES, message("assistant", output, Some(reason)));
        }
    }
}

/// Vectors of texts are made outside of the steps of a run, under the step 0.
fn model_operation(node: &TraceNode) -> &'static str {
    let step = node.id.rsplit('.').nth(1);
    if step == Some("0") { names::EMBEDDINGS } else { names::CHAT }
}

/// The kind of a failure; none of what did not fail.
fn failure(node: &TraceNode) -> Option<String> {
    let outcome = node.outcome.as_deref().unwrap_or("interrupted");
    let well = match node.kind {
        CallKind::Run => outcome == word(ResponseStatus::Success),
        CallKind::Model => names::finish_reason(outcome).is_some(),
        _ => outcome == "ok",
    };
    if well {
        return None;
    }
    let class: Option<FailureClass> = node.class;
    Some(match (class, node.kind, outcome) {
        (Some(class), ..) => word(class),
        (None, CallKind::Model, "interrupted") => outcome.to_owned(),
        (None, CallKind::Model, _) => names::OTHER_ERROR.to_owned(),
        (None, ..) => outcome.to_owned(),
    })
}

/// One message in the form of the conventions' JSON schemas, as a text.
fn message(role: &str, text: &str, finish_reason: Option<&str>) -> String {
    let mut message = json!({"role": role, "parts": [{"type": "text", "content": text}]});
    if let Some(reason) = finish_reason {
        message["finish_reason"] = reason.into();
    }
    json!([message]).to_string()
}

/// A word as the control API spells it.
fn word(of: impl serde::Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(word)) => word,
        _ => names::OTHER_ERROR.to_owned(),
    }
}

fn nanos(time: Timestamp) -> u64 {
    u64::try_from(time.as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
