//! What names lead to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use super::*;

fn local() -> Endpoint {
    Endpoint { base_url: "http://127.0.0.1:9/v1".to_owned(), ..Endpoint::default() }
}

fn chat(name: &str) -> ProviderSettings {
    ProviderSettings::new(name, ProviderKind::OpenAiChat(local()))
}

fn settings(providers: Vec<ProviderSettings>) -> ModelsSettings {
    let entry = |provider: &str, window| CatalogueEntry {
        provider: provider.to_owned(),
        profile: ProfileSettings { context_window: Some(window), ..ProfileSettings::default() },
        retires: None,
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
            ("gem".to_owned(), entry("google", 500)),
        ]
        .into(),
        missing: vec![("anthropic".to_owned(), "ANTHROPIC_API_KEY".to_owned())],
        ..ModelsSettings::default()
    }
}

/// Resolves names and gives the model's name, or the error, and the diagnostics.
fn said(settings: ModelsSettings, names: &[&str]) -> (String, Vec<String>) {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    match Models::new(settings).and_then(|models| models.resolve(NamedBy::Operator, &names)) {
        Ok(mut resolved) => {
            // Most models here are made up.
            resolved.diagnostics.retain(|said| !said.starts_with("nothing is known of model"));
            (resolved.model.profile().name.clone(), resolved.diagnostics)
        }
        Err(error) => (error.to_string(), Vec::new()),
    }
}

#[test]
fn what_can_be_no_name_is_said_so_in_a_short_line_whoever_named_it() {
    for name in ["a\nb", "a b", "", "a\u{202e}b", &"x".repeat(100_000)] {
        for by in [NamedBy::Operator, NamedBy::Extension] {
            let models = Models::new(settings(vec![chat("local")])).unwrap();
            let error = models.resolve(by, &["default".to_owned(), name.to_owned()]).err().unwrap();
            let told = error.to_string();
            assert!(matches!(error, ModelsError::Name { .. }), "{told}");
            assert!(told.len() < 300 && !told.contains(['\n', '\u{202e}']), "{told:?}");
        }
    }
}

/// What is known of the model that a name leads to.
fn profile_of(models: &Models, name: &str) -> ModelProfile {
    models.resolve(NamedBy::Operator, &[name.to_owned()]).unwrap().model.profile().clone()
}

/// Likewise, with the number of diagnostics.
pub(super) fn check(settings: ModelsSettings, names: &[&str]) -> (String, usize) {
    let (model, diagnostics) = said(settings, names);
    (model, diagnostics.len())
}

