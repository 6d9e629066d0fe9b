//! One walk from names to links.
//!
//! It reads no file but a script, and asks no provider.

use std::path::Path;

use drupe_extension_api::is_model_name;

use super::{Backend, CONTEXT_WINDOW, MAX_OUTPUT_TOKENS, Models, NamedBy, Provider, inspect::Target};
use crate::{error::ModelsError, retry::Link};

/// The model of a provider that is named alone, where rules answer.
pub(super) const OFFLINE: &str = "offline";
/// Likewise for a script, which answers whatever it is called.
const SCRIPT: &str = "script";

/// What stands before the path of a script in the name of a model.
const SCRIPT_AT: &str = "scripted:";

/// Characters of an invalid name that messages show.
const QUOTED: usize = 80;

/// Whether a name is the path of a script.
pub fn names_script(name: &str) -> bool {
    name.starts_with(SCRIPT_AT)
}

/// Where a walk ended; with one link at least.
pub(super) struct Found {
    pub(super) links: Vec<(Target, Link)>,
    pub(super) diagnostics: Vec<String>,
}

/// The models for `names`, or the default model, or the fallback.
pub(super) fn find(models: &Models, by: NamedBy, names: &[String]) -> Result<Found, ModelsError> {
    if let Some(name) = names.iter().find(|name| !is_model_name(name)) {
        return Err(ModelsError::Name { found: name.escape_debug().take(QUOTED).collect() });
    }
    let fallback = models.settings.fallback.as_deref();
    let mut search = Search::new(models, by, fallback.is_some());
    if names.is_empty() {
        search.add_default()?;
    }
    for name in names {
        search.add(name)?;
    }
    match fallback {
        Some(fallback) if search.links.is_empty() => search.fall_back(fallback),
        _ => search.end(),
    }
}

