//! What facts and questions mean, as vectors that a model made of them: how they are kept, and which facts are near a question.
//!
//! A number of a vector takes a byte: what is lost by that is far less than what lies between two facts. Each question is held
//! against all facts of its namespace, without an index. Only vectors of one model are kept, since those of two cannot be compared.

use rusqlite::{Connection, OptionalExtension as _, Transaction};

/// Bytes of a text of which a vector is made: what is behind them says little more of what it is about, and models refuse what is too
/// long, with all texts that are asked about at once.
const LONGEST: usize = 8 << 10;

/// A question as a vector of length 1.
#[derive(Debug)]
pub struct Meaning {
    /// The model that made it.
    pub model: String,
    pub direction: Vec<f32>,
    pub least: Least,
}

/// How near a fact must be to count, by how far it stands out among all facts of the namespace.
#[derive(Debug, Clone, Copy)]
pub enum Least {
    /// Nearer than most: somebody searches, and looks at what comes.
    Near,
    /// Nearer than the nearest of as many facts would be by chance: nobody asked for it.
    StandsOut,
}

/// A vector as it is kept: `numbers` times `scale`.
struct KeptVector {
    scale: f32,
    numbers: Vec<u8>,
}

/// The part of a text that is made into a vector.
pub fn beginning(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

/// A vector in its direction, of length 1; none for one that has no direction.
pub fn direction(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if !length.is_finite() || length == 0.0 {
        return None;
    }
    vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    Some(vector)
}

/// Facts of a namespace that have no vector of that model, the latest first: their ids and texts, at most so many and of so many
/// bytes together.
pub fn missing(
    db: &Connection,
    namespace: &str,
    model: &str,
    most: usize,
    bytes: usize,
) -> rusqlite::Result<Vec<(i64, String)>> {
    let known = is_of(db, model)?;
    let mut find = db.prepare_cached(
        "SELECT id, text FROM facts WHERE namespace = ?1 AND (NOT ?2 OR id NOT IN (SELECT fact FROM vectors))
         ORDER BY id DESC LIMIT ?3",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut left = bytes;
    let mut facts = Vec::new();
    let found =
        find.query_map((namespace, known, most), |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    for fact in found {
        let (id, text) = fact?;
        if let Some(rest) = left.checked_sub(text.len()) {
            left = rest;
            facts.push((id, text));
        }
    }
    Ok(facts)
}

/// Keeps vectors of facts that still say what they were made of. Those of another model, or of another length, go.
pub fn keep<'a>(
    db: &Transaction<'_>,
    model: &str,
    vectors: impl IntoIterator<Item = (i64, &'a str, Vec<f32>)>,
) -> rusqlite::Result<()> {
    for (id, text, vector) in vectors {
        let numbers = i64::try_from(vector.len()).unwrap_or(i64::MAX);
        let Some(KeptVector { scale, numbers: kept }) = direction(vector).as_deref().and_then(small) else {
            continue;
        };
        let same = db
            .prepare_cached("SELECT 1 FROM vector_model WHERE model = ?1 AND numbers = ?2")?
            .exists((model, numbers))?;
        if !same {
            db.execute("DELETE FROM vectors", [])?;
            db.execute("DELETE FROM vector_model", [])?;
            db.execute("INSERT INTO vector_model (model, numbers) VALUES (?1, ?2)", (model, numbers))?;
        }
        db.prepare_cached(
            "INSERT OR REPLACE INTO vectors (fact, scale, numbers) SELECT id, ?3, ?4 FROM facts WHERE id = ?1 AND text = ?2",
        )?
        .execute((id, text, scale, kept))?;
    }
    Ok(())
}

/// Takes the vector of a fact away.
pub fn forget(db: &Connection, fact: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM vectors WHERE fact = ?1")?.execute([fact])?;
    Ok(())
}

/// The facts of a namespace that are near enough to a question, with how near: 0 for the least, 1 for the nearest.
pub fn near(db: &Connection, namespace: &str, question: &Meaning) -> rusqlite::Result<Vec<(i64, f64)>> {
    if !is_of(db, &question.model)? {
        return Ok(Vec::new());
    }
    let mut all = db.prepare_cached(
        "SELECT fact, scale, vectors.numbers FROM facts JOIN vectors ON fact = facts.id WHERE namespace = ?1 ORDER BY fact",
    )?;
    let mut rows = all.query([namespace])?;
    let mut nearness: Vec<(i64, f64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let numbers = row.get_ref(2)?.as_blob().unwrap_or_default();
        if numbers.len() == question.direction.len() {
            let scale: f64 = row.get(1)?;
            nearness.push((row.get(0)?, scale * product(numbers, &question.direction)));
        }
    }
    Ok(standing_out(nearness, question.least))
}

/// Of how many standard deviations above the mean each is, what lies above the least.
fn standing_out(mut nearness: Vec<(i64, f64)>, least: Least) -> Vec<(i64, f64)> {
    let count = nearness.len() as f64;
    let mean = nearness.iter().map(|(_, near)| near).sum::<f64>() / count;
    let spread = (nearness.iter().map(|(_, near)| (near - mean).powi(2)).sum::<f64>() / count).sqrt();
    // One or two facts do not stand out from anything; nor do facts that are all as near.
    if nearness.len() < 3 || spread < 1e-6 {
        return Vec::new();
    }
    nearness.iter_mut().for_each(|(_, near)| *near = (*near - mean) / spread);
    // Of n numbers none is further out than this.
    let furthest = (count - 1.0).sqrt();
    let least = match least {
        Least::Near => 1.0_f64,
        // Where the greatest of n independent ones is to be expected.
        Least::StandsOut => (2.0 * count.ln()).sqrt(),
    }
    .min(0.8 * furthest);
    let nearest = nearness.iter().fold(least, |nearest, (_, near)| nearest.max(*near));
    nearness.retain(|(_, near)| *near > least);
    nearness.iter_mut().for_each(|(_, near)| *near = (*near - least) / (nearest - least));
    nearness
}

/// Whether the vectors that are kept are of that model.
fn is_of(db: &Connection, model: &str) -> rusqlite::Result<bool> {
    let kept: Option<String> =
        db.prepare_cached("SELECT model FROM vector_model")?.query_row([], |row| row.get(0)).optional()?;
    Ok(kept.as_deref() == Some(model))
}

/// A vector with a byte for each number.
fn small(vector: &[f32]) -> Option<KeptVector> {
    let greatest = vector.iter().fold(0.0_f32, |greatest, number| greatest.max(number.abs()));
    let scale = greatest / 127.0;
    let numbers = vector.iter().map(|number| ((number / scale).round() as i8).cast_unsigned()).collect();
    (scale > 0.0).then_some(KeptVector { scale, numbers })
}

fn product(kept: &[u8], direction: &[f32]) -> f64 {
    // Sums of their own, so that the processor adds several at once.
    let mut sums = [0.0_f32; 8];
    let (kept_parts, kept_rest) = kept.as_chunks::<8>();
    let (parts, rest) = direction.as_chunks::<8>();
    for (kept, part) in kept_parts.iter().zip(parts) {
        for at in 0..8 {
            sums[at] += f32::from(kept[at].cast_signed()) * part[at];
        }
    }
    let rest: f32 =
        kept_rest.iter().zip(rest).map(|(kept, number)| f32::from(kept.cast_signed()) * number).sum();
    f64::from(sums.iter().sum::<f32>() + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_in_bytes_is_nearly_the_one_that_it_was() {
        let vector: Vec<f32> = (0..1537_i16).map(|n| f32::from(n % 89) - 40.0).collect();
        let unit = direction(vector).expect("a direction");
        let kept = small(&unit).expect("a vector");
        let same = f64::from(kept.scale) * product(&kept.numbers, &unit);
        assert!((same - 1.0).abs() < 0.01, "{same}");
        assert!(direction(vec![0.0; 3]).is_none() && direction(vec![f32::MAX; 3]).is_some());
    }

    #[test]
    fn what_is_as_near_as_chance_has_it_does_not_stand_out() {
        let crowd = |n: i64| (0..n).map(|id| (id, (id * 37 % 101) as f64 / 100.0)).collect::<Vec<_>>();
        assert_eq!(standing_out(crowd(1_000), Least::StandsOut), []);
        assert!(!standing_out(crowd(1_000), Least::Near).is_empty());
        let mut one = crowd(1_000);
        one.push((7_000, 2.5));
        assert_eq!(standing_out(one, Least::StandsOut), [(7_000, 1.0)]);
        assert_eq!(standing_out(vec![(1, 0.5), (2, 0.9)], Least::Near), [], "of two nobody knows");
        assert_eq!(standing_out(vec![(1, 0.5); 9], Least::Near), [], "all are as near");
        assert_eq!(standing_out(vec![(1, 0.1), (2, 0.1), (3, 0.8)], Least::StandsOut), [(3, 1.0)]);
        assert_eq!(standing_out(Vec::new(), Least::Near), []);
    }
}
