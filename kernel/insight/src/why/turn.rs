//! A turn: how it ended and why, who answered, how long it waited, what became of its answer.

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentResponse, Event, EventBody, ResponseStatus, Spend, TurnId, control::Explanation,
};
use drupe_journal::{DeliveryRow, Origin, TurnRows};
use jiff::Timestamp;

use super::parts;
use crate::{
    told::{self, Told, cited},
    trace::spent,
    tree::{RunRows, Tree},
    words::{between, count, dollars, ended, excerpt, lasting, sentence},
};

/// Sentences about runs after which no further run is told of: more than that nobody reads.
const MOST: usize = 60;

/// Why a turn ended as it did, or what it does at `now`.
pub fn why_turn(rows: &TurnRows, now: Timestamp) -> Explanation {
    let tree = Tree::of(rows);
    let mut told = Told::of("turn", &rows.turn);
    ending(&mut told, &tree, now);
    let class = rows.response.as_ref().and_then(|response| response.class);
    parts::fatal(&mut told, class);
    for run in &tree.runs {
        if told.sentences() >= MOST {
            told.say("More happened; the trace shows it.", [told::entry(run.begin)]);
            break;
        }
        if run.parent.is_some() {
            parts::ended_below(&mut told, &tree, run);
        }
        parts::causes(&mut told, &tree, run, now);
    }
    parts::remedy(&mut told, class);
    routing(&mut told, &tree);
    handoffs(&mut told, rows);
    origin(&mut told, rows);
    if let Some(model) = &rows.inbound.ask.model {
        told.say(format!("The message asked for the model `{}`.", excerpt(model)), [told::message(rows)]);
    }
    queue(&mut told, rows);
    restarts(&mut told, &tree);
    parts::remarks(&mut told, &tree.events);
    for delivery in &rows.deliveries {
        delivered(&mut told, delivery);
    }
    told.done()
}

/// The turn that took this one's message in, and with it what becomes of the message.
pub fn taken_in_by(rows: &TurnRows) -> Option<TurnId> {
    let response = rows.response.as_ref().filter(|response| response.status == ResponseStatus::Success)?;
    // Nothing ran that could have said it.
    Tree::of(rows).root().is_none().then_some(())?;
    let named = response.content.strip_prefix("turn `")?.split_once('`')?.0;
    TurnId::new(named).ok()
}

/// Adds to the explanation of a turn what became of the one that took its message in.
pub fn with_taker(mut of: Explanation, by: &TurnRows, now: Timestamp) -> Explanation {
    let taker = why_turn(by, now);
    of.sentences.push(format!("What became of turn `{}`:", by.turn));
    of.sentences.extend(taker.sentences);
    of.cited.extend(taker.cited);
    of.remedy = of.remedy.or(taker.remedy);
    of
}

/// How it ended, or how far it has come.
pub(super) fn ending(told: &mut Told, tree: &Tree<'_>, now: Timestamp) {
    let rows = tree.rows;
    let Some(response) = &rows.response else {
        return match rows.started {
            Some(began) => {
                let spent = spending(&spent(tree));
                told.say(
                    format!("It has been running for {}: so far {spent}.", lasting(between(began, now))),
                    [told::turn(rows)],
                );
            }
            None => told.say(
                format!("It has not begun: it has waited for {}.", lasting(between(rows.accepted, now))),
                [told::turn(rows)],
            ),
        };
    };
    let Some(root) = tree.roots().last() else {
        let what = match response.status {
            ResponseStatus::Success => "No agent ran for it",
            _ => "It failed before any agent ran",
        };
        return told.say(format!("{what}: {}", ended(&excerpt(text(response)))), [told::turn(rows)]);
    };
    let agent = root.agent;
    let lasted = rows.started.zip(rows.finished).map_or(0, |(began, ended)| between(began, ended));
    let spent = spending(&rows.spend.unwrap_or_else(|| spent(tree)));
    let how = match response.status {
        ResponseStatus::Success => {
            format!("`{agent}` answered after {} with {spent}.", lasting(lasted))
        }
        ResponseStatus::Error => format!(
            "`{agent}` failed{} after {} with {spent}: {}",
            parts::class(response),
            lasting(lasted),
            ended(&excerpt(text(response)))
        ),
        ResponseStatus::Refused => {
            format!("`{agent}` refused the task: {}", ended(&excerpt(text(response))))
        }
    };
    told.say(how, [told::turn(rows)]);
    if let Some((row, ..)) = root.end {
        told.cite(told::entry(row));
    }
}

/// The error, or what was said where there is none.
fn text(response: &AgentResponse) -> &str {
    response.error.as_deref().unwrap_or(&response.content)
}

/// What was spent, in words; nothing of money where a price is unknown.
pub(super) fn spending(spend: &Spend) -> String {
    let mut parts = vec![count(spend.turns.into(), "step")];
    if spend.tool_calls > 0 {
        parts.push(count(spend.tool_calls.into(), "tool call"));
    }
    if spend.invocations > 1 {
        parts.push(count(spend.invocations.into(), "run") + " of agents");
    }
    parts.push(count(spend.usage.total(), "token"));
    if let Some(usd) = spend.cost_usd.filter(|usd| *usd > 0.0) {
        parts.push(dollars(usd));
    }
    parts.join(", ")
}

