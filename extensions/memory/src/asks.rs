//! What the operator asks: `list`, `show`, `edit`, `forget`, `export` and `namespaces`. See `docs/reference/memory.md`.

use drupe_extension_api::{Fault, prelude::Deserialize};
use rusqlite::Connection;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    fact::{COLUMNS, Fact},
    find,
    keep::{self, FactBounds},
    store::{FactStore, StoreFailure},
    words,
};

/// Facts of a reply without `limit`, and at most: with the longest facts a reply has some MiB.
const USUAL: usize = 50;
const MOST: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    query: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    offset: usize,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Show {
    id: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    id: i64,
    text: Option<String>,
    confidence: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forget {
    id: Option<i64>,
    namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Export {
    #[serde(default)]
    after: i64,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// What the operator is answered, by the name of the ask.
pub fn answer(
    store: &FactStore,
    ask: &str,
    params: Value,
    bounds: FactBounds,
    now_ms: i64,
) -> Result<Value, Fault> {
    // When facts were recalled is among what is shown.
    store.flush()?;
    match ask {
        "list" => list(store, read(params)?, now_ms),
        "show" => {
            let Show { id } = read(params)?;
            let found = store.read(|db| Ok(Some(keep::one(db, id, None)?)))?;
            Ok(json!(found.ok_or_else(|| Fault::not_found(format!("there is no fact {id}")))?))
        }
        "edit" => edit(store, &read(params)?, bounds, now_ms),
        "forget" => forget(store, read(params)?),
        "export" => export(store, &read(params)?),
        "namespaces" => {
            let Nothing {} = read(params)?;
            let counted = store.read(|db| Ok(counts(db)?))?;
            Ok(counted.into_iter().map(|(name, facts)| json!({"namespace": name, "facts": facts})).collect())
        }
        other => Err(Fault::unsupported(other).help("asks are list, show, edit, forget, export, namespaces")),
    }
}

/// Params that are left out are none.
fn read<T: DeserializeOwned>(params: Value) -> Result<T, Fault> {
    let params = if params.is_null() { json!({}) } else { params };
    Ok(serde_json::from_value(params)?)
}

fn list(store: &FactStore, list: List, now_ms: i64) -> Result<Value, Fault> {
    let page = Page { limit: list.limit.unwrap_or(USUAL).clamp(1, MOST), offset: list.offset };
    let namespace = list.namespace.as_deref();
    let (facts, total) =
        store.read(|db| match list.query.as_deref().filter(|query| !query.trim().is_empty()) {
            Some(query) => searched(db, query, namespace, page, now_ms),
            None => latest(db, namespace, page),
        })?;
    Ok(json!({"facts": facts, "total": total}))
}

#[derive(Clone, Copy)]
struct Page {
    limit: usize,
    offset: usize,
}

/// The latest first. Gives the page, and how many there are.
fn latest(db: &Connection, namespace: Option<&str>, page: Page) -> Result<(Vec<Fact>, usize), StoreFailure> {
    let of = "FROM facts WHERE ?1 IS NULL OR namespace = ?1";
    let total: i64 = db.query_row(&format!("SELECT count(*) {of}"), [namespace], |row| row.get(0))?;
    let mut all =
        db.prepare(&format!("SELECT {COLUMNS} {of} ORDER BY changed DESC, id DESC LIMIT ?2 OFFSET ?3"))?;
    let bounds = (namespace, whole(page.limit), whole(page.offset));
    let facts = all.query_map(bounds, Fact::read)?.collect::<Result<_, _>>()?;
    Ok((facts, usize::try_from(total).unwrap_or_default()))
}

/// Of all namespaces where none is given, each ranked by itself and then together; of each the best that are looked at.
fn searched(
    db: &Connection,
    query: &str,
    namespace: Option<&str>,
    page: Page,
    now_ms: i64,
) -> Result<(Vec<Fact>, usize), StoreFailure> {
    let question = words::search(query);
    let mut found = Vec::new();
    for (name, _) in counts(db)?.into_iter().filter(|(name, _)| namespace.is_none_or(|one| one == name)) {
        found.extend(find::find(db, &name, &question, None, MOST, now_ms)?);
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.fact.id.cmp(&a.fact.id)));
    let total = found.len();
    Ok((found.into_iter().map(|found| found.fact).skip(page.offset).take(page.limit).collect(), total))
}

fn edit(store: &FactStore, edit: &Edit, bounds: FactBounds, now_ms: i64) -> Result<Value, Fault> {
    if edit.text.is_none() && edit.confidence.is_none() {
        return Err(Fault::invalid("nothing is to be changed: give `text` or `confidence`"));
    }
    if edit.confidence.is_some_and(|confidence| !(0.0..=1.0).contains(&confidence)) {
        return Err(Fault::invalid("`confidence` is not from 0 to 1"));
    }
    let text = edit.text.as_deref().map(|text| keep::checked(text, bounds)).transpose()?;
    let fact = store.write(|db| keep::edit(db, edit.id, text.as_deref(), edit.confidence, now_ms))?;
    Ok(json!(fact))
}

fn forget(store: &FactStore, forget: Forget) -> Result<Value, Fault> {
    let forgotten = match (forget.id, forget.namespace) {
        (Some(id), None) => usize::from(forget_one(store, id, None)?),
        (None, Some(namespace)) => {
            match store.read(|db| Ok(counts(db)?))?.iter().any(|(name, _)| *name == namespace) {
                true => store.write(|db| keep::forget_all(db, &namespace))?,
                false => 0,
            }
        }
        _ => return Err(Fault::invalid("give either `id` or `namespace`")),
    };
    Ok(json!({"forgotten": forgotten}))
}

/// Forgets a fact, of this namespace alone where one is given; whether there was one.
pub fn forget_one(store: &FactStore, id: i64, namespace: Option<&str>) -> Result<bool, Fault> {
    let there = |db: &Connection| match keep::one(db, id, namespace) {
        Ok(fact) => Ok(Some(fact)),
        Err(StoreFailure::Fault(_)) => Ok(None),
        Err(failure) => Err(failure),
    };
    // Nothing is written, and no file made, for a fact that there is not.
    if store.read(there)?.is_none() {
        return Ok(false);
    }
    store.write(|db| match there(db)? {
        Some(fact) => keep::forget(db, &fact).map(|()| true),
        None => Ok(false),
    })
}

/// In the order of their ids, so that facts that come meanwhile are not missed.
fn export(store: &FactStore, export: &Export) -> Result<Value, Fault> {
    let limit = export.limit.unwrap_or(MOST).clamp(1, MOST);
    let facts: Vec<Fact> = store.read(|db| {
        let mut page =
            db.prepare(&format!("SELECT {COLUMNS} FROM facts WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
        Ok(page.query_map((export.after, whole(limit)), Fact::read)?.collect::<Result<_, _>>()?)
    })?;
    let next = facts.last().filter(|_| facts.len() == limit).map(|fact| fact.id);
    Ok(match next {
        Some(next) => json!({"facts": facts, "next": next}),
        None => json!({"facts": facts}),
    })
}

fn counts(db: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut all =
        db.prepare("SELECT namespace, count(*) FROM facts GROUP BY namespace ORDER BY namespace")?;
    all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
