//! Which provider and model a name stands for.

use drupe_config::{Config, ModelRef, load_config};

use crate::home::Home;

fn config(file: &str, keys: &[&str]) -> Config {
    let home = Home::new();
    home.write("flow.yaml", "[]");
    let mut sources = home.sources(file);
    sources.environment = keys.iter().map(|key| (key.to_string(), "k".to_owned())).collect();
    load_config(&sources).unwrap().value
}

/// The models of a name, then its notes; or what is wrong.
fn check(file: &str, keys: &[&str], name: &str, expected: &str) {
    let found = match config(file, keys).models.resolve(&[name.to_owned()]) {
        Ok(resolution) => {
            let models: Vec<_> = resolution.models.iter().map(ModelRef::to_string).collect();
            let noted = if resolution.notes.is_empty() { "" } else { " (noted)" };
            format!("{}{noted}", models.join(", "))
        }
        Err(error) => error.to_string(),
    };
    assert!(
        found == expected || (expected.ends_with('…') && found.starts_with(expected.trim_end_matches('…'))),
        "{name}: {found}"
    );
}

const OLLAMA: &str = "models: {providers: {ollama: {kind: openai_chat, base_url: 'http://localhost:11434/v1', default_model: llama}}}";

#[test]
fn with_no_provider_every_name_is_the_offline_model() {
    check("", &[], "default", "offline/offline");
    check("", &[], "gpt-4o-mini", "offline/offline (noted)");
    check("", &[], "openai/gpt-4o", "offline/offline (noted)");
    check("", &[], "offline", "offline/offline");
}

#[test]
fn a_key_alone_is_a_provider_with_a_default_model() {
    check("", &["OPENAI_API_KEY"], "default", "openai/gpt-4.1-mini");
    check("", &["ANTHROPIC_API_KEY"], "default", "anthropic/claude-sonnet-4-5");
    check("", &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"], "default", "openai/gpt-4.1-mini");
    check("", &["ANTHROPIC_API_KEY"], "claude-opus-4-1", "anthropic/claude-opus-4-1");
    let provider = &config("", &["OPENAI_API_KEY"]).models.providers["openai"];
    assert_eq!(provider.base_url.as_deref(), Some("https://api.openai.com/v1"));
}

#[test]
fn a_configured_provider_is_the_default_before_one_that_only_has_a_key() {
    check(OLLAMA, &["OPENAI_API_KEY"], "default", "ollama/llama");
    check(OLLAMA, &[], "ollama", "ollama/llama");
    check(OLLAMA, &[], "ollama/a/b:c", "ollama/a/b:c");
}

#[test]
fn a_missing_provider_is_named_with_its_variable_unless_there_is_a_fallback() {
    check(
        OLLAMA,
        &[],
        "gpt-4o",
        "model `gpt-4o`: its provider `openai` is not configured; define OPENAI_API_KEY or add `models.providers.openai`",
    );
    check(
        OLLAMA,
        &[],
        "what-is-this",
        "model `what-is-this`: neither an alias nor a model of the catalogue…",
    );
    let fallback = OLLAMA.replace("models: {", "models: {fallback: ollama, ");
    check(&fallback, &[], "gpt-4o", "ollama/llama (noted)");
}

#[test]
fn an_alias_stands_for_a_list_and_repetitions_are_dropped() {
    let aliases = "models: {aliases: {fast: gpt-4o-mini, any: [fast, gpt-4o, openai/gpt-4o-mini]}}";
    check(aliases, &["OPENAI_API_KEY"], "any", "openai/gpt-4o-mini, openai/gpt-4o");
}

#[test]
fn a_script_answers_under_any_name() {
    let script = "models: {providers: {script: {kind: scripted, file: flow.yaml}}}";
    check(script, &[], "default", "script/script");
    check(script, &[], "script/flow", "script/flow");
}

#[test]
fn prices_of_the_file_win_over_the_shipped_ones_and_the_unknown_stays_unknown() {
    let file = "models: {profiles: {gpt-4o: {input_usd: 9}, openai/gpt-4o: {output_usd: 1}}}";
    let models = config(file, &["OPENAI_API_KEY"]).models;
    let profile = |provider: &str, model: &str| {
        models.profile(&ModelRef { provider: provider.into(), model: model.into() })
    };
    let known = profile("openai", "gpt-4o");
    assert_eq!(
        (known.input_usd, known.output_usd, known.context_window),
        (Some(9.0), Some(1.0), Some(128_000))
    );
    // Somebody else's model of the same name has somebody else's price.
    assert_eq!(profile("other", "gpt-4o-mini").input_usd, None);
}
