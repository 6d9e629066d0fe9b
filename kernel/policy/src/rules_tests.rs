use drupe_config::{ApprovalsConfig, RuleVerdict};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn config(mode: &str, taint: bool, rules: Value) -> ApprovalsConfig {
    let config = json!({"mode": mode, "taint": taint, "rules": rules, "channels": [], "people": [], "preauthorized": []});
    serde_json::from_value(config).expect("a configuration")
}

fn own(value: Value) -> AgentApprovals {
    serde_json::from_value(value).expect("what an agent adds")
}

fn spec(name: &str, labels: &[&str]) -> ToolSpec {
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|label| ((*label).to_owned(), json!(true))).collect();
    let spec = json!({"name": name, "description": "", "input_schema": {}, "annotations": labels});
    serde_json::from_value(spec).expect("a tool")
}

fn path(agents: &[&str]) -> Vec<AgentId> {
    agents.iter().map(|agent| AgentId::new(*agent).expect("an id")).collect()
}

struct Asked<'a> {
    tool: ToolSpec,
    params: Value,
    agents: &'a [&'a str],
    tainted_by: Option<&'a str>,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self { tool: spec("t", &[]), params: json!({}), agents: &["main"], tainted_by: None }
    }
}

fn ruled(config: &ApprovalsConfig, asked: Asked<'_>) -> Ruling {
    let (path, params) = (path(asked.agents), asked.params.to_string());
    let facts = CallFacts {
        spec: &asked.tool,
        params: &params,
        path: &path,
        origin: "operator",
        tainted_by: asked.tainted_by,
    };
    ruling(config, |_| None, facts)
}

fn of_tool(config: &ApprovalsConfig, labels: &[&str], tainted_by: Option<&str>) -> RuleVerdict {
    ruled(config, Asked { tool: spec("t", labels), tainted_by, ..Asked::default() }).verdict
}

#[test]
fn what_a_person_must_fill_in_is_asked_for_whatever_allows_it() {
    let allows = json!([{"tool": "t", "then": "allow"}]);
    for (mode, expected) in
        [("full-access", RuleVerdict::Ask), ("on-request", RuleVerdict::Ask), ("untrusted", RuleVerdict::Ask)]
    {
        for rules in [json!([]), allows.clone()] {
            assert_eq!(of_tool(&config(mode, true, rules), &["needs_input"], None), expected, "{mode}");
        }
    }
    assert_eq!(
        of_tool(&config("never", true, json!([])), &["needs_input", "needs_approval"], None),
        RuleVerdict::Deny
    );
    let denies = json!([{"tool": "t", "then": "deny"}]);
    assert_eq!(of_tool(&config("full-access", true, denies), &["needs_input"], None), RuleVerdict::Deny);
}

#[test]
fn modes_decide_by_what_a_tool_says_of_itself() {
    use RuleVerdict::{Allow, Ask, Deny};
    for (mode, read_only, plain, destructive, needs) in [
        ("on-request", Allow, Allow, Ask, Ask),
        ("on-failure", Allow, Allow, Ask, Ask),
        ("untrusted", Allow, Ask, Ask, Ask),
        ("never", Allow, Allow, Deny, Deny),
        ("full-access", Allow, Allow, Allow, Allow),
    ] {
        let config = config(mode, true, json!([]));
        let labels: [&[&str]; 4] = [&["read_only"], &[], &["destructive"], &["needs_approval"]];
        let found = labels.map(|labels| of_tool(&config, labels, None));
        assert_eq!(found, [read_only, plain, destructive, needs], "{mode}");
    }
}

