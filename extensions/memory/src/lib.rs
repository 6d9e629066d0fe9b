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
mod recall;
mod settings;
mod store;
mod whose;
mod words;

use std::{fmt::Write as _, sync::Arc};

use drupe_extension_api::prelude::*;
use serde_json::Value;

use self::{
    find::FoundFact,
    keep::{FactBounds, KeptFact, WantedFact},
    settings::{MemorySettings, Sharing},
    store::FactStore,
};

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
}

impl Extension for Memory {
    async fn initialize(host: Host) -> Result<Self, Fault> {
        let settings: MemorySettings = host.config()?;
        Ok(Memory {
            sharing: settings.namespace,
            bounds: FactBounds { fact_bytes: settings.max_fact_bytes, facts: settings.max_facts },
            context_bytes: settings.context_tokens.saturating_mul(recall::BYTES_PER_TOKEN),
            store: Arc::new(FactStore::new(host.data_folder())),
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
    async fn context(&self, turn: TurnContext) -> Result<Option<ContextText>, Fault> {
        // Where nothing was kept yet, a turn costs no thread.
        if self.context_bytes == 0 || !self.store.is_there() {
            return Ok(None);
        }
        let namespace = whose::of_orchestrator(self.sharing, &turn.session);
        let (store, bytes, now_ms) = (self.store.clone(), self.context_bytes, self.now_ms());
        let text = self
            .host
            .blocking(move || recall::text(&store, &namespace, &turn.message, bytes, now_ms))
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
        let found: Vec<FoundFact> = self
            .host
            .blocking(move || {
                let question = words::search(&input.query);
                let found = store.read(|db| Ok(find::find(db, &namespace, &question, limit, now_ms)?))?;
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

    fn now_ms(&self) -> i64 {
        self.host.now().as_millisecond()
    }
}

#[cfg(test)]
mod tests;
