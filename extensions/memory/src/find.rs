//! Which facts fit a question, best first: BM25 over the words that they share and, where a model makes vectors, how near it is to what
//! they mean; then how sure and how new a fact is.
//!
//! The formula is Robertson's and Zaragoza's ("The Probabilistic Relevance Framework: BM25 and Beyond", 2009), with the weight of a
//! word that Lucene takes, `ln(1 + (N - n + 0.5) / (n + 0.5))`. SQLite's own `bm25()` gives a word no weight that half of all
//! facts have, which with five facts is most words.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::{
    fact::{COLUMNS, Fact},
    meaning::{self, Meaning},
    words::{self, LookUp},
};

/// What the nearest fact counts beside the one that fits the words of a question best: between 0.5 and 0.7 the example `recall` finds
/// most, with a small model.
const MEANING: f64 = 0.6;

/// How much a long fact counts for less, and the share of its length in that: the usual values, where a word seldom stands twice.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A word that more than a fourth of all facts have says little of which one is meant, and takes long to look through; a few
/// facts do not.
const COMMON: usize = 4;
const LOOKED_THROUGH: usize = 200;

/// What a word counts that only begins like one of the question, which is how endings of most languages differ.
const BEGINNING: f64 = 0.5;

/// Letters of the shortest word whose ending is left away; of the shortest beginning and of the longest one; and of an ending.
/// With the English stems of the index they were the best in `tests/labelled.rs`: 57 questions of 64, where stems alone found 52,
/// beginnings alone 55, and neither 47.
const INFLECTED: usize = 5;
const SHORTEST: usize = 4;
const LONGEST: usize = 6;
const ENDING: usize = 3;

/// A fact of no confidence counts this much of a sure one; an old one this much of a new one, with half of the difference
/// gone after so many days. Both order what fits about equally well, and outweigh no word.
const UNSURE: f64 = 0.6;
const OLD: f64 = 0.85;
const HALF_DAYS: f64 = 90.0;

/// A fact and how well it fits.
#[derive(Debug)]
pub struct FoundFact {
    pub fact: Fact,
    pub score: f64,
}

/// How a fact stands while the words of a question are looked up.
struct Standing {
    id: i64,
    length: f64,
    score: f64,
    /// The word that counted last, and how much: of a word and its beginning the better one counts.
    word: usize,
    counted: f64,
}

/// The facts of a namespace, by their ids.
struct Standings {
    all: Vec<Standing>,
    /// More facts than this have a common word.
    common: Option<usize>,
}

/// The facts of a namespace that share words with a question, or mean what it is about, at most so many. Scores are those of words
/// where `meaning` is not given, and else of a scale of their own.
pub fn find(
    db: &Connection,
    namespace: &str,
    question: &LookUp,
    meaning: Option<&Meaning>,
    limit: usize,
    now_ms: i64,
) -> rusqlite::Result<Vec<FoundFact>> {
    let mut standings = Standings::of(db, namespace)?;
    let mut rare = false;
    for (at, word) in question.words.iter().enumerate() {
        rare |= standings.look_up(db, at + 1, word)?;
    }
    if !rare && standings.common.take().is_some() {
        // It has nothing but common words: then these are what it is about.
        for (at, word) in question.words.iter().enumerate() {
            standings.look_up(db, at + 1, word)?;
        }
    }
    if question.of_user {
        standings.prefer_user(db)?;
    }
    let mut row = db.prepare_cached(&format!("SELECT {COLUMNS} FROM facts WHERE id = ?1"))?;
    let mut found = Vec::new();
    // Twice as many as are wanted: what is sure and new may come from behind.
    let looked_at = limit.saturating_mul(2);
    let best = match meaning {
        None => standings.best(looked_at),
        Some(meaning) => both(standings.best(usize::MAX), meaning::near(db, namespace, meaning)?, looked_at),
    };
    for (id, score) in best {
        let fact = row.query_row([id], Fact::read)?;
        let score = score * weight(&fact, now_ms);
        found.push(FoundFact { fact, score });
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.fact.id.cmp(&a.fact.id)));
    found.truncate(limit);
    Ok(found)
}

impl Standings {
    fn of(db: &Connection, namespace: &str) -> rusqlite::Result<Self> {
        let all: Vec<Standing> = db
            .prepare_cached("SELECT id, length FROM facts WHERE namespace = ?1 ORDER BY id")?
            .query_map([namespace], |row| {
                Ok(Standing { id: row.get(0)?, length: row.get(1)?, score: 0.0, word: 0, counted: 0.0 })
            })?
            .collect::<Result<_, _>>()?;
        let last: Option<i64> =
            db.prepare_cached("SELECT max(id) FROM facts")?.query_row([], |row| row.get(0))?;
        // The index knows no namespaces. What is common in it is common here where most of it is from here.
        let most = last.is_some_and(|last| all.len() > usize::try_from(last).unwrap_or(usize::MAX) / 2);
        let common = most.then_some((all.len() / COMMON).max(LOOKED_THROUGH));
        Ok(Self { all, common })
    }

