//! What `drupe models` finds out: about the configuration alone, and about what providers say.

use drupe_config::{CatalogueSource, Config, ProviderKind, model_catalogue};
use drupe_kernel::{Figure, FigureOrigin, ListedModel, Lists, Models, Target};
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Serialize)]
pub struct Configured {
    /// The day on which the shipped figures were last looked up.
    pub looked_up: String,
    pub providers: Vec<Provider>,
    pub names: Vec<Name>,
    pub models: Vec<Model>,
}

#[derive(Debug, Serialize)]
pub struct Provider {
    pub name: String,
    pub kind: ProviderKind,
    /// Masked where it may hold a secret.
    pub base_url: Option<Value>,
    pub default_model: Option<String>,
    pub preferred: Vec<String>,
}

/// A key of the configuration, or a manifest, that names models.
#[derive(Debug, Serialize)]
pub struct Name {
    pub key: String,
    pub names: Vec<String>,
    pub leads_to: Vec<String>,
    pub fault: Option<String>,
    pub remarks: Vec<String>,
    #[serde(skip)]
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
pub struct Model {
    /// As it is asked for: `provider/model`.
    pub name: String,
    #[serde(skip)]
    provider: String,
    #[serde(skip)]
    model: String,
    pub named_by: Vec<String>,
    /// Whether it is only one of those of which a provider's list decides.
    pub preferred: bool,
    pub figures: Vec<Row>,
    pub retires: Option<String>,
    pub sources: Vec<CatalogueSource>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub value: Option<Value>,
    pub from: Option<String>,
    /// What the model is taken for where nothing is known.
    pub assumed: Option<u64>,
}

/// What providers say of what is configured.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// Whether every provider answers, and every name leads to a model that is not missing.
    pub ok: bool,
    pub providers: Vec<Asked>,
    pub names: Vec<Name>,
    pub models: Vec<Found>,
}

#[derive(Debug, Serialize)]
pub struct Asked {
    pub name: String,
    pub answers: bool,
    /// How many models its list has; none where it has no list.
    pub listed: Option<usize>,
    /// The model that is asked where the provider is named alone and nobody says which.
    pub chooses: Option<String>,
    /// Why it does not answer, or why nothing can be chosen.
    pub fault: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Found {
    pub name: String,
    pub named_by: Vec<String>,
    pub presence: Presence,
    /// The name in the list, where it is another one.
    pub listed_as: Option<String>,
    pub retires: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Listed,
    Missing,
    /// The provider has no list, or did not answer.
    Unknown,
    /// On this machine, without a provider.
    RunsHere,
}

impl Configured {
    pub fn new(config: &Config, models: &Models, names: Vec<(String, Vec<String>)>) -> Self {
        let shown = config.effective();
        let address = |name: &str| {
            let key = format!("models.providers.{name}.base_url");
            shown.iter().find(|value| value.key == key).map(|value| value.value.clone())
        };
        let providers = config.models.providers.iter().map(|(name, provider)| Provider {
            name: name.clone(),
            kind: provider.kind,
            base_url: provider.base_url.as_ref().and_then(|_| address(name)),
            default_model: provider.default_model.clone(),
            preferred: models.preferences(name).to_vec(),
        });
        let names: Vec<_> = names.into_iter().map(|named| name(named, models)).collect();
        let looked_up = model_catalogue().looked_up.clone();
        Self { looked_up, providers: providers.collect(), models: all(&names, models), names }
    }

