//! Recorded turns run once more: what the journal has of them is put together here, and replayed by `drupe-replay`.

mod comparison;

use std::{collections::HashMap, sync::Arc, time::Duration};

use drupe_agent::{Conversation, Entry, Tenure, ids};
use drupe_extension_api::{
    AgentId, AgentResponse, ControlTransfer, EventBody, Fault, InvocationId, Message, TurnId,
    control::{
        ComparedAnswer, ComparedTurn, ReplayArgument, ReplayDifference, ReplayReport, ReplayVerdict,
        ReplayedTurn,
    },
};
use drupe_insight as insight;
use drupe_journal::TurnRows;
use drupe_models::NamedBy;
use drupe_replay::{BehindTheAnswer, Recording, Replayed, RootContext};
use drupe_surface::principal::Principal;

use crate::{
    kernel::Kernel,
    turn::{Audience, Earlier, ToldBefore},
};

/// Turns of one answer: each is read whole.
const MOST: usize = 20;

/// The most bytes of a message that are shown.
const SHOWN: usize = 200;

/// The same of an answer.
const ANSWER: usize = 2_000;

/// Names of tools that are told of one answer.
const MOST_TOOLS: usize = 100;

/// How long one turn may take: nothing in it waits for anything but itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// Replays turns of a session, or one; or puts their messages to another model, one an answer, since that takes as long as the
/// model does.
pub async fn run(kernel: &Arc<Kernel>, by: &Principal, ask: ReplayArgument) -> Result<ReplayReport, Fault> {
    let turns = super::insight::turns_of(kernel, by, &ask.id, ask.turn).await?;
    if let Some(model) = &ask.against {
        let found = kernel.roster.wired.models.resolve(NamedBy::Operator, std::slice::from_ref(model));
        found.map_err(|error| Fault::invalid(error.to_string()))?;
    }
    let from = usize::try_from(ask.from).unwrap_or(usize::MAX);
    let most = if ask.against.is_some() { 1 } else { MOST };
    let mut report = ReplayReport::default();
    for turn in turns.iter().skip(from).take(most) {
        let Some(rows) = kernel.store.turn_rows(turn).await? else { continue };
        match &ask.against {
            Some(model) => report.compared.extend(compared(kernel, rows, model).await?),
            None => report.turns.push(replayed(kernel, rows).await?),
        }
    }
    let next = from.saturating_add(most);
    report.next = (next < turns.len()).then(|| u32::try_from(next).unwrap_or(u32::MAX));
    Ok(report)
}

/// The message of a turn with another model, beside what was recorded of it; none where nothing ran.
async fn compared(kernel: &Arc<Kernel>, rows: TurnRows, model: &str) -> Result<Option<ComparedTurn>, Fault> {
    if nothing_ran(&rows).is_some() {
        return Ok(None);
    }
    let Some(mut recorded) = answer(&rows, 0) else { return Ok(None) };
    let (session, turn, input) =
        (rows.inbound.ask.session.clone(), rows.turn.clone(), shown(&rows.inbound.ask.text));
    let recording = recording(kernel, rows).await?;
    // The other model sums no older turns up.
    let BehindTheAnswer { spent, elapsed_ms } = BehindTheAnswer::of(&recording.entries);
    recorded.tokens = recorded.tokens.saturating_sub(spent.usage.total());
    recorded.cost_usd = recorded.cost_usd.map(|usd| (usd - spent.usd).max(0.0));
    recorded.elapsed_ms = recorded.elapsed_ms.saturating_sub(elapsed_ms);
    // Whoever goes away is not charged for what nobody will read; what was begun ends with that.
    let cancel = kernel.life.cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let (asking, model) = (Arc::clone(kernel), model.to_owned());
    let asked = async move { comparison::run(&asking, recording, &model, cancel).await };
    let (now, remarks) = match kernel.life.whole(asked).await? {
        Ok((rows, unknown)) => (answer(&rows, unknown), Vec::new()),
        Err(why) => (None, vec![why.to_string()]),
    };
    Ok(Some(ComparedTurn { session, turn, input, recorded, now, remarks }))
}

