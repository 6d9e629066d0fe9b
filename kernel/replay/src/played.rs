//! One turn on its records: its roots, one after another.

use std::{collections::BTreeMap, pin::pin, sync::Arc};

use drupe_agent::{Behalf, Entry, ManualClock, MemoryJournal, Recipe, Taint, Task, TurnRoot, TurnScope};
use drupe_extension_api::{AgentId, AgentResponse, ControlTransfer, wire::ClientTool};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    agents,
    compare::{self, Difference},
    feed::{Feed, RecordedDecisions},
    invocations::{Invocations, Recording, RootContext, RunRecord},
    spawned::RecordedDetaches,
};

/// What all runs of a replay share.
pub(crate) struct Played {
    pub feed: Arc<Feed>,
    pub recipes: BTreeMap<String, Recipe>,
    pub client_tools: Vec<ClientTool>,
}

/// What came of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// Runs of the loop that were replayed; none where nothing could be.
    pub runs: u32,
    /// Answers of models that they were given.
    pub steps: u32,
    /// Results of tools that they were given.
    pub tool_calls: u32,
    /// The first thing that is not as recorded.
    pub difference: Option<Difference>,
    /// What was not replayed, and why.
    pub remarks: Vec<String>,
}

/// Lets the loop run on the records of a turn that has ended, and compares what it records with them.
pub async fn replay(recording: Recording) -> Replayed {
    let Recording { entries, roots, .. } = &recording;
    let runs = Invocations::of(&recording.turn, entries);
    let not_replayed = |why: String| Replayed { remarks: vec![why], ..Replayed::default() };
    if runs.roots.is_empty() {
        return not_replayed("no agent ran, so there is nothing to replay".into());
    }
    if runs.roots.iter().all(|root| runs.get(root).is_some_and(|run| run.is_code(&recording.recipes))) {
        let names = runs.roots.iter().filter_map(|root| runs.get(root)?.agent.as_ref());
        let names = names.map(|agent| format!("`{agent}`")).collect::<Vec<_>>().join(", ");
        return not_replayed(format!(
            "{names} is code, or nothing is kept of what it was made of: there is no run of the loop to replay"
        ));
    }
    let journal = Arc::new(MemoryJournal::default());
    let feed = Arc::new(Feed::new(runs));
    let played = Arc::new(Played {
        feed: Arc::clone(&feed),
        recipes: recording.recipes.clone(),
        client_tools: recording.client_tools.clone(),
    });
    let scope = scope(&recording, &journal, &feed);
    let ended = match roots_of(&played, scope, roots, &journal).await {
        Ok(last) => last,
        Err(why) => return not_replayed(format!("it cannot be replayed: {why}")),
    };
    let mut made: Vec<Entry> = journal.batches().into_iter().flat_map(|batch| batch.entries).collect();
    made.extend(ended);
    let difference = compare::first(entries, &made, &feed);
    remark_on_restarts(&feed);
    if difference.is_some() && feed.runs.has_spawned() && feed.runs.met_a_limit() {
        feed.remark(
            "a limit was met while agents worked beside others: which of them meets it depends on the moment, and that alone may differ"
                .into(),
        );
    }
    if difference.is_some() && recording.starts > 1 {
        feed.remark(
            "the turn went on after a restart, and what its runs were made of by then is not recorded: that alone may differ"
                .into(),
        );
    }
    let (runs, steps, tool_calls) = feed.counts();
    Replayed { runs, steps, tool_calls, difference, remarks: feed.remarks() }
}

fn scope(recording: &Recording, journal: &Arc<MemoryJournal>, feed: &Arc<Feed>) -> TurnScope {
    // What a turn before had brought in is no news in this one.
    let tainted = recording.entries.iter().any(|entry| matches!(entry, Entry::Tainted { .. }));
    let scope = TurnScope::new(
        recording.session.clone(),
        recording.turn.clone(),
        recording.message.clone(),
        Arc::clone(journal) as Arc<dyn drupe_agent::Journal>,
    );
    TurnScope {
        correlation: recording.correlation.clone().unwrap_or_else(|| scope.correlation.clone()),
        chain: recording.chain.clone(),
        policy: Arc::new(RecordedDecisions(Arc::clone(feed))),
        taint: Taint::new((!tainted).then(|| "an earlier turn".to_owned())),
        clock: Arc::new(ManualClock::at(recording.at_ms)),
        // A run that is left holds its share until what works beside it has ended, which is not to wait for that.
        gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
        steering: Arc::clone(&feed.steering),
        ratios: Arc::clone(&feed.ratios),
        spawned: Arc::clone(&feed.spawned),
        detaches: Some(Arc::new(RecordedDetaches(Arc::clone(feed)))),
        tool_response_max_bytes: recording.tool_response_max_bytes,
        ..scope
    }
}

