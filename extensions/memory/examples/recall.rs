//! How many labelled questions find their fact among the first five of ten thousand, by words and by meaning, and how long that takes:
//! `cargo run --release -p drupe-ext-memory --example recall [-- http://127.0.0.1:PORT/v1/embeddings MODEL]`.
//!
//! A server that speaks OpenAI's `/embeddings` stands in for the daemon's model for vectors. It asserts nothing.

#![expect(clippy::print_stdout, reason = "its output is its purpose")]

#[path = "../src/tests/set.rs"]
mod set;

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use drupe_extension_api::{
    Fault,
    testing::{Harness, block_on},
};
use memory::Memory;
use serde_json::{Value, json};

const FACTS: usize = 10_000;

/// Messages that none of the facts is about, whatever words they share.
const ABOUT_NOTHING: &[&str] = &[
    "thanks, that is all for today",
    "write a limerick about the number seven",
    "what is the derivative of the sine",
    "please fix the failing test in the parser",
    "how tall is Mount Kilimanjaro",
    "translate good morning to Icelandic",
    "explain how a hash map handles collisions",
    "Wie viele Planeten hat das Sonnensystem?",
    "quelle est la capitale de l'Australie",
    "summarise the plot of Hamlet in three sentences",
];

fn main() -> Result<(), Fault> {
    let mut given = std::env::args().skip(1);
    let server = given.next().zip(given.next());
    block_on(async {
        let mut setup = Harness::<Memory>::setup().config(json!({"max_facts": FACTS}));
        if let Some((_, model)) = &server {
            setup = setup.embedding_model(model);
        }
        let memory = setup.start().await?;
        let waited = Arc::new(AtomicU64::new(0));
        if let Some((address, model)) = server.clone() {
            let waited = Arc::clone(&waited);
            let known = Mutex::new(());
            memory.host().answer_embeddings_with(move |texts| {
                let _alone = known.lock().unwrap_or_else(PoisonError::into_inner);
                let begun = Instant::now();
                let vectors = vectors(&address, &model, texts);
                waited.fetch_add(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                vectors
            });
        }
        for (at, text) in set::facts(FACTS).into_iter().enumerate() {
            memory.calling().effect(&format!("e{at}")).call("memory_save", json!({"text": text})).await?;
        }
        if server.is_some() {
            for _ in 0..=FACTS / 63 {
                memory.call("memory_search", json!({"query": "vectors"})).await?;
            }
        }
        let bytes = std::fs::metadata(memory.data_folder().join("memory.sqlite"))?.len();
        println!("{FACTS} facts take {} KiB", bytes >> 10);
        let (mut all, mut first, mut five, mut given, mut lines) = (0, 0, 0, 0, 0);
        let (mut searches, mut turns) = (Vec::new(), Vec::new());
        for (fact, questions) in set::LABELLED {
            for question in *questions {
                let (said, took) =
                    timed(&waited, || memory.call("memory_search", json!({"query": question, "limit": 5})))
                        .await?;
                searches.push(took);
                let at = said.lines().position(|line| line.contains(fact));
                all += 1;
                first += usize::from(at == Some(0));
                five += usize::from(at.is_some());
                if at.is_none() {
                    println!("missed: {question}");
                }
                let (text, took) = timed(&waited, || memory.context_for(question)).await?;
                turns.push(took);
                let text = text.map(|text| text.text).unwrap_or_default();
                given += usize::from(text.contains(fact));
                lines += text.lines().count().saturating_sub(1);
            }
        }
        println!("of {all} questions {five} find their fact among the first five, {first} find it first");
        println!(
            "turns are given the fact for {given} of them, and {:.1} facts in all",
            lines as f64 / all as f64
        );
        let (mut idle, mut messages) = (0, 0);
        for message in ABOUT_NOTHING {
            let text = memory.context_for(message).await?.map(|text| text.text).unwrap_or_default();
            messages += 1;
            idle += text.lines().count().saturating_sub(1);
        }
        println!(
            "{messages} messages about none of them are given {:.1} facts",
            idle as f64 / messages as f64
        );
        print("memory_search, but for the model", &mut searches);
        print("what a turn is given, likewise", &mut turns);
        Ok(())
    })
}

/// A result, and how long it took without the model.
async fn timed<T, F: Future<Output = Result<T, Fault>>>(
    waited: &AtomicU64,
    work: impl FnOnce() -> F,
) -> Result<(T, Duration), Fault> {
    let (before, begun) = (waited.load(Ordering::Relaxed), Instant::now());
    let done = work().await?;
    let model = Duration::from_micros(waited.load(Ordering::Relaxed) - before);
    Ok((done, begun.elapsed().saturating_sub(model)))
}

fn vectors(address: &str, model: &str, texts: &[String]) -> Result<Vec<Vec<f32>>, Fault> {
    let (host, path) = address
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .ok_or_else(|| Fault::invalid("the address begins with http:// and has a path"))?;
    let body = json!({"model": model, "input": texts}).to_string();
    let mut stream = TcpStream::connect(host)?;
    write!(
        stream,
        "POST /{path} HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let json = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let answer: Value = serde_json::from_str(json)?;
    let vectors = answer["data"].as_array().into_iter().flatten().map(|one| one["embedding"].clone());
    Ok(serde_json::from_value(vectors.collect())?)
}

fn print(what: &str, took: &mut [Duration]) {
    took.sort();
    let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)].as_secs_f64() * 1000.0;
    println!("{what:<34} {:>8.3} ms at the median, {:.3} at the 95th of 100", at(50), at(95));
}
