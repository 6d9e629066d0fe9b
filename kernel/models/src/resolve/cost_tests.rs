//! Cost limits that were set, and models without a price.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Two servers; the price of `paid/m` is known.
fn settings(cost_limit: Option<&str>) -> ModelsSettings {
    let endpoint = Endpoint { base_url: "http://127.0.0.1:9/v1".to_owned(), ..Endpoint::default() };
    let server = |name: &str| ProviderSettings::new(name, ProviderKind::OpenAiChat(endpoint.clone()));
    let price = |usd| ProfileSettings { input_usd: usd, output_usd: usd, ..ProfileSettings::default() };
    ModelsSettings {
        providers: vec![server("paid"), server("local")],
        aliases: [("default".to_owned(), vec!["paid/m".to_owned(), "local/m".to_owned()])].into(),
        profiles: [
            ("paid/m".to_owned(), price(Some(2.0))),
            ("local/free".to_owned(), price(Some(0.0))),
            ("local/half".to_owned(), ProfileSettings { output_usd: None, ..price(Some(0.0)) }),
        ]
        .into(),
        cost_limit: cost_limit.map(str::to_owned),
        ..ModelsSettings::default()
    }
}

/// The models that are taken, or why none is.
fn check(set: Option<&str>, limits: &DefinitionLimits, names: &[&str]) -> Result<(), String> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let models = Models::new(settings(set)).unwrap();
    let resolved = models.resolve_for(NamedBy::Operator, &names, &ModelParameters::default(), limits);
    resolved.map(|_| ()).map_err(|error| error.to_string())
}

fn bounded() -> DefinitionLimits {
    DefinitionLimits { max_cost_usd: Some(1.0), ..DefinitionLimits::default() }
}

#[test]
fn a_limit_that_was_set_takes_no_model_without_a_price() {
    let day = "limits.day.max_cost_usd";
    let give = |model: &str| {
        format!("`input_usd` and `output_usd` of `models.profiles.{model}` (0 for a free model)")
    };
    for (names, unknown) in [
        (&["local/m"][..], "local/m"),
        (&["local/half"], "local/half"),
        (&["paid/m", "local/m"], "local/m"),
        (&["local/m", "paid/m"], "local/m"),
        (&[], "local/m"),
    ] {
        let error = check(Some(day), &DefinitionLimits::default(), names).unwrap_err();
        let start = format!("`{day}` is set, but the price of model `{unknown}` is not known");
        assert!(error.starts_with(&start) && error.ends_with(&give(unknown)), "{error}");
        let error = check(None, &bounded(), names).unwrap_err();
        assert!(error.starts_with("`max_cost_usd` is set, but"), "{error}");
        assert!(error.contains(&give(unknown)) && error.ends_with("`allow_unknown_price: true`"), "{error}");
    }
}

#[test]
fn known_prices_an_exception_and_built_in_limits_take_it() {
    let day = Some("limits.day.max_cost_usd");
    assert_eq!(check(day, &bounded(), &["paid/m", "local/free"]), Ok(()));
    assert_eq!(check(None, &DefinitionLimits::default(), &["local/m"]), Ok(()), "nobody set a limit");
    let allowed = DefinitionLimits { allow_unknown_price: true, ..bounded() };
    assert_eq!(check(None, &allowed, &["local/m"]), Ok(()));
    let error = check(day, &allowed, &["local/m"]).unwrap_err();
    assert!(error.starts_with("`limits.day.max_cost_usd`"), "it is for the run's own limit: {error}");
}
