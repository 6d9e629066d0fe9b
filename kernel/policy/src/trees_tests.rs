//! Who starts whom, whatever sets it off: over generated trees of runs, origins, rules, what manifests add, tools and text of
//! strangers, nobody below may do without a question what whoever is above may not.

use std::collections::BTreeMap;

use drupe_config::{AgentApprovals, ApprovalsConfig, RuleVerdict};
use drupe_extension_api::{AgentId, ToolSpec};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const AGENTS: [&str; 4] = ["a", "b", "c", "d"];

/// Origins, and whether somebody is there who can be asked.
const ORIGINS: [(&str, bool); 5] = [
    ("operator", true),
    ("token:ci", true),
    ("extension:mail", true),
    ("topic:a", false),
    ("schedule:a/daily", false),
];

/// Labels that tools have, by name.
const TOOLS: [(&str, &[&str]); 6] = [
    ("kv_get", &["read_only"]),
    ("kv_set", &[]),
    ("web_fetch", &["read_only", "outward", "reads_untrusted"]),
    ("memory_save", &["remembers"]),
    ("memory_forget", &["destructive"]),
    ("shell_run", &["destructive", "outward", "needs_approval"]),
];

const LABELS: [&str; 6] =
    ["read_only", "destructive", "outward", "reads_untrusted", "needs_approval", "remembers"];

fn rule(verdicts: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let tools = TOOLS.map(|(name, _)| name).into_iter().chain(["*", "memory_*", "*_*"]).collect::<Vec<_>>();
    let origins = ORIGINS.map(|(origin, _)| origin).into_iter().chain(["token:*", "schedule:*"]);
    (
        prop::option::of(prop::sample::select(tools)),
        prop::option::of(prop::sample::select(&LABELS[..])),
        prop::option::of(prop::sample::select(&AGENTS[..])),
        prop::option::of(prop::sample::select(origins.collect::<Vec<_>>())),
        prop::option::of(prop::sample::select(vec!["here", "t*", "there/../here"])),
        any::<bool>(),
        prop::sample::select(verdicts),
    )
        .prop_map(|(tool, label, agent, origin, place, tainted, then)| {
            let mut rule = json!({"then": then, "tainted": tainted && then == "allow"});
            for (key, value) in [("tool", tool), ("label", label), ("agent", agent), ("origin", origin)] {
                if let Some(value) = value {
                    rule[key] = json!(value);
                }
            }
            if let Some(place) = place {
                rule["params"] = json!({ "place": place });
            }
            rule
        })
}

/// Each run but the first with the one that started it, which stands before it.
fn tree() -> impl Strategy<Value = Vec<(&'static str, usize)>> {
    let node = (prop::sample::select(&AGENTS[..]), any::<prop::sample::Index>());
    prop::collection::vec(node, 1..10).prop_map(|nodes| {
        let at = |(at, (agent, parent)): (usize, (_, prop::sample::Index))| (agent, parent.index(at.max(1)));
        nodes.into_iter().enumerate().map(at).collect()
    })
}

fn tool((name, labels): (&str, &[&str])) -> ToolSpec {
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|label| ((*label).to_owned(), json!(true))).collect();
    let spec = json!({"name": name, "description": "", "input_schema": {}, "annotations": labels});
    serde_json::from_value(spec).expect("a tool")
}

/// The agents from the root to the run that stands there.
fn path(tree: &[(&str, usize)], at: usize) -> Vec<AgentId> {
    let mut path = vec![AgentId::new(tree[at].0).expect("an id")];
    let mut at = at;
    while at > 0 {
        at = tree[at].1;
        path.push(AgentId::new(tree[at].0).expect("an id"));
    }
    path.reverse();
    path
}

/// How much a decision lets be done: the more, the stricter.
fn strictness(decision: &Decision) -> u8 {
    match decision {
        Decision::Allow { .. } => 0,
        Decision::Ask(_) => 1,
        Decision::Deny { .. } => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nobody_below_may_do_what_nobody_above_may(
        tree in tree(),
        rules in prop::collection::vec(rule(&["allow", "ask", "deny"]), 0..6),
        own in prop::collection::btree_map(
            prop::sample::select(&AGENTS[..]),
            (
                prop::collection::vec(rule(&["ask", "deny"]), 0..3),
                prop::option::of(prop::sample::select(vec!["on-request", "untrusted", "never"])),
            ),
            0..3,
        ),
        mode in prop::sample::select(vec!["on-request", "on-failure", "untrusted", "never", "full-access"]),
        place in prop::sample::select(vec!["here", "there", "there/../here"]),
    ) {
        let config = json!({"mode": mode, "taint": true, "rules": rules, "channels": [], "people": [], "preauthorized": []});
        let config: ApprovalsConfig = serde_json::from_value(config).expect("a configuration");
        let added = |(agent, (rules, mode)): (&str, (Vec<Value>, Option<&str>))| {
            let mut own = json!({ "rules": rules });
            if let Some(mode) = mode {
                own["mode"] = json!(mode);
            }
            let own: AgentApprovals = serde_json::from_value(own).expect("what an agent adds");
            (AgentId::new(agent).expect("an id"), own)
        };
        let own: BTreeMap<AgentId, AgentApprovals> = own.into_iter().map(added).collect();
        let params = json!({ "place": place }).to_string();
        for (spec, (origin, asks)) in TOOLS.iter().flat_map(|it| ORIGINS.map(|origin| (tool(*it), origin))) {
            let decision = |at: usize, tainted_by: Option<&str>, asks: bool| {
                let path = path(&tree, at);
                let facts = CallFacts { spec: &spec, params: &params, path: &path, origin, tainted_by };
                decided(ruling(&config, |agent| own.get(agent), facts), &spec.name, None, None, asks)
            };
            for (at, (_, parent)) in tree.iter().enumerate() {
                for tainted_by in [None, Some("web_fetch")] {
                    let here = decision(at, tainted_by, asks);
                    prop_assert!(
                        strictness(&here) >= strictness(&decision(*parent, tainted_by, asks)),
                        "{origin}: {:?} may do more than {:?} with {}", path(&tree, at), path(&tree, *parent), spec.name
                    );
                    prop_assert!(strictness(&here) >= strictness(&decision(at, None, asks)), "to read more allows more");
                    prop_assert!(strictness(&here) >= strictness(&decision(at, tainted_by, true)));
                    prop_assert!(asks || !matches!(here, Decision::Ask(_)), "nobody is there: {here:?}");
                }
            }
        }
    }

    /// What was allowed for a session lets nothing run that is forbidden, and where nobody is there nothing is asked.
    #[test]
    fn an_answer_of_before_overrides_no_rule_and_nobody_is_asked_where_nobody_is(
        verdict in prop::sample::select(vec![RuleVerdict::Allow, RuleVerdict::Ask, RuleVerdict::Deny]),
        granted in prop::option::of(Just("g-1".to_owned())),
        asks in any::<bool>(),
    ) {
        let ruling = Ruling { verdict, by: "x".into(), for_taint: false, by_rule: true };
        let name = tool(TOOLS[0]).name;
        let has = granted.is_some();
        let expected = match (verdict, has, asks) {
            (RuleVerdict::Allow, ..) | (RuleVerdict::Ask, true, _) => 0,
            (RuleVerdict::Ask, false, true) => 1,
            (RuleVerdict::Ask, false, false) | (RuleVerdict::Deny, ..) => 2,
        };
        prop_assert_eq!(strictness(&decided(ruling, &name, None, granted, asks)), expected);
    }
}
