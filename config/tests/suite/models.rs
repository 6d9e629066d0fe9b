//! Providers, and the alias `default`: what needs no configuration.

use drupe_config::{Config, Origin, ProviderKind, load_config};

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
    check("", &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], &["anthropic", "offline", "openai"], Some("openai"));
    let config = config("", &["OPENAI_API_KEY"]);
    let provider = &config.models.providers["openai"];
    assert_eq!(provider.kind, ProviderKind::OpenaiChat);
    assert_eq!(provider.base_url.as_deref(), Some("https://api.openai.com/v1"));
    assert_eq!(provider.default_model.as_deref(), Some("gpt-4.1-mini"));
    let default = config.effective().into_iter().find(|value| value.key == "models.aliases.default").unwrap();
    assert_eq!(default.origin, Origin::Environment("OPENAI_API_KEY".into()));
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
