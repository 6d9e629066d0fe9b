//! Figures for Prometheus, in its text format: <https://prometheus.io/docs/instrumenting/exposition_formats/>, read on 2026-11-24.
//!
//! They are what `status` and `usage` tell, so a token must have been made with `inspect`. Nothing is told by session: a label
//! of which there are more each day fills whoever stores it.

use std::{fmt::Write, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use drupe_extension_api::{
    BudgetUse,
    control::{LATENCY_BOUNDS_MS, Latency, LatencyOf, Status, UsageBy, UsageQuery, UsageRow, method},
};
use serde::Serialize;
use serde_json::Value;

use crate::{credentials::Bearer, failure::HttpFault, server::Server};

const FORMAT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub async fn show(State(server): State<Arc<Server>>, bearer: Bearer) -> Result<Response, HttpFault> {
    let status: Status = server.control(&bearer, method::STATUS, ()).await?;
    let used = async |by| {
        let query = UsageQuery { by, ..UsageQuery::default() };
        server.control::<Vec<UsageRow>>(&bearer, method::USAGE_SHOW, query).await
    };
    let (agents, models) = (used(UsageBy::Agent).await?, used(UsageBy::Model).await?);
    let latencies: Vec<Latency> = server.control(&bearer, method::LATENCIES_SHOW, ()).await?;
    Ok(([(header::CONTENT_TYPE, FORMAT)], figures(&status, &agents, &models, &latencies)).into_response())
}

/// All of them. Times are in seconds, money in US dollars.
fn figures(status: &Status, agents: &[UsageRow], models: &[UsageRow], latencies: &[Latency]) -> String {
    let mut text = Exposition::default();
    let none: &[(&str, &str)] = &[];
    text.figure(
        "drupe_build_info",
        "gauge",
        "The release that runs.",
        [([("version", status.version.as_str())], 1.0)],
    );
    let state = word(status.state);
    text.figure("drupe_state", "gauge", "What the daemon does.", [([("state", state.as_str())], 1.0)]);
    for (name, kind, help, value) in [
        ("drupe_kernel_uptime_seconds", "gauge", "Age of the kernel.", number(status.uptime_ms) / 1e3),
        (
            "drupe_kernel_starts_total",
            "counter",
            "Kernels that began in this home.",
            number(status.generation),
        ),
        ("drupe_restarts", "gauge", "Restarts since the supervisor began.", status.restarts.into()),
        (
            "drupe_safe_mode",
            "gauge",
            "1 where extensions of others are left out.",
            f64::from(u8::from(status.safe_mode)),
        ),
        ("drupe_sessions", "gauge", "Sessions that are kept.", number(status.sessions)),
        ("drupe_turns_running", "gauge", "Turns that run.", number(status.running_turns)),
        ("drupe_turns_waiting", "gauge", "Turns that wait.", number(status.queued_turns)),
        (
            "drupe_deliveries_waiting",
            "gauge",
            "Messages to people that are not sent yet.",
            number(status.queued_deliveries),
        ),
        (
            "drupe_topic_messages_waiting",
            "gauge",
            "Messages of topics that wait for followers.",
            number(status.queued_messages),
        ),
        (
            "drupe_topic_messages_dead",
            "gauge",
            "Messages of topics that were given up, and are kept.",
            number(status.dead_messages),
        ),
    ] {
        text.figure(name, kind, help, [(none, value)]);
    }
    let extensions =
        status.extensions.iter().map(|one| (one.id.as_str(), word(one.state))).collect::<Vec<_>>();
    let rows = extensions.iter().map(|(id, state)| ([("extension", *id), ("state", state.as_str())], 1.0));
    text.figure("drupe_extension_state", "gauge", "The state of each extension.", rows);
    let limits = |of: fn(&BudgetUse) -> u64| {
        let row = move |one: &BudgetUse| {
            ([("limit", one.limit.clone()), ("scope", word(one.scope))], number(of(one)))
        };
        status.budgets.iter().map(row)
    };
    let help = "What is used of a limit; of costs, millionths of a US dollar. Of an agent or a session, whoever used most.";
    text.figure("drupe_limit_used", "gauge", help, limits(|one| one.used));
    text.figure(
        "drupe_limit_allowed",
        "gauge",
        "What a limit allows, in the same units.",
        limits(|one| one.allowed),
    );
    text.figure(
        "drupe_limit_remaining",
        "gauge",
        "What is left of a limit, in the same units.",
        limits(|one| one.allowed.saturating_sub(one.used)),
    );
    let runs = agents.iter().map(|row| ([("agent", row.key.as_str())], number(row.invocations)));
    text.figure("drupe_agent_runs_total", "counter", "Runs of agents.", runs);
    let each =
        |of: fn(&UsageRow) -> f64| models.iter().map(move |row| ([("model", row.key.as_str())], of(row)));
    text.figure("drupe_model_calls_total", "counter", "Calls of models.", each(|row| number(row.calls)));
    let tokens = models.iter().flat_map(|row| {
        let kinds = [
            ("input", row.usage.input_tokens),
            ("cached", row.usage.cached_tokens),
            ("output", row.usage.output_tokens),
        ];
        kinds.map(|(kind, count)| ([("model", row.key.as_str()), ("kind", kind)], number(count)))
    });
    text.figure(
        "drupe_model_tokens_total",
        "counter",
        "Tokens; those of `cached` are among those of `input`.",
        tokens,
    );
    let help = "Tokens of calls whose end was never seen; they count against limits.";
    text.figure("drupe_model_lost_tokens_total", "counter", help, each(|row| number(row.lost_tokens)));
    let help = "US dollars of the tokens whose price is known.";
    text.figure("drupe_model_cost_usd_total", "counter", help, each(|row| row.cost_usd));
    for (name, of, label, help) in [
        (
            "drupe_turn_duration_seconds",
            LatencyOf::Turn,
            "status",
            "How long turns took, without what they waited.",
        ),
        ("drupe_model_duration_seconds", LatencyOf::Model, "model", "How long attempts of models took."),
        (
            "drupe_model_first_piece_seconds",
            LatencyOf::FirstPiece,
            "model",
            "How long it took until the first piece of an answer came.",
        ),
        ("drupe_tool_duration_seconds", LatencyOf::Tool, "tool", "How long calls of tools took."),
    ] {
        text.histogram(name, help, label, latencies.iter().filter(|one| one.of == of));
    }
    text.0
}

/// A text of figures, line by line.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// One figure for each set of labels; nothing of one that has none.
    fn figure<L, S>(&mut self, name: &str, kind: &str, help: &str, rows: impl IntoIterator<Item = (L, f64)>)
    where
        L: AsRef<[(&'static str, S)]>,
        S: AsRef<str>,
    {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return;
        }
        // Writing into a text cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let labels =
                labels.as_ref().iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of.as_ref())));
            let labels = labels.collect::<Vec<_>>().join(",");
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }

    /// One histogram for each value of a label. All begin anew with the kernel.
    fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        rows: impl Iterator<Item = &'a Latency>,
    ) {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return;
        }
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} histogram");
        for Latency { key, count, sum_ms, at_most, .. } in rows {
            let key = escaped(key);
            for (bound, below) in LATENCY_BOUNDS_MS.iter().zip(at_most) {
                let bound = number(*bound) / 1e3;
                let _ = writeln!(self.0, "{name}_bucket{{{label}=\"{key}\",le=\"{bound}\"}} {below}");
            }
            let _ = writeln!(self.0, "{name}_bucket{{{label}=\"{key}\",le=\"+Inf\"}} {count}");
            let _ = writeln!(self.0, "{name}_sum{{{label}=\"{key}\"}} {}", number(*sum_ms) / 1e3);
            let _ = writeln!(self.0, "{name}_count{{{label}=\"{key}\"}} {count}");
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A state as the control API spells it.
fn word(state: impl Serialize) -> String {
    match serde_json::to_value(state) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the format has no other numbers")]
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_kind_and_labels_cannot_end_their_line() {
        let mut text = Exposition::default();
        text.figure("a", "gauge", "Is one.", [([("b", "x\"y\\z\nw")], 1.5)]);
        text.figure("none", "counter", "Has no rows.", Vec::<([(&str, &str); 1], f64)>::new());
        assert_eq!(text.0, "# HELP a Is one.\n# TYPE a gauge\na{b=\"x\\\"y\\\\z\\nw\"} 1.5\n");
    }
}