pub(super) fn both() -> ModelsSettings {
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
fn names_that_lead_nowhere_say_what_to_do() {
    for (name, error) in [
        (
            "claude-9",
            "model `claude-9` needs provider `anthropic`, which is not configured: set ANTHROPIC_API_KEY, or add \
             `models.providers.anthropic`",
        ),
        (
            "anthropic/x",
            "model `anthropic/x` needs provider `anthropic`, which is not configured: set ANTHROPIC_API_KEY, or \
             add `models.providers.anthropic`",
        ),
        (
            "anthropic",
            "model `anthropic` needs provider `anthropic`, which is not configured: set ANTHROPIC_API_KEY, or add \
             `models.providers.anthropic`",
        ),
        (
            "gem",
            "model `gem` needs provider `google`, which is not configured: add `models.providers.google`",
        ),
        (
            "nobody/x",
            "model `nobody/x`: there is no provider `nobody`: add `models.providers.nobody`, or use one of local, \
             openai",
        ),
        (
            "what",
            "model `what` is neither an alias nor in the catalogue: write `provider/model`, with one of the \
             providers local, openai",
        ),
        ("local/", "model `local/` names provider `local` and none of its models: write `local/MODEL`"),
        (
            "local/ ",
            "`local/ ` is no name of a model: expected an alias, a provider or `provider/model`: up to 256 bytes of \
             letters, digits and signs, without spaces",
        ),
        (
            "/tiny",
            "model `/tiny` is neither an alias nor in the catalogue: write `provider/model`, with one of the \
             providers local, openai",
        ),
        ("round", "alias `round` stands for itself"),
        (
            "openai",
            "provider `openai` has no default_model: name a model, `openai/model`, or set \
             `models.providers.openai.default_model`",
        ),
    ] {
        assert_eq!(check(both(), &[name]), (error.to_owned(), 0));
    }
}

#[test]
fn a_provider_named_alone_is_its_default_model_or_else_what_is_preferred() {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), "- text: hello\n").unwrap();
    let file = script.path().to_owned();
    let settings = || ModelsSettings {
        aliases: BTreeMap::new(),
        ..settings(vec![
            ProviderSettings::new("rules", ProviderKind::Offline),
            ProviderSettings::new("flow", ProviderKind::Scripted { file: file.clone() }),
            ProviderSettings { preferred: vec!["gpt-9".to_owned(), "gpt-mini".to_owned()], ..chat("openai") },
            ProviderSettings {
                default_model: Some("tiny".to_owned()),
                preferred: vec!["no".to_owned()],
                ..chat("local")
            },
        ])
    };
    for (names, model) in [
        (&["openai"][..], "openai/gpt-9"),
        (&["local"], "local/tiny"),
        (&["flow"], "flow/script"),
        (&["rules"], "rules/offline"),
        (&[], "flow/script"),
    ] {
        assert_eq!(check(settings(), names), (model.to_owned(), 0), "{names:?}");
    }
}

#[test]
fn without_a_provider_every_name_is_the_offline_model_and_says_so() {
    let rules = || settings(vec![ProviderSettings::new("offline", ProviderKind::Offline)]);
    let implied =
        || ModelsSettings { aliases: [("default".to_owned(), vec!["offline".to_owned()])].into(), ..rules() };
    let keys = |names: &[&str]| names.iter().map(|n| (n.to_lowercase(), (*n).to_owned())).collect();
    let none = || ModelsSettings { aliases: BTreeMap::new(), ..settings(Vec::new()) };
    let cure = "or add a provider under `models.providers`";
    for (settings, names, replaced, cure) in [
        (settings(Vec::new()), &["gpt-mini"][..], "`gpt-mini`", format!("set ANTHROPIC_API_KEY, {cure}")),
        (rules(), &["nobody/x"], "`nobody/x`", format!("set ANTHROPIC_API_KEY, {cure}")),
        (rules(), &["fast"], "`openai/gpt-mini`, `local/tiny`", format!("set ANTHROPIC_API_KEY, {cure}")),
        (
            ModelsSettings { missing: keys(&["B_KEY", "A_KEY"]), ..rules() },
            &["a", "b", "a"],
            "`a`, `b`",
            format!("set B_KEY or A_KEY, {cure}"),
        ),
        (
            ModelsSettings { missing: Vec::new(), ..rules() },
            &["claude-1"],
            "`claude-1`",
            "add a provider under `models.providers`".to_owned(),
        ),
        (implied(), &[], "`default`", format!("set ANTHROPIC_API_KEY, {cure}")),
        (none(), &[], "`default`", format!("set ANTHROPIC_API_KEY, {cure}")),
    ] {
        let diagnostic =
            format!("no model provider is configured: the offline model stands in for {replaced}; {cure}");
        assert_eq!(said(settings, names), ("offline/offline".to_owned(), vec![diagnostic]), "{names:?}");
    }
    for settings in [rules(), none()] {
        assert_eq!(check(settings, &["offline"]), ("offline/offline".to_owned(), 0));
    }
}

