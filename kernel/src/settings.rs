//! From the operator's configuration to what the parts of the kernel take.

use std::collections::BTreeMap;

use drupe_agent::Price;
use drupe_config::{
    Config, Diagnostics, Durability, ModelProfile, ProviderConfig, Sources, load_config, model_catalogue,
};
use drupe_journal::Storage;
use drupe_models::{CatalogueEntry, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings};

use crate::kernel::Folders;

/// Reads the configuration again, from the same sources.
pub fn reread(sources: &Sources) -> Result<Config, Diagnostics> {
    load_config(sources).map(|loaded| loaded.value)
}

/// Where the journal is, and what it survives.
pub fn storage(config: &Config, home: &Folders) -> Storage {
    match config.journal.durability {
        Durability::Full => Storage::Full(home.journal()),
        Durability::Process => Storage::Process(home.journal()),
        Durability::Memory => Storage::Memory,
    }
}

/// The models, as the configuration and the shipped catalogue describe them.
pub fn models(config: &Config) -> ModelsSettings {
    let catalogue = model_catalogue();
    let entries = catalogue.entries().map(|(name, entry)| {
        let profile = profile(&entry.profile);
        (name.to_owned(), CatalogueEntry { provider: entry.provider.to_owned(), profile })
    });
    let unset = catalogue.providers.iter().filter(|p| !config.models.providers.contains_key(&p.name));
    ModelsSettings {
        providers: config.models.providers.iter().map(|(name, p)| provider(name, p)).collect(),
        aliases: config.models.aliases.clone(),
        fallback: config.models.fallback.clone(),
        profiles: config.models.profiles.iter().map(|(name, p)| (name.clone(), profile(p))).collect(),
        catalogue: entries.collect(),
        missing: unset.map(|p| (p.name.clone(), p.key.clone())).collect::<BTreeMap<_, _>>(),
    }
}

fn provider(name: &str, from: &ProviderConfig) -> ProviderSettings {
    let kind = match from.kind {
        drupe_config::ProviderKind::OpenaiChat => ProviderKind::OpenAiChat {
            base_url: from.base_url.clone().unwrap_or_default(),
            api_key: from.api_key.as_ref().map(|key| key.expose().to_owned()),
            headers: from.headers.iter().map(|(k, v)| (k.clone(), v.expose().to_owned())).collect(),
            ca_file: from.ca_file.clone(),
        },
        drupe_config::ProviderKind::Scripted => {
            ProviderKind::Scripted { file: from.file.clone().unwrap_or_default() }
        }
        // The rest is the model that needs nothing.
        _ => ProviderKind::Offline,
    };
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    ProviderSettings {
        name: name.to_owned(),
        kind,
        timeout_ms: ms(from.timeout),
        stall_timeout_ms: ms(from.stall_timeout),
        concurrency: from.concurrency,
        default_model: from.default_model.clone(),
    }
}

fn profile(from: &ModelProfile) -> ProfileSettings {
    let price = match (from.input_usd, from.output_usd) {
        (Some(input), Some(output)) => {
            Some(Price { input, cached: from.cached_usd.unwrap_or(input), output })
        }
        _ => None,
    };
    ProfileSettings {
        context_window: from.context_window.map(u64::from),
        max_output_tokens: from.max_output_tokens,
        price,
    }
}
