//! How long the memory takes with ten thousand facts: `cargo run --release -p drupe-ext-memory --example times [-- FACTS]`.
//!
//! It goes the whole way of a call, from JSON to JSON, over the boundary between kernel and extension, with a real file. It
//! asserts nothing: a busy machine would make it lie.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::{Duration, Instant};

use drupe_extension_api::{
    Fault,
    testing::{Harness, block_on},
};
use memory::Memory;
use serde_json::json;

const QUESTIONS: [&str; 5] = [
    "what is the phone number of person 4711",
    "Who likes to play the cello in Bergen?",
    "room 77",
    "and now for something completely different, write a poem about the sea",
    "which city does Ida17 live in",
];

fn main() -> Result<(), Fault> {
    let facts: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000);
    block_on(async {
        let memory = Harness::<Memory>::start(json!({"max_facts": facts + 1})).await?;
        let mut took = Vec::new();
        for n in 0..facts {
            let text = format!(
                "Ida{n} lives in {} of the city {}, likes the {} and has the phone number {}.",
                ["a house", "room 77", "the street"][n % 3],
                ["Bergen", "Lisbon", "Oslo", "Turin", "Ghent"][n % 5],
                ["cello", "sea", "theatre", "mountains"][n % 4],
                n * 7
            );
            let begun = Instant::now();
            memory.calling().effect(&format!("e{n}")).call("memory_save", json!({"text": text})).await?;
            took.push(begun.elapsed());
        }
        print("memory_save, the last hundred", &mut took[facts.saturating_sub(100)..]);
        let bytes = std::fs::metadata(memory.data_folder().join("memory.sqlite"))?.len();
        println!("{facts} facts take {} KiB", bytes >> 10);

        let (mut searches, mut contexts) = (Vec::new(), Vec::new());
        for n in 0..100 {
            let question = QUESTIONS[n % QUESTIONS.len()];
            let begun = Instant::now();
            memory.call("memory_search", json!({"query": question})).await?;
            searches.push(begun.elapsed());
            let begun = Instant::now();
            memory.context_for(question).await?;
            contexts.push(begun.elapsed());
        }
        print("memory_search", &mut searches);
        print("what a turn is given", &mut contexts);

        let again = Harness::<Memory>::setup().data_folder(memory.data_folder()).start().await?;
        let begun = Instant::now();
        again.context_for(QUESTIONS[0]).await?;
        println!("{:<32} {:>9.3} ms", "the first turn, with opening", milliseconds(begun.elapsed()));
        let begun = Instant::now();
        memory.call("memory_forget", json!({"id": facts / 2})).await?;
        println!("{:<32} {:>9.3} ms", "memory_forget", milliseconds(begun.elapsed()));
        Ok(())
    })
}

fn print(what: &str, took: &mut [Duration]) {
    took.sort();
    let at = |share: usize| milliseconds(took[(took.len() * share / 100).min(took.len() - 1)]);
    println!("{what:<32} {:>9.3} ms at the median, {:.3} at the 95th of 100", at(50), at(95));
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