#[test]
fn the_fallback_stands_in_where_all_that_was_named_leads_nowhere() {
    let fallback = |name: &str| ModelsSettings { fallback: Some(name.to_owned()), ..both() };
    for names in
        [&["claude-9"][..], &["what"], &["nobody/x"], &["openai"], &["anthropic"], &["what", "openai"]]
    {
        let (model, diagnostics) = said(fallback("local"), names);
        assert_eq!((model.as_str(), diagnostics.len()), ("local/tiny", names.len()), "{names:?}");
        for (name, diagnostic) in names.iter().zip(diagnostics) {
            assert!(
                diagnostic.contains(name) && diagnostic.ends_with("; `local` stands in for it"),
                "{diagnostic}"
            );
        }
    }
    let nothing_named = ModelsSettings {
        aliases: BTreeMap::new(),
        fallback: Some("openai/gpt-9".to_owned()),
        ..settings(vec![chat("openai")])
    };
    assert_eq!(check(nothing_named, &[]), ("openai/gpt-9".to_owned(), 1));
    assert_eq!(check(fallback("local"), &["gpt-mini"]), ("openai/gpt-mini".to_owned(), 0));
    // What is wrong beyond a name that leads nowhere is not papered over.
    assert!(check(fallback("local"), &["round"]).0.contains("stands for itself"));
    assert!(check(fallback("local"), &["scripted:/nonexistent.yaml"]).0.contains("/nonexistent.yaml"));
}

#[test]
fn a_fallback_that_leads_nowhere_is_said_once() {
    let fallback = |name: &str| ModelsSettings { fallback: Some(name.to_owned()), ..both() };
    let (same, _) = check(fallback("claude-9"), &["claude-9"]);
    assert_eq!(same, check(both(), &["claude-9"]).0);
    let (other, _) = check(fallback("what"), &["claude-9"]);
    assert!(
        other.starts_with(&same)
            && other.contains("; nor is there a model for the fallback: model `what` is neither"),
        "{other}"
    );
}

#[test]
fn names_that_lead_nowhere_are_left_out_where_others_remain() {
    let left_out = |settings, names: &[&str]| {
        let (model, diagnostics) = said(settings, names);
        assert!(diagnostics.iter().all(|d| d.ends_with("; it is left out")), "{diagnostics:?}");
        (model, diagnostics.len())
    };
    assert_eq!(left_out(both(), &["claude-9", "gpt-mini"]), ("openai/gpt-mini".to_owned(), 1));
    let fallback = || ModelsSettings { fallback: Some("offline".to_owned()), ..both() };
    assert_eq!(left_out(fallback(), &["claude-9", "gpt-mini"]), ("openai/gpt-mini".to_owned(), 1));
    assert_eq!(left_out(fallback(), &["what", "gpt-mini", "openai"]), ("openai/gpt-mini".to_owned(), 2));
    // Nothing could stand in for it if the others fail: a slip of the pen is not passed over.
    assert!(check(both(), &["what", "gpt-mini"]).0.contains("neither an alias"));
}

#[test]
fn a_model_that_is_named_twice_is_asked_once() {
    let dir = tempfile::tempdir().unwrap();
    let script = |folder: &str| {
        let folder = dir.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("flow.yaml"), "- text: hello\n").unwrap();
        format!("scripted:{}", folder.join("flow.yaml").display())
    };
    let (a, b) = (script("a"), script("b"));
    let models = Models::new(both()).unwrap();
    for (names, links) in [
        (vec!["gpt-mini", "openai/gpt-mini", "fast"], 2),
        (vec!["fast", "default", "local"], 2),
        (vec!["offline", "offline/offline"], 1),
        (vec![&a, &b, &a], 2),
    ] {
        let list: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(search::find(&models, NamedBy::Operator, &list).unwrap().links.len(), links, "{names:?}");
    }
}

