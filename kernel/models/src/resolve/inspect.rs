//! What names lead to, where each figure is from, and what providers say of themselves: for whoever looks at the
//! configuration and asks no model.

use std::{collections::BTreeMap, fmt, io, path::PathBuf, sync::Arc};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Backend, CONTEXT_WINDOW, MAX_OUTPUT_TOKENS, Models, NamedBy, search};
use crate::{
    error::ModelsError, listed::listed, preferred::choose, settings::ProfileSettings, wire::ListedModel,
};

/// What a name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Model {
        provider: String,
        /// The name that the provider knows it by.
        model: String,
    },
    /// Of the models that are preferred at a provider, the first that it has.
    Preferred {
        provider: String,
    },
    Script {
        file: PathBuf,
    },
}

impl Target {
    pub(super) fn model(provider: &str, model: &str) -> Self {
        Self::Model { provider: provider.to_owned(), model: model.to_owned() }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model { provider, model } => write!(f, "{provider}/{model}"),
            Self::Preferred { provider } => f.write_str(provider),
            Self::Script { file } => write!(f, "scripted:{}", file.display()),
        }
    }
}

/// Who says what a figure is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FigureOrigin {
    /// The operator, under this key of `models.profiles`.
    Profile(String),
    /// The shipped catalogue, under this name.
    Catalogue(String),
    /// What runs here costs nothing.
    Here,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its key in a profile.
    pub name: &'static str,
    /// What it is, and who says so; none where nobody does.
    pub said: Option<(Value, FigureOrigin)>,
    /// What the model is taken for where nobody says.
    pub assumed: Option<u64>,
}

/// What providers said of the models that they have, or why they said nothing: none where one answers and has no list.
pub type Lists = BTreeMap<String, Result<Option<Vec<ListedModel>>, String>>;

type Part = (&'static str, Option<u64>, fn(&ProfileSettings) -> Option<Value>);

/// All that a profile says in figures.
const PARTS: [Part; 7] = [
    ("context_window", Some(CONTEXT_WINDOW), |said| said.context_window.map(Value::from)),
    ("max_output_tokens", Some(MAX_OUTPUT_TOKENS as u64), |said| said.max_output_tokens.map(Value::from)),
    ("input_usd", None, |said| said.input_usd.map(Value::from)),
    ("cached_usd", None, |said| said.cached_usd.map(Value::from)),
    ("cache_write_usd", None, |said| said.cache_write_usd.map(Value::from)),
    ("output_usd", None, |said| said.output_usd.map(Value::from)),
    ("long_prompts", None, |said| {
        let long = said.long_prompts?;
        Some(json!({"above": long.above, "input": long.input, "output": long.output}))
    }),
];

impl Models {
    /// What `names` lead to, in the order in which it is tried, and what the operator should know of it. They are the
    /// operator's: a script among them is read.
    pub fn targets(&self, names: &[String]) -> Result<(Vec<Target>, Vec<String>), ModelsError> {
        let found = search::find(self, NamedBy::Operator, names)?;
        Ok((found.links.into_iter().map(|(target, _)| target).collect(), found.diagnostics))
    }

    /// What is said of a model of a configured provider, and by whom.
    pub fn figures(&self, provider: &str, model: &str) -> Vec<Figure> {
        let Some(provider) = self.providers.get(provider) else { return Vec::new() };
        let layers: Vec<_> = self.layers(provider, model).collect();
        let figure = |(name, assumed, of): Part| {
            let said = layers.iter().find_map(|(from, said)| Some((of(said)?, from.clone())));
            Figure { name, said, assumed }
        };
        PARTS.into_iter().map(figure).collect()
    }

    /// The day from which a provider answers no more under this name, where it is announced.
    pub fn retires(&self, provider: &str, model: &str) -> Option<&str> {
        let provider = self.providers.get(provider)?;
        self.catalogued(model, Some(&provider.shipped_as))?.1.retires.as_deref()
    }

    /// Of these models one is asked where the provider is named alone; none where it is said which.
    pub fn preferences(&self, provider: &str) -> &[String] {
        let provider = self.providers.get(provider).filter(|provider| self.default_of(provider).is_none());
        provider.map_or(&[], |provider| &provider.settings.preferred)
    }

    /// Whether models of this provider are behind a network.
    pub fn is_asked(&self, provider: &str) -> bool {
        self.providers.get(provider).is_some_and(|provider| matches!(provider.backend, Backend::Wire(_)))
    }

    /// Asks every provider that is behind a network for its list of models, all at once. Waits for their answers, so it is
    /// for programs that do nothing else meanwhile.
    pub fn ask_lists(&self) -> io::Result<Lists> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let asked = self.providers.iter().filter_map(|(name, provider)| {
            let Backend::Wire(wire) = &provider.backend else { return None };
            Some(async move { (name.clone(), wire.list(name).await.map_err(|fault| fault.message)) })
        });
        Ok(runtime.block_on(join_all(asked)).into_iter().collect())
    }

    /// The preferred model that would be asked where a provider with this list is named alone; none where it is said which.
    pub fn choice(&self, provider: &str, list: Option<&[ListedModel]>) -> Option<Result<String, String>> {
        if self.preferences(provider).is_empty() {
            return None;
        }
        let provider = self.providers.get(provider)?;
        let Backend::Wire(wire) = &provider.backend else { return None };
        let models: Vec<_> = self.all_preferred(provider, wire).map(Arc::new).collect();
        let chosen = choose(&provider.settings.name, &models, list);
        Some(chosen.map(|model| model.name().to_owned()).map_err(|fault| fault.message))
    }

    /// What a list has for a model: itself, or one that it stands for.
    pub fn listed<'a>(list: &'a [ListedModel], model: &str) -> Option<&'a ListedModel> {
        listed(list, model)
    }
}