    /// Compares it with what providers say.
    pub fn check(self, models: &Models, lists: &Lists) -> Checked {
        let alone = |provider: &str| {
            let target = Target::Preferred { provider: provider.to_owned() };
            self.names.iter().any(|name| name.targets.contains(&target))
        };
        let providers: Vec<_> =
            lists.iter().map(|(name, list)| asked(name, list, alone(name), models)).collect();
        let own = self.models.into_iter().filter(|model| !model.preferred);
        let found: Vec<_> = own.map(|model| found(model, lists, models)).collect();
        let ok = providers.iter().all(|asked| asked.fault.is_none())
            && self.names.iter().all(|name| name.fault.is_none())
            && found.iter().all(|model| model.presence != Presence::Missing);
        Checked { ok, providers, names: self.names, models: found }
    }
}

fn name((key, names): (String, Vec<String>), models: &Models) -> Name {
    let (targets, remarks, fault) = match models.targets(&names) {
        Ok((targets, remarks)) => (targets, remarks, None),
        Err(error) => (Vec::new(), Vec::new(), Some(error.to_string())),
    };
    let leads_to = targets.iter().map(Target::to_string).collect();
    Name { key, names, leads_to, fault, remarks, targets }
}

/// Every model that names lead to, once.
fn all(names: &[Name], models: &Models) -> Vec<Model> {
    let mut all: Vec<Model> = Vec::new();
    let mut add = |key: &str, provider: &str, name: &str, preferred: bool| {
        let shown = format!("{provider}/{name}");
        if let Some(model) = all.iter_mut().find(|model| model.name == shown) {
            model.preferred &= preferred;
            if !model.named_by.iter().any(|other| other == key) {
                model.named_by.push(key.to_owned());
            }
            return;
        }
        let figures = models.figures(provider, name);
        let origin = figures.iter().find_map(|figure| match &figure.said {
            Some((_, FigureOrigin::Catalogue(name))) => model_catalogue().model(name),
            _ => None,
        });
        all.push(Model {
            name: shown,
            provider: provider.to_owned(),
            model: name.to_owned(),
            named_by: vec![key.to_owned()],
            preferred,
            figures: figures.into_iter().map(row).collect(),
            retires: models.retires(provider, name).map(str::to_owned),
            sources: origin.map(|entry| entry.sources.into_iter().cloned().collect()).unwrap_or_default(),
        });
    };
    for Name { key, targets, .. } in names {
        for target in targets {
            match target {
                Target::Model { provider, model } => add(key, provider, model, false),
                Target::Preferred { provider } => {
                    models.preferences(provider).iter().for_each(|model| add(key, provider, model, true));
                }
                Target::Script { .. } => {}
            }
        }
    }
    all
}

fn row(figure: Figure) -> Row {
    let (value, from) = figure.said.unzip();
    let from = from.map(|from| match from {
        FigureOrigin::Profile(name) => format!("models.profiles.{name}"),
        FigureOrigin::Catalogue(_) => "catalogue".to_owned(),
        FigureOrigin::Here => "runs here".to_owned(),
    });
    let assumed = figure.assumed.filter(|_| value.is_none());
    Row { name: figure.name, value, from, assumed }
}

fn asked(name: &str, list: &Result<Option<Vec<ListedModel>>, String>, alone: bool, models: &Models) -> Asked {
    let name = name.to_owned();
    match list {
        Err(fault) => Asked { name, answers: false, listed: None, chooses: None, fault: Some(fault.clone()) },
        Ok(list) => {
            let (chooses, fault) = match models.choice(&name, list.as_deref()) {
                Some(Ok(model)) => (Some(model), None),
                // Where nothing names the provider alone, nothing has to be chosen.
                Some(Err(fault)) => (None, alone.then_some(fault)),
                None => (None, None),
            };
            Asked { name, answers: true, listed: list.as_ref().map(Vec::len), chooses, fault }
        }
    }
}

fn found(model: Model, lists: &Lists, models: &Models) -> Found {
    let list = lists.get(&model.provider).and_then(|list| list.as_ref().ok()).and_then(Option::as_deref);
    let listed = list.and_then(|list| Models::listed(list, &model.model));
    let presence = match (list, listed) {
        _ if !models.is_asked(&model.provider) => Presence::RunsHere,
        (_, Some(_)) => Presence::Listed,
        (Some(_), None) => Presence::Missing,
        (None, None) => Presence::Unknown,
    };
    Found {
        listed_as: listed.map(|listed| listed.name.clone()).filter(|name| *name != model.model),
        // What the provider says of its own model goes before what ships.
        retires: listed.and_then(|listed| listed.retires.clone()).or(model.retires),
        name: model.name,
        named_by: model.named_by,
        presence,
    }
}