struct Search<'a> {
    models: &'a Models,
    by: NamedBy,
    /// Whether a name that nobody knows may be left out: something can stand in for it.
    lenient: bool,
    /// Each with what it is, so that none is asked twice.
    links: Vec<(Target, Link)>,
    absent: Vec<ModelsError>,
    /// Names that the offline model stands in for.
    replaced: Vec<String>,
    /// Models of which nothing is known.
    unknown: Vec<String>,
    /// The aliases that led here.
    trail: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(models: &'a Models, by: NamedBy, lenient: bool) -> Self {
        Self {
            models,
            by,
            lenient,
            links: Vec::new(),
            absent: Vec::new(),
            replaced: Vec::new(),
            unknown: Vec::new(),
            trail: Vec::new(),
        }
    }

    fn add_default(&mut self) -> Result<(), ModelsError> {
        let models = self.models;
        if models.settings.aliases.contains_key("default") {
            return self.add("default");
        }
        let mut providers = models.settings.providers.iter().filter_map(|p| models.providers.get(&p.name));
        // The rules are the default where nothing else is, and never before anything else.
        let first = providers.find(|p| !matches!(p.backend, Backend::Offline) && models.has_default(p));
        match first {
            Some(provider) => self.push_default(provider),
            None if !models.configured() => self.stand_in("default"),
            None => return self.lost(ModelsError::NoDefault),
        }
        Ok(())
    }

    fn add(&mut self, name: &str) -> Result<(), ModelsError> {
        let models = self.models;
        if let Some(path) = name.strip_prefix(SCRIPT_AT) {
            // An alias is the operator's word, whoever named it.
            if self.by != NamedBy::Operator && self.trail.is_empty() {
                return Err(ModelsError::NotTheirs { model: name.to_owned() });
            }
            let link = models.script(Path::new(path))?;
            self.push(Target::Script { file: path.into() }, link);
            return Ok(());
        }
        if let Some(targets) = models.settings.aliases.get(name) {
            return self.add_alias(name, targets);
        }
        let provider = models.providers.get(name);
        let is_offline = provider
            .map_or(matches!(name, "offline" | "offline/offline"), |p| matches!(p.backend, Backend::Offline));
        if is_offline
            && !models.configured()
            && let Some(alias) = self.trail.first().cloned()
        {
            // Whoever names an alias did not ask for rules.
            self.remark(&alias);
        }
        match provider {
            Some(provider) if models.has_default(provider) => self.push_default(provider),
            Some(_) => return self.lost(ModelsError::NoModel { provider: name.to_owned() }),
            None if is_offline => self.push_offline(),
            None => return self.add_model(name),
        }
        Ok(())
    }

    fn add_alias(&mut self, name: &str, targets: &[String]) -> Result<(), ModelsError> {
        if self.trail.iter().any(|n| n == name) {
            return Err(ModelsError::AliasLoop { alias: name.to_owned() });
        }
        self.trail.push(name.to_owned());
        for target in targets {
            self.add(target)?;
        }
        self.trail.pop();
        Ok(())
    }

    /// `provider/model`, or a bare name by the catalogue. A bare name may hold a `/` itself.
    fn add_model(&mut self, name: &str) -> Result<(), ModelsError> {
        let models = self.models;
        let is_known = |p: &str| models.providers.contains_key(p) || models.variable(p).is_some();
        let (provider, model) = match name.split_once('/') {
            Some((provider, model)) if is_known(provider) => (Some(provider), model),
            _ if is_known(name) => (Some(name), ""),
            _ => (models.catalogued(name, None).map(|(_, entry)| entry.provider.as_str()), name),
        };
        if let Some(provider) = provider.and_then(|p| models.providers.get(p)) {
            if model.trim().is_empty() {
                return Err(ModelsError::NoName {
                    model: name.to_owned(),
                    provider: provider.settings.name.clone(),
                });
            }
            self.push_model(provider, model);
            return Ok(());
        }
        if !models.configured() {
            self.stand_in(name);
            return Ok(());
        }
        self.lost(self.reason(name, provider))
    }

    /// Why a name leads nowhere; `provider` is whose it would be.
    fn reason(&self, name: &str, provider: Option<&str>) -> ModelsError {
        let model = name.to_owned();
        let known = || self.models.providers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        match (provider, name.split_once('/')) {
            (Some(provider), _) => {
                let variable = self.models.variable(provider).map(str::to_owned);
                ModelsError::NotConfigured { model, provider: provider.to_owned(), variable }
            }
            (None, Some((provider, _))) if !provider.is_empty() => {
                ModelsError::UnknownProvider { model, provider: provider.to_owned(), known: known() }
            }
            (None, _) => ModelsError::UnknownModel { model, known: known() },
        }
    }

    /// Leaves a name out, unless it can only be a mistake.
    fn lost(&mut self, error: ModelsError) -> Result<(), ModelsError> {
        if !self.lenient && !matches!(error, ModelsError::NotConfigured { .. }) {
            return Err(error);
        }
        self.absent.push(error);
        Ok(())
    }

    fn push(&mut self, target: Target, link: Link) {
        if self.links.iter().all(|(other, _)| *other != target) {
            self.links.push((target, link));
        }
    }

    fn push_model(&mut self, provider: &Provider, model: &str) {
        let target = Target::model(&provider.settings.name, model);
        if matches!(provider.backend, Backend::Wire(_)) && self.models.knows_nothing_of(provider, model) {
            self.unknown.push(target.to_string());
        }
        self.push(target, self.models.link(provider, model));
    }

    /// The model of a provider that is named alone.
    fn push_default(&mut self, provider: &Provider) {
        if let Some(model) = self.models.default_of(provider) {
            self.push_model(provider, model);
        } else if let Some(link) = self.models.preferred(provider) {
            self.push(Target::Preferred { provider: provider.settings.name.clone() }, link);
        }
    }

    fn push_offline(&mut self) {
        self.push(Target::model(OFFLINE, OFFLINE), self.models.offline.clone());
    }

    fn stand_in(&mut self, name: &str) {
        self.remark(name);
        self.push_offline();
    }

    fn remark(&mut self, name: &str) {
        let name = format!("`{name}`");
        if !self.replaced.contains(&name) {
            self.replaced.push(name);
        }
    }

    fn fall_back(self, fallback: &str) -> Result<Found, ModelsError> {
        let mut other = Search::new(self.models, NamedBy::Operator, false);
        let found = other.add(fallback).and_then(|()| other.end());
        let diagnostics = self.absent.iter().map(|e| format!("{e}; `{fallback}` stands in for it"));
        let diagnostics: Vec<_> = diagnostics.collect();
        match (found, self.absent.into_iter().next()) {
            (Ok(mut found), _) => {
                found.diagnostics.splice(0..0, diagnostics);
                Ok(found)
            }
            (Err(cause), Some(error)) if cause != error => {
                Err(ModelsError::Fallback { error: error.into(), fallback: cause.into() })
            }
            (Err(cause), _) => Err(cause),
        }
    }

    fn end(self) -> Result<Found, ModelsError> {
        if self.links.is_empty() {
            return Err(self.absent.into_iter().next().unwrap_or(ModelsError::NoDefault));
        }
        let mut diagnostics: Vec<_> = self.absent.iter().map(|e| format!("{e}; it is left out")).collect();
        if !self.replaced.is_empty() {
            diagnostics.push(format!(
                "no model provider is configured: the offline model stands in for {}; {}",
                self.replaced.join(", "),
                self.models.next_step()
            ));
        }
        diagnostics.extend(self.unknown.iter().map(|name| {
            format!(
                "nothing is known of model `{name}`: it is asked as one with a window of {CONTEXT_WINDOW} tokens and \
                 answers of {MAX_OUTPUT_TOKENS}, and its cost is unknown: set `models.profiles.{name}`"
            )
        }));
        Ok(Found { links: self.links, diagnostics })
    }
}

impl Models {
    /// Whether the name of a provider alone leads to a model.
    fn has_default(&self, provider: &Provider) -> bool {
        self.default_of(provider).is_some() || !provider.settings.preferred.is_empty()
    }

    /// The model of a provider that is named alone, where somebody says which.
    pub(super) fn default_of<'a>(&self, provider: &'a Provider) -> Option<&'a str> {
        let settings = &provider.settings;
        settings.default_model.as_deref().or(match provider.backend {
            Backend::Offline => Some(OFFLINE),
            Backend::Scripted(_) => Some(SCRIPT),
            Backend::Wire(_) => None,
        })
    }

    /// What would configure a provider that is not.
    pub(super) fn variable(&self, provider: &str) -> Option<&str> {
        let mut missing = self.settings.missing.iter();
        missing.find(|(name, _)| name == provider).map(|(_, variable)| variable.as_str())
    }

    /// What makes an end of the offline model.
    fn next_step(&self) -> String {
        let variables: Vec<_> = self.settings.missing.iter().map(|(_, variable)| variable.as_str()).collect();
        let provider = "add a provider under `models.providers`";
        match variables.is_empty() {
            true => provider.to_owned(),
            false => format!("set {}, or {provider}", variables.join(" or ")),
        }
    }
}
