//! A fact, as a row and as others are shown it.

use drupe_extension_api::prelude::Serialize;
use jiff::{Timestamp, tz::TimeZone};
use rusqlite::Row;

/// The columns that [`Fact::read`] takes, in its order.
pub const COLUMNS: &str = "facts.id, facts.namespace, facts.text, facts.confidence, facts.session, facts.turn, facts.agent, \
    facts.by_operator, facts.strangers, facts.made, facts.changed, facts.recalled";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    pub id: i64,
    pub namespace: String,
    pub text: String,
    /// How sure it is, from 0 to 1.
    pub confidence: f64,
    /// Where it was kept or changed last, and by whom.
    pub session: String,
    pub turn: String,
    pub agent: String,
    /// Whether the operator wrote its text.
    pub by_operator: bool,
    /// Whether text of strangers was in the conversation when it was kept.
    pub strangers: bool,
    pub made: Timestamp,
    pub changed: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recalled: Option<Timestamp>,
}

impl Fact {
    pub fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let time = |at: usize| Ok::<_, rusqlite::Error>(moment(row.get(at)?));
        Ok(Self {
            id: row.get(0)?,
            namespace: row.get(1)?,
            text: row.get(2)?,
            confidence: row.get(3)?,
            session: row.get(4)?,
            turn: row.get(5)?,
            agent: row.get(6)?,
            by_operator: row.get(7)?,
            strangers: row.get(8)?,
            made: time(9)?,
            changed: time(10)?,
            recalled: row.get::<_, Option<i64>>(11)?.map(moment),
        })
    }

    /// The fact in a line for a model: data with its id and its day.
    pub fn told(&self) -> String {
        let day = self.changed.to_zoned(TimeZone::UTC).date();
        let mut told = format!("[{}] {day} {}", self.id, self.text);
        if self.confidence < SURE {
            told += &format!(" (confidence {:.1})", self.confidence);
        }
        if self.strangers {
            told += " (kept while text of strangers was read)";
        }
        told
    }
}

/// A confidence of which a model need not be told.
const SURE: f64 = 0.95;

/// Times outside of what can be written down come from a file that somebody else wrote.
fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
