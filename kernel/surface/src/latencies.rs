//! How long turns, models and tools took: counted as their ends are committed, on the way to those who watch.
//!
//! Nothing is kept: each kernel begins at nothing, as whoever reads counters expects of a process that begins anew. What it costs is
//! a few additions for each end of something, whether anybody asks or not.

use std::{collections::BTreeMap, sync::Arc};

use drupe_extension_api::{
    EventBody, ItemKind,
    control::{LATENCY_BOUNDS_MS, Latency, LatencyOf},
};
use drupe_journal::{Publish, Published};
use parking_lot::Mutex;
use serde_json::Value;

/// Keys of one kind that are told apart. Servers of others name tools as they like, and whoever stores figures pays for each name.
const MOST_KEYS: usize = 200;
const OTHERS: &str = "other";

#[derive(Default)]
pub struct Latencies(Mutex<BTreeMap<LatencyOf, BTreeMap<String, Histogram>>>);

#[derive(Default)]
struct Histogram {
    sum_ms: u64,
    /// By the first bound that is not below it; the last are above all.
    counts: [u64; LATENCY_BOUNDS_MS.len() + 1],
}

impl Latencies {
    /// What the journal is to be opened with, so that ends are seen on the way to `publish`.
    pub fn on_the_way_to(self: &Arc<Self>, publish: Publish) -> Publish {
        let latencies = Arc::clone(self);
        Arc::new(move |published| {
            if let Published::Event(event) = &published {
                latencies.see(&event.body);
            }
            publish(published);
        })
    }

    fn see(&self, body: &EventBody) {
        match body {
            EventBody::TurnCompleted { status, spend, .. } => {
                if let Ok(Value::String(status)) = serde_json::to_value(status) {
                    self.add(LatencyOf::Turn, &status, spend.elapsed_ms);
                }
            }
            EventBody::ModelAttempt { model, latency_ms, first_ms, .. } => {
                self.add(LatencyOf::Model, model, *latency_ms);
                if let Some(first_ms) = first_ms {
                    self.add(LatencyOf::FirstPiece, model, *first_ms);
                }
            }
            EventBody::ItemCompleted { item, elapsed_ms, .. } if item.kind != ItemKind::Error => {
                // Only calls have a name.
                if let Some(tool) = &item.name {
                    self.add(LatencyOf::Tool, tool, *elapsed_ms);
                }
            }
            _ => {}
        }
    }

    fn add(&self, of: LatencyOf, key: &str, took_ms: u64) {
        let mut all = self.0.lock();
        let kind = all.entry(of).or_default();
        let key = if kind.contains_key(key) || kind.len() < MOST_KEYS { key } else { OTHERS };
        if !kind.contains_key(key) {
            kind.insert(key.to_owned(), Histogram::default());
        }
        if let Some(histogram) = kind.get_mut(key) {
            histogram.sum_ms = histogram.sum_ms.saturating_add(took_ms);
            histogram.counts[LATENCY_BOUNDS_MS.partition_point(|bound| *bound < took_ms)] += 1;
        }
    }

    /// All of them, by kind and key.
    pub fn all(&self) -> Vec<Latency> {
        let all = self.0.lock();
        let kinds =
            all.iter().flat_map(|(of, keys)| keys.iter().map(move |(key, histogram)| (*of, key, histogram)));
        let told = |(of, key, Histogram { sum_ms, counts }): (LatencyOf, &String, &Histogram)| {
            let mut below = 0;
            let mut at_most: Vec<u64> = counts
                .iter()
                .map(|count| {
                    below += count;
                    below
                })
                .collect();
            let count = at_most.pop().unwrap_or_default();
            Latency { of, key: key.clone(), count, sum_ms: *sum_ms, at_most }
        };
        kinds.map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_at_its_bound_and_names_beyond_the_bound_are_one() {
        let latencies = Latencies::default();
        for took in [0, 10, 11, 655_360, 655_361] {
            latencies.add(LatencyOf::Model, "m", took);
        }
        let all = latencies.all();
        assert_eq!((all[0].count, all[0].sum_ms), (5, 1_310_742));
        assert_eq!((all[0].at_most[0], all[0].at_most[1], all[0].at_most[16]), (2, 3, 4));
        for tool in 0..2 * MOST_KEYS {
            latencies.add(LatencyOf::Tool, &format!("tool_{tool}"), 1);
        }
        let tools: Vec<Latency> =
            latencies.all().into_iter().filter(|one| one.of == LatencyOf::Tool).collect();
        assert_eq!(tools.len(), MOST_KEYS + 1);
        let others = tools.iter().find(|one| one.key == OTHERS).expect("there are more");
        assert_eq!(others.count, MOST_KEYS as u64);
    }
}
