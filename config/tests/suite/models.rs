//! Providers, and the alias `default`: what needs no configuration.

use drupe_config::{Config, ProviderKind, ValueOrigin, load_config};

use crate::home::Home;

fn config(file: &str, keys: &[&str]) -> Config {
    let home = Home::new();
    home.write("flow.yaml", "[]");
    let mut sources = home.sources(file);
    sources.environment = keys.iter().map(|key| (key.to_string(), "k".to_owned())).collect();
    load_config(&sources).unwrap().value
}

/// The providers that there are, and what `default` stands for.
fn check(file: &str, keys: &[&str], providers: &[&str], default: Option<&str>) {
    let models = config(file, keys).models;
    assert_eq!(models.providers.keys().collect::<Vec<_>>(), providers, "{file} {keys:?}");
    let found = models.aliases.get("default").map(|targets| targets.join(", "));
    assert_eq!(found.as_deref(), default, "{file} {keys:?}");
}

const OLLAMA: &str = "models: {providers: {ollama: {kind: openai_chat, base_url: 'http://localhost:11434/v1', default_model: llama}}}";

#[test]
fn with_no_provider_the_offline_model_is_the_default() {
    check("", &[], &["offline"], Some("offline"));
    check("models: {providers: {rules: {kind: offline}}}", &[], &["offline", "rules"], Some("offline"));
}

#[test]
fn a_key_alone_is_a_provider_with_a_default_model() {
    check("", &["OPENAI_API_KEY"], &["offline", "openai"], Some("openai"));
    check("", &["ANTHROPIC_API_KEY"], &["anthropic", "offline"], Some("anthropic"));
    check("", &["GEMINI_API_KEY"], &["gemini", "offline"], Some("gemini"));
    check("", &["GOOGLE_API_KEY"], &["gemini", "offline"], Some("gemini"));
    check("", &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], &["anthropic", "offline", "openai"], Some("openai"));
    check(
        "",
        &["ANTHROPIC_API_KEY", "GEMINI_API_KEY"],
        &["anthropic", "gemini", "offline"],
        Some("anthropic"),
    );
    let config = config("", &["OPENAI_API_KEY"]);
    let provider = &config.models.providers["openai"];
    assert_eq!(provider.kind, ProviderKind::Openai);
    assert_eq!(provider.base_url.as_deref(), Some("https://api.openai.com/v1"));
    assert_eq!(provider.default_model, None, "which of them is there, the provider says");
    assert_eq!(provider.preferred, drupe_config::model_catalogue().provider("openai").unwrap().preferred);
    let default = config.effective().into_iter().find(|value| value.key == "models.aliases.default").unwrap();
    assert_eq!(default.origin, ValueOrigin::Environment("OPENAI_API_KEY".into()));
}

#[test]
fn a_configured_provider_is_the_default_before_one_that_only_has_a_key() {
    check(OLLAMA, &[], &["offline", "ollama"], Some("ollama"));
    check(OLLAMA, &["OPENAI_API_KEY"], &["offline", "ollama", "openai"], Some("ollama"));
    let own = "models: {providers: {openai: {kind: openai_chat, base_url: 'http://proxy/v1'}}}";
    check(own, &["OPENAI_API_KEY"], &["offline", "openai"], Some("openai"));
    let kept = config(own, &["OPENAI_API_KEY"]).models.providers["openai"].clone();
    assert_eq!((kept.base_url.as_deref(), kept.api_key), (Some("http://proxy/v1"), None));
}

#[test]
fn a_provider_that_has_no_default_model_is_not_the_default() {
    let bare = OLLAMA.replace(", default_model: llama", "");
    check(&bare, &[], &["offline", "ollama"], None);
    check(&bare, &["OPENAI_API_KEY"], &["offline", "ollama", "openai"], Some("openai"));
    let script = "models: {providers: {script: {kind: scripted, file: flow.yaml}}}";
    check(script, &[], &["offline", "script"], Some("script"));
}

#[test]
fn a_default_that_is_written_stays() {
    let file = "models: {aliases: {default: [fast, gpt-4o], fast: gpt-4o-mini}}";
    check(file, &["OPENAI_API_KEY"], &["offline", "openai"], Some("fast, gpt-4o"));
}

#[test]
fn an_authority_is_found_beside_the_file_and_by_its_absolute_path() {
    let home = Home::new();
    let authority = home.path().join("authority.pem");
    for written in ["authority.pem", "./shared/../authority.pem", authority.to_str().unwrap()] {
        let file = OLLAMA.replace("kind: openai_chat", &format!("kind: openai_chat, ca_file: '{written}'"));
        let models = home.config(file).unwrap().value.models;
        assert_eq!(models.providers["ollama"].ca_file.as_deref(), Some(authority.as_path()), "{written}");
    }
}

