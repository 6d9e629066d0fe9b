//! What a run is made of, kept by its content: with it and the run's entries each of its requests can be built again.
//!
//! [`Entry::Begin`](crate::Entry::Begin) names the hash; the content goes into the journal in the same commit, once for all
//! runs that have it, and leaves with the last turn that names it. It is made when a run of a [`LoopAgent`](crate::LoopAgent)
//! begins, and read by whoever explains a run. It never holds what changes from run to run (the task, the history, notes),
//! and no secret: a run that goes on is made of what there is by then, whatever its beginning names.

use std::{borrow::Borrow, collections::BTreeMap, fmt, sync::Arc};

use drupe_extension_api::{Definition, ToolName, ToolSpec};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{core_tools::search_tools, ids, model::ModelProfile, prompt};

/// The content, as canonical JSON: its keys are sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRecipe {
    /// SHA-256 of `json`, in hex.
    pub hash: Arc<str>,
    /// A [`Recipe`].
    pub json: Arc<str>,
}

/// What a run is made of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Recipe {
    /// The agent.
    pub definition: Definition,
    /// Whether a person talks to it directly.
    pub root: bool,
    /// The tools that its model is sent from the first step on, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Those that it can look up.
    pub deferred: Vec<ToolSpec>,
    /// What its model holds, by which its transcript is made smaller; none in older records.
    #[serde(default)]
    pub model: Option<ModelBounds>,
}

/// What of a model bounds its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelBounds {
    /// Tokens that request and answer may have together.
    pub context_window: u64,
    /// Tokens that one answer may have.
    pub max_output_tokens: u32,
    /// Whether it reads pictures, which count beside texts then.
    pub images: bool,
}

impl From<&ModelProfile> for ModelBounds {
    fn from(profile: &ModelProfile) -> Self {
        let ModelProfile { context_window, max_output_tokens, images, .. } = *profile;
        Self { context_window, max_output_tokens, images }
    }
}

impl KeptRecipe {
    pub(crate) fn of(
        definition: &Definition,
        root: bool,
        tools: &[Arc<ToolSpec>],
        deferred: &[Arc<ToolSpec>],
        model: &ModelProfile,
    ) -> Self {
        let specs = |specs: &[Arc<ToolSpec>]| specs.iter().map(|spec| json!(**spec)).collect::<Vec<_>>();
        let (tools, deferred) = (specs(tools), specs(deferred));
        let model = ModelBounds::from(model);
        let content = json!({
            "definition": definition, "root": root, "tools": tools, "deferred": deferred, "model": model,
        });
        let json = content.to_string();
        Self { hash: ids::hex(&Sha256::digest(&json)).into(), json: json.into() }
    }
}

impl Recipe {
    /// Reads what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// What of it is not as it was by now. Of instructions a day that stands in them does not count.
    pub fn changes(&self, now: &Self) -> Vec<RecipeChange> {
        let of = |recipe: &Self| -> BTreeMap<ToolName, ToolSpec> {
            let all = recipe.tools.iter().chain(&recipe.deferred);
            all.map(|spec| (spec.name.clone(), spec.clone())).collect()
        };
        let (tools, tools_now) = (of(self), of(now));
        let names = |tools: &BTreeMap<ToolName, ToolSpec>| tools.keys().cloned().collect::<Vec<_>>();
        let mut changes = RecipeChange::of_names(&names(&tools), &names(&tools_now));
        let others = tools.iter().filter(|(name, spec)| tools_now.get(*name).is_some_and(|now| now != *spec));
        let others = told_of_tools(others.map(|(name, _)| name));
        changes
            .extend(others.map(|(tools, be)| RecipeChange::Other(format!("{tools} {be} defined otherwise"))));
        let (before, by_now) = (&self.definition, &now.definition);
        if without_days(&before.instructions) != without_days(&by_now.instructions) {
            changes.push(RecipeChange::Instructions);
        }
        changes.extend(RecipeChange::of_models(&before.models, &by_now.models));
        for (what, differs) in [
            ("the parameters of its model", before.parameters != by_now.parameters),
            ("its limits", before.limits != by_now.limits),
            ("the form of its answer", before.output != by_now.output),
            ("the texts that it begins with", before.context != by_now.context),
        ] {
            if differs {
                changes.push(RecipeChange::Other(format!("{what} changed")));
            }
        }
        changes
    }

