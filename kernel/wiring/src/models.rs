//! The models, as the configuration and the shipped catalogue describe them.

use drupe_agent::LongPrompts;
use drupe_config::{Config, ModelProfile, ProviderConfig, model_catalogue};
use drupe_models::{
    CatalogueEntry, Endpoint, ModelsSettings, ProfileSettings, ProviderKind, ProviderSettings, Thinking,
};

pub fn models(config: &Config) -> ModelsSettings {
    let catalogue = model_catalogue();
    // Of somebody else's server nothing is known but that it may have a model of that name.
    let known = |name: &str| config.models.providers.get(name).is_none_or(|provider| provider.catalogued);
    let entries = catalogue.entries().map(|(name, entry)| {
        let said = known(entry.provider).then_some((entry.profile, entry.retires));
        let (said, retires) = said.unwrap_or_default();
        let (profile, retires) = (profile(&said), retires.map(str::to_owned));
        (name.to_owned(), CatalogueEntry { provider: entry.provider.to_owned(), profile, retires })
    });
    let unset = catalogue.providers.iter().filter(|p| !config.models.providers.contains_key(&p.name));
    ModelsSettings {
        providers: config.models.providers.iter().map(|(name, p)| provider(name, p)).collect(),
        aliases: config.models.aliases.clone(),
        fallback: config.models.fallback.clone(),
        profiles: config.models.profiles.iter().map(|(name, p)| (name.clone(), profile(p))).collect(),
        catalogue: entries.collect(),
        embedding: config.models.embedding.clone(),
        embeddings: catalogue
            .embeddings()
            .iter()
            .map(|model| (format!("{}/{}", model.provider, model.name), model.input_usd))
            .collect(),
        looked_up: catalogue.looked_up.clone(),
        cost_limit: config.cost_limit(),
        missing: unset.map(|p| (p.name.clone(), p.key.clone())).collect(),
    }
}

fn provider(name: &str, from: &ProviderConfig) -> ProviderSettings {
    use drupe_config::ProviderKind as Kind;
    let endpoint = || Endpoint {
        base_url: from.base_url.clone().unwrap_or_default(),
        api_key: from.api_key.as_ref().map(|key| key.expose().to_owned()),
        headers: from.headers.iter().map(|(k, v)| (k.clone(), v.expose().to_owned())).collect(),
        ca_file: from.ca_file.clone(),
        dialect: from.dialect.clone(),
    };
    let kind = match from.kind {
        Kind::Openai => ProviderKind::OpenAi(endpoint()),
        Kind::OpenaiChat => ProviderKind::OpenAiChat(endpoint()),
        Kind::Anthropic => ProviderKind::Anthropic(endpoint()),
        Kind::Gemini => ProviderKind::Gemini(endpoint()),
        Kind::Scripted => ProviderKind::Scripted { file: from.file.clone().unwrap_or_default() },
        Kind::Offline => ProviderKind::Offline,
    };
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    ProviderSettings {
        name: name.to_owned(),
        kind,
        timeout_ms: ms(from.timeout),
        stall_timeout_ms: ms(from.stall_timeout),
        concurrency: from.concurrency,
        default_model: from.default_model.clone(),
        preferred: preferred(name, from),
    }
}

/// What a provider is asked for by its name alone: by its protocol, or by its name where that is a vendor's.
fn preferred(name: &str, from: &ProviderConfig) -> Vec<String> {
    let named = model_catalogue().provider(name).filter(|_| from.catalogued && from.preferred.is_empty());
    named.map_or_else(|| from.preferred.clone(), |named| named.preferred.clone())
}