/// Who answered, and why that agent.
fn routing(told: &mut Told, tree: &Tree<'_>) {
    let Some(RunRows { begin, agent, .. }) = tree.root() else { return };
    let selected = tree.rows.events.iter().find_map(|event| match &event.body {
        EventBody::SubagentSelected { by } => Some((event, by.as_str())),
        _ => None,
    });
    match selected {
        // Whoever subscribed to the topic is named by the turn itself: nobody chose an agent for the message.
        _ if matches!(tree.rows.inbound.origin, Origin::Topic { .. }) => {
            told.say(
                format!("`{agent}` got the message because a message of a topic set the turn off."),
                [told::message(tree.rows), told::entry(*begin)],
            );
            if let Some((event, _)) = selected {
                told.cite(told::event(event));
            }
        }
        Some((event, by)) => {
            let why = match by {
                "@id" => "the message begins with its name".to_owned(),
                "agent" => "the request names it".to_owned(),
                "session" => "it is the agent that was chosen for the session".to_owned(),
                "handoff" => "it has the conversation".to_owned(),
                other => format!("it was chosen by {other}"),
            };
            told.say(
                format!("`{agent}` got the message because {why}."),
                [told::event(event), told::entry(*begin)],
            );
        }
        None => told.say(
            format!("No agent was chosen for the message, so it went to `{agent}`."),
            [told::entry(*begin), told::message(tree.rows)],
        ),
    }
}

/// To whom the conversation went while the turn was answered.
fn handoffs(told: &mut Told, rows: &TurnRows) {
    for event in &rows.events {
        let says = match &event.body {
            EventBody::HandoffStarted { to, .. } => {
                format!("The conversation was handed to `{to}`, which has the user's messages since.")
            }
            EventBody::HandoffEnded { from, reason, .. } => {
                format!("The orchestrator got the conversation back from `{from}`: {}", ended(reason))
            }
            _ => continue,
        };
        told.say(says, [told::event(event)]);
    }
}

/// What set it off, where that was no message of the operator.
fn origin(told: &mut Told, rows: &TurnRows) {
    let inbound = &rows.inbound;
    if matches!(inbound.origin, Origin::Topic { .. }) {
        let agents: Vec<_> = inbound.chain.ancestors.iter().map(|agent| format!("`{agent}`")).collect();
        let before = if agents.is_empty() { String::new() } else { format!(", after {}", agents.join(", ")) };
        let links = count(inbound.chain.hops.into(), "link");
        told.say(
            format!("A message on a topic set it off ({links} in its chain{before})."),
            [told::message(rows)],
        );
    }
    match &inbound.origin {
        Origin::Spawned { by } => told.say(
            format!("An agent of turn `{by}` spawned this one to go on by itself; its report goes to that turn's session."),
            [told::message(rows)],
        ),
        Origin::Person { channel, id } => {
            told.say(format!("`{channel}/{id}` wrote the message."), [told::message(rows)]);
        }
        Origin::Report { of } => told.say(
            format!("It is the report of an agent that worked beside the conversation, in turn `{of}`."),
            [told::message(rows)],
        ),
        _ => {}
    }
}

/// How long it waited.
fn queue(told: &mut Told, rows: &TurnRows) {
    if let Some(began) = rows.started {
        let waited = lasting(between(rows.accepted, began));
        let says = format!("accepted at {}, begun at {began}", rows.accepted);
        told.say(format!("It waited for {waited} before it began."), [cited("turns", &rows.turn, says)]);
    }
}

/// That processes ended while it ran.
fn restarts(told: &mut Told, tree: &Tree<'_>) {
    let rows = tree.rows;
    if rows.starts > 1 {
        let says = format!("it was begun {} times", rows.starts);
        let text = format!("It was begun {} times: drupe ended in the middle of it.", rows.starts);
        told.say(text, [cited("turns", &rows.turn, says)]);
    }
}

/// What became of its answer.
fn delivered(told: &mut Told, row: &DeliveryRow) {
    let channel = &row.channel;
    let why = row.why.as_deref().map(|why| format!(": {}", excerpt(why))).unwrap_or_default();
    let tries = count(row.attempts.into(), "attempt");
    let text = match row.state.as_str() {
        "sent" => {
            let there =
                row.remote_id.as_deref().map(|id| format!(" (there it is `{id}`)")).unwrap_or_default();
            format!("The answer was sent through `{channel}`{there}.")
        }
        "due" if row.attempts == 0 => format!("The answer waits to be sent through `{channel}`."),
        "due" => {
            sentence(&format!("the answer waits to be sent again through `{channel}`, after {tries}{why}"))
        }
        "sending" => {
            format!("The answer is being sent through `{channel}`; whether it arrived is not known yet.")
        }
        "uncertain" => {
            told.remedy(format!("look into `{channel}` whether the answer is there; ask again if it is not"));
            sentence(&format!("the answer may not have reached `{channel}`, and is not sent again{why}"))
        }
        "failed" => {
            told.remedy(format!("see what `{channel}` lacks, then ask again"));
            sentence(&format!("the answer did not reach `{channel}` in {tries}, and is given up{why}"))
        }
        other => sentence(&format!("the answer is `{other}` at `{channel}`{why}")),
    };
    told.say(text, [cited("outbox", row.number, format!("{}, {tries}{why}", row.state))]);
}

/// Messages of other turns that this one took in.
pub(super) fn steered(told: &mut Told, run: &RunRows<'_>) {
    for (step, row) in &run.notes {
        if let Entry::Steered { turn, .. } = row.entry {
            let text =
                format!("After step {step} `{}` took in a further message, that of turn {turn}.", run.agent);
            told.say(text, [told::entry(*row)]);
            let same =
                |event: &&&Event| matches!(&event.body, EventBody::TurnSteered { from, .. } if from == turn);
            if let Some(event) = run.events.iter().find(same) {
                told.cite(told::event(event));
            }
        }
    }
}
