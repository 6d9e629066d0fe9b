//! Traces of turns for an OpenTelemetry collector: the real extension in a process of its own, against a stand-in of a collector, and read by a
//! library that is not ours where it is there.

mod collector;

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use self::collector::{OtelCollector, Trouble};
use crate::harness::{
    DRUPE, Daemon,
    model_server::{ModelServer, Say, latest},
    text, until,
    wire::Wire,
};

const KEY: &str = "Bearer 0123456789-of-nobody";
const WORKER: &str = "You are the worker.";
const POET: &str = "You are the poet.";
/// What nobody may see in a trace without asking for it.
const SAID: &str = "plumstones";

struct Scene {
    collector: OtelCollector,
    daemon: Daemon,
    _server: ModelServer,
}

fn task(request: &Value) -> String {
    let (_, text) = latest(request);
    text.rsplit_once("\n\nTask:\n").map_or(text.as_str(), |(_, task)| task).to_owned()
}

/// Does what the message says: uses a tool and an agent, hands over, spawns, or fails.
fn model(request: &Value) -> Say {
    let system = request["messages"][0]["content"].as_str().unwrap_or_default();
    let (role, said) = latest(request);
    let call = |name: &str, params: Value| (name.to_owned(), params);
    // A turn that ends takes what it spawned along.
    let spawned = serde_json::from_str::<Value>(&said)
        .ok()
        .and_then(|given| Some(given["handle"].as_str()?.to_owned()));
    if let ("tool", Some(handle)) = (role.as_str(), spawned) {
        return Say::Call(vec![call("wait_agent", json!({"handles": [handle]}))]);
    }
    match (role.as_str(), task(request).split(' ').next().unwrap_or_default()) {
        _ if system.contains(WORKER) => Say::Text("worked".into()),
        _ if system.contains(POET) => Say::Text("a verse".into()),
        ("user", "work") => Say::Call(vec![
            call("kv_set", json!({"key": "a", "value": SAID})),
            call("kv_set", json!({"wrong": 1})),
            call("agent_worker", json!({"task": "do it"})),
        ]),
        ("user", "spawn") => {
            Say::Call(vec![call("spawn_agent", json!({"agent": "worker", "task": "beside"}))])
        }
        ("user", "verse") => Say::Call(vec![call("handoff_poet", json!({"summary": "crabs"}))]),
        ("user", "fail") => Say::Fail(Wire::Status(400, "no")),
        _ => Say::Text(format!("answered {SAID}")),
    }
}

impl Scene {
    fn new(more: &str) -> Self {
        let (collector, server) = (OtelCollector::start(), ModelServer::start(model));
        let settings = format!(
            "extensions:\n  otel:\n    enabled: true\n    endpoint: \"{}\"\n{more}",
            collector.address
        );
        let mut daemon = Daemon::home(&(server.config() + &settings));
        let agent = |id: &str, said: &str, more: &str| {
            format!(
                "id: {id}\nname: {id}\ndescription: Works.\nagent:\n  model: default\n  instructions: {said}\n{more}"
            )
        };
        daemon.write("extensions/worker/manifest.yaml", &agent("worker", WORKER, ""));
        daemon.write("extensions/poet/manifest.yaml", &agent("poet", POET, "  integration_mode: handoff\n"));
        daemon.variable("OTEL_HEADER", KEY);
        daemon.run();
        Self { collector, daemon, _server: server }
    }

    /// Runs a turn and waits for its trace.
    fn traced(&self, text: &str) -> Vec<Value> {
        let turn = self.daemon.turn("main", text);
        self.until_traced(turn["turn"].as_str().expect("an id"))
    }

    /// The spans of the trace of a turn, once they are there.
    fn until_traced(&self, turn: &str) -> Vec<Value> {
        let id = turn.replace('-', "");
        let there = || {
            let spans: Vec<_> =
                self.collector.spans().into_iter().filter(|span| span["traceId"] == id.as_str()).collect();
            (!spans.is_empty()).then_some(spans)
        };
        until("it is sent", there).unwrap_or_else(|| panic!("{turn}: {}", self.daemon.log()))
    }
}

