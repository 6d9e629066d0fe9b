//! Messages come in: each becomes one turn, however often it is sent.

use drupe_extension_api::TurnId;
use rusqlite::OptionalExtension;
use uuid::Uuid;

use crate::{
    Accepted, Inbound, StoreError,
    rows::{id, name_of, signed},
    sessions,
    writer::Writing,
};

/// Records a message and queues the turn that answers it.
pub(crate) fn accept(on: &Writing<'_>, inbound: &Inbound) -> Result<Accepted, StoreError> {
    if let Some(turn) = known(on, &inbound.channel, &inbound.external_id)? {
        return Ok(Accepted { turn, duplicate: true });
    }
    let session = sessions::ensure(on, &inbound.session)?;
    let after_seq = sessions::add_turn(on, session, &inbound.text)?;
    // Ids that grow with time keep the index of turns compact.
    let turn = TurnId::new(Uuid::now_v7().to_string()).map_err(|e| StoreError::Record(e.to_string()))?;
    on.statement("INSERT INTO turns (id, session, after_seq) VALUES (?1, ?2, ?3)")?.execute((
        turn.as_str(),
        session,
        after_seq,
    ))?;
    let number = on.db.last_insert_rowid();
    on.statement(
        "INSERT INTO inbox (turn, channel, external_id, kind, address, text, agent, model, output,
                            time_budget_ms, accepted_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute((
        number,
        &inbound.channel,
        &inbound.external_id,
        name_of(&inbound.kind)?,
        &inbound.address,
        &inbound.text,
        inbound.agent.as_ref().map(|agent| agent.as_str()),
        &inbound.model,
        inbound.output.as_ref().map(serde_json::to_string).transpose()?,
        inbound.time_budget_ms.map(signed),
        on.now_ms(),
    ))?;
    Ok(Accepted { turn, duplicate: false })
}

fn known(on: &Writing<'_>, channel: &str, external_id: &str) -> Result<Option<TurnId>, StoreError> {
    let mut find = on.statement(
        "SELECT turns.id FROM inbox JOIN turns ON turns.number = inbox.turn
         WHERE inbox.channel = ?1 AND inbox.external_id = ?2",
    )?;
    Ok(find.query_row((channel, external_id), |row| id(row, 0)).optional()?)
}
