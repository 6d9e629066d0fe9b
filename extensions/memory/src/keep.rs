//! Changes of facts: kept, brought up to date, forgotten. What is no longer kept leaves the index with its row.

use drupe_extension_api::Fault;
use rusqlite::{Connection, OptionalExtension as _, Transaction};

use crate::{
    fact::{COLUMNS, Fact},
    file, find, meaning,
    store::StoreFailure,
    words,
};

/// What a tool call or the operator wants kept.
#[derive(Debug, Clone)]
pub struct WantedFact {
    pub namespace: String,
    pub text: String,
    pub confidence: f64,
    /// The fact in whose place it stands.
    pub replaces: Option<i64>,
    pub session: String,
    pub turn: String,
    pub agent: String,
    pub effect: String,
    pub strangers: bool,
    pub now_ms: i64,
}

/// What a namespace may hold.
#[derive(Debug, Clone, Copy)]
pub struct FactBounds {
    pub fact_bytes: usize,
    pub facts: usize,
}

/// What became of a fact that was to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptFact {
    New(i64),
    /// It said what this one says.
    Same(i64),
    Replaced(i64),
    /// This very call did it before.
    Repeated(i64),
}

impl KeptFact {
    pub fn id(&self) -> i64 {
        match *self {
            Self::New(id) | Self::Same(id) | Self::Replaced(id) | Self::Repeated(id) => id,
        }
    }
}

/// The text of a fact in its form, or why it cannot be one.
pub fn checked(text: &str, bounds: FactBounds) -> Result<String, Fault> {
    let text = words::line(text);
    if text.is_empty() {
        return Err(Fault::invalid("a fact without text says nothing"));
    }
    if text.len() > bounds.fact_bytes {
        let message = format!("the fact has {} bytes, the limit is {}", text.len(), bounds.fact_bytes);
        return Err(Fault::invalid(message).help("keep one fact at a time, and documents in files"));
    }
    Ok(text)
}

/// Keeps a fact whose text is in its form.
pub fn keep(db: &Transaction<'_>, wanted: &WantedFact, bounds: FactBounds) -> Result<KeptFact, StoreFailure> {
    let repeated = db
        .prepare_cached("SELECT id FROM facts WHERE effect = ?1 AND namespace = ?2")?
        .query_row((&wanted.effect, &wanted.namespace), |row| row.get(0))
        .optional()?;
    if let Some(id) = repeated {
        return Ok(KeptFact::Repeated(id));
    }
    let replaced = wanted.replaces.map(|id| one(db, id, Some(&wanted.namespace))).transpose()?;
    let alike = alike(db, &wanted.namespace, &wanted.text)?;
    match (alike, replaced) {
        (Some(alike), replaced) => {
            // What the other one said is said here now.
            if let Some(replaced) = replaced.filter(|replaced| replaced.id != alike.id) {
                forget(db, &replaced)?;
            }
            same(db, &alike, wanted)?;
            Ok(KeptFact::Same(alike.id))
        }
        (None, Some(replaced)) => {
            put(db, &replaced, &wanted.text, wanted, replaced.strangers || wanted.strangers)?;
            Ok(KeptFact::Replaced(replaced.id))
        }
        (None, None) => {
            room(db, &wanted.namespace, bounds)?;
            insert(db, wanted).map(KeptFact::New).map_err(StoreFailure::from)
        }
    }
}

/// Whether a namespace may have one fact more.
fn room(db: &Connection, namespace: &str, bounds: FactBounds) -> Result<(), StoreFailure> {
    let full = |count: Option<i64>| {
        count.and_then(|count| usize::try_from(count).ok()).is_some_and(|n| n >= bounds.facts)
    };
    // There are no more facts than ids: most of the time nothing need be counted.
    let last: Option<i64> =
        db.prepare_cached("SELECT max(id) FROM facts")?.query_row([], |row| row.get(0))?;
    if !full(last) {
        return Ok(());
    }
    let held: i64 = db
        .prepare_cached("SELECT count(*) FROM facts WHERE namespace = ?1")?
        .query_row([namespace], |row| row.get(0))?;
    if full(Some(held)) {
        let message = format!("{held} facts are kept, the limit is {}", bounds.facts);
        let help = "forget what no longer holds, or give `replaces`";
        return Err(Fault::invalid(message).help(help).into());
    }
    Ok(())
}

/// A text of strangers adds nothing to a fact that says the same without them; and what they may have said keeps its mark.
fn same(db: &Connection, alike: &Fact, wanted: &WantedFact) -> Result<(), StoreFailure> {
    let text = if wanted.strangers { &alike.text } else { &wanted.text };
    put(db, alike, text, wanted, alike.strangers)
}

/// A fact by its id; of this namespace alone, where one is given.
pub fn one(db: &Connection, id: i64, namespace: Option<&str>) -> Result<Fact, StoreFailure> {
    let found = db
        .prepare_cached(&format!("SELECT {COLUMNS} FROM facts WHERE id = ?1"))?
        .query_row([id], Fact::read)
        .optional()?;
    found
        .filter(|fact| namespace.is_none_or(|namespace| fact.namespace == namespace))
        .ok_or_else(|| Fault::not_found(format!("there is no fact {id}")).into())
}