/// How a turn was answered; none where it has no answer.
fn answer(rows: &TurnRows, unknown_calls: u32) -> Option<ComparedAnswer> {
    let (response, spend) = (rows.response.as_ref()?, rows.spend.unwrap_or_default());
    let (mut models, mut tools, mut steps) = (Vec::<String>::new(), Vec::new(), 0);
    for (_, entry) in &rows.entries {
        let Entry::Answer { model, message: Message::Assistant { tool_calls, .. }, .. } = entry else {
            continue;
        };
        steps += 1;
        if !models.contains(model) {
            models.push(model.clone());
        }
        let calls = tool_calls.iter().map(|call| call.name.clone());
        tools.extend(calls.take(MOST_TOOLS.saturating_sub(tools.len())));
    }
    Some(ComparedAnswer {
        turn: rows.turn.clone(),
        models,
        status: response.status,
        class: response.class,
        content: cut(&response.content, ANSWER),
        tools,
        unknown_calls,
        steps,
        tool_calls: spend.tool_calls,
        tokens: spend.usage.total(),
        cost_usd: spend.cost_usd,
        elapsed_ms: spend.elapsed_ms,
    })
}

async fn replayed(kernel: &Kernel, rows: TurnRows) -> Result<ReplayedTurn, Fault> {
    let mut told = ReplayedTurn {
        session: rows.inbound.ask.session.clone(),
        turn: rows.turn.clone(),
        input: shown(&rows.inbound.ask.text),
        verdict: ReplayVerdict::NotReplayed,
        runs: 0,
        steps: 0,
        tool_calls: 0,
        difference: None,
        remarks: Vec::new(),
    };
    if let Some(why) = nothing_ran(&rows) {
        told.remarks.push(why);
        return Ok(told);
    }
    let recording = recording(kernel, rows).await?;
    let Some(replayed) = on_one_thread(kernel, recording).await? else {
        let why = format!("its replay did not come to an end within {} s", PATIENCE.as_secs());
        told.remarks.push(why);
        return Ok(told);
    };
    let Replayed { runs, steps, tool_calls, difference, remarks } = replayed;
    (told.runs, told.steps, told.tool_calls, told.remarks) = (runs, steps, tool_calls, remarks);
    told.verdict = match (&difference, runs) {
        (Some(_), _) => ReplayVerdict::Differs,
        (None, 0) => ReplayVerdict::NotReplayed,
        (None, _) => ReplayVerdict::Same,
    };
    told.difference = difference.map(|found| ReplayDifference {
        run: found.run,
        agent: found.agent,
        step: found.step,
        what: found.what,
        recorded: found.recorded,
        now: found.now,
    });
    Ok(told)
}

/// Replays on a thread of its own: what works beside others is taken up in the same order each time then, and the daemon does not
/// wait for it. None where that takes too long.
async fn on_one_thread(kernel: &Kernel, recording: Recording) -> Result<Option<Replayed>, Fault> {
    let cancel = kernel.life.cancel.child_token();
    let _gone = cancel.clone().drop_guard();
    let replaying = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let replayed = async { tokio::time::timeout(PATIENCE, drupe_replay::replay(recording)).await.ok() };
        Ok(runtime.block_on(cancel.run_until_cancelled(replayed)).flatten())
    };
    let replayed: std::io::Result<_> =
        tokio::task::spawn_blocking(replaying).await.map_err(Fault::internal)?;
    replayed.map_err(Fault::internal)
}

/// Why nothing of a turn can be replayed, whatever its records are.
fn nothing_ran(rows: &TurnRows) -> Option<String> {
    if rows.finished.is_none() {
        return Some("it has not ended yet".into());
    }
    if comparison::is_its_session(&rows.inbound.ask.session) {
        return Some("it is a comparison itself, which was told of another session: replay that one".into());
    }
    if let Some(by) = insight::taken_in_by(rows) {
        return Some(format!("turn `{by}` took its message in: it is replayed there"));
    }
    None
}

fn shown(text: &str) -> String {
    cut(text, SHOWN)
}

fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() }
}

/// A turn as it is replayed: its rows, and what its roots were told of those before.
async fn recording(kernel: &Kernel, rows: TurnRows) -> Result<Recording, Fault> {
    let roots = roots(kernel, &rows).await?;
    let TurnRows { inbound, turn, accepted, correlation, entries, recipes, starts, .. } = rows;
    Ok(Recording {
        session: inbound.ask.session,
        turn,
        correlation,
        message: inbound.ask.text,
        chain: inbound.chain,
        at_ms: accepted.as_millisecond(),
        starts,
        entries: entries.into_iter().map(|(_, entry)| entry).collect(),
        recipes,
        roots,
        client_tools: inbound.ask.carried.map(|carried| carried.tools).unwrap_or_default(),
        tool_response_max_bytes: kernel.base.config.tool_response_max_bytes,
    })
}

