//! Messages come in: each becomes one turn, however often it is sent.

use drupe_extension_api::{TurnId, wire::QueueMode};
use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use crate::{
    Accepted, Inbound, Origin, QueuedTurn, SessionState, StoreError,
    cache::{RECORDED, Recorded, Turn},
    grants,
    recent::Change,
    rows::{id, timestamp},
    sessions, turns,
    writer::Writing,
};

/// Records a message and queues the turn that answers it.
pub(crate) fn accept(on: &mut Writing<'_>, inbound: &Inbound) -> Result<Accepted, StoreError> {
    let Inbound { ask, origin, .. } = inbound;
    if let Some(turn) = turn_of(on.db, origin, &ask.channel, &ask.external_id)? {
        let queued = turns::queued(on.db, &turn)?;
        return Ok(Accepted { turn, duplicate: true, queued, superseded: Vec::new() });
    }
    let session = sessions::add_turn(on, &inbound.ask.session, &inbound.ask.text)?;
    // Ids that grow with time keep the index of turns compact.
    let id = TurnId::new(Uuid::now_v7().to_string()).map_err(|e| StoreError::Record(e.to_string()))?;
    let mut turn = Turn {
        id: id.clone(),
        number: 0,
        session: inbound.ask.session.clone(),
        session_number: session.number,
        correlation: inbound.correlation.clone(),
        starts: 0,
        finished: false,
    };
    turn.number = turns::insert(on, &turn, inbound, session.last_seq)?;
    if let Some(source) = inbound.of_strangers() {
        grants::taint(on, session.number, &source)?;
    }
    if inbound.ask.text.len() <= RECORDED {
        on.cache.recorded.insert(turn.number, Recorded::new(inbound.ask.text.clone()));
    }
    let superseded = match inbound.ask.queue.unwrap_or_default() {
        QueueMode::Interrupt => turns::supersede(on, &turn)?,
        QueueMode::Followup | QueueMode::Steer => Vec::new(),
    };
    on.cache.turns.insert(id.clone(), turn.into());
    let queued = QueuedTurn {
        turn: id.clone(),
        inbound: inbound.clone(),
        accepted: timestamp(on.now_ms()),
        started: false,
        root: None,
        correlation: inbound.correlation.clone(),
        state: SessionState { talks_with: session.agent, conversation: session.conversation },
        earlier_turns: session.turns,
        cancelled: None,
    };
    on.change(Change::Accepted(queued.clone().into()));
    Ok(Accepted { turn: id, duplicate: false, queued: Some(queued), superseded })
}

/// The turn of a message, if that was taken in.
pub(crate) fn turn_of(
    db: &Connection,
    origin: &Origin,
    channel: &str,
    external_id: &str,
) -> Result<Option<TurnId>, StoreError> {
    let mut find =
        db.prepare_cached("SELECT id FROM turns WHERE origin = ?1 AND channel = ?2 AND external_id = ?3")?;
    Ok(find.query_row((origin.to_string(), channel, external_id), |row| id(row, 0)).optional()?)
}
