use std::sync::Arc;

use drupe_agent::{
    Agent, Definition, LoopAgent, ModelEvent, Registered, RegistryBuilder, ScriptedModel, Task, Tool,
    ToolContext, ToolFuture, ToolOutput, TurnOutcome, TurnScope, ids, run_turn,
};
use drupe_extension_api::{
    CorrelationId, SessionId, ToolSpec, TurnId,
    wire::{Carried, Submit},
};
use drupe_journal::{Inbound, Origin, Storage, TurnStart};
use serde_json::{json, value::RawValue};
use tokio_util::sync::CancellationToken;

use super::*;

/// A clock that goes with that of the runtime, which a test lets stand still.
struct Paused(tokio::time::Instant);

impl Clock for Paused {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000 + i64::try_from(self.0.elapsed().as_millis()).expect("a short test")
    }
}

/// A configuration with these rules.
fn config(rules: serde_json::Value) -> ApprovalsConfig {
    let config = json!({"mode": "on-request", "taint": true, "rules": rules, "channels": [], "people": [], "preauthorized": []});
    serde_json::from_value(config).expect("a configuration")
}

struct Careful(Arc<ToolSpec>);

impl Tool for Careful {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        "test"
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async { Ok(ToolOutput::text("it ran")) })
    }
}

fn agent() -> Arc<dyn Agent> {
    agent_with([ScriptedModel::call(&[("careful", "{}"), ("careful", "{}")]), ScriptedModel::say("done")])
}

fn agent_with<const N: usize>(script: [Vec<ModelEvent>; N]) -> Arc<dyn Agent> {
    let spec = json!({
        "name": "careful", "description": "", "input_schema": {"type": "object"},
        "annotations": {"needs_approval": true},
    });
    let spec: ToolSpec = serde_json::from_value(spec).expect("a tool");
    let mut tools = RegistryBuilder::default();
    tools.add(Registered::new(Arc::new(Careful(Arc::new(spec)))).expect("a schema")).expect("one tool");
    let definition = json!({"id": "main", "instructions": "Work.", "limits": {"time_budget_ms": 1000}});
    let definition: Definition = serde_json::from_value(definition).expect("an agent");
    Arc::new(LoopAgent::new(definition, Arc::new(tools.build()), Arc::new(ScriptedModel::new(script)), true))
}

