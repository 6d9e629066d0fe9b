//! Traces, explanations and items: the journal's readings as clients get them.

use std::sync::Arc;

use drupe_extension_api::{
    Fault, LimitScope, SessionId, TurnId,
    control::{Explanation, ItemArgument, ItemText, Power, SessionStatus, TraceArgument, TurnTrace},
};
use drupe_insight::{self as insight, LimitUse};
use drupe_journal::{DueMessage, Found, MessageRow, TurnRows};

use drupe_surface::principal::Principal;

use crate::kernel::Kernel;

/// Turns that are traced at once: each is read whole.
const MOST: usize = 100;

/// What the turns of a session, or one of them, set off.
pub async fn trace(kernel: &Kernel, by: &Principal, ask: TraceArgument) -> Result<Vec<TurnTrace>, Fault> {
    let turns = turns_of(kernel, by, &ask.id, ask.turn).await?;
    if turns.len() > MOST {
        let message =
            format!("`{}` has {} turns, and at most {MOST} are traced at once", ask.id, turns.len());
        return Err(
            Fault::invalid(message).help("name one by its number, from the end where negative, or by its id")
        );
    }
    let mut traces = Vec::with_capacity(turns.len());
    for turn in &turns {
        if let Some(rows) = kernel.store.turn_rows(turn).await? {
            traces.push(insight::trace(&rows));
        }
    }
    Ok(traces)
}

/// The turns of a session, or the one that an id is of; with a number, only that one.
pub async fn turns_of(
    kernel: &Kernel,
    by: &Principal,
    id: &str,
    turn: Option<i64>,
) -> Result<Vec<TurnId>, Fault> {
    let (turns, gone) = match reached(kernel, by, id).await? {
        Some(Found::Session(session)) => {
            (kernel.store.session_turns(&session).await?, kernel.store.gone_of(&session).await?)
        }
        Some(Found::Turn(turn) | Found::Run { turn, .. } | Found::Call { turn, .. }) => (vec![turn], 0),
        _ => return Err(nothing(id)),
    };
    match turn {
        None => Ok(turns),
        Some(number) => Ok(vec![insight::nth(id, &turns, gone, number)?.clone()]),
    }
}

/// Why something ended as it did.
pub async fn why(kernel: &Arc<Kernel>, by: &Principal, id: &str) -> Result<Explanation, Fault> {
    // First what needs no search through all that ever happened.
    let inspects = by.may.contains(&Power::Inspect);
    if inspects && let Ok(known) = extension_or_limit(kernel, id).await {
        return Ok(known);
    }
    // What is not reached is answered as what is not there.
    match reached(kernel, by, id).await? {
        Some(Found::Turn(turn)) => {
            let rows = rows(kernel, &turn, id).await?;
            let why = insight::why_turn(&rows, now(kernel));
            let Some(by) = insight::taken_in_by(&rows) else { return Ok(why) };
            let by = kernel.store.turn_rows(&by).await?;
            Ok(by.map_or(why.clone(), |by| insight::with_taker(why, &by, now(kernel))))
        }
        Some(Found::Run { turn, invocation }) => {
            let why = insight::why_run(&rows(kernel, &turn, id).await?, &invocation, now(kernel));
            why.ok_or_else(|| nothing(id))
        }
        Some(Found::Call { turn, effect }) => {
            let why = insight::why_call(&rows(kernel, &turn, id).await?, &effect, now(kernel));
            why.ok_or_else(|| nothing(id))
        }
        Some(Found::Session(session)) => session_why(kernel, &session).await,
        Some(Found::Message(number)) if inspects => {
            let message = kernel.store.message(number).await?;
            message.map(|message| insight::why_message(&message, now(kernel))).ok_or_else(|| nothing(id))
        }
        _ => Err(nothing(id)),
    }
}

