//! Traces: of trees that nobody ran, and of one that did.

use std::time::Duration;

use drupe_agent::{Entry, ids};
use drupe_extension_api::{
    AgentRef, AgentResponse, CorrelationId, DefinitionLimits, EffectClass, EffectId, Event, EventBody,
    InvocationId, Item, ItemKind, ItemOutcome, Spend, ToolStatus, TurnId, Usage,
    control::{CallKind, TraceNode},
};
use drupe_journal::TurnRows;
use jiff::Timestamp;
use proptest::prelude::*;

use super::{
    door::{Fault, inbound, rows, session, sums, walk},
    fakes::{Plays, agent_id, as_tool, call, looping, retries, say},
};
use crate::{trace, why_call};

/// Rows as they are written one by one.
pub struct Rows(pub TurnRows);

impl Rows {
    pub fn new() -> Self {
        let turn = TurnId::new("t").expect("a valid id");
        Self(TurnRows {
            number: 1,
            inbound: inbound("1", "do it"),
            root: Some(ids::root_invocation(&turn)),
            turn,
            accepted: Timestamp::UNIX_EPOCH,
            started: Some(Timestamp::UNIX_EPOCH),
            finished: None,
            starts: 1,
            correlation: CorrelationId::new("c").ok(),
            response: None,
            spend: None,
            entries: Vec::new(),
            recipes: Default::default(),
            events: Vec::new(),
            deliveries: Vec::new(),
        })
    }

    pub fn entry(&mut self, entry: Entry) {
        let number = self.0.entries.len() as i64 + 1;
        self.0.entries.push((number, entry));
    }

    pub fn event(&mut self, agent: Option<AgentRef>, body: EventBody) {
        let seq = self.0.events.len() as u64 + 1;
        self.0.events.push(Event {
            seq,
            time: Timestamp::UNIX_EPOCH,
            session: session(),
            turn: Some(self.0.turn.clone()),
            correlation_id: self.0.correlation.clone(),
            agent,
            body,
        });
    }
}

/// A run: which of the earlier ones calls it, whether by a tool, and what each of its attempts used and cost.
#[derive(Debug, Clone)]
struct Planned {
    caller: prop::sample::Index,
    by_tool: bool,
    attempts: Vec<(u64, u64, Option<u32>)>,
}

fn planned() -> impl Strategy<Value = Planned> {
    let attempt = (0..1_000_u64, 0..1_000_u64, prop::option::of(0..5_000_u32));
    (any::<prop::sample::Index>(), any::<bool>(), prop::collection::vec(attempt, 0..4))
        .prop_map(|(caller, by_tool, attempts)| Planned { caller, by_tool, attempts })
}

/// Writes the rows of the tree; gives each run's id and its caller.
fn written(rows: &mut Rows, plan: &[Planned]) -> Vec<(InvocationId, Option<usize>)> {
    let mut runs: Vec<(InvocationId, Option<usize>)> = Vec::new();
    for (at, planned) in plan.iter().enumerate() {
        let caller = (at > 0).then(|| planned.caller.index(at));
        let effect = ids::effect(&rows.0.turn, &ids::root_invocation(&rows.0.turn), 1, at as u32);
        let id = match (caller, planned.by_tool) {
            (None, _) => ids::root_invocation(&rows.0.turn),
            (Some(_), true) => ids::child_of_effect(&effect),
            (Some(caller), false) => {
                ids::run_for_code(runs[caller].0.as_str(), &agent_id("a"), "go", at as u32)
            }
        };
        if let (Some(caller), true) = (caller, planned.by_tool) {
            let invocation = runs[caller].0.clone();
            let (step, index, tool) = (1, at as u32, "agent_a".into());
            rows.entry(Entry::Intent {
                invocation: invocation.clone(),
                step,
                index,
                effect: effect.clone(),
                tool,
                class: EffectClass::Idempotent,
                over_limit: false,
                waits: false,
                kind: Default::default(),
                input: None,
                by: None,
            });
            let (status, content) = (ToolStatus::Ok, "{}".into());
            let (tool, kind, elapsed_ms) = ("agent_a".into(), Default::default(), 0);
            rows.entry(Entry::Result {
                invocation,
                step,
                index,
                effect,
                tool,
                kind,
                status,
                elapsed_ms,
                content,
                images: Vec::new(),
                left: false,
            });
        }
        let parent = caller.map(|caller| runs[caller].0.clone());
        let place = AgentRef { id: agent_id("a"), invocation: id.clone(), parent: parent.clone(), depth: 0 };
        rows.entry(Entry::Begin {
            invocation: id.clone(),
            agent: agent_id("a"),
            parent,
            depth: 0,
            task: "go".into(),
            recipe: None,
        });
        for (nth, (input, output, micros)) in planned.attempts.iter().enumerate() {
            let body = EventBody::ModelAttempt {
                step: nth as u32 + 1,
                attempt: 1,
                model: "m".into(),
                usage: Usage { input_tokens: *input, output_tokens: *output, ..Usage::default() },
                estimated: false,
                latency_ms: 1,
                first_ms: None,
                stop: "end".into(),
                cost_usd: micros.map(|micros| f64::from(micros) / 1e6),
            };
            rows.event(Some(place.clone()), body);
        }
        runs.push((id, caller));
    }
    runs
}