/// Runs a turn that asks twice, and meanwhile `person`, who is given the policy and the ids of the questions.
async fn asked<P: Future<Output = ()>>(
    person: impl FnOnce(Arc<CallPolicy>, Vec<String>, CancellationToken) -> P,
) -> (TurnOutcome, Vec<ApprovalState>) {
    let clock: Arc<dyn Clock> = Arc::new(Paused(tokio::time::Instant::now()));
    let store = Store::open(&Storage::Memory, Arc::clone(&clock), Arc::new(|_| ())).expect("a journal");
    let session = SessionId::new("s").expect("an id");
    let turn = accepted(&store, &session).await;
    let policy = CallPolicy::new(config(json!([])), store.clone(), Arc::clone(&clock));
    let inbound = Inbound::new(Submit::new(session.clone(), "1", "do it"), Origin::OPERATOR);
    let (of_turn, _) = policy.of_turn(&inbound, OwnApprovals::default()).await.expect("it is read");
    let scope = TurnScope {
        policy: of_turn,
        clock,
        ..TurnScope::new(session, turn, "do it".into(), Arc::new(store.clone()))
    };
    let (agent, cancel) = (agent(), CancellationToken::new());
    let limits = agent.limits().clone();
    let turn = run_turn(Arc::new(scope), &agent, Task::new("do it"), &limits, cancel.clone());
    let answers = async {
        let waiting = loop {
            let all = policy.questions().await.expect("it is read");
            if all.len() == 2 {
                break all.into_iter().map(|one| one.id).collect();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        person(Arc::clone(&policy), waiting, cancel).await;
    };
    let (outcome, ()) = tokio::join!(turn, answers);
    let all = policy.questions().await.expect("it is read");
    (outcome, all.into_iter().map(|one| one.state).collect())
}

async fn accepted(store: &Store, session: &SessionId) -> TurnId {
    let message = Inbound::new(Submit::new(session.clone(), "1", "do it"), Origin::OPERATOR);
    let turn = store.accept(message).await.expect("it is accepted").turn;
    let start = TurnStart {
        turn: turn.clone(),
        session: session.clone(),
        root: ids::root_invocation(&turn),
        correlation: CorrelationId::new("c").expect("an id"),
        events: Vec::new(),
    };
    store.start_turn(start).await.expect("it begins");
    turn
}

#[tokio::test(start_paused = true)]
async fn an_answer_comes_to_its_call_at_once() {
    let (outcome, states) = asked(async |policy, ids, _| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        for (id, says) in ids.iter().zip([Says::Yes, Says::No]) {
            policy
                .answer_question(id, says, None, "somebody")
                .await
                .expect("it is recorded")
                .expect("it is there");
        }
    })
    .await;
    assert_eq!(outcome.response.content, "done");
    assert_eq!(states, [ApprovalState::Allowed, ApprovalState::Denied]);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_expires() {
    let began = tokio::time::Instant::now();
    let (outcome, states) = asked(async |_, _, _| ()).await;
    assert_eq!(outcome.response.content, "done", "the time of the run stood still");
    assert_eq!(states, [ApprovalState::Expired; 2]);
    assert!(began.elapsed() >= PATIENCE && began.elapsed() < PATIENCE * 2, "{:?}", began.elapsed());
}

/// A turn that calls twice in the same step, twice, with what a person says to the first question.
async fn said(says: Says, origin: Origin) -> (Vec<ApprovalState>, Vec<StandingGrant>) {
    said_of(says, origin, None).await
}

/// The same of a message that carries this.
async fn said_of(
    says: Says,
    origin: Origin,
    carried: Option<Carried>,
) -> (Vec<ApprovalState>, Vec<StandingGrant>) {
    let clock: Arc<dyn Clock> = Arc::new(Paused(tokio::time::Instant::now()));
    let store = Store::open(&Storage::Memory, Arc::clone(&clock), Arc::new(|_| ())).expect("a journal");
    let session = SessionId::new("s").expect("an id");
    let turn = accepted(&store, &session).await;
    let policy = CallPolicy::new(config(json!([])), store.clone(), Arc::clone(&clock));
    let submit = Submit { carried, ..Submit::new(session.clone(), "1", "do it") };
    let inbound = Inbound::new(submit, origin);
    let (of_turn, _) = policy.of_turn(&inbound, OwnApprovals::default()).await.expect("it is read");
    let scope = TurnScope {
        policy: of_turn,
        clock,
        ..TurnScope::new(session, turn, "do it".into(), Arc::new(store.clone()))
    };
    let script = [
        ScriptedModel::call(&[("careful", "{}")]),
        ScriptedModel::call(&[("careful", "{\"again\": 1}")]),
        ScriptedModel::say("done"),
    ];
    let agent = agent_with(script);
    let limits = agent.limits().clone();
    let running = run_turn(Arc::new(scope), &agent, Task::new("do it"), &limits, CancellationToken::new());
    let mut running = std::pin::pin!(running);
    loop {
        tokio::select! {
            outcome = &mut running => {
                assert_eq!(outcome.response.content, "done");
                break;
            }
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                let all = policy.questions().await.expect("it is read");
                if let Some(waits) = all.into_iter().find(|one| one.state == ApprovalState::Pending) {
                    policy.answer_question(&waits.id, says.clone(), None, "somebody").await.expect("it is recorded");
                }
            }
        }
    }
    let all = policy.questions().await.expect("it is read");
    (all.into_iter().map(|one| one.state).collect(), policy.grants().await.expect("they are read"))
}

#[tokio::test(start_paused = true)]
async fn what_is_allowed_for_the_session_is_asked_about_once() {
    let (states, grants) = said(Says::YesForSession, Origin::OPERATOR).await;
    assert_eq!((states.as_slice(), grants.len()), ([ApprovalState::Allowed].as_slice(), 1));
    assert_eq!((grants[0].about.as_str(), grants[0].by.as_str()), ("careful", "somebody"));
    let (states, grants) = said(Says::Yes, Origin::OPERATOR).await;
    assert_eq!((states.as_slice(), grants.len()), ([ApprovalState::Allowed; 2].as_slice(), 0));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_waits_nobody_is_asked() {
    let follower = "main".parse().expect("an id");
    let mail = Origin::Extension("mail".parse().expect("an id"));
    let strangers = || Some(Carried { untrusted: true, ..Carried::default() });
    for (origin, carried, asked) in [
        (Origin::Topic { follower }, None, 0),
        (Origin::Schedule("mail/daily".into()), None, 0),
        (mail.clone(), strangers(), 0),
        (mail, None, 2),
        (Origin::OPERATOR, strangers(), 2),
    ] {
        let (states, grants) = said_of(Says::Yes, origin.clone(), carried).await;
        assert!(states.len() == asked && grants.is_empty(), "{origin}: {states:?}");
    }
}

#[tokio::test]
async fn what_was_allowed_before_strangers_were_read_does_not_hold_after_it() {
    let clock: Arc<dyn Clock> = Arc::new(Paused(tokio::time::Instant::now()));
    let store = Store::open(&Storage::Memory, Arc::clone(&clock), Arc::new(|_| ())).expect("a journal");
    let policy = CallPolicy::new(config(json!([])), store, clock);
    let session = SessionId::new("s").expect("an id");
    let agent: AgentId = "main".parse().expect("an id");
    let turn = TurnPolicy {
        all: Arc::clone(&policy),
        session: session.clone(),
        origin: "operator".into(),
        asks: true,
        led_by: Vec::new(),
        own: OwnApprovals::default(),
    };
    let grant = |for_taint| StandingGrant {
        id: "g-1".into(),
        session: session.clone(),
        agent: agent.clone(),
        about: "t".into(),
        for_taint,
        given: jiff::Timestamp::UNIX_EPOCH,
        by: "ann".into(),
    };
    for (given, asked, holds) in
        [(false, false, true), (false, true, false), (true, true, true), (true, false, true)]
    {
        policy.working().insert(session.clone(), (1, vec![grant(given)]));
        assert_eq!(turn.granted(&agent, "t", asked).is_some(), holds, "{given} {asked}");
        assert_eq!(turn.granted(&agent, "other", asked), None);
        assert_eq!(turn.granted(&"other".parse().expect("an id"), "t", asked), None);
    }
    drop(turn);
    assert!(policy.working().is_empty(), "what no turn needs is forgotten");
}