#[test]
fn what_is_known_of_a_model_comes_from_the_operator_then_from_the_catalogue() {
    let mut settings = both();
    let said = |n| ProfileSettings { max_output_tokens: Some(n), ..ProfileSettings::default() };
    settings.profiles = [("openai/gpt-mini".to_owned(), said(7)), ("gpt-mini".to_owned(), said(8))].into();
    let models = Models::new(settings).unwrap();
    for (name, window, output) in [
        ("openai/gpt-mini", 200, 7),
        ("openai/gpt-9", 100, MAX_OUTPUT_TOKENS),
        ("openai/unknown", CONTEXT_WINDOW, MAX_OUTPUT_TOKENS),
        // Of the same name, and yet of another provider: only the operator's bare name speaks of it.
        ("local/gpt-mini", CONTEXT_WINDOW, 8),
        ("local/gpt-9", CONTEXT_WINDOW, MAX_OUTPUT_TOKENS),
        ("local/org/weights", 400, MAX_OUTPUT_TOKENS),
    ] {
        let profile = profile_of(&models, name);
        assert_eq!((profile.context_window, profile.max_output_tokens), (window, output), "{name}");
    }
}

#[test]
fn an_entry_stands_for_snapshots_of_its_model_and_for_no_other_version() {
    let models = Models::new(both()).unwrap();
    for (name, window) in [
        ("openai/gpt-mini", 200),
        ("openai/gpt-mini-2026-03-17", 200),
        ("openai/gpt-mini-20260317", 200),
        ("openai/gpt-mini-001", 200),
        // Other versions are of the family, of which no more is said than whose it is.
        ("openai/gpt-mini-2", 100),
        ("openai/gpt-mini-fast", 100),
        ("openai/gpt-minima", 100),
    ] {
        assert_eq!(profile_of(&models, name).context_window, window, "{name}");
    }
}

#[test]
fn a_model_of_which_nothing_is_known_says_so() {
    let models = Models::new(both()).unwrap();
    let said = |name: &str| models.resolve(NamedBy::Operator, &[name.to_owned()]).unwrap().diagnostics;
    assert_eq!(
        said("local/tiny"),
        [
            "nothing is known of model `local/tiny`: it is asked as one with a window of 32768 tokens and answers of \
             4096, and its cost is unknown: set `models.profiles.local/tiny`"
        ]
    );
    assert!(said("gpt-mini").is_empty() && said("offline").is_empty());
}

#[test]
fn a_pattern_of_another_provider_does_not_hide_ones_own() {
    let mut settings = both();
    let own = CatalogueEntry {
        provider: "local".to_owned(),
        profile: ProfileSettings { context_window: Some(500), ..ProfileSettings::default() },
        retires: None,
    };
    settings.catalogue.insert("g*".to_owned(), own);
    let models = Models::new(settings).unwrap();
    assert_eq!(profile_of(&models, "local/gpt-mini").context_window, 500);
    assert_eq!(profile_of(&models, "openai/gpt-mini").context_window, 200);
}

#[test]
fn a_second_account_at_a_vendors_address_has_the_vendors_models() {
    let at = |url: &str| Endpoint { base_url: url.to_owned(), ..Endpoint::default() };
    let (openai, anthropic) = ("https://api.openai.com/v1", "https://api.anthropic.com/v1");
    for (kind, model, window) in [
        (ProviderKind::OpenAi(at(openai)), "gpt-mini", 200),
        (ProviderKind::OpenAiChat(at(openai)), "gpt-9", 100),
        (ProviderKind::Anthropic(at(anthropic)), "claude-1", 300),
        (ProviderKind::OpenAi(at("https://gateway.example/api.openai.com")), "gpt-mini", CONTEXT_WINDOW),
        (ProviderKind::OpenAi(at(openai)), "claude-1", CONTEXT_WINDOW),
    ] {
        let models = Models::new(settings(vec![ProviderSettings::new("work", kind.clone())])).unwrap();
        let found = models
            .resolve(NamedBy::Operator, &[format!("work/{model}")])
            .unwrap()
            .model
            .profile()
            .context_window;
        assert_eq!(found, window, "{kind:?} {model}");
    }
}

