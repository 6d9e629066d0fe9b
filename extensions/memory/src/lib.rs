//! What is worth keeping over conversations. Provides `memory_save`, `memory_search` and `memory_forget`, and gives each turn of
//! the orchestrator the facts that fit its message. Each agent has a namespace of its own, unless the configuration says
//! `namespace: shared`; people behind tokens have theirs either way.
//!
//! It keeps what it is told and concludes nothing: no summaries, no guesses from conversations. A fact that is forgotten is gone
//! from its file; the transcript of the conversation is the journal's.

mod asks;
mod fact;
mod file;
mod find;
mod keep;
mod meaning;
mod recall;
mod settings;
mod store;
mod whose;
mod words;

use std::{fmt::Write as _, sync::Arc};

use drupe_extension_api::{
    prelude::*,
    wire::{LONGEST_EMBEDDED, MOST_EMBEDDED},
};
use serde_json::Value;

use self::{
    find::FoundFact,
    keep::{FactBounds, KeptFact, WantedFact},
    meaning::{Least, Meaning},
    settings::{MemorySettings, Sharing, Vectors},
    store::FactStore,
};

/// Facts that get their vectors with a search, and with a turn, whose user waits; and how near one must be.
const IN_A_SEARCH: (usize, Least) = (MOST_EMBEDDED - 1, Least::Near);
const IN_A_TURN: (usize, Least) = (15, Least::StandsOut);
/// How long each waits for a vector, in milliseconds. What an extension gives to a turn is waited for for a second.
const SEARCH_MS: u64 = 5_000;
const TURN_MS: u64 = 600;

/// Facts that a search gives without `limit`, and at most.
const USUAL: usize = 8;
const MOST: usize = 50;

/// The extension; the example that measures it names it.
pub struct Memory {
    host: Host,
    sharing: Sharing,
    bounds: FactBounds,
    /// Bytes of facts in a turn.
    context_bytes: usize,
    store: Arc<FactStore>,
    vectors: Vectors,
}