fn found<'n>(nodes: &'n [TraceNode], id: &InvocationId) -> Vec<&'n TraceNode> {
    let mut all = Vec::new();
    let mut left: Vec<&TraceNode> = nodes.iter().collect();
    while let Some(node) = left.pop() {
        if node.kind == CallKind::Run && node.id == id.as_str() {
            all.push(node);
        }
        left.extend(&node.nodes);
    }
    all
}

proptest! {
    #[test]
    fn a_run_sums_up_its_own_attempts_and_those_below_each_once(plan in prop::collection::vec(planned(), 1..24)) {
        let mut rows = Rows::new();
        let runs = written(&mut rows, &plan);
        let traced = trace(&rows.0);
        sums(&traced.nodes);
        // From the plan, without any tree: each attempt counts for its run and for every caller above.
        let mut tokens = vec![0; runs.len()];
        let mut unpriced = vec![false; runs.len()];
        for (at, planned) in plan.iter().enumerate() {
            let above = std::iter::successors(Some(at), |run| runs[*run].1);
            for run in above {
                for (input, output, micros) in &planned.attempts {
                    tokens[run] += input + output;
                    unpriced[run] |= input + output > 0 && micros.is_none();
                }
            }
        }
        for (at, (id, caller)) in runs.iter().enumerate() {
            let [node] = found(&traced.nodes, id)[..] else { panic!("{id} is there once") };
            prop_assert_eq!(node.usage.map(|usage| usage.total()), Some(tokens[at]));
            prop_assert!(!(unpriced[at] && node.cost_usd.is_some()), "a sum with an unknown price in it");
            let depth = std::iter::successors(*caller, |run| runs[*run].1).count();
            prop_assert_eq!(node.path.len(), depth + 1);
        }
        prop_assert_eq!(traced.spend.usage.total(), tokens[0]);
        prop_assert_eq!(traced.spend.invocations as usize, runs.len());
    }

    #[test]
    fn every_attempt_is_one_node(plan in prop::collection::vec(planned(), 1..24)) {
        let mut rows = Rows::new();
        written(&mut rows, &plan);
        let mut attempts = 0;
        walk(&trace(&rows.0).nodes, &mut |node| attempts += usize::from(node.kind == CallKind::Model));
        prop_assert_eq!(attempts, plan.iter().map(|planned| planned.attempts.len()).sum::<usize>());
    }
}

/// A tree as indented lines: kind, name, outcome.
fn drawn(nodes: &[TraceNode], depth: usize, lines: &mut Vec<String>) {
    for node in nodes {
        let outcome = node.outcome.as_deref().unwrap_or("…");
        lines.push(format!("{}{:?} {}: {outcome}", "  ".repeat(depth), node.kind, node.name));
        drawn(&node.nodes, depth + 1, lines);
    }
}

fn check(rows: &TurnRows, expected: &[&str]) {
    let mut lines = Vec::new();
    drawn(&trace(rows).nodes, 0, &mut lines);
    assert_eq!(lines, expected);
}

#[test]
fn a_turn_that_never_began_has_no_nodes() {
    let mut rows = Rows::new();
    (rows.0.started, rows.0.root, rows.0.starts) = (None, None, 0);
    check(&rows.0, &[]);
    assert_eq!(trace(&rows.0).spend, Spend::default());
}

#[test]
fn remarks_of_a_turn_without_a_run_are_shown_by_themselves() {
    let mut rows = Rows::new();
    rows.event(None, EventBody::Diagnostic { code: "hook_late".into(), message: "it was late".into() });
    check(&rows.0, &["Note hook_late: it was late"]);
}

