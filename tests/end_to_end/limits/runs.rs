//! The limits of one run.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{AgentOf, House, TOKENS, answers, call, field, restless, results, row, spread, tokens};
use crate::harness::{
    model_server::{Say, latest, offered},
    unique,
    wire::Wire,
};

/// A limit of a run that is met by one message.
struct Case<'a> {
    /// The key that is met.
    limit: &'a str,
    /// What is known of the model.
    profile: &'a str,
    /// The first of them is addressed.
    agents: &'a [AgentOf<'a>],
    model: Box<dyn Fn(&Value) -> Say + Send + Sync>,
    /// Status and class.
    ends: (&'a str, &'a str),
    /// Each stands in the error, or, of a turn that succeeds, in the result of a tool.
    says: &'a [&'a str],
    requests: usize,
    /// What was spent, where not each request counts.
    tokens: Option<u64>,
    /// The event that tells of the limit: used and allowed.
    told: Option<(u64, u64)>,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            limit: "",
            profile: "",
            agents: &[],
            model: Box::new(|_| Say::Text("done".into())),
            ends: ("error", "budget"),
            says: &[],
            requests: 0,
            tokens: None,
            told: None,
        }
    }
}

fn check(case: Case<'_>) {
    let Case { limit, profile, agents, model, ends, says, requests, tokens: spent, told } = case;
    let house = House::build(profile, "", agents, model);
    let turn = house.daemon.turn("s", &format!("@{} go", agents[0].0));
    let texts: Vec<String> = match turn["status"] == "success" {
        true => results(&turn).into_iter().map(|(_, content)| content).collect(),
        false => vec![field(&turn, "error")],
    };
    let message = texts.iter().find(|text| text.contains(says[0])).cloned().unwrap_or_default();
    row(limit, &turn, &message, house.requests());
    assert_eq!((turn["status"].as_str(), field(&turn, "class").as_str()), (Some(ends.0), ends.1), "{turn}");
    assert!(says.iter().all(|part| message.contains(part)), "{limit}: {texts:?}\n{turn}");
    assert!(
        turn["content"].as_str().is_some_and(|content| !content.is_empty()),
        "never an empty end: {turn}"
    );
    assert_eq!(house.requests(), requests, "{limit}: {turn}");
    assert_eq!(tokens(&turn), spent.unwrap_or(TOKENS * requests as u64), "{limit}: {turn}");
    let exceeded = house.exceeded("s");
    match told {
        None => {}
        Some((used, allowed)) => {
            assert_eq!(exceeded.len(), 1, "told once: {exceeded:?}");
            assert_eq!(exceeded[0]["limit"], limit, "{exceeded:?}");
            let numbers = (exceeded[0]["used"].as_u64(), exceeded[0]["allowed"].as_u64());
            assert_eq!(numbers, (Some(used), Some(allowed)), "{limit}: {exceeded:?}");
        }
    }
}

#[test]
fn a_run_has_so_many_steps() {
    check(Case {
        limit: "max_turns",
        agents: &[("one", "  uses_tools: [faulty]\n  limits: {max_turns: 2}\n")],
        model: Box::new(restless("faulty_echo")),
        says: &["`one`", "has used 2 of the 2 steps", "`max_turns`"],
        requests: 2,
        told: Some((2, 2)),
        ..Case::default()
    });
}

#[test]
fn a_run_has_so_many_tokens() {
    // What the tool gives would be the next request, and does not fit.
    check(Case {
        limit: "max_tokens_per_invocation",
        agents: &[(
            "one",
            "  uses_tools: [faulty/faulty_big]\n  limits: {max_tokens_per_invocation: 1500}\n",
        )],
        model: Box::new(|_| call("faulty_big", json!({"bytes": 6000}))),
        says: &["`one`", "60 of 1500 tokens", "`max_tokens_per_invocation`", "does not fit"],
        requests: 1,
        told: Some((60, 1500)),
        ..Case::default()
    });
}

#[test]
fn a_run_has_so_much_time() {
    check(Case {
        limit: "time_budget_ms",
        agents: &[("one", "  uses_tools: [faulty]\n  limits: {time_budget_ms: 400}\n")],
        model: Box::new(|_| call("faulty_hang", json!({}))),
        ends: ("error", "timeout"),
        says: &["of 400 ms", "`time_budget_ms`"],
        requests: 1,
        ..Case::default()
    });
}

#[test]
fn a_step_has_so_many_calls() {
    check(Case {
        limit: "max_tool_calls_per_step",
        agents: &[("one", "  uses_tools: [faulty]\n  limits: {max_tool_calls_per_step: 2}\n")],
        model: Box::new(|request| match latest(request).0 == "tool" {
            true => Say::Text("done".into()),
            false => Say::Call((0..4).map(|n| ("faulty_echo".to_owned(), json!({"n": n}))).collect()),
        }),
        ends: ("success", ""),
        says: &["not run: at most 2 tool calls are allowed in one step"],
        requests: 2,
        ..Case::default()
    });
}