/// The kind and the address of the one provider that these variables configure.
fn implicit(variables: &[(&str, &str)]) -> (ProviderKind, String) {
    let home = Home::new();
    let mut sources = home.sources("");
    sources.environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let providers = load_config(&sources).unwrap().value.models.providers;
    let found = providers.into_values().find(|provider| provider.kind != ProviderKind::Offline).unwrap();
    assert_eq!(found.api_key.map(|key| key.expose().to_owned()).as_deref(), Some("k"));
    (found.kind, found.base_url.unwrap())
}

#[test]
fn each_key_speaks_its_vendors_own_protocol_at_its_own_address() {
    for (key, kind, address) in [
        ("OPENAI_API_KEY", ProviderKind::Openai, "https://api.openai.com/v1"),
        ("ANTHROPIC_API_KEY", ProviderKind::Anthropic, "https://api.anthropic.com/v1"),
        ("GEMINI_API_KEY", ProviderKind::Gemini, "https://generativelanguage.googleapis.com/v1beta"),
        ("GOOGLE_API_KEY", ProviderKind::Gemini, "https://generativelanguage.googleapis.com/v1beta"),
    ] {
        assert_eq!(implicit(&[(key, "k")]), (kind, address.to_owned()), "{key}");
    }
    let both = implicit(&[("GEMINI_API_KEY", "k"), ("GOOGLE_API_KEY", "other")]);
    assert_eq!(both.0, ProviderKind::Gemini);
    implicit(&[("GEMINI_API_KEY", " "), ("GOOGLE_API_KEY", "k")]);
}

#[test]
fn an_address_in_the_environment_is_honoured_and_a_foreign_one_of_openai_means_chat_completions() {
    for (variable, key, written, kind, address) in [
        ("OPENAI_BASE_URL", "OPENAI_API_KEY", "", ProviderKind::Openai, "https://api.openai.com/v1"),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "https://eu.api.openai.com/v1/",
            ProviderKind::Openai,
            "https://eu.api.openai.com/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "http://localhost:8000/v1",
            ProviderKind::OpenaiChat,
            "http://localhost:8000/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "https://API.OpenAI.com:443/v1",
            ProviderKind::Openai,
            "https://API.OpenAI.com:443/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "https://EU.api.openai.com:8443/v1",
            ProviderKind::Openai,
            "https://EU.api.openai.com:8443/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "https://api.openai.com.example.org:443/v1",
            ProviderKind::OpenaiChat,
            "https://api.openai.com.example.org:443/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "http://[::1]:8000/v1",
            ProviderKind::OpenaiChat,
            "http://[::1]:8000/v1",
        ),
        (
            "OPENAI_BASE_URL",
            "OPENAI_API_KEY",
            "https://notapi.openai.com/v1",
            ProviderKind::OpenaiChat,
            "https://notapi.openai.com/v1",
        ),
        (
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            "https://gateway.example.org/a",
            ProviderKind::Anthropic,
            "https://gateway.example.org/a/v1",
        ),
        (
            "ANTHROPIC_BASE_URL",
            "ANTHROPIC_API_KEY",
            "https://gateway.example.org/v1",
            ProviderKind::Anthropic,
            "https://gateway.example.org/v1",
        ),
    ] {
        assert_eq!(implicit(&[(key, "k"), (variable, written)]), (kind, address.to_owned()), "{written}");
    }
}

#[test]
fn an_address_in_the_environment_that_is_none_is_a_fault_and_is_not_shown() {
    let home = Home::new();
    let mut sources = home.sources("");
    for written in ["localhost:8000", "https://user:hidden@host/v1", "https://"] {
        sources.environment = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", written)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let faults = load_config(&sources).unwrap_err();
        let shown = faults.render(false);
        assert!(faults.len() == 1 && shown.contains("OPENAI_BASE_URL"), "{shown}");
        assert!(!shown.contains("hidden"), "{shown}");
    }
}