/// Runs the roots that are recorded, in their order; what the last of them left to be committed.
async fn roots_of(
    played: &Arc<Played>,
    scope: TurnScope,
    contexts: &[RootContext],
    journal: &MemoryJournal,
) -> Result<Vec<Entry>, agents::Unbuilt> {
    let (feed, cancel) = (&played.feed, CancellationToken::new());
    let scope = Arc::new(scope);
    let mut before: Option<(TurnRoot, AgentId, AgentResponse)> = None;
    for (nth, id) in feed.runs.roots.iter().enumerate() {
        let agent = agents::of(played, id)?;
        let told = contexts.get(nth).cloned().unwrap_or_default();
        let root = match before.take() {
            None => match &told.behalf {
                Some((agent_id, limits)) => {
                    let limits = feed.runs.widened(limits.clone());
                    let behalf = Behalf { agent: agent_id, limits: &limits };
                    TurnRoot::on_behalf(
                        Arc::clone(&scope),
                        agent.id().clone(),
                        agent.limits(),
                        behalf,
                        &cancel,
                    )
                }
                None => TurnRoot::new(Arc::clone(&scope), agent.id().clone(), agent.limits(), &cancel),
            },
            Some((root, giver, response)) => {
                let handed = matches!(response.transfer, Some(ControlTransfer::HandOver { .. }));
                root.then(agent.id().clone(), agent.limits(), handed.then_some(&giver))
            }
        };
        let Some(record) = feed.run(id) else { return Err(agents::Unbuilt::Unknown) };
        record.tainted.iter().for_each(|source| root.run().tainted_by(source));
        let task = task(record, told);
        let run = Arc::clone(root.run());
        let mut responds = pin!(root.respond(&agent, task, Vec::new()));
        let (root, response) = tokio::select! {
            biased;
            answered = &mut responds => answered,
            () = feed.until_left(id) => {
                leave_what_is_open(feed, journal);
                // Whoever had the message next has it now; with nobody, the turn is left where it stands.
                if nth + 1 == feed.runs.roots.len() {
                    return Ok(Vec::new());
                }
                run.cancel.cancel();
                responds.await
            }
        };
        before = Some((root, agent.id().clone(), response));
    }
    match before {
        Some((root, _, response)) => Ok(root.finish(response).await.last.entries),
        None => Ok(Vec::new()),
    }
}

fn task(record: &RunRecord, told: RootContext) -> Task {
    Task {
        text: record.task.clone(),
        notes: record.notes.clone(),
        context: told.context,
        history: told.history,
        to_sum_up: if record.condensed { told.to_sum_up } else { Vec::new() },
    }
}

/// With a root that was left, all runs were that have not ended.
fn leave_what_is_open(feed: &Feed, journal: &MemoryJournal) {
    let mut open = Vec::new();
    for entry in journal.batches().into_iter().flat_map(|batch| batch.entries) {
        match entry {
            Entry::Begin { invocation, .. } => open.push(invocation),
            Entry::End { invocation, .. } => open.retain(|run| *run != invocation),
            _ => {}
        }
    }
    open.iter().for_each(|run| feed.leave(run, false));
}

fn remark_on_restarts(feed: &Feed) {
    let cut_off: u32 = feed.runs.all.values().map(|run| run.cut_off).sum();
    match cut_off {
        0 => {}
        1 => feed.remark("a restart cut one model call off: it is replayed as if it had not".into()),
        n => feed.remark(format!("restarts cut {n} model calls off: it is replayed as if they had not")),
    }
}