#[test]
fn a_model_request_is_repeated_so_often() {
    for (retries, requests) in [(0, 1), (1, 2)] {
        check(Case {
            limit: "max_retries",
            agents: &[("one", &format!("  limits: {{max_retries: {retries}}}\n"))],
            model: Box::new(|_| Say::Fail(Wire::Status(503, "overloaded"))),
            ends: ("error", "network"),
            says: &["overloaded"],
            requests,
            tokens: Some(0),
            ..Case::default()
        });
    }
}

#[test]
fn a_tool_has_so_much_time() {
    check(Case {
        limit: "tool_timeout_ms",
        agents: &[("one", "  uses_tools: [faulty]\n  limits: {tool_timeout_ms: 200}\n")],
        model: Box::new(|request| match latest(request).0 == "tool" {
            true => Say::Text("done".into()),
            false => call("faulty_hang", json!({})),
        }),
        ends: ("success", ""),
        says: &["its time was over"],
        requests: 2,
        ..Case::default()
    });
}

/// Each calls the agent below it, and then says what it heard.
fn chain(request: &Value) -> Say {
    let below = offered(request).into_iter().find(|tool| tool.starts_with("agent_"));
    match (below, answers(request)) {
        (Some(tool), 0) => call(&tool, json!({"task": "go"})),
        _ => Say::Text(format!("I heard: {}", latest(request).1)),
    }
}

#[test]
fn agents_stand_so_deep() {
    check(Case {
        limit: "max_depth",
        agents: &[
            ("one", "  uses_agents: [two]\n  limits: {max_depth: 1}\n"),
            ("two", "  uses_agents: [three]\n"),
            ("three", ""),
        ],
        model: Box::new(chain),
        ends: ("success", ""),
        says: &["`three`", "`max_depth`", "depth 2 of at most 1"],
        // Two of `one` and two of `two`; `three` never asks.
        requests: 4,
        told: Some((2, 1)),
        ..Case::default()
    });
}

#[test]
fn a_run_has_so_many_tool_calls() {
    check(Case {
        limit: "max_tool_calls",
        agents: &[("one", "  uses_tools: [faulty]\n  limits: {max_tool_calls: 3}\n")],
        model: Box::new(|request| {
            let n = answers(request);
            Say::Call((0..2).map(|at| ("faulty_echo".to_owned(), json!({"n": 2 * n + at}))).collect())
        }),
        says: &["`one`", "3 of the 3 tool calls", "`max_tool_calls`"],
        requests: 2,
        told: Some((3, 3)),
        ..Case::default()
    });
}

#[test]
fn a_tree_has_so_many_runs() {
    check(Case {
        limit: "max_invocations",
        agents: &[("one", "  uses_agents: [two]\n  limits: {max_invocations: 2}\n"), ("two", "")],
        model: Box::new(|request| spread(request, 3)),
        ends: ("success", ""),
        says: &["`one`", "2 of the 2 runs", "`max_invocations`"],
        // Two of `one`, one of the only `two`.
        requests: 3,
        ..Case::default()
    });
}

#[test]
fn a_run_costs_so_much() {
    check(Case {
        limit: "max_cost_usd",
        profile: "input_usd: 100, cached_usd: 100, output_usd: 100",
        agents: &[(
            "one",
            "  uses_tools: [faulty/faulty_big]\n  parameters: {max_output_tokens: 10}\n  limits: {max_cost_usd: 0.12}\n",
        )],
        model: Box::new(|_| call("faulty_big", json!({"bytes": 6000}))),
        says: &["`one`", "$0.0060 of $0.1200", "`max_cost_usd`"],
        requests: 1,
        told: Some((6000, 120_000)),
        ..Case::default()
    });
}

