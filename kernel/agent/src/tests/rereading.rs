//! What an earlier process recorded is read once, and takes none of the time that a turn has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use drupe_extension_api::{
    AgentResponse, DefinitionLimits, EffectClass, EffectId, ResponseStatus, SessionId, ToolCallRequest,
    TurnId,
};
use futures_util::future::BoxFuture;

use super::*;
use crate::*;

/// A journal that counts how often it is read, and takes a minute for it.
struct Reads(Arc<MemoryJournal>, AtomicUsize);

impl Journal for Reads {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<(), JournalFault>> {
        self.0.commit(batch)
    }

    fn load(&self, turn: TurnId) -> BoxFuture<'_, Result<RecordedTurn, JournalFault>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            self.0.load(turn).await
        })
    }

    fn output(
        &self,
        session: SessionId,
        effect: EffectId,
    ) -> BoxFuture<'_, Result<Option<String>, JournalFault>> {
        self.0.output(session, effect)
    }
}

/// Runs it up to its last commit, and then again; how often the second process read.
async fn check(case: impl Fn(&Arc<MemoryJournal>) -> Case) {
    let journal = Arc::new(MemoryJournal::default());
    let whole = case(&journal).run().await;
    assert_eq!(whole.response.status, ResponseStatus::Success);
    let cut = crashed(&journal, journal.batches().len() - 2).await;
    let reads = Arc::new(Reads(Arc::clone(&cut), AtomicUsize::new(0)));
    let shared = Arc::clone(&reads) as Arc<dyn Journal>;
    let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.journal = shared);
    let seen = Case { scope, resumed: true, ..case(&cut) }.run().await;
    assert_eq!(seen.response.content, whole.response.content);
    assert_eq!(reads.1.load(Ordering::Relaxed), 1);
}

fn limits() -> DefinitionLimits {
    let max_tokens_per_invocation = 1_000_000;
    DefinitionLimits { max_turns: 40, time_budget_ms: 5_000, max_tokens_per_invocation, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_long_run_reads_its_records_once_before_its_clock_starts() {
    let calls = |n: u32| call(&[("a", &format!(r#"{{"n": {n}}}"#))]);
    let script: Vec<Reply> = (0..30).map(calls).chain([say("done")]).collect();
    check(|journal| {
        let tool = Fake::says("a").class(EffectClass::Pure).registered();
        let main = Definition { limits: limits(), ..definition("main") };
        Case { journal: Arc::clone(journal), ..Case::defined(main, &script, [tool]) }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn code_that_calls_many_tools_reads_its_records_once() {
    let model = Arc::new(Plays::new(&[]));
    check(|journal| {
        let tools = registry([Fake::says("a").class(EffectClass::Pure).registered()]);
        let code = move |_, run: Arc<Run>| -> BoxFuture<'static, AgentResponse> {
            let tools = Arc::clone(&tools);
            Box::pin(async move {
                for n in 0..30 {
                    let arguments = format!(r#"{{"n": {n}}}"#);
                    let request = ToolCallRequest { call_id: String::new(), name: "a".into(), arguments };
                    call_tool(&run, &tools, &limits(), request).await.expect("the journal records");
                }
                AgentResponse::success("done")
            })
        };
        let agent = Native { id: agent_id("main"), limits: limits(), code: Box::new(code) };
        Case { journal: Arc::clone(journal), ..Case::new(Arc::new(agent), &model) }
    })
    .await;
}

#[tokio::test]
async fn a_step_that_was_cut_off_is_lost_once_and_its_attempt_is_numbered_anew_each_time() {
    let main = |max_tokens| {
        let limits =
            DefinitionLimits { max_tokens_per_invocation: max_tokens, ..DefinitionLimits::default() };
        Definition { limits, ..definition("main") }
    };
    let case = |journal: &Arc<MemoryJournal>, resumed, max_tokens| {
        let case = Case::defined(main(max_tokens), &[say("done")], []);
        Case { journal: Arc::clone(journal), resumed, ..case }
    };
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, 50_000).run().await;
    // The model was about to be asked, and nobody saw an answer: twice.
    let cut = crashed(&journal, 1).await;
    let before = cut.batches().len();
    case(&cut, true, 50_000).run().await;
    let twice = crashed(&cut, before + 1).await;
    let seen = case(&twice, true, 50_000).run().await;
    assert_eq!(seen.response.content, "done");
    let (mut asked, mut lost) = (Vec::new(), Vec::new());
    for entry in &seen.entries {
        match entry {
            Entry::Step { attempt, reserved_tokens, .. } => asked.push((*attempt, *reserved_tokens)),
            Entry::Failed { attempt, lost_tokens, repeated: false, .. } => {
                lost.push((*attempt, *lost_tokens))
            }
            _ => {}
        }
    }
    assert_eq!(asked.iter().map(|(attempt, _)| *attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(lost, asked[..2], "what was set aside for each of the two, once");
    // What is lost is used: where it leaves no room, nothing is asked again.
    let reserved = asked[0].1;
    let seen = case(&crashed(&journal, 1).await, true, reserved + 1).run().await;
    assert_eq!((seen.exceeded(), seen.model.requests().len()), (vec!["max_tokens_per_invocation"], 0));
}
