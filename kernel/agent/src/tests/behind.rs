//! What goes on behind an answer: how long it may take, and that it is given up when the process is about to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use drupe_extension_api::{Message, SessionId, TurnId};

use super::{
    door::{definition, looping},
    fakes::{Plays, Reply, say},
};
use crate::*;

/// What came of a turn whose model answers and then hangs over a summary.
struct Came {
    outcome: TurnOutcome,
    took: Duration,
    model: Arc<Plays>,
    /// How many were at work when the summary was asked for.
    at_work: usize,
}

/// Runs it. `asked`: what happens when the summary is asked for.
async fn summed_up(behind: Arc<BehindAnswers>, asked: fn(&BehindAnswers)) -> Came {
    let at_work = Arc::new(AtomicUsize::new(0));
    let mut model = Plays::new(&[("main", &[say("the answer")])]);
    let (seen, of_turn) = (Arc::clone(&at_work), Arc::clone(&behind));
    model.by_request = Some(Box::new(move |request| {
        (*request.system == *prompt::SUMMARISE).then(|| {
            seen.store(of_turn.at_work(), Ordering::SeqCst);
            asked(&of_turn);
            Reply::Hangs(Vec::new())
        })
    }));
    let model = Arc::new(model);
    let agent = looping(definition("main"), &model, []);
    let (session, turn) = (SessionId::new("s").expect("valid"), TurnId::new("s").expect("valid"));
    let scope = TurnScope {
        behind: Arc::clone(&behind),
        ..TurnScope::new(session, turn, "do it".into(), Arc::<MemoryJournal>::default())
    };
    let said = |content: &str| Arc::new(Message::User { content: content.to_owned() });
    let task = Task { to_sum_up: vec![said("one"), said("two")], ..Task::new("do it") };
    let limits = agent.limits().clone();
    let began = Instant::now();
    let outcome = run_turn(Arc::new(scope), &agent, task, &limits, CancellationToken::new()).await;
    assert_eq!(outcome.response.content, "the answer", "it stands, whatever becomes of the summary");
    assert_eq!(behind.at_work(), 0, "nothing goes on any more");
    Came { outcome, took: began.elapsed(), model, at_work: at_work.load(Ordering::SeqCst) }
}

fn lost(outcome: &TurnOutcome) -> Vec<u64> {
    let lost = |entry: &Entry| match entry {
        Entry::Failed { lost_tokens, .. } => Some(*lost_tokens),
        _ => None,
    };
    outcome.last.entries.iter().filter_map(lost).collect()
}

#[tokio::test(start_paused = true)]
async fn a_summary_behind_an_answer_has_a_minute_and_is_an_attempt() {
    let Came { outcome, took, at_work, .. } = summed_up(Arc::default(), |_| {}).await;
    assert_eq!((took, at_work), (Duration::from_secs(60), 1));
    assert_eq!(outcome.summary.as_deref(), Some(""), "a later one is held back");
    assert!(
        outcome.diagnostics[0].ends_with("not summed up yet: it took too long"),
        "{:?}",
        outcome.diagnostics
    );
    assert!(lost(&outcome).len() == 1 && lost(&outcome)[0] > 0, "it may have cost that");
}

#[tokio::test(start_paused = true)]
async fn a_summary_is_given_up_at_once_when_the_process_is_to_end() {
    let Came { outcome, took, at_work, .. } = summed_up(Arc::default(), BehindAnswers::give_up).await;
    assert_eq!((took, at_work), (Duration::ZERO, 1));
    assert_eq!(outcome.summary, None, "the next turn goes on with it");
    assert!(outcome.diagnostics[0].contains("the daemon ends"), "{:?}", outcome.diagnostics);
    assert!(lost(&outcome).len() == 1 && lost(&outcome)[0] > 0, "it may have cost that");
}

#[tokio::test(start_paused = true)]
async fn no_summary_is_begun_once_the_process_is_to_end() {
    let behind = Arc::<BehindAnswers>::default();
    behind.give_up();
    let Came { outcome, took, model, .. } = summed_up(behind, |_| {}).await;
    assert_eq!((took, model.requests().len()), (Duration::ZERO, 1));
    assert_eq!((outcome.summary.clone(), lost(&outcome)), (None, Vec::new()), "it costs nothing");
}