#[test]
fn what_goes_on_has_no_outcome_and_what_was_cut_off_says_so() {
    let mut rows = Rows::new();
    let id = ids::root_invocation(&rows.0.turn);
    let place = AgentRef { id: agent_id("main"), invocation: id.clone(), parent: None, depth: 0 };
    rows.entry(Entry::Begin {
        invocation: id.clone(),
        agent: agent_id("main"),
        parent: None,
        depth: 0,
        task: "go".into(),
        recipe: None,
    });
    let ask = |rows: &mut Rows, attempt| {
        rows.entry(Entry::Step {
            invocation: id.clone(),
            step: 1,
            attempt,
            model: "m".into(),
            request_hash: String::new(),
            reserved_tokens: 1,
            reserved_usd: 0.0,
            unpriced: false,
            bytes_per_token: None,
            shown: false,
        });
    };
    ask(&mut rows, 1);
    check(&rows.0, &["Run main: …", "  Model m: …"]);
    let id_of_item = format!("{id}.1.1");
    let item =
        Item { id: id_of_item.clone(), kind: ItemKind::AgentMessage, name: None, input: None, output: None };
    let ended = EventBody::ItemCompleted { item, outcome: ItemOutcome::Interrupted, elapsed_ms: 7 };
    rows.event(Some(place.clone()), ended);
    check(&rows.0, &["Run main: …", "  Model m: interrupted"]);
    let reset = EventBody::StreamReset { id: id_of_item, reason: "a restart".into() };
    rows.event(Some(place), reset);
    ask(&mut rows, 2);
    check(
        &rows.0,
        &["Run main: …", "  Model m: interrupted", "  Model m: …", "  Note stream_reset: a restart"],
    );
    rows.0.finished = Some(Timestamp::UNIX_EPOCH);
    rows.0.response = Some(AgentResponse::success("given up"));
    check(
        &rows.0,
        &[
            "Run main: interrupted",
            "  Model m: interrupted",
            "  Model m: interrupted",
            "  Note stream_reset: a restart",
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_stands_below_the_call_that_set_it_off() {
    let model = Plays::new(
        &[
            ("main", vec![call(&[("frob", "{}"), ("agent_below", r#"{"task":"go"}"#)]), say("done")]),
            ("below", vec![retries(&["it stalled"], say("four"))]),
        ],
        None,
    );
    let below = looping("below", DefinitionLimits::default(), &model, [], |_| ());
    let main = looping("main", DefinitionLimits::default(), &model, [as_tool(&below)], |_| ());
    let rows = rows(Fault { selected: Some("agent"), ..Fault::of(main) }).await;
    check(
        &rows,
        &[
            "Run main: success",
            "  Note selected: agent",
            "  Model fake/one: tool_calls",
            "  Tool frob: refused",
            "  Tool agent_below: ok",
            "    Run below: success",
            "      Model fake/one: it stalled",
            "      Note model_retry: an attempt with fake/one failed and is repeated: it stalled",
            "      Model fake/one: end",
            "  Model fake/one: end",
        ],
    );
    let traced = trace(&rows);
    let tool = &traced.nodes[0].nodes[3];
    assert_eq!((tool.bytes_in, tool.name.as_str()), (Some(13), "agent_below"));
    let path: Vec<_> = tool.nodes[0].path.iter().map(|agent| agent.as_str()).collect();
    assert_eq!((path, tool.nodes[0].bytes_out), (vec!["main", "below"], Some(4)));
    let mut total = 0;
    walk(&traced.nodes, &mut |node| {
        if node.kind == CallKind::Model {
            total += node.usage.map_or(0, |usage| usage.total());
        }
    });
    assert!(total >= 330, "three answers of 110 tokens, and what a failed attempt may have used: {total}");
    assert_eq!(traced.nodes[0].usage.map(|usage| usage.total()), Some(total));
}

/// The root's first step, in which it calls `t`; gives its place and the call.
fn a_call(rows: &mut Rows) -> (AgentRef, EffectId) {
    let id = ids::root_invocation(&rows.0.turn);
    let effect = ids::effect(&rows.0.turn, &id, 1, 0);
    let place = AgentRef { id: agent_id("main"), invocation: id.clone(), parent: None, depth: 0 };
    let (invocation, task) = (id.clone(), "go".into());
    rows.entry(Entry::Begin {
        invocation,
        agent: agent_id("main"),
        parent: None,
        depth: 0,
        task,
        recipe: None,
    });
    rows.entry(Entry::Intent {
        invocation: id,
        step: 1,
        index: 0,
        effect: effect.clone(),
        tool: "t".into(),
        class: EffectClass::Pure,
        over_limit: false,
        waits: false,
        kind: Default::default(),
        input: None,
        by: None,
    });
    (place, effect)
}

#[test]
fn a_call_that_was_cut_off_goes_on_when_it_is_begun_anew() {
    let mut rows = Rows::new();
    let (place, effect) = a_call(&mut rows);
    let item = Item {
        id: effect.to_string(),
        kind: ItemKind::ToolCall,
        name: Some("t".into()),
        input: None,
        output: None,
    };
    let says = |rows: &Rows| {
        let now = Timestamp::UNIX_EPOCH + Duration::from_secs(3);
        why_call(&rows.0, &effect, now).expect("the call is there").sentences[0].clone()
    };
    let goes_on = (["Run main: …", "  Tool t: …"], "`t` has been running for 3.0 s (step 1 of `main`).");
    rows.event(Some(place.clone()), EventBody::ItemStarted { item: item.clone() });
    check(&rows.0, &goes_on.0);
    assert_eq!(says(&rows), goes_on.1);
    let outcome = ItemOutcome::Interrupted;
    rows.event(Some(place.clone()), EventBody::ItemCompleted { item: item.clone(), outcome, elapsed_ms: 7 });
    check(&rows.0, &["Run main: …", "  Tool t: interrupted"]);
    assert_eq!(says(&rows), "The end of `t` was never recorded (step 1 of `main`).");
    rows.event(Some(place), EventBody::ItemStarted { item });
    check(&rows.0, &goes_on.0);
    assert_eq!(trace(&rows.0).nodes[0].nodes[0].elapsed_ms, None, "the first end is not its end");
    assert_eq!(says(&rows), goes_on.1);
    rows.0.finished = Some(Timestamp::UNIX_EPOCH);
    check(&rows.0, &["Run main: interrupted", "  Tool t: interrupted"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_an_attempt_that_failed_stands_behind_it_however_often_it_is_repeated() {
    let model = Plays::new(&[("main", vec![retries(&["first", "second"], say("four"))])], None);
    let main = looping("main", DefinitionLimits::default(), &model, [], |_| ());
    let rows = rows(Fault::of(main)).await;
    check(
        &rows,
        &[
            "Run main: success",
            "  Model fake/one: first",
            "  Note model_retry: an attempt with fake/one failed and is repeated: first",
            "  Model fake/one: second",
            "  Note model_retry: an attempt with fake/one failed and is repeated: second",
            "  Model fake/one: end",
        ],
    );
}

#[test]
fn a_turn_that_went_on_after_a_restart_lasted_from_its_beginning_to_its_end() {
    let mut rows = Rows::new();
    a_call(&mut rows);
    let spend = Spend { elapsed_ms: 40, ..Spend::default() };
    rows.0.spend = Some(spend);
    rows.0.started = Some(Timestamp::UNIX_EPOCH);
    rows.0.finished = Some(Timestamp::UNIX_EPOCH + Duration::from_secs(9));
    let traced = trace(&rows.0);
    assert_eq!((traced.spend.elapsed_ms, traced.nodes[0].elapsed_ms), (9_000, Some(9_000)));
}

#[test]
fn an_attempt_that_is_repeated_begins_where_the_one_before_it_ended() {
    let mut rows = Rows::new();
    let (place, _) = a_call(&mut rows);
    for (attempt, latency_ms) in [(1, 100), (2, 50)] {
        let body = EventBody::ModelAttempt {
            step: 1,
            attempt,
            model: "m".into(),
            usage: Usage::default(),
            estimated: false,
            latency_ms,
            first_ms: (attempt == 2).then_some(20),
            stop: if attempt == 1 { "it stalled".into() } else { "end".into() },
            cost_usd: None,
        };
        rows.event(Some(place.clone()), body);
    }
    let traced = trace(&rows.0);
    let models = traced.nodes[0].nodes.iter().filter(|node| node.kind == CallKind::Model);
    let times = models.map(|node| (node.started.as_millisecond(), node.elapsed_ms, node.first_ms));
    assert_eq!(times.collect::<Vec<_>>(), [(0, Some(100), None), (100, Some(50), Some(20))]);
}