#[test]
fn prices_merge_one_by_one() {
    let prices = |input_usd, cached_usd, output_usd| ProfileSettings {
        input_usd,
        cached_usd,
        output_usd,
        ..ProfileSettings::default()
    };
    let price = |input, cached, output| Some(Price::flat(input, cached, output));
    let (none, all) = (prices(None, None, None), prices(Some(2.0), Some(0.5), Some(8.0)));
    for (exact, bare, shipped, expected) in [
        (none, none, all, price(2.0, 0.5, 8.0)),
        (prices(Some(1.0), None, None), none, all, price(1.0, 0.5, 8.0)),
        (prices(None, None, Some(9.0)), prices(Some(3.0), None, Some(1.0)), all, price(3.0, 0.5, 9.0)),
        (prices(Some(1.0), None, None), prices(None, None, Some(4.0)), none, price(1.0, 1.0, 4.0)),
        (prices(Some(1.0), Some(0.1), None), none, none, None),
        (prices(None, Some(0.1), Some(1.0)), none, none, None),
        (none, none, none, None),
    ] {
        let mut settings = both();
        settings.profiles = [("openai/gpt-mini".to_owned(), exact), ("gpt-mini".to_owned(), bare)].into();
        settings.catalogue.get_mut("gpt-mini").unwrap().profile = shipped;
        let models = Models::new(settings).unwrap();
        assert_eq!(profile_of(&models, "openai/gpt-mini").price, expected, "{exact:?} {bare:?} {shipped:?}");
    }
}

#[test]
fn what_runs_here_is_free_unless_the_operator_says_otherwise() {
    let priced = ProfileSettings { input_usd: Some(3.0), ..ProfileSettings::default() };
    for (profiles, price) in
        [(BTreeMap::new(), FREE), ([("rules/x".to_owned(), priced)].into(), Price::flat(3.0, 3.0, 0.0))]
    {
        let rules = ProviderSettings::new("rules", ProviderKind::Offline);
        let models = Models::new(ModelsSettings { profiles, ..settings(vec![rules]) }).unwrap();
        assert_eq!(profile_of(&models, "rules/x").price, Some(price));
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let https = |ca_file: Option<PathBuf>| {
        ProviderKind::OpenAi(Endpoint { base_url: "https://h".to_owned(), ca_file, ..Endpoint::default() })
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
    let error = models
        .resolve_for(NamedBy::Operator, &["gpt-mini".to_owned()], &parameters, &DefinitionLimits::default())
        .err()
        .unwrap();
    assert!(
        matches!(&error, ModelsError::Unsupported { model, .. } if model == "openai/gpt-mini"),
        "{error}"
    );
}

#[test]
fn what_a_model_cannot_is_said_by_the_operator_before_the_catalogue() {
    let mut settings = both();
    let unable = ProfileSettings { tools: Some(false), sampling: Some(false), ..ProfileSettings::default() };
    settings.catalogue.get_mut("gpt-mini").unwrap().profile = unable;
    let able = ProfileSettings { sampling: Some(true), ..ProfileSettings::default() };
    let parameters = ModelParameters { temperature: Some(1.0), ..ModelParameters::default() };
    let resolve = |settings: &ModelsSettings| {
        let models = Models::new(settings.clone()).unwrap();
        let resolved = models.resolve_for(
            NamedBy::Operator,
            &["openai/gpt-mini".to_owned()],
            &parameters,
            &DefinitionLimits::default(),
        );
        (resolved.map(|_| ()), profile_of(&models, "openai/gpt-mini").tools)
    };
    let (refused, tools) = resolve(&settings);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("`openai/gpt-mini`") && text.contains("`sampling: true`"), "{text}");
    assert!(!tools);
    settings.profiles.insert("gpt-mini".to_owned(), able);
    assert_eq!(resolve(&settings), (Ok(()), false));
}
