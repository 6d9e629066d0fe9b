//! What was used: sums by day, session, agent and model, kept up to date by the transaction that records what they sum
//! up.

use std::collections::BTreeMap;

use drupe_agent::Entry;
use drupe_extension_api::{
    AgentId, InvocationId, SessionId, Usage,
    control::{UsageBy, UsageQuery, UsageRow},
};
use jiff::{
    Span,
    civil::{Date, date},
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{
    Counted, Store, StoreError,
    cache::Turn,
    log,
    rows::{count, id, signed},
    writer::Writing,
};

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// Day 0.
const EPOCH: Date = date(1970, 1, 1);

/// The model under which runs are counted.
const NO_MODEL: &str = "";

/// Whose calls they are if no run of that id ever began, so that they are counted all the same.
const NOBODY: &str = "unknown";

impl Store {
    /// What was used, summed up as asked; by day, the earliest first, else by name.
    pub async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
        self.read(move |db| rows(db, &query)).await
    }

    /// What was used on the day (UTC) of `now_ms`, in milliseconds since 1970: by all, and by each agent.
    pub async fn used_on(&self, now_ms: i64) -> Result<(Counted, Vec<(AgentId, Counted)>), StoreError> {
        self.read(move |db| on_day(db, now_ms.div_euclid(DAY_MS))).await
    }

    /// What was used on the day (UTC) of `now_ms` in the session of a name and in those below it.
    pub async fn used_below(&self, name: String, now_ms: i64) -> Result<Counted, StoreError> {
        self.read(move |db| below(db, &name, now_ms.div_euclid(DAY_MS))).await
    }

    /// What a session has used, ever.
    pub async fn used_by_session(&self, session: &SessionId) -> Result<Counted, StoreError> {
        let session = session.clone();
        self.read(move |db| by_session(db, &session)).await
    }
}

/// Whose row it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    day: i64,
    session: i64,
    agent: AgentId,
    model: String,
}

/// A row, or what entries add to it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    invocations: u64,
    calls: u64,
    usage: Usage,
    lost_tokens: u64,
    unpriced_tokens: u64,
    cost_usd: f64,
}

impl Sum {
    fn call(usage: &Usage, cost_usd: Option<f64>) -> Self {
        let cost_usd = cost_usd.filter(|cost| cost.is_finite());
        let total = usage.input_tokens.saturating_add(usage.output_tokens);
        Self {
            calls: 1,
            usage: *usage,
            unpriced_tokens: if cost_usd.is_none() { total } else { 0 },
            cost_usd: cost_usd.unwrap_or(0.0),
            ..Self::default()
        }
    }

    /// A call of which something may be lost.
    fn ended(usage: &Usage, cost_usd: Option<f64>, lost_tokens: u64, lost_usd: f64) -> Self {
        let sum = Self::call(usage, cost_usd);
        let lost_usd = if lost_usd.is_finite() { lost_usd } else { 0.0 };
        // What was lost costs nothing that is known.
        let unpriced = if cost_usd.is_none() && lost_usd == 0.0 { lost_tokens } else { 0 };
        Self {
            lost_tokens,
            unpriced_tokens: sum.unpriced_tokens.saturating_add(unpriced),
            cost_usd: sum.cost_usd + lost_usd,
            ..sum
        }
    }

    /// Sums end at the largest number: they never fail, and never turn negative.
    fn plus(self, more: &Self) -> Self {
        let mut usage = self.usage;
        usage += more.usage;
        Self {
            invocations: self.invocations.saturating_add(more.invocations),
            calls: self.calls.saturating_add(more.calls),
            usage,
            lost_tokens: self.lost_tokens.saturating_add(more.lost_tokens),
            unpriced_tokens: self.unpriced_tokens.saturating_add(more.unpriced_tokens),
            cost_usd: self.cost_usd + more.cost_usd,
        }
    }
}