    /// The system prompt of its requests.
    pub fn system(&self) -> String {
        system(&self.definition, &self.tools, &self.deferred)
    }
}

/// What of an agent is not as it was. As text it is a part of a sentence about that agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecipeChange {
    /// Which tools are gone or new.
    Names(String),
    /// Which models there were and are.
    Models(String),
    /// Its instructions, beyond a day that stands in them.
    Instructions,
    /// What no caller treats in a way of its own.
    Other(String),
}

impl RecipeChange {
    /// Which tools are gone or new, of two lists.
    pub fn of_names(before: &[ToolName], by_now: &[ToolName]) -> Vec<Self> {
        let beside = |some: &[ToolName], others: &[ToolName], what: &str| {
            let names = some.iter().filter(|name| !others.contains(name));
            told_of_tools(names).map(|(tools, be)| Self::Names(format!("{tools} {be} {what}")))
        };
        let (gone, new) = (beside(before, by_now, "gone"), beside(by_now, before, "new"));
        gone.into_iter().chain(new).collect()
    }

    /// Nobody knows: what it was made of is deleted.
    pub fn not_kept() -> Self {
        Self::Other("what it was is not kept any more".into())
    }

    /// Which models are asked now in place of which; nothing where they are the same.
    pub fn of_models(before: &[String], by_now: &[String]) -> Option<Self> {
        let named = |models: &[String]| match models {
            [] => "the default".to_owned(),
            some => some.join(", "),
        };
        (before != by_now)
            .then(|| Self::Models(format!("its models were {} and are {}", named(before), named(by_now))))
    }
}

impl fmt::Display for RecipeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Names(text) | Self::Models(text) | Self::Other(text) => f.write_str(text),
            Self::Instructions => f.write_str("its instructions are others"),
        }
    }
}

/// Tools as the subject of a sentence, and its verb; none where there are none. A server may bring hundreds along.
fn told_of_tools<'a>(names: impl Iterator<Item = &'a ToolName>) -> Option<(String, &'static str)> {
    const NAMED: usize = 12;
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match &names[..] {
        [] => None,
        [one] => Some((format!("the tool {one}"), "is")),
        some if some.len() <= NAMED => Some((format!("the tools {}", some.join(", ")), "are")),
        many => {
            let (named, more) = (many[..NAMED].join(", "), many.len() - NAMED);
            Some((format!("the tools {named} and {more} more"), "are"))
        }
    }
}

/// A text in which each day, `2026-03-01`, stands as the same word.
fn without_days(text: &str) -> String {
    const DAY: usize = "2026-03-01".len();
    let is_day = |at: &[u8]| {
        at.iter().enumerate().all(|(n, byte)| match n {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
    };
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.as_bytes().windows(DAY).position(is_day) {
        kept.push_str(&rest[..at]);
        kept.push_str("<day>");
        rest = &rest[at + DAY..];
    }
    kept + rest
}

/// The system prompt of an agent with those tools.
pub(crate) fn system<T: Borrow<ToolSpec>>(definition: &Definition, tools: &[T], deferred: &[T]) -> String {
    let mut system = definition.instructions.clone();
    system.push_str(&prompt::tools(tools));
    if !deferred.is_empty() {
        system.push_str("\n\nTools that you can look up with `search_tools`:");
        for spec in deferred {
            system.push('\n');
            system.push_str(&search_tools::line(spec.borrow()));
        }
    }
    system
}