/// What has this id, where it is of a session that is reached.
async fn reached(kernel: &Kernel, by: &Principal, id: &str) -> Result<Option<Found>, Fault> {
    let found = kernel.store.find(id).await?;
    let seen = match &found {
        Some(Found::Session(session)) => by.sees(session),
        Some(Found::Turn(turn) | Found::Run { turn, .. } | Found::Call { turn, .. }) => {
            let session = kernel.store.session_of(turn).await?;
            session.is_some_and(|session| by.sees(&session))
        }
        Some(Found::Message(_)) | None => true,
    };
    Ok(found.filter(|_| seen))
}

async fn session_why(kernel: &Kernel, id: &SessionId) -> Result<Explanation, Fault> {
    /// The turns that an explanation of a session looks at.
    const LATEST: usize = 5;
    let sessions: Vec<SessionStatus> = kernel.store.sessions().await?;
    let status = sessions.into_iter().find(|s| s.id == *id).ok_or_else(|| nothing(id.as_str()))?;
    let turns = kernel.store.session_turns(id).await?;
    let mut latest = Vec::new();
    for turn in turns.iter().rev().take(LATEST).rev() {
        latest.extend(kernel.store.turn_rows(turn).await?);
    }
    Ok(insight::why_session(&status, &latest, now(kernel)))
}

async fn extension_or_limit(kernel: &Arc<Kernel>, id: &str) -> Result<Explanation, Fault> {
    let set = super::status::config(kernel).into_iter().find(|value| value.key == id);
    if let Some(set) = set.filter(|_| id.starts_with("limits.")) {
        let day = now(kernel).strftime("%Y-%m-%d").to_string();
        let standing = kernel.intake.turns.quotas.standing(kernel.base.clock.now_ms()).into_iter();
        let uses = standing.filter(|s| s.used.limit == id && !s.name.is_empty()).map(|s| {
            let counted = match s.used.scope {
                LimitScope::Session => s.name,
                LimitScope::Agent => format!("{day}/{}", s.name),
                LimitScope::Day | LimitScope::Run | LimitScope::Token => day.clone(),
            };
            LimitUse { whose: s.whose, counted, used: s.used }
        });
        return Ok(insight::why_limit(id, &set, &uses.collect::<Vec<_>>()));
    }
    match super::extensions::show(kernel, id.to_owned()).await {
        Ok(detail) => Ok(insight::why_extension(&detail)),
        Err(_) => Err(nothing(id)),
    }
}

async fn rows(kernel: &Kernel, turn: &TurnId, id: &str) -> Result<TurnRows, Fault> {
    kernel.store.turn_rows(turn).await?.ok_or_else(|| nothing(id))
}

fn now(kernel: &Kernel) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(kernel.base.clock.now_ms()).unwrap_or_default()
}

/// An item, or the text behind a preview's handle, in full.
pub async fn item(kernel: &Kernel, by: &Principal, ask: ItemArgument) -> Result<ItemText, Fault> {
    by.reaches(&ask.session)?;
    let item = kernel.store.item(&ask.session, &ask.id).await?;
    item.ok_or_else(|| Fault::not_found(format!("session `{}` has no item `{}`", ask.session, ask.id)))
}

/// Delivers a message that was given up once more, or forgets it.
pub async fn dead(kernel: &Kernel, again: bool, id: u64) -> Result<(), Fault> {
    let found =
        if again { kernel.store.retry_message(id).await } else { kernel.store.drop_message(id).await };
    if found? {
        return Ok(());
    }
    let row = kernel.store.message(id).await?;
    Err(match row.filter(|row| again && row.dead) {
        Some(MessageRow { message: DueMessage { subscriber, topic, .. }, .. }) => Fault::invalid(format!(
            "message {id} cannot be delivered again: `{subscriber}` does not follow `{topic}` any more"
        ))
        .help(format!("have it follow `{topic}` and try again, or `drupe bus dead drop {id}`")),
        None => Fault::not_found(format!("no message `{id}` was given up"))
            .help("`drupe bus dead list` shows those that were"),
    })
}

fn nothing(id: &str) -> Fault {
    Fault::not_found(format!("nothing here is called `{id}`")).help(
        "give the id of a session, turn, run, tool call, message or extension, or the key of a limit such as \
         `limits.day.max_tokens`",
    )
}
