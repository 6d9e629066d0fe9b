//! Turns that an earlier process began and that end without going on: nothing that they spent is forgotten.

use std::{collections::HashSet, sync::Arc};

use drupe_extension_api::{AgentResponse, DefinitionLimits, FailureClass, SessionId, ToolStatus, TurnId};
use drupe_limits::Quotas;

use super::{
    left::{Asks, asked_and_not_answered, attempts, case, tokens_of_a_day},
    *,
};
use crate::*;

fn stopped() -> AgentResponse {
    AgentResponse::error(FailureClass::Cancelled, "it was stopped")
}

/// The outcome of a turn that is abandoned after a crash, and the tokens that the day has used since.
fn abandon(journal: &Arc<MemoryJournal>) -> (Option<TurnOutcome>, u64) {
    let (session, turn) = (SessionId::new("s").expect("valid"), TurnId::new("s").expect("valid"));
    let quotas = Arc::new(Quotas::new(tokens_of_a_day()));
    let scope = TurnScope {
        quotas: Arc::clone(&quotas),
        clock: Arc::new(ManualClock::at(0)),
        records: kept(journal).into(),
        ..TurnScope::new(session, turn, "do it".into(), Arc::clone(journal) as Arc<dyn Journal>)
    };
    let outcome = abandon_turn(Arc::new(scope), stopped());
    (outcome, used_of(&quotas))
}

/// The tokens that the day has used.
fn used_of(quotas: &Quotas) -> u64 {
    let day = quotas.standing(0).into_iter().find(|s| s.used.limit == "limits.day.max_tokens");
    day.expect("it is bounded").used.used
}

#[tokio::test]
async fn a_turn_that_is_not_gone_on_with_is_charged_what_was_cut_off_and_ends_all_that_it_began() {
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, Asks::Again, DefinitionLimits::default()).run().await;
    let mut charged = 0;
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        let (open, before) = (asked_and_not_answered(&cut), attempts(&cut.batches()).0);
        let (outcome, used) = abandon(&cut);
        let Some(outcome) = outcome else {
            assert_eq!((commits, used), (0, 0), "nothing had begun");
            continue;
        };
        assert_eq!(outcome.response.class, Some(FailureClass::Cancelled), "cut after {commits}");
        assert_eq!((outcome.spend.usage.total(), used), (before, open), "cut after {commits}");
        charged += u64::from(open > 0);
        cut.commit(outcome.last).await.expect("a journal in memory records");
        all_has_ended(&cut, commits);
        let (again, used) = abandon(&cut);
        let again = again.expect("it had begun");
        assert_eq!((again.last.entries.len(), used), (0, 0), "once is enough");
        assert_eq!(again.spend.usage.total(), before);
    }
    assert!(charged > 2, "{charged} cuts left an answer open");
}

#[tokio::test]
async fn what_was_set_aside_for_calls_that_were_cut_off_counts_before_the_turn_goes_on_and_once() {
    let journal = Arc::new(MemoryJournal::default());
    case(&journal, false, Asks::Again, DefinitionLimits::default()).run().await;
    let session = SessionId::new("s").expect("valid");
    let mut counted = 0;
    for commits in 0..journal.batches().len() {
        let cut = crashed(&journal, commits).await;
        let open = asked_and_not_answered(&cut);
        let quotas = Arc::new(Quotas::new(tokens_of_a_day()));
        let recorded: RecordedTurn = cut.batches().into_iter().flat_map(|batch| batch.entries).collect();
        for _ in 0..2 {
            recorded.lose_open_calls(&session, &quotas, 0);
            assert_eq!(used_of(&quotas), open, "cut after {commits}");
        }
        let shared = Arc::clone(&quotas);
        let scope: Box<dyn FnOnce(&mut TurnScope)> = Box::new(move |scope| scope.quotas = shared);
        let before = attempts(&cut.batches()).0;
        let goes_on = case(&cut, true, Asks::Again, DefinitionLimits::default());
        let seen = Case { scope, ..goes_on }.run().await;
        assert_eq!(used_of(&quotas), seen.spend.usage.total() - before + open, "cut after {commits}");
        counted += u64::from(open > 0);
    }
    assert!(counted > 2, "{counted} cuts left an answer open");
}

/// Whatever began has one end, and no model call is open.
fn all_has_ended(journal: &Arc<MemoryJournal>, commits: usize) {
    assert_eq!(asked_and_not_answered(journal), 0, "cut after {commits}");
    let entries: Vec<_> = journal.batches().into_iter().flat_map(|b| b.entries).collect();
    let (mut runs, mut calls) = (HashSet::new(), HashSet::new());
    for entry in &entries {
        match entry {
            Entry::Begin { invocation, .. } => assert!(runs.insert(invocation.clone())),
            Entry::End { invocation, .. } => assert!(runs.remove(invocation), "cut after {commits}"),
            Entry::Intent { effect, .. } => assert!(calls.insert(effect.clone())),
            Entry::Result { effect, status, .. } => {
                assert!(calls.remove(effect), "cut after {commits}");
                assert!(!matches!(status, ToolStatus::Error), "cut after {commits}");
            }
            _ => {}
        }
    }
    assert!(runs.is_empty() && calls.is_empty(), "cut after {commits}: {runs:?} {calls:?}");
    let events: Vec<_> = journal.batches().into_iter().flat_map(|b| b.events()).collect();
    assert!(open_items(&events).is_empty(), "cut after {commits}");
}
