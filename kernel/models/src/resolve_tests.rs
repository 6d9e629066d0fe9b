//! What names lead to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::CatalogueEntry;

use super::*;

fn chat(name: &str) -> ProviderSettings {
    let kind = ProviderKind::OpenAiChat {
        base_url: "http://127.0.0.1:9/v1".to_owned(),
        api_key: None,
        headers: BTreeMap::new(),
        ca_file: None,
    };
    ProviderSettings::new(name, kind)
}

fn settings(providers: Vec<ProviderSettings>) -> ModelsSettings {
    let entry = |provider: &str, window| CatalogueEntry {
        provider: provider.to_owned(),
        profile: ProfileSettings { context_window: Some(window), ..ProfileSettings::default() },
    };
    ModelsSettings {
        providers,
        aliases: [
            ("default".to_owned(), vec!["fast".to_owned()]),
            ("fast".to_owned(), vec!["openai/gpt-mini".to_owned(), "local/tiny".to_owned()]),
            ("round".to_owned(), vec!["round".to_owned()]),
        ]
        .into(),
        catalogue: [
            ("gpt-*".to_owned(), entry("openai", 100)),
            ("gpt-mini".to_owned(), entry("openai", 200)),
            ("claude-*".to_owned(), entry("anthropic", 300)),
            ("org/weights".to_owned(), entry("local", 400)),
        ]
        .into(),
        missing: [("anthropic".to_owned(), "ANTHROPIC_API_KEY".to_owned())].into(),
        ..ModelsSettings::default()
    }
}

/// Resolves a name and gives the model's name, or the error, and the number of diagnostics.
fn check(settings: ModelsSettings, names: &[&str]) -> (String, usize) {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    match Models::new(settings).and_then(|models| models.resolve(&names)) {
        Ok(resolved) => (resolved.model.profile().name.clone(), resolved.diagnostics.len()),
        Err(error) => (error.to_string(), 0),
    }
}

fn both() -> ModelsSettings {
    settings(vec![
        chat("openai"),
        ProviderSettings { default_model: Some("tiny".to_owned()), ..chat("local") },
    ])
}

#[test]
fn names_lead_to_models() {
    for (names, model) in [
        (&["openai/gpt-mini"][..], "openai/gpt-mini"),
        (&["gpt-mini"], "openai/gpt-mini"),
        (&["gpt-9"], "openai/gpt-9"),
        (&["fast"], "openai/gpt-mini"),
        (&[], "openai/gpt-mini"),
        (&["local"], "local/tiny"),
        (&["local/a/b"], "local/a/b"),
        (&["org/weights"], "local/org/weights"),
        (&["offline"], "offline/offline"),
    ] {
        assert_eq!(check(both(), names), (model.to_owned(), 0), "{names:?}");
    }
}

#[test]
fn names_that_lead_nowhere_say_why() {
    for (name, error) in [
        (
            "claude-9",
            "model `claude-9` needs provider `anthropic`, which is not configured: set ANTHROPIC_API_KEY",
        ),
        (
            "anthropic/x",
            "model `anthropic/x` needs provider `anthropic`, which is not configured: set ANTHROPIC_API_KEY",
        ),
        ("nobody/x", "model `nobody/x`: there is no provider `nobody` (there are: local, openai)"),
        ("what", "model `what` is not in the catalogue: write `provider/model`"),
        ("round", "alias `round` stands for itself"),
        ("openai", "model `openai` is not in the catalogue: write `provider/model`"),
    ] {
        assert_eq!(check(both(), &[name]), (error.to_owned(), 0));
    }
}

#[test]
fn without_a_provider_every_name_is_the_offline_model_and_says_so() {
    for names in [&["gpt-mini"][..], &["nobody/x"], &["fast"], &["a", "b"], &["claude-1"]] {
        let (model, diagnostics) = check(settings(Vec::new()), names);
        assert_eq!(model, "offline/offline", "{names:?}");
        assert!(diagnostics > 0, "{names:?}");
    }
    let none = ModelsSettings { aliases: BTreeMap::new(), ..settings(Vec::new()) };
    assert_eq!(check(none, &[]), ("offline/offline".to_owned(), 1));
}

#[test]
fn a_provider_that_is_not_configured_gives_way_to_the_fallback_or_to_the_rest_of_the_list() {
    let fallback = ModelsSettings { fallback: Some("local".to_owned()), ..both() };
    assert_eq!(check(fallback, &["claude-9"]), ("local/tiny".to_owned(), 1));
    assert_eq!(check(both(), &["claude-9", "gpt-mini"]), ("openai/gpt-mini".to_owned(), 1));
    let absent = ModelsSettings { fallback: Some("claude-9".to_owned()), ..both() };
    assert!(check(absent, &["claude-9"]).0.contains("ANTHROPIC_API_KEY"));
}

#[test]
fn what_is_known_of_a_model_comes_from_the_operator_then_from_the_catalogue() {
    let mut settings = both();
    let said = |n| ProfileSettings { max_output_tokens: Some(n), ..ProfileSettings::default() };
    settings.profiles = [("openai/gpt-mini".to_owned(), said(7)), ("gpt-mini".to_owned(), said(8))].into();
    let models = Models::new(settings).unwrap();
    let mini = models.profile("openai/gpt-mini").unwrap();
    assert_eq!((mini.context_window, mini.max_output_tokens, mini.price), (200, 7, None));
    let unknown = models.profile("local/unknown").unwrap();
    assert_eq!((unknown.context_window, unknown.max_output_tokens), (CONTEXT_WINDOW, MAX_OUTPUT_TOKENS));
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let https = |ca_file: Option<PathBuf>| ProviderKind::OpenAiChat {
        base_url: "https://h".to_owned(),
        api_key: None,
        headers: BTreeMap::new(),
        ca_file,
    };
    for (provider, part) in [
        (ProviderSettings { stall_timeout_ms: 0, ..chat("p") }, "above zero"),
        (chat("a/b"), "the name"),
        (ProviderSettings::new("p", https(Some("/nonexistent.pem".into()))), "ca_file /nonexistent.pem"),
        (
            ProviderSettings::new("p", ProviderKind::Scripted { file: "/nonexistent.yaml".into() }),
            "/nonexistent.yaml",
        ),
    ] {
        let error = Models::new(settings(vec![provider])).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(check(settings(vec![chat("p"), chat("p")]), &["p/m"]).0.contains("twice"));
}

#[test]
fn a_parameter_that_the_provider_lacks_is_an_error_at_load() {
    let models = Models::new(both()).unwrap();
    let parameters = ModelParameters { temperature: Some(3.0), ..ModelParameters::default() };
    let error = models.resolve_for(&["gpt-mini".to_owned()], &parameters).err().unwrap();
    assert!(
        matches!(&error, ModelsError::Unsupported { model, .. } if model == "openai/gpt-mini"),
        "{error}"
    );
}

#[test]
fn a_script_is_a_model_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flow.yaml");
    std::fs::write(&path, "- text: hello\n").unwrap();
    let name = format!("scripted:{}", path.display());
    assert_eq!(check(both(), &[&name]), ("scripted/flow.yaml".to_owned(), 0));
    std::fs::write(&path, "- txt: hello\n").unwrap();
    let (error, _) = check(both(), &[&name]);
    assert!(error.contains("txt") && error.contains("line 1"), "{error}");
}