#[test]
fn of_another_server_than_the_vendors_nothing_is_assumed_and_a_model_is_asked_for() {
    let home = Home::new();
    let check = |file: &str, address: &str, others: &[&str], default: Option<&str>, warned: bool| {
        let mut sources = home.sources(file);
        let address = ("OPENAI_BASE_URL".to_owned(), address.to_owned());
        let keys = others.iter().chain(&["OPENAI_API_KEY"]).map(|key| ((*key).to_owned(), "k".to_owned()));
        sources.environment = keys.chain([address]).collect();
        let loaded = load_config(&sources).unwrap();
        let models = &loaded.value.models;
        let found = models.aliases.get("default").map(|targets| targets.join(", "));
        assert_eq!(found.as_deref(), default, "{file} {others:?}");
        let shown = loaded.warnings.render(false);
        let asks = ["OPENAI_BASE_URL", "models.aliases.default", "default_model", "models.profiles"];
        assert_eq!(asks.map(|part| shown.contains(part)), [warned; 4], "{shown}");
        let provider = models.providers["openai"].clone();
        let key = "models.providers.openai.default_model";
        let set = loaded.value.effective().into_iter().find(|value| value.key == key);
        assert_eq!(set.map(|value| value.value), provider.default_model.clone().map(Into::into));
        assert_eq!(loaded.value.origins.contains_key(key), provider.default_model.is_some());
        (!provider.preferred.is_empty(), provider.catalogued)
    };
    let other = "http://localhost:8000/v1";
    let nothing = (false, false);
    assert_eq!(check("", other, &[], None, true), nothing);
    assert_eq!(check("", other, &["GEMINI_API_KEY"], Some("gemini"), true), nothing);
    let named = "models: {aliases: {default: openai/llama}}";
    assert_eq!(check(named, other, &[], Some("openai/llama"), false), nothing);
    let own = (true, true);
    assert_eq!(check("", "https://API.openai.com:443/v1", &[], Some("openai"), false), own);
}

#[test]
fn a_request_may_take_as_long_as_a_run_lets_it() {
    let file = OLLAMA.replace("}}}", ", timeout_ms: 5}}}");
    let timeout = |file: &str| config(file, &[]).models.providers["ollama"].timeout.as_millis();
    assert_eq!((timeout(OLLAMA), timeout(&file)), (600_000, 5));
}

#[test]
fn what_a_model_can_do_is_known_of_those_that_ship() {
    let catalogue = drupe_config::model_catalogue();
    let can = |name: &str| {
        let (_, entry) = catalogue.entries().find(|(listed, _)| *listed == name).unwrap();
        (entry.profile.tools, entry.profile.reasoning, entry.profile.sampling)
    };
    assert_eq!(can("gpt-6.2-sol"), (Some(true), Some(true), Some(false)));
    assert_eq!(can("gpt-4.1"), (Some(true), Some(false), Some(true)));
    assert_eq!(can("claude-opus-5-5"), (Some(true), Some(true), Some(false)));
    assert_eq!(can("claude-haiku-4-5"), (Some(true), Some(true), Some(true)));
    assert_eq!(can("gpt-*"), (None, None, None), "of a family nothing is known but whose it is");
    let sees = |name: &str| catalogue.entries().find(|(listed, _)| *listed == name).unwrap().1.profile.images;
    let seeing = ["gpt-6.2-sol", "gpt-4o-mini", "claude-*"].map(sees);
    assert_eq!(seeing, [Some(true), Some(false), None]);
    let file = "models: {profiles: {m: {tools: false, sampling: true, images: true}}}";
    let own = &config(file, &[]).models.profiles["m"];
    assert_eq!(
        (own.tools, own.reasoning, own.sampling, own.images),
        (Some(false), None, Some(true), Some(true))
    );
}

#[test]
fn a_profile_says_how_a_model_is_told_to_reason_and_what_its_cache_and_long_prompts_cost() {
    use drupe_config::{LongPrompts, Thinking};
    use drupe_extension_api::Reasoning;
    let file = "models: {profiles: {m: {efforts: [low, high], thinking: adaptive, cache_write_usd: 2.5, \
                long_prompts: {above: 200000, input: 2}}}}";
    let own = &config(file, &[]).models.profiles["m"];
    assert_eq!(own.efforts, Some(vec![Reasoning::Low, Reasoning::High]));
    assert_eq!((own.thinking, own.cache_write_usd), (Some(Thinking::Adaptive), Some(2.5)));
    assert_eq!(own.long_prompts, Some(LongPrompts { above: 200_000, input: 2.0, output: 1.0 }));
    let wrong = ["thinking: hard", "efforts: [some]", "long_prompts: {input: 2}", "cache_write_usd: -1"];
    for wrong in wrong {
        let home = Home::new();
        assert!(home.config(format!("models: {{profiles: {{m: {{{wrong}}}}}}}")).is_err(), "{wrong}");
    }
}

#[test]
fn a_dialect_is_for_servers_of_chat_completions_and_one_that_there_is() {
    let dialect = |file: &str| config(file, &[]).models.providers["ollama"].dialect.clone();
    assert_eq!(dialect(OLLAMA), None);
    assert_eq!(dialect(&OLLAMA.replace("kind:", "dialect: mistral, kind:")).as_deref(), Some("mistral"));
    let home = Home::new();
    for wrong in [
        OLLAMA.replace("kind:", "dialect: klingon, kind:"),
        "models: {providers: {x: {kind: anthropic, api_key: k, dialect: mistral}}}".to_owned(),
    ] {
        assert!(home.config(&wrong).is_err(), "{wrong}");
    }
}
