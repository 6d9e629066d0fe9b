//! What runs are made of, by the hash of its content: written with the beginning of the first run that has it, and let go with
//! the last turn that began one.

use std::collections::{BTreeMap, BTreeSet};

use drupe_agent::{KeptRecipe, Recipe};
use rusqlite::{Connection, OptionalExtension};

use crate::{StoreError, writer::Writing};

/// Keeps what runs of a turn are made of. The row that says who used it last is apart: it changes with each turn, and the
/// content may be long.
pub(crate) fn keep(on: &Writing<'_>, turn: i64, recipes: &[KeptRecipe]) -> Result<(), StoreError> {
    for KeptRecipe { hash, json } in recipes {
        let uses = "UPDATE recipe_uses SET last_turn = max(last_turn, ?2) WHERE hash = ?1";
        if on.statement(uses)?.execute((&**hash, turn))? == 0 {
            on.statement("INSERT INTO recipe_uses (hash, last_turn) VALUES (?1, ?2)")?
                .execute((&**hash, turn))?;
            on.statement("INSERT INTO recipes (hash, body) VALUES (?1, ?2)")?.execute((&**hash, &**json))?;
        }
    }
    Ok(())
}

/// Lets go of what no turn names that is left.
pub(crate) fn let_go(on: &Writing<'_>) -> Result<(), StoreError> {
    on.statement(
        "DELETE FROM recipes WHERE hash IN
         (SELECT hash FROM recipe_uses WHERE last_turn < (SELECT min(number) FROM turns))",
    )?
    .execute([])?;
    on.statement("DELETE FROM recipe_uses WHERE last_turn < (SELECT min(number) FROM turns)")?.execute([])?;
    Ok(())
}

/// Those of these hashes that are kept and can be read.
pub(crate) fn of(db: &Connection, hashes: BTreeSet<String>) -> Result<BTreeMap<String, Recipe>, StoreError> {
    let mut find = db.prepare_cached("SELECT body FROM recipes WHERE hash = ?1")?;
    let mut found = BTreeMap::new();
    for hash in hashes {
        let body: Option<String> = find.query_row([&hash], |row| row.get(0)).optional()?;
        if let Some(Ok(recipe)) = body.map(|body| Recipe::read(&body)) {
            found.insert(hash, recipe);
        }
    }
    Ok(found)
}
