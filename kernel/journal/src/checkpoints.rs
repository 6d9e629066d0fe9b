//! What a turn that goes on is told of itself: the last checkpoint of its log, and the rows after that.
//!
//! A checkpoint holds what the runs of a turn still need of its log up to a row ([`RecordedTurn::prune`]), and the items
//! that were open there. One is made after a commit ([`due`]) where the rows since the last one have come to more than that
//! one holds, and to more than [`LEAST`]; it is written where it spares half of what was read for it. So all that is ever
//! written of a turn is at most twice its log, whoever goes on reads two or three times what it needs at most, and a short
//! turn has none. It leaves with the turn's end.
//!
//! It is read where a turn goes on ([`Store::resume`]) and where a kernel counts what was cut off ([`Store::recorded`]), and
//! nowhere else: what happened is the log, and no trace, explanation, sum or result may be made from a checkpoint. Nothing may
//! depend on there being one: one that cannot be read, or that another release wrote in another form, counts as none.

use drupe_agent::{Entry, RecordedTurn};
use drupe_extension_api::{AgentRef, EventBody, Item, ItemOutcome, TurnId};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};

use crate::{
    Store, StoreError,
    cache::Turn,
    log::{self, Logged, POSITIONS, Record},
    parts::{self, Span},
    rows::timestamp,
    turns,
    writer::{Survives, Writing},
};

/// Bytes of entries that are read again sooner than a checkpoint is written: some ten milliseconds.
const LEAST: i64 = 1024 * 1024;

/// The form of [`State`]. Whoever changes how that is written, or what a part of it means, counts this up.
const VERSION: u32 = 1;

/// What an earlier process recorded of a turn that goes on, and what it took to read that.
#[derive(Debug)]
pub struct Resumed {
    /// Its runs.
    pub recorded: RecordedTurn,
    /// How many items it had left open, which are closed now.
    pub interrupted: usize,
    /// Rows of the log that were read.
    pub rows: usize,
    /// Bytes of these and of the checkpoint before them.
    pub bytes: usize,
}

/// What is known of a turn at a row of its log.
#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    recorded: RecordedTurn,
    open: Vec<OpenItem>,
}

/// An item that has begun.
#[derive(Debug, Serialize, Deserialize)]
struct OpenItem {
    agent: Option<AgentRef>,
    item: Item,
    since_ms: i64,
}

/// How much a long turn has recorded since a checkpoint of it was made last, and how large that is, written or not.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Growth {
    pub since: i64,
    pub kept: i64,
}

/// A turn as far as it was read.
struct Reading {
    state: State,
    upto: i64,
    rows: usize,
    bytes: usize,
}

impl Store {
    /// What is recorded of the runs of a turn that has no answer yet.
    pub async fn recorded(&self, turn: &TurnId) -> Result<RecordedTurn, StoreError> {
        let turn = turn.clone();
        let found = self.read(move |db| parts::open_turn(db, &turn)).await?;
        Ok(match found {
            Some(number) => self.reading(number).await?.state.recorded,
            None => RecordedTurn::default(),
        })
    }

    /// The same for a turn that goes on, or ends, after the process that worked at it did. What that had begun and not completed
    /// is completed, with outcome `interrupted`.
    pub async fn resume(&self, turn: &TurnId) -> Result<Resumed, StoreError> {
        let of = turn.clone();
        let found = self.read(move |db| parts::open_turn(db, &of)).await?;
        let number = found.ok_or_else(|| StoreError::Finished(turn.clone()))?;
        let Reading { state: State { recorded, open }, rows, bytes, .. } = self.reading(number).await?;
        let interrupted = open.len();
        if interrupted > 0 {
            let turn = turn.clone();
            self.write(Survives::Process, move |on| close(on, &turn, &open)).await?;
        }
        tracing::debug!(%turn, rows, bytes, "the records of a turn that goes on are read");
        Ok(Resumed { recorded, interrupted, rows, bytes })
    }

    /// Makes a checkpoint of a turn, after a commit that found it [`due`]. Without it the turn goes on all the same.
    pub(crate) async fn check_point(&self, turn: i64) {
        if !self.outlives_this_process() {
            return;
        }
        let written = async {
            let Reading { mut state, upto, bytes, .. } = self.reading(turn).await?;
            state.recorded.prune();
            let body = serde_json::to_string(&state)?;
            let spares = body.len() * 2 <= bytes;
            let write = move |on: &mut Writing<'_>| {
                note(on, turn, body.len());
                if spares { keep(on, turn, upto, &body) } else { Ok(()) }
            };
            self.write(Survives::Process, write).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "no checkpoint of a long turn could be written; after a restart more of it is read");
        }
    }

    async fn reading(&self, turn: i64) -> Result<Reading, StoreError> {
        let (span, found) = self
            .read(move |db| {
                let span = parts::span(db, turn)?.unwrap_or_default();
                Ok((span, checkpoint(db, turn, span)?))
            })
            .await?;
        let (state, after, mut bytes) = found.unwrap_or((State::default(), span.after, 0));
        let mut read = Reading { state, upto: span.upto, rows: 0, bytes: 0 };
        bytes += self
            .each_row(Span { after, ..span }, log::logged, |_, row| {
                read.rows += 1;
                read.state.take(row);
            })
            .await?;
        Ok(Reading { bytes, ..read })
    }
}