/// Adds what the entries of a turn tell of, to each row once.
pub(crate) fn count_entries(on: &mut Writing<'_>, turn: &Turn, entries: &[Entry]) -> Result<(), StoreError> {
    let mut sums: Vec<(AgentId, &str, Sum)> = Vec::new();
    for entry in entries {
        let (agent, model, sum) = match entry {
            Entry::Begin { invocation, agent, .. } => {
                on.cache.runs.insert(invocation.clone(), agent.clone());
                (agent.clone(), NO_MODEL, Sum { invocations: 1, ..Sum::default() })
            }
            Entry::Answer { invocation, model, usage, cost_usd, .. } => {
                (agent_of(on, turn, invocation)?, model.as_str(), Sum::call(usage, *cost_usd))
            }
            Entry::Failed { invocation, model, usage, cost_usd, lost_tokens, lost_usd, repeated, .. } => {
                // However often it is repeated, it is one call, which counts with the model that ended it.
                let calls = u64::from(!repeated);
                let sum = Sum { calls, ..Sum::ended(usage, *cost_usd, *lost_tokens, *lost_usd) };
                (agent_of(on, turn, invocation)?, model.as_str(), sum)
            }
            Entry::Embedded { agent, model, usage, cost_usd, lost_tokens, lost_usd, .. } => {
                (agent.clone(), model.as_str(), Sum::ended(usage, *cost_usd, *lost_tokens, *lost_usd))
            }
            Entry::Compacted { invocation, model, usage, cost_usd, .. } if !model.is_empty() => {
                (agent_of(on, turn, invocation)?, model.as_str(), Sum::call(usage, *cost_usd))
            }
            _ => continue,
        };
        // Repeated, and refused before it used anything.
        if sum == Sum::default() {
            continue;
        }
        match sums.iter_mut().find(|(of, by, _)| *of == agent && *by == model) {
            Some((.., known)) => *known = known.plus(&sum),
            None => sums.push((agent, model, sum)),
        }
    }
    sums.into_iter().try_for_each(|(agent, model, sum)| add(on, turn, agent, model, &sum))
}

/// Whose run it is: remembered since its beginning, or read from there after a restart.
fn agent_of(on: &mut Writing<'_>, turn: &Turn, invocation: &InvocationId) -> Result<AgentId, StoreError> {
    if let Some(agent) = on.cache.runs.get(invocation) {
        return Ok(agent.clone());
    }
    let begins = |entry| match entry {
        Entry::Begin { invocation: of, agent, .. } if of == *invocation => Some(agent),
        _ => None,
    };
    let agent = match log::first_of(on.db, turn.number, invocation.as_str(), begins)? {
        Some(agent) => agent,
        None => AgentId::new(NOBODY).map_err(|error| StoreError::Record(error.to_string()))?,
    };
    on.cache.runs.insert(invocation.clone(), agent.clone());
    Ok(agent)
}