impl Extension for Memory {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: MemorySettings = host.config()?;
        Ok(Memory {
            sharing: settings.namespace,
            bounds: FactBounds { fact_bytes: settings.max_fact_bytes, facts: settings.max_facts },
            context_bytes: settings.context_tokens.saturating_mul(recall::BYTES_PER_TOKEN),
            store: Arc::new(FactStore::new(host.data_folder())),
            vectors: settings.vectors,
            host,
        })
    }

    async fn stop(&self) -> Result<(), Fault> {
        let store = self.store.clone();
        self.host.blocking(move || store.flush()).await
    }

    async fn asked(&self, ask: String, params: Value) -> Result<Value, Fault> {
        let (store, bounds, now_ms) = (self.store.clone(), self.bounds, self.now_ms());
        self.host.blocking(move || asks::answer(&store, &ask, params, bounds, now_ms)).await
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Save {
    /// The fact as one whole sentence that is understood alone: "The user's sister is called Mara."
    text: String,
    /// How sure it is, 0 to 1; 1 without it.
    #[serde(default = "sure")]
    #[schemars(range(min = 0.0, max = 1.0))]
    confidence: f64,
    /// The id of a fact that no longer holds and that this one takes the place of.
    #[serde(default)]
    replaces: Option<i64>,
}

fn sure() -> f64 {
    1.0
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// A question, or words of the fact.
    query: String,
    /// How many facts, 1 to 50; 8 without it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 50))]
    limit: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Forget {
    /// The number of the fact.
    id: i64,
}

impl ToolProvider for Memory {
    fn tools(&self) -> Vec<Tool<Self>> {
        vec![
            Tool::new(
                "memory_save",
                "Keeps a fact for later conversations, such as what the user prefers or asks to remember. No secrets.",
                Memory::save,
            )
            .idempotent()
            .remembers(),
            Tool::new("memory_search", "Finds facts that were kept in earlier conversations.", Memory::search)
                .read_only(),
            Tool::new("memory_forget", "Deletes a fact that was kept.", Memory::forget).idempotent().destructive(),
        ]
    }
}

impl ContextProvider for Memory {
    async fn context(&self, turn: Turn) -> Result<Option<ContextText>, Fault> {
        // Where nothing was kept yet, a turn costs no thread.
        if self.context_bytes == 0 || !self.store.is_there() {
            return Ok(None);
        }
        let namespace = whose::of_orchestrator(self.sharing, &turn.session);
        let meaning = match self.vectors == Vectors::Turns && recall::is_about_something(&turn.message) {
            true => {
                self.meaning(&namespace, &turn.message, IN_A_TURN, |texts| turn.embed(texts, TURN_MS)).await
            }
            false => None,
        };
        let (store, bytes, now_ms) = (self.store.clone(), self.context_bytes, self.now_ms());
        let message = turn.message.clone();
        let text = self
            .host
            .blocking(move || recall::text(&store, &namespace, &message, meaning.as_ref(), bytes, now_ms))
            .await?;
        Ok(text.map(|(text, untrusted)| ContextText { text, priority: 0, untrusted }))
    }
}

export!(Memory: Tool, Context);

impl Memory {
    async fn save(&self, input: Save, call: Call) -> Result<String, Fault> {
        if !(0.0..=1.0).contains(&input.confidence) {
            return Err(Fault::invalid(format!("the confidence {} is not from 0 to 1", input.confidence)));
        }
        let bounds = self.bounds;
        let wanted = WantedFact {
            namespace: whose::of_call(self.sharing, &call),
            text: keep::checked(&input.text, bounds)?,
            confidence: input.confidence,
            replaces: input.replaces,
            session: call.session.to_string(),
            turn: call.turn.to_string(),
            agent: call.agent.to_string(),
            effect: call.effect_id.to_string(),
            strangers: call.tainted,
            now_ms: self.now_ms(),
        };
        let store = self.store.clone();
        let work = move || {
            store.write(|db| {
                let kept = keep::keep(db, &wanted, bounds)?;
                let fact = keep::one(db, kept.id(), None)?;
                let near = keep::near(db, &fact, wanted.now_ms)?;
                Ok((kept, near))
            })
        };
        let (kept, near) = self.host.blocking(work).await?;
        let mut said = match kept {
            KeptFact::New(id) | KeptFact::Repeated(id) => format!("kept as fact {id}"),
            KeptFact::Same(id) => format!("fact {id} says the same; it is up to date now"),
            KeptFact::Replaced(id) => format!("fact {id} says this now"),
        };
        if !near.is_empty() {
            said += "\nFacts like it; replace or forget those that no longer hold:";
            for fact in &near {
                let _ = write!(said, "\n{}", fact.told());
            }
        }
        if near.iter().any(|fact| fact.strangers) {
            call.read_untrusted();
        }
        Ok(said)
    }

    async fn search(&self, input: Search, call: Call) -> Result<String, Fault> {
        let limit = input.limit.unwrap_or(USUAL).clamp(1, MOST);
        let (store, namespace, now_ms) =
            (self.store.clone(), whose::of_call(self.sharing, &call), self.now_ms());
        let meaning = match self.vectors == Vectors::None {
            true => None,
            false => {
                self.meaning(&namespace, &input.query, IN_A_SEARCH, |texts| call.embed(texts, SEARCH_MS))
                    .await
            }
        };
        let found: Vec<FoundFact> = self
            .host
            .blocking(move || {
                let question = words::search(&input.query);
                let found = store
                    .read(|db| Ok(find::find(db, &namespace, &question, meaning.as_ref(), limit, now_ms)?))?;
                store.recall(found.iter().map(|found| found.fact.id), now_ms);
                Ok(found)
            })
            .await?;
        if found.iter().any(|found| found.fact.strangers) {
            call.read_untrusted();
        }
        match found.is_empty() {
            true => Ok("nothing that was kept fits".to_owned()),
            false => Ok(found.iter().map(|found| found.fact.told()).collect::<Vec<_>>().join("\n")),
        }
    }

    async fn forget(&self, input: Forget, call: Call) -> Result<String, Fault> {
        let (store, namespace, id) = (self.store.clone(), whose::of_call(self.sharing, &call), input.id);
        let forgotten = self.host.blocking(move || asks::forget_one(&store, id, Some(&namespace))).await?;
        Ok(match forgotten {
            true => format!("forgot fact {id}"),
            false => format!("there is no fact {id}"),
        })
    }

    /// A question as a vector, where a model makes vectors. Facts that have none yet get theirs by the same request. Without an answer
    /// of the model facts are found by their words alone, and the journal tells why.
    async fn meaning<F>(
        &self,
        namespace: &str,
        question: &str,
        (most, least): (usize, Least),
        embed: impl FnOnce(Vec<String>) -> F,
    ) -> Option<Meaning>
    where
        F: Future<Output = Result<Vec<Vec<f32>>, Fault>>,
    {
        let model = self.host.embedding_model()?.to_owned();
        if question.trim().is_empty() {
            return None;
        }
        let asked = meaning::beginning(question);
        let (store, of, named, bytes) =
            (self.store.clone(), namespace.to_owned(), model.clone(), LONGEST_EMBEDDED - asked.len());
        let missing = self
            .host
            .blocking(move || store.read(|db| Ok(meaning::missing(db, &of, &named, most, bytes)?)))
            .await
            .ok()?;
        let texts = missing.iter().map(|(_, text)| meaning::beginning(text));
        let vectors = embed(std::iter::once(asked).chain(texts).collect()).await;
        let mut vectors = vectors
            .inspect_err(|fault| self.host.log(Level::Debug, format!("facts are found by words: {fault}")))
            .ok()?
            .into_iter();
        let direction = meaning::direction(vectors.next()?);
        let (store, named) = (self.store.clone(), model.clone());
        let made: Vec<_> = missing.into_iter().zip(vectors).collect();
        if !made.is_empty() {
            let work = move || {
                let made = made.iter().map(|((id, text), vector)| (*id, text.as_str(), vector.clone()));
                store.write(|db| Ok(meaning::keep(db, &named, made)?))
            };
            self.host.blocking(work).await.ok()?;
        }
        Some(Meaning { model, direction: direction?, least })
    }

    fn now_ms(&self) -> i64 {
        self.host.now().as_millisecond()
    }
}

#[cfg(test)]
mod tests;
