//! How many bytes a token of each model stands for, as far as it was learned: a row of `meta` a model.

use rusqlite::Connection;

use crate::{Store, StoreError, writer::Writing};

/// What their keys begin with.
const RATIO: &str = "ratio:";
/// What is after all of these.
const BEYOND: &str = "ratio;";

impl Store {
    /// What was learned, by model.
    pub async fn ratios(&self) -> Result<Vec<(String, f64)>, StoreError> {
        self.read_few(learned).await
    }
}

pub(crate) fn keep(on: &Writing<'_>, model: &str, bytes: f64) -> Result<(), StoreError> {
    on.statement("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute((format!("{RATIO}{model}"), bytes.to_string()))?;
    Ok(())
}

/// What is no number is left out: it is learned anew.
fn learned(db: &Connection) -> Result<Vec<(String, f64)>, StoreError> {
    let mut all = db.prepare_cached("SELECT key, value FROM meta WHERE key >= ?1 AND key < ?2")?;
    let rows = all.query_map((RATIO, BEYOND), |row| {
        let (key, value): (String, String) = (row.get(0)?, row.get(1)?);
        Ok(key.strip_prefix(RATIO).map(str::to_owned).zip(value.parse().ok()))
    })?;
    Ok(rows.filter_map(Result::transpose).collect::<Result<_, _>>()?)
}
