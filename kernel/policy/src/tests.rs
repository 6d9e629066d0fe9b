use std::sync::Arc;

use drupe_agent::{
    Agent, Definition, LoopAgent, Registered, RegistryBuilder, ScriptedModel, Task, Tool, ToolContext,
    ToolError, ToolOutput, TurnOutcome, TurnScope, ids, run_turn,
};
use drupe_extension_api::{CorrelationId, SessionId, ToolSpec, TurnId, wire::Submit};
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

struct Careful(Arc<ToolSpec>);

impl Tool for Careful {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn origin(&self) -> &str {
        "test"
    }

    fn call(&self, _: Box<RawValue>, _: ToolContext) -> BoxFuture<'_, Result<ToolOutput, ToolError>> {
        Box::pin(async { Ok(ToolOutput::text("it ran")) })
    }
}

fn agent() -> Arc<dyn Agent> {
    let spec = json!({
        "name": "careful", "description": "", "input_schema": {"type": "object"},
        "annotations": {"needs_approval": true},
    });
    let spec: ToolSpec = serde_json::from_value(spec).expect("a tool");
    let mut tools = RegistryBuilder::default();
    tools.add(Registered::new(Arc::new(Careful(Arc::new(spec)))).expect("a schema")).expect("one tool");
    let definition = json!({"id": "main", "instructions": "Work.", "limits": {"time_budget_ms": 1000}});
    let definition: Definition = serde_json::from_value(definition).expect("an agent");
    let script = [ScriptedModel::call(&[("careful", "{}"), ("careful", "{}")]), ScriptedModel::say("done")];
    Arc::new(LoopAgent::new(definition, Arc::new(tools.build()), Arc::new(ScriptedModel::new(script)), true))
}

/// Runs a turn that asks twice, and meanwhile `person`, who is given the policy and the ids of the questions.
async fn asked<P: Future<Output = ()>>(
    person: impl FnOnce(Arc<OnRequest>, Vec<String>, CancellationToken) -> P,
) -> (TurnOutcome, Vec<ApprovalState>) {
    let clock: Arc<dyn Clock> = Arc::new(Paused(tokio::time::Instant::now()));
    let store = Store::open(&Storage::Memory, Arc::clone(&clock), Arc::new(|_| ())).expect("a journal");
    let session = SessionId::new("s").expect("an id");
    let turn = accepted(&store, &session).await;
    let policy = Arc::new(OnRequest::new(store.clone(), Arc::clone(&clock)));
    let scope = TurnScope {
        policy: Arc::clone(&policy) as Arc<dyn Policy>,
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
        for (id, allow) in ids.iter().zip([true, false]) {
            policy
                .answer_question(id, allow, None, "somebody")
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