/// Adds to a row, which is read at most once.
fn add(on: &mut Writing<'_>, turn: &Turn, agent: AgentId, model: &str, more: &Sum) -> Result<(), StoreError> {
    let day = on.now_ms().div_euclid(DAY_MS);
    let key = Key { day, session: turn.session_number, agent, model: model.to_owned() };
    let known = match on.cache.used.get(&key) {
        Some(known) => Some(*known),
        None => recorded(on, &key)?,
    };
    let sum = known.unwrap_or_default().plus(more);
    let mut write = on.statement(match known {
        Some(_) => {
            "UPDATE usage SET invocations = ?5, calls = ?6, input_tokens = ?7, cached_tokens = ?8,
                              output_tokens = ?9, reasoning_tokens = ?10, lost_tokens = ?11,
                              unpriced_tokens = ?12, cost_usd = ?13
             WHERE day = ?1 AND session = ?2 AND agent = ?3 AND model = ?4"
        }
        None => "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    })?;
    write.execute((
        key.day,
        key.session,
        key.agent.as_str(),
        key.model.as_str(),
        signed(sum.invocations),
        signed(sum.calls),
        signed(sum.usage.input_tokens),
        signed(sum.usage.cached_tokens),
        signed(sum.usage.output_tokens),
        signed(sum.usage.reasoning_tokens),
        signed(sum.lost_tokens),
        signed(sum.unpriced_tokens),
        sum.cost_usd,
    ))?;
    on.cache.used.insert(key, sum);
    Ok(())
}

/// A row as it is.
fn recorded(on: &Writing<'_>, key: &Key) -> Result<Option<Sum>, StoreError> {
    let mut one = on.statement(
        "SELECT invocations, calls, input_tokens, cached_tokens, output_tokens, reasoning_tokens, lost_tokens,
                unpriced_tokens, cost_usd
         FROM usage WHERE day = ?1 AND session = ?2 AND agent = ?3 AND model = ?4",
    )?;
    let found = one.query_row((key.day, key.session, key.agent.as_str(), &key.model), |row| {
        Ok(Sum {
            invocations: count(row, 0)?,
            calls: count(row, 1)?,
            usage: Usage {
                input_tokens: count(row, 2)?,
                cached_tokens: count(row, 3)?,
                output_tokens: count(row, 4)?,
                reasoning_tokens: count(row, 5)?,
                ..Usage::default()
            },
            lost_tokens: count(row, 6)?,
            unpriced_tokens: count(row, 7)?,
            cost_usd: row.get(8)?,
        })
    });
    Ok(found.optional()?)
}

fn rows(db: &Connection, query: &UsageQuery) -> Result<Vec<UsageRow>, StoreError> {
    let since = match &query.since {
        Some(day) => day_number(day)?,
        None => i64::MIN,
    };
    // Added up here: a sum in SQL fails where it does not fit, and names of days are ours.
    let mut all = db.prepare_cached(
        "SELECT day, sessions.id, usage.agent, model, invocations, calls, input_tokens, cached_tokens,
                output_tokens, reasoning_tokens, lost_tokens, unpriced_tokens, cost_usd
         FROM usage JOIN sessions ON sessions.number = usage.session
         WHERE day >= ?1 AND (?2 IS NULL OR sessions.id = ?2)
         ORDER BY day, sessions.number, usage.agent, model",
    )?;
    let mut sums: BTreeMap<String, UsageRow> = BTreeMap::new();
    let mut found = all.query((since, query.session.as_ref().map(SessionId::as_str)))?;
    while let Some(row) = found.next()? {
        let key = match query.by {
            UsageBy::Day => day_name(row.get(0)?)?,
            UsageBy::Session => row.get(1)?,
            UsageBy::Agent => row.get(2)?,
            UsageBy::Model => row.get(3)?,
        };
        if query.by == UsageBy::Model && key == NO_MODEL {
            continue;
        }
        let sum = sums.entry(key.clone()).or_insert_with(|| UsageRow {
            key,
            invocations: 0,
            calls: 0,
            usage: Usage::default(),
            lost_tokens: 0,
            cost_usd: 0.0,
            unpriced_tokens: 0,
        });
        let columns = [
            &mut sum.invocations,
            &mut sum.calls,
            &mut sum.usage.input_tokens,
            &mut sum.usage.cached_tokens,
            &mut sum.usage.output_tokens,
            &mut sum.usage.reasoning_tokens,
            &mut sum.lost_tokens,
            &mut sum.unpriced_tokens,
        ];
        for (column, into) in (4..).zip(columns) {
            *into = into.saturating_add(count(row, column)?);
        }
        sum.cost_usd += row.get::<_, f64>(12)?;
    }
    Ok(sums.into_values().collect())
}

/// The columns that [`counted`] reads. Of sums that do not fit, about as much as fits.
const COUNTED: &str = "total(input_tokens) + total(output_tokens) + total(lost_tokens), total(cost_usd), \
                       total(invocations)";

fn on_day(db: &Connection, day: i64) -> Result<(Counted, Vec<(AgentId, Counted)>), StoreError> {
    let mut by_agent = db.prepare_cached(&format!(
        "SELECT {COUNTED}, agent FROM usage WHERE day = ?1 GROUP BY agent ORDER BY agent"
    ))?;
    let agents: Vec<(AgentId, Counted)> =
        by_agent.query_map([day], |row| Ok((id(row, 3)?, counted(row)?)))?.collect::<Result<_, _>>()?;
    let all = agents.iter().fold(Counted::default(), |sum, (_, of)| Counted {
        tokens: sum.tokens.saturating_add(of.tokens),
        cost_usd: sum.cost_usd + of.cost_usd,
        invocations: sum.invocations.saturating_add(of.invocations),
    });
    Ok((all, agents))
}

fn by_session(db: &Connection, session: &SessionId) -> Result<Counted, StoreError> {
    let mut one = db.prepare_cached(&format!(
        "SELECT {COUNTED} FROM usage WHERE session = (SELECT number FROM sessions WHERE id = ?1)"
    ))?;
    Ok(one.query_row([session.as_str()], counted)?)
}

fn below(db: &Connection, name: &str, day: i64) -> Result<Counted, StoreError> {
    // Ids of sessions are ASCII, and `;` is the sign behind `:`. That of one that is deleted goes on with `!`, and what was
    // used in it was used.
    let mut one = db.prepare_cached(&format!(
        "SELECT {COUNTED} FROM usage WHERE day = ?1 AND session IN
             (SELECT number FROM sessions WHERE id = ?2 OR (id >= ?2 || ':' AND id < ?2 || ';')
              OR (id > ?2 || '!' AND id < ?2 || '\"'))"
    ))?;
    Ok(one.query_row((day, name), counted)?)
}

fn counted(row: &Row<'_>) -> rusqlite::Result<Counted> {
    // A cast ends at the largest number, too.
    Ok(Counted {
        tokens: row.get::<_, f64>(0)? as u64,
        cost_usd: row.get(1)?,
        invocations: row.get::<_, f64>(2)? as u64,
    })
}

/// Days since 1970.
fn day_number(day: &str) -> Result<i64, StoreError> {
    let date: Date = day.parse().map_err(|_| StoreError::Day(day.to_owned()))?;
    Ok(i64::from(date.since(EPOCH).map_err(|_| StoreError::Day(day.to_owned()))?.get_days()))
}

fn day_name(number: i64) -> Result<String, StoreError> {
    let wrong = |error: jiff::Error| StoreError::Record(error.to_string());
    let span = Span::new().try_days(number).map_err(wrong)?;
    Ok(EPOCH.checked_add(span).map_err(wrong)?.to_string())
}