fn attribute(span: &Value, key: &str) -> Value {
    let all = span["attributes"].as_array().expect("attributes");
    all.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

fn nanos(span: &Value, which: &str) -> u64 {
    span[which].as_str().and_then(|text| text.parse().ok()).expect("a time")
}

/// Each span as `name`, with the name of the one that it is below.
fn tree(spans: &[Value]) -> Vec<(String, String)> {
    let names: BTreeMap<&str, &str> = spans
        .iter()
        .map(|span| (span["spanId"].as_str().expect("an id"), span["name"].as_str().expect("a name")))
        .collect();
    assert_eq!(names.len(), spans.len(), "each has an id of its own");
    let mut all: Vec<_> = spans
        .iter()
        .map(|span| {
            let above = span["parentSpanId"].as_str().map_or("", |id| names[id]);
            (span["name"].as_str().expect("a name").to_owned(), above.to_owned())
        })
        .collect();
    all.sort();
    all
}

/// That whatever is below something lies within it, but for agents that were spawned.
fn nests(spans: &[Value]) {
    for span in spans {
        let Some(parent) = spans.iter().find(|one| one["spanId"] == span["parentSpanId"]) else { continue };
        let within = nanos(parent, "startTimeUnixNano") <= nanos(span, "startTimeUnixNano")
            && nanos(parent, "endTimeUnixNano") >= nanos(span, "endTimeUnixNano");
        assert!(within || parent["name"] == "execute_tool spawn_agent", "{span} in {parent}");
        assert!(nanos(span, "startTimeUnixNano") <= nanos(span, "endTimeUnixNano"), "{span}");
    }
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all: Vec<_> = all.iter().map(|(name, above)| ((*name).to_owned(), (*above).to_owned())).collect();
    all.sort();
    all
}

#[test]
fn a_turn_is_one_trace_with_its_runs_models_tools_and_agents_and_without_what_was_said() {
    let scene = Scene::new("    header: authorization\n");
    let spans = scene.traced("work");
    assert_eq!(
        tree(&spans),
        pairs(&[
            ("invoke_workflow turn", ""),
            ("invoke_agent orchestrator", "invoke_workflow turn"),
            ("chat test", "invoke_agent orchestrator"),
            ("execute_tool kv_set", "invoke_agent orchestrator"),
            ("execute_tool kv_set", "invoke_agent orchestrator"),
            ("execute_tool agent_worker", "invoke_agent orchestrator"),
            ("invoke_agent worker", "execute_tool agent_worker"),
            ("chat test", "invoke_agent worker"),
            ("chat test", "invoke_agent orchestrator"),
        ])
    );
    nests(&spans);
    let of = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let models = of("chat test");
    for model in &models {
        assert_eq!(
            (&model["kind"], attribute(model, "gen_ai.usage.input_tokens")),
            (&json!(3), json!({"intValue": "50"}))
        );
        assert_eq!(attribute(model, "gen_ai.usage.output_tokens"), json!({"intValue": "10"}));
        assert_eq!(attribute(model, "gen_ai.provider.name"), json!({"stringValue": "local"}));
        assert_eq!(attribute(model, "gen_ai.conversation.id"), json!({"stringValue": "main"}));
        assert_eq!(attribute(model, "error.type"), Value::Null);
    }
    assert_eq!(
        attribute(of("invoke_workflow turn")[0], "drupe.turn.status"),
        json!({"stringValue": "success"})
    );
    assert_eq!(
        attribute(of("invoke_agent orchestrator")[0], "gen_ai.usage.input_tokens"),
        json!({"intValue": "150"})
    );
    let failed: Vec<_> = of("execute_tool kv_set").iter().map(|tool| attribute(tool, "error.type")).collect();
    assert!(
        failed.contains(&Value::Null) && failed.contains(&json!({"stringValue": "refused"})),
        "{failed:?}"
    );
    let (head, body) = scene.collector.taken().remove(0);
    assert!(
        head.starts_with("POST /v1/traces HTTP/1.1") && head.contains(&format!("authorization: {KEY}")),
        "{head}"
    );
    assert!(!body.contains(SAID) && !body.contains("do it"), "{body}");
    assert!(!scene.daemon.log().contains(KEY));

    let fails = scene.traced("fail");
    let of = |name: &str| fails.iter().find(|span| span["name"] == name).expect(name);
    for name in ["invoke_workflow turn", "invoke_agent orchestrator", "chat test"] {
        let span = of(name);
        assert_eq!(
            (&span["status"]["code"], attribute(span, "error.type")),
            (&json!(2), json!({"stringValue": "model"})),
            "{name}"
        );
    }

    let handed = scene.traced("verse one");
    nests(&handed);
    let handed = tree(&handed);
    for pair in pairs(&[
        ("invoke_agent orchestrator", "invoke_workflow turn"),
        ("invoke_agent poet", "invoke_workflow turn"),
        ("chat test", "invoke_agent poet"),
    ]) {
        assert!(handed.contains(&pair), "{handed:?}");
    }
    until_taken_back(&scene);
    let spawned = scene.traced("spawn");
    nests(&spawned);
    let spawned = tree(&spawned);
    assert!(spawned.contains(&("chat test".to_owned(), "invoke_agent worker".to_owned())), "{spawned:?}");
    not_ours(&scene.collector);
}

/// The conversation is the orchestrator's again.
fn until_taken_back(scene: &Scene) {
    let back = scene.daemon.client().ask("session.select", json!({"session": "main"}));
    back.expect("it is given back");
}

/// An environment of Python with libraries that read what is sent elsewhere: the one that `DRUPE_OTEL` names, or the one that `.ci/run` made in
/// the folder of what is built.
pub fn python() -> Option<PathBuf> {
    let made = || Some(PathBuf::from(DRUPE).parent()?.parent()?.join("otel"));
    let python = env::var_os("DRUPE_OTEL").map(PathBuf::from).or_else(made)?.join("bin/python");
    if !python.exists() {
        println!(
            "skipped: there are no libraries of OpenTelemetry and Prometheus, see `.ci/run`, so none that is not ours reads this"
        );
        return None;
    }
    Some(python)
}

/// What a program in Python says of a text.
pub fn read_by(python: &Path, program: &str, given: &str) -> String {
    let mut reader = Command::new(python);
    let mut reader = reader
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    reader.stdin.take().expect("a pipe").write_all(given.as_bytes()).expect("it reads");
    let output = reader.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A library of OpenTelemetry reads what was taken.
fn not_ours(collector: &OtelCollector) {
    const READ: &str = "import json, sys
from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest
for line in sys.stdin:
    request = ExportTraceServiceRequest.from_json(json.loads(line))
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                attributes = {one.key for one in span.attributes}
                assert 'gen_ai.operation.name' in attributes, attributes
                assert len(span.trace_id) == 16 and len(span.span_id) == 8
                print(span.trace_id.hex(), span.span_id.hex(), span.name, int(span.kind), span.end_time_unix_nano)
";
    let Some(python) = python() else { return };
    let bodies: String = collector.taken().iter().map(|(_, body)| json!(body).to_string() + "\n").collect();
    let read = read_by(&python, READ, &bodies);
    let spans = collector.spans();
    let ours: Vec<String> = spans
        .iter()
        .map(|span| {
            let of = |key: &str| span[key].as_str().expect("a text");
            format!(
                "{} {} {} {} {}",
                of("traceId"),
                of("spanId"),
                of("name"),
                span["kind"],
                of("endTimeUnixNano")
            )
        })
        .collect();
    assert_eq!(read.lines().collect::<Vec<_>>(), ours);
}

#[test]
fn traces_wait_for_a_collector_that_is_away_over_crashes_and_are_the_same_whenever_they_are_sent() {
    let mut scene = Scene::new("");
    let first = scene.traced("one");
    assert!(!scene.collector.taken()[0].0.contains("authorization"), "no header was asked for");
    scene.collector.be_away(true);
    let mut turns = BTreeSet::new();
    for text in ["two", "three"] {
        turns.insert(scene.daemon.turn("main", text)["turn"].as_str().expect("an id").replace('-', ""));
    }
    let asked = scene.collector.asked();
    assert!(until("it is tried", || (scene.collector.asked() > asked).then_some(())).is_some());
    scene.daemon.kill_kernel();
    scene.daemon.until_ready();
    turns.insert(scene.daemon.turn("main", "four")["turn"].as_str().expect("an id").replace('-', ""));
    // The last of them is taken, and nobody hears that it was.
    scene.collector.trouble(Trouble::TakenAndCut);
    scene.collector.be_away(false);
    let all = || scene.collector.traces().is_superset(&turns).then_some(());
    assert!(
        until("all are there", all).is_some(),
        "{:?} {turns:?}\n{}",
        scene.collector.traces(),
        scene.daemon.log()
    );
    assert_eq!(scene.collector.traces().len(), 4);
    // The one of which nobody heard goes after the others.
    let file = scene.daemon.path().join("data/otel/otel.json");
    let settled = || fs::read_to_string(&file).ok().filter(|text| text.contains(r#""waiting":[]"#));
    assert!(until("nothing waits", settled).is_some(), "{}", scene.daemon.log());
    // What came twice came with the same ids and the same content.
    let mut seen: BTreeMap<String, Value> = BTreeMap::new();
    for span in scene.collector.spans() {
        let id = span["spanId"].as_str().expect("an id").to_owned();
        if let Some(before) = seen.insert(id, span.clone()) {
            assert_eq!(before, span);
        }
    }
    assert!(scene.collector.spans().len() > seen.len(), "one was sent twice");
    assert_eq!(
        scene.collector.spans().iter().filter(|span| span["traceId"] == first[0]["traceId"]).count(),
        first.len()
    );
    let taken = scene.collector.taken().len() + 1;
    scene.daemon.kill_all();
    scene.traced("five");
    assert_eq!(scene.collector.taken().len(), taken, "nothing is sent again after a start");
}

#[test]
fn what_a_collector_refuses_is_let_go_and_what_it_wants_later_comes_later() {
    let scene = Scene::new("    backlog: 2\n");
    scene.collector.trouble(Trouble::Status(400, "", "bad spans"));
    scene.daemon.turn("main", "one");
    let said = |part: &'static str| {
        until(part, || scene.daemon.log().contains(part).then_some(()))
            .unwrap_or_else(|| panic!("{part}: {}", scene.daemon.log()));
    };
    said("is not sent: the collector answered with status 400: bad spans");
    assert_eq!(scene.collector.taken().len(), 0);
    scene.collector.trouble(Trouble::Partly);
    scene.traced("two");
    said("1 spans are refused: one is too old");
    assert_eq!(scene.collector.taken().len(), 1);
    // What is too large comes in parts, which are one trace.
    let (taken, asked) = (scene.collector.taken().len(), scene.collector.asked());
    scene.collector.trouble(Trouble::Status(413, "", "too much"));
    let turn = scene.daemon.turn("main", "large")["turn"].as_str().expect("an id").to_owned();
    let parts = until("both halves", || (scene.collector.taken().len() == taken + 2).then_some(()));
    parts.unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    assert_eq!(scene.collector.asked(), asked + 3);
    let large = scene.until_traced(&turn);
    assert_eq!(tree(&large).len(), 3, "{large:?}");
    let before = Instant::now();
    scene.collector.trouble(Trouble::Status(429, "retry-after: 2\r\n", "slower"));
    scene.traced("three");
    assert!(before.elapsed() >= Duration::from_secs(2), "it waits as long as it is told");
    // No more than the bound wait.
    scene.collector.be_away(true);
    let turns: Vec<String> = ["a", "b", "c"]
        .iter()
        .map(|text| scene.daemon.turn("main", text)["turn"].as_str().expect("an id").to_owned())
        .collect();
    said("2 turns wait for the collector, so turn");
    scene.collector.be_away(false);
    scene.until_traced(&turns[1]);
    scene.until_traced(&turns[2]);
    assert!(!scene.collector.traces().contains(&turns[0].replace('-', "")));
}

#[test]
fn a_trace_at_which_a_collector_fails_holds_up_none_of_those_behind_it_and_is_let_go() {
    let scene = Scene::new("");
    scene.collector.break_at("poison");
    let turn = scene.daemon.turn("poison", "one")["turn"].as_str().expect("an id").to_owned();
    // Each that is taken beside it says once more that the fault is its own.
    for text in ["two", "three", "four", "five", "six"] {
        let asked = scene.collector.asked();
        scene.traced(text);
        let again = || {
            let gone = scene.daemon.log().contains("is not sent: ");
            (gone || scene.collector.asked() > asked + 1).then_some(())
        };
        until("it is tried again", again).unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    }
    let gone = format!("the trace of turn {turn} is not sent: ");
    until("it is let go", || scene.daemon.log().contains(&gone).then_some(()))
        .unwrap_or_else(|| panic!("{}", scene.daemon.log()));
    let file = scene.daemon.path().join("data/otel/otel.json");
    let settled = || fs::read_to_string(&file).ok().filter(|text| text.contains(r#""waiting":[]"#));
    assert!(until("nothing waits", settled).is_some(), "{}", scene.daemon.log());
}

#[test]
fn what_was_said_is_sent_where_the_configuration_asks_for_it_and_without_secrets() {
    let scene = Scene::new("    content: true\n    header: x-key\n");
    let spans = scene.traced(&format!("work with {KEY}"));
    let of = |name: &str| spans.iter().find(|span| span["name"] == name).expect(name);
    let body = scene.collector.taken().remove(0).1;
    assert!(body.contains(SAID), "{body}");
    assert!(!body.contains("0123456789-of-nobody"), "{body}");
    let said =
        |span: &Value, key: &str| attribute(span, key)["stringValue"].as_str().unwrap_or_default().to_owned();
    let asked: Value =
        serde_json::from_str(&said(of("invoke_workflow turn"), "gen_ai.input.messages")).expect("JSON");
    assert_eq!(asked[0]["role"], "user", "{asked}");
    let answered: Value =
        serde_json::from_str(&said(of("invoke_workflow turn"), "gen_ai.output.messages")).expect("JSON");
    assert_eq!(answered[0]["parts"][0]["content"], format!("answered {SAID}"), "{answered}");
    let tool = spans.iter().find(|span| said(span, "gen_ai.tool.call.arguments").contains(SAID));
    assert!(tool.is_some_and(|tool| !said(tool, "gen_ai.tool.call.result").is_empty()), "{body}");
}