/// A root of a turn, as its records have it.
struct RootRun {
    agent: AgentId,
    /// Whether it is the loop's.
    looping: bool,
    response: Option<AgentResponse>,
}

fn roots_of(turn: &TurnId, entries: &[(i64, Entry)]) -> Vec<RootRun> {
    let mut runs: HashMap<&InvocationId, RootRun> = HashMap::new();
    for (_, entry) in entries {
        match entry {
            Entry::Begin { invocation, agent, parent: None, recipe, .. } => {
                let begun = RootRun { agent: agent.clone(), looping: recipe.is_some(), response: None };
                runs.entry(invocation).or_insert(begun);
            }
            Entry::End { invocation, response, .. } => {
                if let Some(run) = runs.get_mut(invocation) {
                    run.response = Some(response.clone());
                }
            }
            _ => {}
        }
    }
    let id = |nth| if nth == 0 { ids::root_invocation(turn) } else { ids::further_root(turn, nth) };
    (0..).map_while(|nth| runs.remove(&id(nth))).collect()
}

/// To whom a root handed the conversation, and what it said of it.
fn handed(root: &RootRun) -> Option<(&AgentId, &String)> {
    match root.response.as_ref()?.transfer.as_ref()? {
        ControlTransfer::HandOver { to, summary } => Some((to, summary)),
        ControlTransfer::Return { .. } => None,
    }
}

/// What each root was told, as the turn itself made it.
async fn roots(kernel: &Kernel, rows: &TurnRows) -> Result<Vec<RootContext>, Fault> {
    let ask = &rows.inbound.ask;
    let earlier =
        Earlier { store: &kernel.store, session: &ask.session, before: Some(&rows.turn), any: true };
    let chosen = rows.events.iter().find_map(|event| match &event.body {
        EventBody::SubagentSelected { by } => Some(by.as_str()),
        _ => None,
    });
    let mut all = Vec::new();
    let mut before: Option<RootRun> = None;
    for root in roots_of(&rows.turn, &rows.entries) {
        let (mut behalf, mut conversation) = (None, None);
        match (&before, chosen) {
            (Some(giver), _) => {
                conversation = handed(giver).filter(|(to, _)| **to == root.agent).map(|(to, summary)| {
                    Conversation::HandingOver { to: to.clone(), summary: summary.clone() }
                });
            }
            (None, Some("handoff")) => {
                conversation = Some(held(kernel, rows, &root.agent).await?);
                let orchestrator = kernel.roster.snapshot().orchestrator.definition().clone();
                behalf = Some((orchestrator.id, orchestrator.limits));
            }
            (None, _) => {}
        }
        let to = match &conversation {
            Some(conversation) => Audience::Handed { conversation, in_loop: root.looping },
            None if before.is_none() && chosen.is_some() => Audience::Addressed,
            None => Audience::Orchestrator,
        };
        let ToldBefore { context, history, older } = earlier.told(ask, to).await?;
        let to_sum_up = older.map(|older| older.messages).unwrap_or_default();
        all.push(RootContext { context, history, to_sum_up, behalf });
        before = Some(root);
    }
    Ok(all)
}

/// The conversation that an agent had when a turn began: what it was told of it is recorded where it was handed over.
async fn held(kernel: &Kernel, rows: &TurnRows, agent: &AgentId) -> Result<Conversation, Fault> {
    let turns = kernel.store.session_turns(&rows.inbound.ask.session).await?;
    for turn in turns.iter().rev().skip_while(|turn| **turn != rows.turn).skip(1) {
        let Some(earlier) = kernel.store.turn_rows(turn).await? else { continue };
        let roots = roots_of(turn, &earlier.entries);
        let given = roots.iter().rev().filter_map(handed).find(|(to, _)| *to == agent);
        if let Some((_, summary)) = given {
            return Ok(Conversation::With(Tenure {
                agent: agent.clone(),
                summary: summary.clone(),
                since_ms: 0,
                last_ms: 0,
                first: turn.clone(),
                turns: 0,
                tokens: 0,
            }));
        }
    }
    // The turn in which it was handed over is deleted.
    Ok(Conversation::Orchestrator)
}