#[test]
fn on_failure_runs_what_is_confined_and_asks_about_what_wants_more() {
    use RuleVerdict::{Allow, Ask, Deny};
    let mut tool = spec("shell_run", &["needs_approval", "destructive", "outward", "reads_untrusted"]);
    tool.annotations.confined_without = Some(vec!["network".into()]);
    let of = |mode: &str, rules: Value, params: Value, tainted_by| {
        let asked = Asked { tool: tool.clone(), params, tainted_by, ..Asked::default() };
        ruled(&config(mode, true, rules), asked).verdict
    };
    for tainted_by in [None, Some("shell_run")] {
        for (params, verdict) in [
            (json!({"command": "make"}), Allow),
            (json!({"command": "make", "network": false}), Allow),
            (json!({"command": "make", "network": null}), Allow),
            (json!({"command": "make", "network": true}), Ask),
            (json!({"command": "make", "network": "tcp"}), Ask),
        ] {
            assert_eq!(of("on-failure", json!([]), params.clone(), tainted_by), verdict, "{params}");
            assert_eq!(of("on-request", json!([]), params.clone(), tainted_by), Ask, "{params}");
            assert_eq!(of("never", json!([]), params, tainted_by), Deny);
        }
        for then in ["ask", "deny"] {
            let rules = json!([{"tool": "shell_run", "then": then}]);
            assert_ne!(of("on-failure", rules, json!({"command": "make"}), tainted_by), Allow);
        }
    }
    // Being confined keeps nothing from what others are given later.
    tool.annotations.remembers = true;
    let asked = Asked { tool, tainted_by: Some("web_fetch"), ..Asked::default() };
    assert_eq!(ruled(&config("on-failure", true, json!([])), asked).verdict, Ask);
}

#[test]
fn what_strangers_wrote_has_calls_asked_about_that_reach_out_or_destroy() {
    use RuleVerdict::{Allow, Ask, Deny};
    let web = Some("web_fetch");
    for (mode, rules, verdict) in [
        ("on-request", json!([]), Ask),
        ("full-access", json!([]), Ask),
        ("never", json!([]), Deny),
        ("on-request", json!([{"tool": "t", "then": "allow"}]), Ask),
        ("on-request", json!([{"tool": "t", "then": "allow", "tainted": true}]), Allow),
        ("on-request", json!([{"label": "outward", "then": "deny"}]), Deny),
    ] {
        let shown = format!("{mode} {rules}");
        let asked = || Asked { tool: spec("t", &["outward"]), tainted_by: web, ..Asked::default() };
        let found = ruled(&config(mode, true, rules.clone()), asked());
        assert_eq!(found.verdict, verdict, "{shown}");
        assert_eq!(found.for_taint, found.by.contains("`web_fetch`"), "{found:?}");
        let off = ruled(&config(mode, false, rules), asked());
        assert!(!off.for_taint, "{shown}: {off:?}");
    }
    let config = config("on-request", true, json!([]));
    assert_eq!(of_tool(&config, &["remembers"], web), Ask);
    assert_eq!(of_tool(&config, &["remembers"], None), Allow);
    // What is asked about in any case is asked about for it, too: what was allowed before does not cover it.
    for labels in [["destructive", "needs_approval"], ["outward", "needs_approval"]] {
        let asked = Asked { tool: spec("t", &labels), tainted_by: web, ..Asked::default() };
        let found = ruled(&config, asked);
        assert!(found.for_taint && found.by.contains("needs approval, and this conversation"), "{found:?}");
    }
    assert_eq!(of_tool(&config, &[], web), Allow, "it stays here and can be undone");
    assert_eq!(of_tool(&config, &["outward"], None), Allow);
}

#[test]
fn the_first_rule_that_holds_decides_and_says_where_it_stands() {
    let rules = json!([
        {"tool": "files_*", "params": {"path": ".git/*"}, "then": "deny"},
        {"tool": "files_write", "params": {"path": "notes/*", "to.kind": "md"}, "then": "allow"},
        {"tool": "files_*", "agent": "main", "then": "ask"},
    ]);
    let config = config("on-request", true, rules);
    let of = |params: Value, agent: &str| {
        let asked = Asked { tool: spec("files_write", &[]), params, agents: &[agent], ..Asked::default() };
        let ruling = ruled(&config, asked);
        (ruling.verdict, ruling.by)
    };
    let md = |path: &str| json!({"path": path, "to": {"kind": "md"}});
    assert_eq!(of(md("notes/a.md"), "main"), (RuleVerdict::Allow, "`approvals.rules[1]`".into()));
    assert_eq!(of(md("src/../.git/config"), "main").1, "`approvals.rules[0]` forbids it");
    let asks = "`approvals.rules[2]` has such calls asked about";
    for other in [json!({"path": "notes/a.md"}), md("notes/../secret"), md("notes"), json!({})] {
        assert_eq!(of(other.clone(), "main").1, asks, "{other}");
    }
    assert_eq!(of(md("x"), "other"), (RuleVerdict::Allow, "on-request".into()));
}

