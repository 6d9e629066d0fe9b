//! Columns as values: ids, JSON and times.

use std::{error::Error, str::FromStr};

use drupe_extension_api::InvalidId;
use jiff::Timestamp;
use rusqlite::{Row, Rows, types::Type};
use serde::de::DeserializeOwned;

/// All rows that can be read. One that holds what this release cannot read is left out, and the log names it by a column: it
/// must not take all others with it, least of all when a kernel begins.
pub(crate) fn readable<T>(
    mut rows: Rows<'_>,
    (what, name): (&str, usize),
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        match read(row) {
            Ok(one) => all.push(one),
            Err(error @ rusqlite::Error::FromSqlConversionFailure(..)) => {
                let name = row.get_ref(name)?.as_str().unwrap_or("?");
                tracing::warn!(name, %error, "the row of {what} in the journal cannot be read, and is left out");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// A column that holds an id.
pub(crate) fn id<T: FromStr<Err = InvalidId>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str().map_err(|e| wrong(column, e))?.parse().map_err(|e| wrong(column, e))
}

/// A column that holds an id or nothing.
pub(crate) fn maybe_id<T: FromStr<Err = InvalidId>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    let text = row.get_ref(column)?.as_str_or_null().map_err(|e| wrong(column, e))?;
    text.map(|text| text.parse().map_err(|e| wrong(column, e))).transpose()
}

/// A column that holds the text of a value.
pub(crate) fn parsed<T: FromStr<Err: Error + Send + Sync + 'static>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str().map_err(|e| wrong(column, e))?.parse().map_err(|e| wrong(column, e))
}

/// A column that holds JSON.
pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str().map_err(|e| wrong(column, e))?;
    serde_json::from_str(text).map_err(|e| wrong(column, e))
}

/// A column that holds JSON or nothing.
pub(crate) fn maybe_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<T>> {
    let text = row.get_ref(column)?.as_str_or_null().map_err(|e| wrong(column, e))?;
    text.map(|text| serde_json::from_str(text).map_err(|e| wrong(column, e))).transpose()
}

/// A column that holds a time in milliseconds.
pub(crate) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_millisecond(row.get(column)?).map_err(|e| wrong(column, e))
}

/// A column that holds a time in milliseconds or nothing.
pub(crate) fn maybe_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let ms: Option<i64> = row.get(column)?;
    ms.map(|ms| Timestamp::from_millisecond(ms).map_err(|e| wrong(column, e))).transpose()
}

/// A column that holds a count.
pub(crate) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|e| wrong(column, e))
}

/// A time of the clock; one beyond what a calendar holds counts as its end.
pub(crate) fn timestamp(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// A count as SQLite can hold it; counts beyond that do not occur.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The name that serde gives to a variant without content.
pub(crate) fn name_of<T: serde::Serialize>(variant: &T) -> Result<String, serde_json::Error> {
    serde_json::to_value(variant).and_then(serde_json::from_value)
}

/// The variant of a name that [`name_of`] gave.
pub(crate) fn named<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let name: String = row.get(column)?;
    serde_json::from_value(serde_json::Value::String(name)).map_err(|e| wrong(column, e))
}

/// A column that holds something else.
pub(crate) fn wrong(column: usize, error: impl Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
}