    /// Adds what one word of a question, or its beginning, counts for the facts that have it. Whether it is a rare word.
    fn look_up(&mut self, db: &Connection, number: usize, word: &str) -> rusqlite::Result<bool> {
        let rare = self.count(db, number, &quoted(word), 1.0)?;
        if let Some(beginning) = beginning(word) {
            self.count(db, number, &format!("{}*", quoted(beginning)), BEGINNING)?;
        }
        Ok(rare)
    }

    fn count(&mut self, db: &Connection, number: usize, query: &str, share: f64) -> rusqlite::Result<bool> {
        let Some(having) = self.having(db, query, self.common)? else { return Ok(false) };
        let weight = share * rarity(having.len(), self.all.len());
        for at in &having {
            let standing = &mut self.all[*at];
            let before = if standing.word == number { standing.counted } else { 0.0 };
            if weight > before {
                standing.score += weight - before;
                (standing.word, standing.counted) = (number, weight);
            }
        }
        Ok(!having.is_empty())
    }

    /// Of the facts that have a word of the question, those that are about the user count more: alone that says nothing.
    fn prefer_user(&mut self, db: &Connection) -> rusqlite::Result<()> {
        let users: Vec<String> = words::users().map(quoted).collect();
        let having = self.having(db, &users.join(" OR "), None)?.unwrap_or_default();
        let weight = rarity(having.len(), self.all.len());
        for at in having {
            let standing = &mut self.all[at];
            if standing.score > 0.0 {
                standing.score += weight;
            }
        }
        Ok(())
    }

    /// Which of the facts a query of FTS5 finds; none where more than `most` are found in all namespaces.
    fn having(
        &self,
        db: &Connection,
        query: &str,
        most: Option<usize>,
    ) -> rusqlite::Result<Option<Vec<usize>>> {
        let mut find = db.prepare_cached("SELECT rowid FROM words WHERE words MATCH ?1")?;
        let mut rows = find.query([query])?;
        let (mut having, mut count) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            count += 1;
            if most.is_some_and(|most| count > most) {
                return Ok(None);
            }
            let id: i64 = row.get(0)?;
            having.extend(self.all.binary_search_by_key(&id, |standing| standing.id));
        }
        Ok(Some(having))
    }

    /// The best by their words, with what these come to for a fact of its length.
    fn best(self, limit: usize) -> Vec<(i64, f64)> {
        let mean =
            self.all.iter().map(|standing| standing.length).sum::<f64>() / self.all.len().max(1) as f64;
        let mut best: Vec<(i64, f64)> = self
            .all
            .into_iter()
            .filter(|standing| standing.score > 0.0)
            .map(|standing| {
                let length = 1.0 - B + B * standing.length / mean.max(1.0);
                (standing.id, standing.score * (K1 + 1.0) / (1.0 + K1 * length))
            })
            .collect();
        best.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        best.truncate(limit);
        best
    }
}

/// The best by words and by meaning together.
fn both(by_words: Vec<(i64, f64)>, by_meaning: Vec<(i64, f64)>, limit: usize) -> Vec<(i64, f64)> {
    let most = by_words.first().map_or(1.0, |(_, score)| *score);
    let mut scores: HashMap<i64, f64> = by_words.into_iter().map(|(id, score)| (id, score / most)).collect();
    for (id, nearness) in by_meaning {
        *scores.entry(id).or_default() += MEANING * nearness;
    }
    let mut best: Vec<_> = scores.into_iter().collect();
    best.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    best.truncate(limit);
    best
}

/// What a word counts that so many of all facts have.
fn rarity(having: usize, all: usize) -> f64 {
    let (n, all) = (having as f64, all as f64);
    (1.0 + (all - n + 0.5).max(0.0) / (n + 0.5)).ln()
}

fn weight(fact: &Fact, now_ms: i64) -> f64 {
    let days = (now_ms - fact.changed.as_millisecond()).max(0) as f64 / 86_400_000.0;
    let new = 0.5_f64.powf(days / HALF_DAYS);
    (UNSURE + (1.0 - UNSURE) * fact.confidence.clamp(0.0, 1.0)) * (OLD + (1.0 - OLD) * new)
}

/// A word as FTS5 takes it literally. Words have letters, digits and marks alone, so there is no quote in them.
fn quoted(word: impl std::fmt::Display) -> String {
    format!("\"{word}\"")
}

/// A word without what may be its ending.
fn beginning(word: &str) -> Option<String> {
    let letters = word.chars().count();
    let inflected = letters >= INFLECTED && word.chars().all(char::is_alphabetic);
    inflected.then(|| word.chars().take(letters.saturating_sub(ENDING).clamp(SHORTEST, LONGEST)).collect())
}
