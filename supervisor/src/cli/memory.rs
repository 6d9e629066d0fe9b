//! `drupe memory`: what is remembered over conversations, which the extension `memory` keeps.

use std::io::Read;

use drupe_extension_api::control::{ExtensionAsk, method};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Context, Facts,
    console::{plain, table},
    failure::Failure,
};

/// The extension that keeps it.
const KEEPER: &str = "memory";

/// The facts that an export asks for at a time.
const PAGE: u32 = 500;

/// What the verb `memory` is given.
#[derive(Debug, clap::Args)]
pub struct MemoryVerbs {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List what is remembered, the latest change first
    List(List),
    /// Find what is remembered about something
    Search(Search),
    /// Write a fact anew, in your own words
    Edit(Edit),
    /// Forget a fact, or all of a namespace
    Forget(Forget),
    /// Print all that is remembered as JSON, a line for each fact
    Export,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Those of one namespace, such as orchestrator
    #[arg(long)]
    namespace: Option<String>,
    /// How many are shown at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
struct Search {
    /// What is looked for, in words
    query: String,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Args)]
struct Edit {
    /// Its number, as the list shows it
    id: u64,
    /// What is remembered from now on; `-` reads it from the standard input
    text: String,
    #[command(flatten)]
    facts: Facts,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["id", "namespace"]))]
struct Forget {
    /// Its number, as the list shows it
    id: Option<u64>,
    /// All that this namespace has
    #[arg(long)]
    namespace: Option<String>,
}

/// A fact, as far as it is drawn.
#[derive(Deserialize)]
struct Kept {
    id: u64,
    namespace: String,
    text: String,
    confidence: f64,
    strangers: bool,
    changed: String,
}

impl MemoryVerbs {
    pub fn execute(self, context: &Context) -> Result<u8, Failure> {
        match self.verb {
            None => self.list.execute(None, context),
            Some(Verb::List(list)) => list.execute(None, context),
            Some(Verb::Search(Search { query, list })) => list.execute(Some(query), context),
            Some(Verb::Edit(edit)) => edit.execute(context),
            Some(Verb::Forget(Forget { id, namespace })) => {
                let params = id.map_or_else(|| json!({"namespace": namespace}), |id| json!({"id": id}));
                let forgotten = decide(context, "forget", params)?;
                let count = forgotten["forgotten"].as_u64().unwrap_or_default();
                context.console.remark(&format!("{count} forgotten"));
                Ok(u8::from(count == 0))
            }
            Some(Verb::Export) => export(context),
        }
    }
}

impl List {
    fn execute(self, query: Option<String>, context: &Context) -> Result<u8, Failure> {
        let Self { namespace, limit, facts } = self;
        let mut params = json!({"limit": limit});
        for (name, value) in [("query", query), ("namespace", namespace)] {
            if let Some(value) = value {
                params[name] = value.into();
            }
        }
        let found: Value = ask(context, "list", params)?;
        if facts.json {
            return context.console.json(&found).map(|()| 0);
        }
        let list: Vec<Kept> = serde_json::from_value(found["facts"].clone())?;
        if list.is_empty() {
            context.console.remark("nothing is remembered that fits");
        } else {
            context.console.draw(&table(&list.iter().map(row).collect::<Vec<_>>()))?;
            let total = found["total"].as_u64().unwrap_or_default();
            if total > list.len() as u64 {
                context.console.remark(&format!("{total} in all; `--limit` shows more, `export` all"));
            }
        }
        Ok(0)
    }
}

impl Edit {
    fn execute(self, context: &Context) -> Result<u8, Failure> {
        let Self { id, mut text, facts } = self;
        if text == "-" {
            text.clear();
            std::io::stdin().read_to_string(&mut text)?;
        }
        let kept = decide(context, "edit", json!({"id": id, "text": text.trim()}))?;
        match facts.json {
            true => context.console.json(&kept)?,
            false => context.console.draw(&table(&[row(&serde_json::from_value(kept)?)]))?,
        }
        Ok(0)
    }
}

fn export(context: &Context) -> Result<u8, Failure> {
    let mut after = json!(0);
    loop {
        let page: Value = ask(context, "export", json!({"after": after, "limit": PAGE}))?;
        for fact in page["facts"].as_array().into_iter().flatten() {
            context.console.draw(&format!("{}\n", plain(&fact.to_string())))?;
        }
        match page.get("next").filter(|next| !next.is_null()) {
            Some(next) => after = next.clone(),
            None => return Ok(0),
        }
    }
}

fn asked(ask: &str, params: Value) -> ExtensionAsk {
    ExtensionAsk { id: KEEPER.into(), ask: ask.into(), params }
}

fn ask(context: &Context, name: &str, params: Value) -> Result<Value, Failure> {
    context.daemon().call(method::EXTENSIONS_ASK, &asked(name, params))
}

fn decide(context: &Context, name: &str, params: Value) -> Result<Value, Failure> {
    context.daemon().decide(method::EXTENSIONS_ASK, &asked(name, params))
}

fn row(fact: &Kept) -> Vec<String> {
    let Kept { id, namespace, text, confidence, strangers, changed } = fact;
    let marks = match (*confidence < 1.0, strangers) {
        (true, true) => format!("{confidence:.1}, strangers were read"),
        (true, false) => format!("{confidence:.1}"),
        (false, true) => "strangers were read".into(),
        (false, false) => String::new(),
    };
    vec![id.to_string(), plain(namespace), plain(changed.get(..10).unwrap_or(changed)), marks, plain(text)]
}
