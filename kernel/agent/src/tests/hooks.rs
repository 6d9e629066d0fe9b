//! Hooks before and after what runs do.

use std::sync::{Arc, Mutex, PoisonError};

use drupe_extension_api::{FailureClass, ResponseStatus, ToolStatus, wire::HookPoint};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::*;
use crate::*;

const ALL: [HookPoint; 8] = [
    HookPoint::TurnStart,
    HookPoint::TurnEnd,
    HookPoint::BeforeModel,
    HookPoint::AfterModel,
    HookPoint::BeforeTool,
    HookPoint::AfterTool,
    HookPoint::BeforeAgent,
    HookPoint::AfterAgent,
];

/// Keeps what it is asked, and may forbid one point.
struct Asked {
    wants: Vec<HookPoint>,
    blocks: Option<HookPoint>,
    calls: Mutex<Vec<(HookPoint, Value)>>,
}

impl Hooks for Asked {
    fn wants(&self, point: HookPoint) -> bool {
        self.wants.contains(&point)
    }

    fn call<'a>(&'a self, point: HookPoint, facts: Value) -> BoxFuture<'a, HookAnswer> {
        assert!(self.wants(point), "{point:?} was not asked for");
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push((point, facts));
        let blocked = (self.blocks == Some(point)).then(|| "not today".to_owned());
        let remarks = if point == HookPoint::TurnEnd { vec!["it was late".into()] } else { Vec::new() };
        Box::pin(async { HookAnswer { blocked, remarks } })
    }
}

/// A root that calls `a` and `sub`, with hooks at those points, of which one may block.
async fn check(wants: &[HookPoint], blocks: Option<HookPoint>) -> (Seen, Vec<(HookPoint, Value)>) {
    let hooks = Arc::new(Asked { wants: wants.to_vec(), blocks, calls: Mutex::default() });
    let root = [call(&[("a", r#"{"n": 1}"#), ("agent_sub", r#"{"task": "t"}"#)]), say("done")];
    let model = Arc::new(Plays::new(&[("main", &root), ("sub", &[say("a part")])]));
    let sub = looping(definition("sub"), &model, []);
    let mut main = definition("main");
    main.limits.parallel_tool_calls = 1;
    let agent = looping(main, &model, [as_tool(&sub), Fake::says("a").registered()]);
    let shared = Arc::clone(&hooks);
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.hooks = shared);
    let seen = Case { scope, ..Case::new(agent, &model) }.run().await;
    let calls = hooks.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (seen, calls)
}

#[tokio::test]
async fn every_point_is_asked_in_its_place_with_its_facts() {
    use HookPoint::*;
    let (seen, calls) = check(&ALL, None).await;
    assert_eq!(seen.response.content, "done");
    let points: Vec<HookPoint> = calls.iter().map(|(point, _)| *point).collect();
    assert_eq!(
        points,
        [
            TurnStart,
            BeforeModel,
            AfterModel,
            BeforeTool,
            BeforeTool,
            AfterTool,
            BeforeAgent,
            BeforeModel,
            AfterModel,
            AfterAgent,
            AfterTool,
            BeforeModel,
            AfterModel,
            TurnEnd
        ]
    );
    for (_, facts) in &calls {
        for key in ["session", "turn", "agent", "path", "invocation"] {
            assert!(!facts[key].is_null(), "{key} is missing in {facts}");
        }
    }
    let facts = |point| &calls.iter().find(|(p, _)| *p == point).expect("it was asked").1;
    assert_eq!(facts(BeforeTool)["tool"], "a");
    assert_eq!(facts(BeforeTool)["params"]["text"], r#"{"n": 1}"#);
    assert_eq!(facts(BeforeModel)["model"], "plays/script");
    assert!(facts(BeforeModel)["tokens"].as_u64().is_some_and(|n| n > 0));
    assert_eq!(facts(AfterModel)["status"], "success");
    assert_eq!(facts(AfterTool)["status"], "ok");
    assert_eq!(facts(BeforeAgent)["path"], serde_json::json!(["main", "sub"]));
    assert_eq!(facts(TurnEnd)["status"], "success");
    assert_eq!(seen.diagnostics(), ["hook_late"]);
    assert_eq!(seen.outcome, ["hook_late: it was late"]);
}

#[tokio::test]
async fn nobody_is_asked_who_does_not_want_to_be() {
    assert!(check(&[], None).await.1.is_empty());
    let (_, calls) = check(&[HookPoint::AfterTool], None).await;
    assert_eq!(calls.len(), 2);
}

#[tokio::test]
async fn a_block_before_a_model_ends_the_run_as_refused() {
    let (seen, _) = check(&ALL, Some(HookPoint::BeforeModel)).await;
    assert_eq!(
        (seen.response.status, seen.response.class),
        (ResponseStatus::Refused, Some(FailureClass::Refused))
    );
    assert_eq!(seen.response.content, "not today");
    assert!(seen.model.requests().is_empty());
}

#[tokio::test]
async fn a_block_at_the_start_refuses_the_turn() {
    let (seen, calls) = check(&ALL, Some(HookPoint::TurnStart)).await;
    assert_eq!(
        (seen.response.status, seen.response.content.as_str()),
        (ResponseStatus::Refused, "not today")
    );
    assert_eq!((seen.model.requests().len(), calls.len()), (0, 2), "its end is told all the same");
}

#[tokio::test]
async fn a_block_before_a_tool_refuses_the_call_and_the_run_goes_on() {
    let (seen, _) = check(&ALL, Some(HookPoint::BeforeTool)).await;
    assert_eq!(seen.response.content, "done");
    assert_eq!(seen.statuses(), [ToolStatus::Refused; 2]);
    assert_eq!((seen.told()[0].as_str(), seen.spend.invocations), ("not run: not today", 1));
}

#[tokio::test]
async fn a_block_before_an_agent_is_its_caller_s_refused_response() {
    let (seen, _) = check(&ALL, Some(HookPoint::BeforeAgent)).await;
    assert_eq!(seen.statuses(), [ToolStatus::Ok, ToolStatus::Refused]);
    assert!(seen.told()[1].contains("not today"), "{:?}", seen.told());
    assert_eq!((seen.model.asked_by("sub"), seen.spend.invocations), (0, 1));
}

#[tokio::test]
async fn after_something_happened_nothing_is_blocked() {
    use HookPoint::*;
    for point in [TurnEnd, AfterModel, AfterTool, AfterAgent] {
        let (seen, _) = check(&ALL, Some(point)).await;
        assert_eq!(seen.response.content, "done", "{point:?}");
        assert_eq!(seen.statuses(), [ToolStatus::Ok; 2], "{point:?}");
    }
}
