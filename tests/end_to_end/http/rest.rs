//! What programs ask: agents, one task, sessions.

use serde_json::{Value, json};

use super::{daemon, door, token};

#[test]
fn an_agent_answers_a_task_by_query_and_by_body() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let agents = door.get(&ci, "/v1/agents").json();
    assert!(agents.as_array().is_some_and(|all| all.iter().any(|agent| agent["id"] == "haiku")), "{agents}");
    assert_eq!(door.get(&ci, "/v1/agents/haiku").json()["id"], "haiku");
    for path in ["/v1/agents/haiku/run?q=hello", "/v1/haiku?q=hello", "/v1/drupe?q=hello"] {
        let answer = door.get(&ci, path);
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = answer.json();
        assert_eq!(answer["status"], "success", "{answer}");
        assert!(
            answer["session"].as_str().is_some_and(|session| session.starts_with("token.ci:")),
            "{answer}"
        );
    }
    let lasting = json!({"task": "hello", "session": "token.ci:lasts"});
    let answer = door.post(&ci, "/v1/agents/haiku/run", &lasting).json();
    assert_eq!(answer["session"], "token.ci:lasts");
    let sessions = door.get(&ci, "/v1/sessions").json();
    assert_eq!(sessions.as_array().map(Vec::len), Some(4), "{sessions}");
    for (path, body, status) in [
        ("/v1/agents/nobody/run", json!({"task": "hello"}), 404),
        ("/v1/agents/No%20Id/run", json!({"task": "hello"}), 404),
        ("/v1/agents/haiku/run", json!({"task": " "}), 400),
        ("/v1/agents/haiku/run", json!({"tsk": "hello"}), 400),
        ("/v1/agents/haiku/run", json!({"task": "hello", "format": "json"}), 400),
        ("/v1/agents/haiku/run", json!({"task": "hello", "session": "elsewhere"}), 403),
    ] {
        let refused = door.post(&ci, path, &body);
        assert_eq!(refused.status, status, "{path} {body}: {refused:?}");
        assert!(refused.json()["error"]["message"].is_string(), "{refused:?}");
    }
    let long = json!({"task": "x".repeat(5 * 1024 * 1024)});
    assert_eq!(door.post(&ci, "/v1/agents/haiku/run", &long).status, 413);
}

#[test]
fn a_session_is_made_written_to_read_stopped_and_asked_again() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let made = door.post(&ci, "/v1/sessions", &json!({}));
    assert_eq!(made.status, 201, "{made:?}");
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let path = |rest: &str| format!("/v1/sessions/{id}{rest}");
    let key = [("authorization", format!("Bearer {ci}")), ("idempotency-key", "m-1".to_owned())];
    let key: Vec<(&str, &str)> = key.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = json!({"text": "hello"}).to_string();
    let first = door.send("POST", &path("/messages"), &key, &body);
    assert_eq!(first.status, 202, "{first:?}");
    let again = door.send("POST", &path("/messages"), &key, &body).json();
    assert_eq!((&again["turn"], &again["duplicate"]), (&first.json()["turn"], &Value::Bool(true)));
    let turn = first.header("location").expect("where its answer will be").to_owned();
    assert_eq!(door.get(&ci, &turn).json()["status"], "success");
    let messages = door.get(&ci, &path("/messages")).json();
    let roles: Vec<_> =
        messages["messages"].as_array().expect("a list").iter().map(|one| &one["role"]).collect();
    assert_eq!(roles, ["user", "assistant"], "{messages}");
    let retried = door.post(&ci, &path("/retry"), &json!({}));
    assert_eq!(retried.status, 202, "{retried:?}");
    let turn = retried.header("location").expect("where its answer will be").to_owned();
    assert_eq!(door.get(&ci, &turn).json()["input"], "hello");
    assert_eq!(door.get(&ci, &path("")).json()["turns"].as_array().map(Vec::len), Some(2));
    assert_eq!(door.post(&ci, &path("/stop"), &json!({})).json()["stopped"], 0);
}

#[test]
fn figures_are_for_whoever_may_see_the_daemon() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let watcher = token(&daemon, &["watcher", "--may", "read,inspect", "--sessions", "*"]);
    assert_eq!(door.post(&ci, "/v1/agents/haiku/run", &json!({"task": "hello"})).status, 200);
    assert_eq!(door.get(&ci, "/metrics").status, 403);
    let figures = door.get(&watcher, "/metrics");
    assert_eq!(figures.status, 200, "{figures:?}");
    assert_eq!(figures.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for line in [
        "# TYPE drupe_model_calls_total counter",
        "drupe_model_calls_total{model=\"local/test\"} 1",
        "drupe_agent_runs_total{agent=\"haiku\"} 1",
        "drupe_extension_state{extension=\"http\",state=\"active\"} 1",
        "drupe_state{state=\"ready\"} 1",
        "drupe_deliveries_waiting 0",
        "drupe_topic_messages_waiting 0",
        "drupe_topic_messages_dead 0",
        "# TYPE drupe_turn_duration_seconds histogram",
        "drupe_turn_duration_seconds_count{status=\"success\"} 1",
        "drupe_model_duration_seconds_count{model=\"local/test\"} 1",
        "drupe_model_first_piece_seconds_bucket{model=\"local/test\",le=\"+Inf\"} 1",
        "drupe_limit_remaining{limit=\"limits.day.max_tokens\",scope=\"day\"}",
    ] {
        assert!(figures.body.lines().any(|one| one.starts_with(line)), "{line}\n{}", figures.body);
    }
    assert!(
        !figures.body.contains("session=\""),
        "a label of which there are more each day: {}",
        figures.body
    );
    read_by_prometheus(&figures.body);
}

/// The parser of Prometheus' own library reads the figures, where it is there.
fn read_by_prometheus(figures: &str) {
    const READ: &str = "import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.documentation and family.type != 'unknown', family
    series = {}
    for sample in family.samples:
        assert sample.name.startswith('drupe_'), sample
        if family.type == 'histogram' and sample.name.endswith('_bucket'):
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != 'le'))
            series.setdefault(labels, []).append((float(sample.labels['le']), sample.value))
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and buckets[-1][0] == float('inf'), (labels, buckets)
        assert [n for _, n in buckets] == sorted(n for _, n in buckets), (labels, buckets)
    print(family.name, family.type)
";
    let Some(python) = crate::otel::python() else { return };
    let read = crate::otel::read_by(&python, READ, figures);
    assert!(read.lines().any(|line| line == "drupe_turn_duration_seconds histogram"), "{read}");
}

#[test]
fn an_answer_that_cannot_be_made_to_have_its_form_is_unprocessable() {
    let (_server, daemon) = daemon("");
    let (door, ci) = (door(&daemon), token(&daemon, &["ci"]));
    let task = json!({"task": "no JSON", "schema": {"type": "object", "required": ["a"]}});
    let said = door.post(&ci, "/v1/agents/haiku/run", &task);
    assert_eq!((said.status, said.json()["class"].clone()), (422, json!("output")), "{}", said.body);
}