fn profile(from: &ModelProfile) -> ProfileSettings {
    ProfileSettings {
        context_window: from.context_window.map(u64::from),
        max_output_tokens: from.max_output_tokens,
        input_usd: from.input_usd,
        cached_usd: from.cached_usd,
        cache_write_usd: from.cache_write_usd,
        output_usd: from.output_usd,
        long_prompts: from.long_prompts.map(|long| LongPrompts {
            above: long.above,
            input: long.input,
            output: long.output,
        }),
        tools: from.tools,
        reasoning: from.reasoning,
        efforts: from.efforts.as_ref().map(|efforts| efforts.iter().copied().collect()),
        thinking: from.thinking.map(|thinking| match thinking {
            drupe_config::Thinking::Effort => Thinking::Effort,
            drupe_config::Thinking::Budget => Thinking::Budget,
            drupe_config::Thinking::Level => Thinking::Level,
            drupe_config::Thinking::Adaptive => Thinking::Adaptive { between_tools: false },
            drupe_config::Thinking::AdaptiveBetweenTools => Thinking::Adaptive { between_tools: true },
        }),
        sampling: from.sampling,
        images: from.images,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use drupe_config::{Sources, load_config};
    use drupe_models::{Models, NamedBy};

    use super::*;

    /// The models that variables and the command line configure, without a file.
    fn made(keys: &[&str], set: &[(&str, &str)]) -> Models {
        let sources = Sources {
            file: None,
            home: "/nonexistent".into(),
            environment: keys.iter().map(|key| ((*key).to_owned(), "k".to_owned())).collect(),
            overrides: set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        };
        Models::new(models(&load_config(&sources).unwrap().value)).unwrap()
    }

    #[test]
    fn of_another_server_under_a_vendors_name_the_catalogue_says_nothing() {
        let check = |address: &str, default: bool, priced: bool| {
            let variables = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", address)];
            let sources = Sources {
                file: None,
                home: "/nonexistent".into(),
                environment: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
                overrides: Vec::new(),
            };
            let models = Models::new(models(&load_config(&sources).unwrap().value)).unwrap();
            assert_eq!(
                models.resolve(NamedBy::Operator, &["openai".to_owned()]).is_ok(),
                default,
                "{address}"
            );
            assert!(
                models.resolve(NamedBy::Operator, &["gpt-4o".to_owned()]).is_ok(),
                "a name still leads there"
            );
            let model = models.resolve(NamedBy::Operator, &["openai/gpt-4o".to_owned()]).unwrap().model;
            assert_eq!(model.profile().price.is_some(), priced, "{address}");
        };
        check("https://API.openai.com:443/v1", true, true);
        check("http://localhost:8000/v1", false, false);
    }

    /// The model that `names` lead to, and the diagnostics.
    fn check(keys: &[&str], set: &[(&str, &str)], names: &[&str]) -> (String, Vec<String>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let resolved = made(keys, set).resolve(NamedBy::Operator, &names).unwrap();
        (resolved.model.profile().name.clone(), resolved.diagnostics)
    }

    /// What is preferred most where only the provider is named.
    fn first(provider: &str) -> String {
        format!("{provider}/{}", model_catalogue().provider(provider).unwrap().preferred[0])
    }

    #[test]
    fn a_key_alone_leads_to_the_model_that_is_preferred() {
        for names in [&[][..], &["default"], &["openai"]] {
            assert_eq!(check(&["OPENAI_API_KEY"], &[], names), (first("openai"), Vec::new()));
        }
    }

    #[test]
    fn a_provider_of_a_known_name_needs_no_default_model() {
        let set = [
            ("models.providers.openai.kind", "openai_chat"),
            ("models.providers.openai.base_url", "http://127.0.0.1:9/v1"),
        ];
        assert_eq!(check(&[], &set, &[]), (first("openai"), Vec::new()));
    }

    #[test]
    fn without_a_key_the_offline_model_says_which_keys_there_are() {
        let (model, diagnostics) = check(&[], &[], &[]);
        assert_eq!(model, "offline/offline");
        assert_eq!(
            diagnostics,
            [
                "no model provider is configured: the offline model stands in for `default`; set OPENAI_API_KEY or \
              ANTHROPIC_API_KEY or GEMINI_API_KEY, or add a provider under `models.providers`"
            ]
        );
    }

    #[test]
    fn one_price_alone_can_be_corrected() {
        let models = made(&["OPENAI_API_KEY"], &[("models.profiles.gpt-4o.input_usd", "1")]);
        let model = models.resolve(NamedBy::Operator, &["openai/gpt-4o".to_owned()]).unwrap().model;
        let price = model.profile().price.unwrap();
        assert_eq!((price.input, price.cached, price.output), (1.0, 1.25, 10.0));
    }
}