/// The fact of a namespace that says what a text says.
pub fn alike(db: &Connection, namespace: &str, text: &str) -> Result<Option<Fact>, StoreFailure> {
    let find = format!("SELECT {COLUMNS} FROM facts WHERE namespace = ?1 AND likeness = ?2");
    let found = db.prepare_cached(&find)?.query_row((namespace, words::likeness(text)), Fact::read);
    Ok(found.optional()?)
}

/// How well another fact must fit the words of one, by how well that fits itself, to be near it.
const NEAR: f64 = 0.4;

/// Other facts that share most words with one, for whoever kept it to look at.
pub fn near(db: &Connection, fact: &Fact, now_ms: i64) -> Result<Vec<Fact>, StoreFailure> {
    let question = words::question(&fact.text);
    let found = find::find(db, &fact.namespace, &question, None, 4, now_ms)?;
    let own = found.iter().find(|found| found.fact.id == fact.id).map_or(f64::MAX, |found| found.score);
    let near = found.into_iter().filter(|found| found.fact.id != fact.id && found.score > own * NEAR);
    Ok(near.map(|found| found.fact).collect())
}

fn insert(db: &Connection, wanted: &WantedFact) -> rusqlite::Result<i64> {
    db.prepare_cached(
        "INSERT INTO facts (namespace, text, likeness, length, confidence, session, turn, agent, effect, by_operator, strangers, made, changed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, FALSE, ?10, ?11, ?11)",
    )?
    .execute((
        &wanted.namespace,
        &wanted.text,
        words::likeness(&wanted.text),
        length(&wanted.text),
        wanted.confidence,
        &wanted.session,
        &wanted.turn,
        &wanted.agent,
        &wanted.effect,
        wanted.strangers,
        wanted.now_ms,
    ))?;
    let id = db.last_insert_rowid();
    index(db, id, &wanted.text)?;
    Ok(id)
}

/// Writes a fact anew, under its id.
fn put(
    db: &Connection,
    old: &Fact,
    text: &str,
    wanted: &WantedFact,
    strangers: bool,
) -> Result<(), StoreFailure> {
    unindex(db, old.id)?;
    db.prepare_cached(
        "UPDATE facts SET text = ?2, likeness = ?3, length = ?4, confidence = ?5, session = ?6, turn = ?7, agent = ?8, effect = ?9,
         by_operator = FALSE, strangers = ?10, changed = ?11 WHERE id = ?1",
    )?
    .execute((
        old.id,
        text,
        words::likeness(text),
        length(text),
        wanted.confidence,
        &wanted.session,
        &wanted.turn,
        &wanted.agent,
        &wanted.effect,
        strangers,
        wanted.now_ms,
    ))?;
    index(db, old.id, text)?;
    Ok(())
}

/// Writes what the operator says of a fact. A text of theirs is nobody else's.
pub fn edit(
    db: &Transaction<'_>,
    id: i64,
    text: Option<&str>,
    confidence: Option<f64>,
    now_ms: i64,
) -> Result<Fact, StoreFailure> {
    let old = one(db, id, None)?;
    if let Some(text) = text {
        if let Some(other) = alike(db, &old.namespace, text)?.filter(|other| other.id != id) {
            let message = format!("fact {} of `{}` says the same", other.id, old.namespace);
            return Err(Fault::invalid(message).help("forget one of the two").into());
        }
        unindex(db, id)?;
        db.prepare_cached(
            "UPDATE facts SET text = ?2, likeness = ?3, length = ?4, by_operator = TRUE, strangers = FALSE, changed = ?5 WHERE id = ?1",
        )?
        .execute((id, text, words::likeness(text), length(text), now_ms))?;
        index(db, id, text)?;
    }
    if let Some(confidence) = confidence {
        db.prepare_cached("UPDATE facts SET confidence = ?2, changed = ?3 WHERE id = ?1")?
            .execute((id, confidence, now_ms))?;
    }
    one(db, id, None)
}

/// Takes a fact away, with its words in the index, and what upgrades have kept of the file.
pub fn forget(db: &Connection, fact: &Fact) -> Result<(), StoreFailure> {
    file::forget_kept(db);
    unindex(db, fact.id)?;
    db.prepare_cached("DELETE FROM facts WHERE id = ?1")?.execute([fact.id])?;
    Ok(())
}

/// Takes all facts of a namespace away; gives how many there were.
pub fn forget_all(db: &Transaction<'_>, namespace: &str) -> Result<usize, StoreFailure> {
    let mut all = db.prepare(&format!("SELECT {COLUMNS} FROM facts WHERE namespace = ?1"))?;
    let facts = all.query_map([namespace], Fact::read)?.collect::<Result<Vec<_>, _>>()?;
    for fact in &facts {
        forget(db, fact)?;
    }
    Ok(facts.len())
}

fn index(db: &Connection, id: i64, text: &str) -> rusqlite::Result<()> {
    db.prepare_cached("INSERT INTO words (rowid, text) VALUES (?1, ?2)")?
        .execute((id, words::indexed(text)))?;
    Ok(())
}

/// What was made of its text goes out of the index, and its vector with it.
fn unindex(db: &Connection, id: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM words WHERE rowid = ?1")?.execute([id])?;
    meaning::forget(db, id)
}

fn length(text: &str) -> i64 {
    i64::try_from(words::words(text).len()).unwrap_or(i64::MAX)
}