#[test]
fn a_command_that_does_more_than_it_begins_with_is_allowed_by_no_pattern() {
    let mut tool = spec("shell_run", &["needs_approval"]);
    tool.annotations.approval_scope =
        serde_json::from_value(json!({"param": "command", "kind": "command"})).expect("a scope");
    let allow = config(
        "on-request",
        true,
        json!([{"tool": "shell_run", "params": {"command": "git status*"}, "then": "allow"}]),
    );
    let of = |command: &str| {
        let params = json!({ "command": command });
        ruled(&allow, Asked { tool: tool.clone(), params, ..Asked::default() }).verdict
    };
    assert_eq!(of("git status --short"), RuleVerdict::Allow);
    for more in ["git status; rm -r .", "git status\nrm x", "git status $(rm x)", "git status | sh"] {
        assert_eq!(of(more), RuleVerdict::Ask, "{more}");
    }
}

#[test]
fn what_an_agent_adds_only_makes_it_stricter_and_holds_for_those_that_it_calls() {
    let strict = own(json!({"mode": "never", "rules": [{"tool": "x", "then": "ask"}]}));
    let config = config("full-access", true, json!([]));
    let of = |agents: &[&str], tool: &ToolSpec| {
        let path = path(agents);
        let facts = CallFacts { spec: tool, params: "{}", path: &path, origin: "operator", tainted_by: None };
        let strict = |agent: &AgentId| (agent.as_str() == "careful").then_some(&strict);
        ruling(&config, strict, facts).verdict
    };
    let destroys = spec("t", &["destructive"]);
    assert_eq!(of(&["main"], &destroys), RuleVerdict::Allow);
    assert_eq!(of(&["main", "careful"], &destroys), RuleVerdict::Deny);
    assert_eq!(
        of(&["main", "careful", "other"], &destroys),
        RuleVerdict::Deny,
        "nobody gets more by way of another"
    );
    assert_eq!(of(&["careful", "main"], &spec("x", &[])), RuleVerdict::Ask);
    assert_eq!(of(&[], &spec("x", &[])), RuleVerdict::Deny, "nobody calls");
}

fn verdict() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("allow"), Just("ask"), Just("deny")]
}

fn label() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("remembers"),
        Just("read_only"),
        Just("destructive"),
        Just("outward"),
        Just("needs_approval")
    ]
}

fn agent() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")]
}

fn rules(verdicts: impl Strategy<Value = &'static str>) -> impl Strategy<Value = Value> {
    let rule = (proptest::option::of(agent()), proptest::option::of(label()), any::<bool>(), verdicts);
    let rule = rule.prop_map(|(agent, label, tainted, then)| {
        let mut rule = json!({"then": then});
        if let Some(agent) = agent {
            rule["agent"] = json!(agent);
        }
        if let Some(label) = label {
            rule["label"] = json!(label);
        }
        rule["tainted"] = json!(tainted && then == "allow");
        rule
    });
    proptest::collection::vec(rule, 0..5).prop_map(Value::Array)
}

proptest! {
    /// Whoever is called gets no more than whoever calls would: over any rules, modes, labels and trees.
    #[test]
    fn authority_only_narrows(
        rules in rules(verdict()),
        added in proptest::collection::btree_map(agent(), rules(prop_oneof![Just("ask"), Just("deny")]), 0..3),
        mode in prop_oneof![Just("on-request"), Just("on-failure"), Just("untrusted"), Just("never"), Just("full-access")],
        labels in proptest::collection::vec(label(), 0..3),
        agents in proptest::collection::vec(agent(), 1..5),
        tainted in any::<bool>(),
    ) {
        let config = config(mode, true, rules);
        let added: std::collections::BTreeMap<_, _> =
            added.into_iter().map(|(agent, rules)| (agent, own(json!({ "rules": rules })))).collect();
        let tool = spec("t", &labels);
        let of = |agents: &[&str], tainted_by: Option<&str>| {
            let path = path(agents);
            let facts = CallFacts { spec: &tool, params: "{}", path: &path, origin: "operator", tainted_by };
            ruling(&config, |agent| added.get(agent.as_str()), facts).verdict
        };
        let source = tainted.then_some("web_fetch");
        let child = of(&agents, source);
        for length in 1..agents.len() {
            prop_assert!(child >= of(&agents[..length], source), "{:?}", &agents[..length]);
        }
        for alone in &agents {
            prop_assert!(child >= of(&[*alone], source), "{alone}");
        }
        prop_assert!(of(&agents, Some("web_fetch")) >= of(&agents, None), "to have read more allows no more");
    }
}