impl State {
    fn take(&mut self, Logged { time_ms, told, entries }: Logged) {
        for (agent, event) in told {
            match event {
                EventBody::ItemStarted { item } => {
                    // An item that is begun again after a crash is still one item.
                    self.open.retain(|open| open.item.id != item.id);
                    self.open.push(OpenItem { agent, item, since_ms: time_ms });
                }
                EventBody::ItemCompleted { item, .. } => self.open.retain(|open| open.item.id != item.id),
                _ => {}
            }
        }
        self.recorded.extend(entries);
    }
}

impl OpenItem {
    /// That it is over, and whose it was: there is no item but in a run.
    fn interrupted(&self, now_ms: i64) -> Option<(&AgentRef, EventBody)> {
        let lasted = timestamp(now_ms).duration_since(timestamp(self.since_ms));
        let elapsed_ms = u64::try_from(lasted.as_millis()).unwrap_or(0);
        let (item, outcome) = (self.item.clone(), ItemOutcome::Interrupted);
        Some((self.agent.as_ref()?, EventBody::ItemCompleted { item, outcome, elapsed_ms }))
    }
}

/// Completes what the turn began and did not complete, because the process ended in between.
fn close(on: &mut Writing<'_>, turn: &TurnId, open: &[OpenItem]) -> Result<(), StoreError> {
    let turn = turns::known(on, turn)?;
    let now = on.now_ms();
    let (mut runs, mut entries) = (Vec::new(), Vec::new());
    for (run, event) in open.iter().filter_map(|item| item.interrupted(now)) {
        entries.push(Entry::Told { invocation: run.invocation.clone(), event });
        if !runs.contains(run) {
            runs.push(run.clone());
        }
    }
    let record = Record { runs: &runs, entries: &entries, ..Record::default() };
    log::append(on, &turn.session, Some(&turn), record)
}

/// Whether a checkpoint of a turn is to be written, now that something more was recorded of it. Says so once.
pub(crate) fn due(on: &mut Writing<'_>, turn: &Turn) -> Result<bool, StoreError> {
    // All that it recorded is remembered: that is little.
    if on.cache.recorded.has(&turn.number) {
        return Ok(false);
    }
    if on.cache.growth.get(&turn.number).is_none() {
        let growth = grown(on, turn)?;
        on.cache.growth.insert(turn.number, growth);
    }
    let Some(growth) = on.cache.growth.get(&turn.number) else { return Ok(false) };
    let due = growth.since > growth.kept.max(LEAST);
    if due {
        growth.since = 0;
    }
    Ok(due)
}

/// What an earlier process, or one whose memory of it was let go, has left.
fn grown(on: &Writing<'_>, turn: &Turn) -> Result<Growth, StoreError> {
    let mut last = on.statement("SELECT upto, octet_length(body) FROM checkpoints WHERE turn = ?1")?;
    let last = last.query_row([turn.number], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (upto, kept): (i64, i64) = last.unwrap_or_default();
    let mut rows = on.statement(
        "SELECT coalesce(sum(octet_length(entries)), 0) FROM turns JOIN log
         ON log.id > max(?2, turns.session * 4294967296 + turns.after_seq) AND log.id < ?3
         WHERE turns.number = ?1 AND log.turn = ?1",
    )?;
    let end = (turn.session_number + 1) * POSITIONS;
    Ok(Growth { since: rows.query_row((turn.number, upto, end), |row| row.get(0))?, kept })
}

/// Keeps a checkpoint in place of the one before it, unless the turn has ended since.
fn keep(on: &mut Writing<'_>, turn: i64, upto: i64, body: &str) -> Result<(), StoreError> {
    on.statement(
        "INSERT INTO checkpoints (turn, upto, version, body)
         SELECT number, ?2, ?3, ?4 FROM turns WHERE number = ?1 AND finished_ms IS NULL
         ON CONFLICT (turn) DO UPDATE SET upto = excluded.upto, version = excluded.version, body = excluded.body
         WHERE excluded.upto > upto OR excluded.version <> version",
    )?
    .execute((turn, upto, VERSION, body))?;
    Ok(())
}

fn note(on: &mut Writing<'_>, turn: i64, size: usize) {
    if let Some(growth) = on.cache.growth.get(&turn) {
        growth.kept = i64::try_from(size).unwrap_or(i64::MAX);
    }
}

/// Forgets what a turn that ends would have gone on from.
pub(crate) fn forget(on: &mut Writing<'_>, turn: i64) -> Result<(), StoreError> {
    on.cache.growth.take(&turn);
    on.statement("DELETE FROM checkpoints WHERE turn = ?1")?.execute([turn])?;
    Ok(())
}

/// The checkpoint of a turn, the row that it reaches to, and its size; none where it cannot be read.
fn checkpoint(db: &Connection, turn: i64, span: Span) -> Result<Option<(State, i64, usize)>, StoreError> {
    let mut find = db.prepare_cached("SELECT upto, version, body FROM checkpoints WHERE turn = ?1")?;
    let found = find.query_row([turn], |row| {
        let (upto, version): (i64, u32) = (row.get(0)?, row.get(1)?);
        let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let state = match version {
            VERSION => serde_json::from_slice(body).map_err(|error| error.to_string()),
            other => Err(format!("it is of version {other}, and this release reads {VERSION}")),
        };
        Ok((state, upto, body.len()))
    });
    Ok(match found.optional()? {
        Some((Ok(state), upto, bytes)) if (span.after..=span.upto).contains(&upto) => {
            Some((state, upto, bytes))
        }
        Some((state, ..)) => {
            let error = state.err().unwrap_or_else(|| "it is not of this log".into());
            tracing::warn!(%error, "the checkpoint of a turn cannot be used; all that the turn recorded is read");
            None
        }
        None => None,
    })
}