#[test]
fn under_a_cost_limit_a_price_must_be_known_unless_it_is_allowed() {
    let limited = "  limits: {max_cost_usd: 1}\n";
    let allowed = "  limits: {max_cost_usd: 1, allow_unknown_price: true}\n";
    let agents = [("one", limited), ("two", allowed), ("three", "")];
    let house = House::build("", "", &agents, |_| Say::Text("done".into()));
    refused(&house, "one", &["`max_cost_usd` is set", "`local/test`", "`allow_unknown_price: true`"]);
    for agent in ["two", "three"] {
        assert_eq!(house.daemon.turn("s", &format!("@{agent} go"))["content"], "done");
    }
    // The limit of a run holds for those below it, too: which they are is known when they are called.
    let config = "orchestrator: {limits: {max_cost_usd: 1}}\n";
    let house = House::build(FREE, config, &[("two", UNKNOWN)], |request| spread(request, 1));
    let turn = house.daemon.turn("s", "go");
    row("max_cost_usd", &turn, &field(&turn, "content"), house.requests());
    let below = results(&turn).into_iter().map(|(_, content)| content).collect::<String>();
    assert!(below.contains("agent `orchestrator`: `max_cost_usd` is set, but"), "{turn}");
    assert!(below.contains("`local/other`") && below.contains(r#""class":"budget""#), "{turn}");
    assert_eq!(house.requests(), 2, "the agent below asked nothing: {turn}");
    assert_eq!(house.exceeded("s")[0]["limit"], "allow_unknown_price");
    assert_eq!(house.daemon.turn("t", "@two go")["content"], "done", "by itself it has no such limit");
}

const FREE: &str = "input_usd: 0, output_usd: 0";
const UNKNOWN: &str = "  model: local/other\n";

/// The agent was not loaded; why is told.
fn refused(house: &House, agent: &str, says: &[&str]) {
    let (_, why) = house.daemon.extension(agent);
    println!("| {agent} | {} |", why.replace('\n', " "));
    assert!(says.iter().all(|part| why.contains(part)), "{why}");
    let turn = house.daemon.turn("s", &format!("@{agent} go"));
    assert_eq!((&turn["status"], house.requests()), (&json!("error"), 0), "{turn}");
}

#[test]
fn under_the_operator_s_cost_limit_every_price_must_be_known() {
    let agents = [("one", ""), ("two", UNKNOWN), ("three", "  model: [local/test, local/other]\n")];
    let config = "limits: {day: {max_cost_usd: 100}}\n";
    let house = House::build(FREE, config, &agents, |_| Say::Text("done".into()));
    let says = [
        "`limits.day.max_cost_usd` is set",
        "`local/other`",
        "`models.profiles.local/other`",
        "0 for a free model",
    ];
    refused(&house, "two", &says);
    refused(&house, "three", &says);
    // Whoever names a model for one turn is told the same.
    let error = with_model(&house, "local/other").expect_err("it is refused");
    assert!(says.iter().all(|part| error.contains(part)), "{error}");
    assert_eq!(house.daemon.turn("s", "@one go")["content"], "done");
}

#[test]
fn a_model_for_one_turn_needs_a_price_where_its_agent_has_a_cost_limit() {
    let config = "orchestrator: {limits: {max_cost_usd: 1}}\n";
    let house = House::build(FREE, config, &[], |_| Say::Text("done".into()));
    let turn = with_model(&house, "local/other").expect("it is taken in");
    row("max_cost_usd", &turn, &field(&turn, "error"), house.requests());
    assert!(
        field(&turn, "error").starts_with("`max_cost_usd` is set, but the price of model `local/other`"),
        "{turn}"
    );
    assert_eq!((&turn["class"], house.requests()), (&json!("config"), 0), "{turn}");
    assert_eq!(with_model(&house, "local/test").expect("it is taken in")["content"], "done");
}

/// A turn with that model, or why there is none.
fn with_model(house: &House, model: &str) -> Result<Value, String> {
    let message = json!({"external_id": unique(), "session": "s", "text": "go", "model": model});
    let turn = house.daemon.client().ask("turn.submit", message)?;
    Ok(house.daemon.wait(turn["turn"].as_str().expect("a turn")))
}

#[test]
fn the_same_limits_hold_for_the_orchestrator_and_where_a_manifest_says_nothing() {
    for (config, message) in [
        ("orchestrator: {limits: {max_turns: 2}}\n", "go"),
        ("agents: {defaults: {limits: {max_turns: 2}}}\n", "@one go"),
    ] {
        let agents = [("one", "  uses_tools: [kv]\n")];
        let house =
            House::build("", config, &agents, |r| call("kv_get", json!({"key": answers(r).to_string()})));
        let turn = house.daemon.turn("s", message);
        row(config.trim(), &turn, &field(&turn, "error"), house.requests());
        assert!(field(&turn, "error").contains("2 of the 2 steps of `max_turns`"), "{turn}");
        assert_eq!(house.requests(), 2, "{turn}");
    }
}

#[test]
fn so_many_agents_work_beside_a_run() {
    let spawn = |n: usize| ("spawn_agent".to_owned(), json!({"agent": "two", "task": format!("part {n}")}));
    // Nobody answers before the third one was refused.
    let refused = AtomicBool::new(false);
    let model = move |request: &Value| {
        let (role, text) = latest(request);
        if text.contains("part ") {
            while !refused.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            return Say::Text("a part".into());
        }
        let given = |message: &Value| serde_json::from_str::<Value>(message["content"].as_str()?).ok();
        let given: Vec<Value> =
            request["messages"].as_array().expect("messages").iter().filter_map(given).collect();
        let handles: Vec<&Value> =
            given.iter().map(|given| &given["handle"]).filter(|one| one.is_string()).collect();
        match role.as_str() {
            "tool" if text.contains("agents\"") => Say::Text("done".into()),
            "tool" => {
                refused.store(true, Ordering::SeqCst);
                call("wait_agent", json!({"handles": handles}))
            }
            _ => Say::Call((0..3).map(spawn).collect()),
        }
    };
    check(Case {
        limit: "max_active_children",
        agents: &[
            ("one", "  uses_agents: [two]\n  limits: {max_active_children: 2}\n"),
            ("two", "  infer: false\n"),
        ],
        model: Box::new(model),
        ends: ("success", ""),
        says: &["limit_reached: 2 agents work beside you, and `max_active_children` is 2"],
        requests: 5,
        ..Case::default()
    });
}
