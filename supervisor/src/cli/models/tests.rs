//! What `drupe models` says of a configuration, and of providers' lists.

use std::{fs, path::Path};

use drupe_config::{Config, model_catalogue};
use drupe_kernel::{ListedModel, Lists};
use serde_json::{Value, json};

use super::{
    super::{config, fake::Fake},
    Configured, Known, absolute, draw, is_offline,
};

const CONFIG: &str = "
models:
  aliases: {default: local/llama, fast: [gpt-5, local/llama], wide: openai, gone: nobody/x}
  providers:
    local: {kind: openai_chat, base_url: 'http://127.0.0.1:9/v1'}
    openai: {kind: openai, api_key: sk-very-secret}
  profiles:
    local/llama: {context_window: 8192, input_usd: 0.5}
    gpt-5: {input_usd: 1}
";

fn made(text: &str) -> (Config, Known) {
    let fake = Fake::absent();
    fs::write(fake.context.home.path().join("drupe.yaml"), text).expect("a file");
    let config = config::load(&fake.context).unwrap_or_else(|_| panic!("it is sound"));
    let known = Known::new(drupe_kernel::models(&config)).expect("it is sound");
    (config, known)
}

fn listed() -> Value {
    let (config, known) = made(CONFIG);
    serde_json::to_value(Configured::new(&config, &known, config.model_names())).expect("JSON")
}

fn entry<'a>(report: &'a Value, part: &str, key: &str, name: &str) -> &'a Value {
    let found = report[part].as_array().expect("a list").iter().find(|entry| entry[key] == name);
    found.unwrap_or_else(|| panic!("no `{name}` in {report:#}"))
}

/// What a list and its origin say of a figure.
fn figure(report: &Value, model: &str, name: &str) -> (Value, Value, Value) {
    let figures = &entry(report, "models", "name", model)["figures"];
    let found = figures.as_array().expect("a list").iter().find(|figure| figure["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no `{name}` in {figures:#}"));
    (found["value"].clone(), found["from"].clone(), found["assumed"].clone())
}

#[test]
fn names_are_told_with_what_they_lead_to_or_why_they_do_not() {
    let report = listed();
    let leads = |key: &str| entry(&report, "names", "key", key)["leads_to"].clone();
    assert_eq!(leads("models.aliases.default"), json!(["local/llama"]));
    assert_eq!(leads("models.aliases.fast"), json!(["openai/gpt-5", "local/llama"]));
    assert_eq!(leads("models.aliases.wide"), json!(["openai"]));
    assert_eq!(leads("orchestrator.model"), json!(["local/llama"]));
    let gone = entry(&report, "names", "key", "models.aliases.gone");
    assert!(
        gone["fault"].as_str().is_some_and(|fault| fault.contains("there is no provider `nobody`")),
        "{gone}"
    );
    assert!(!report.to_string().contains("very-secret"), "{report:#}");
    assert_eq!(entry(&report, "providers", "name", "local")["base_url"], "http://127.0.0.1:9/v1");
}

#[test]
fn each_figure_is_told_with_who_says_it_and_unknown_ones_as_unknown() {
    let report = listed();
    let shipped = model_catalogue().model("gpt-5").expect("it ships");
    let window = shipped.profile.context_window;
    assert_eq!(
        figure(&report, "openai/gpt-5", "context_window"),
        (json!(window), json!("catalogue"), Value::Null)
    );
    let own = (json!(1.0), json!("models.profiles.gpt-5"), Value::Null);
    assert_eq!(figure(&report, "openai/gpt-5", "input_usd"), own);
    let gpt = entry(&report, "models", "name", "openai/gpt-5");
    assert_eq!(gpt["retires"], json!(shipped.retires));
    assert_eq!(gpt["sources"], serde_json::to_value(&shipped.sources).expect("JSON"));
    assert_eq!(figure(&report, "local/llama", "output_usd"), (Value::Null, Value::Null, Value::Null));
    let answer = (Value::Null, Value::Null, json!(4096));
    assert_eq!(figure(&report, "local/llama", "max_output_tokens"), answer);
    assert_eq!(entry(&report, "models", "name", "local/llama")["sources"], json!([]));
    let preferred = &model_catalogue().provider("openai").expect("it ships").preferred[0];
    assert_eq!(entry(&report, "models", "name", &format!("openai/{preferred}"))["preferred"], true);
}

#[test]
fn what_is_configured_is_drawn_with_the_key_that_would_set_what_is_not_known() {
    let (config, known) = made(
        "models: {aliases: {default: local/llama}, providers: {local: {kind: openai_chat, base_url: 'http://127.0.0.1:9/v1'}}, profiles: {local/llama: {context_window: 8192, input_usd: 0.5}}}",
    );
    let expected = "\
providers
  local    openai_chat  http://127.0.0.1:9/v1
  offline  offline
names
  models.aliases.default  local/llama
  orchestrator.model      local/llama
  agents.defaults.model   local/llama
local/llama
  context_window     8,192  models.profiles.local/llama
  max_output_tokens  ?      not known, taken for 4,096: set `models.profiles.local/llama.max_output_tokens`
  input_usd          $0.5   models.profiles.local/llama
  cached_usd         –      as input_usd
  cache_write_usd    –      as input_usd
  output_usd         ?      not known: set `models.profiles.local/llama.output_usd`
  named by models.aliases.default, orchestrator.model, agents.defaults.model
";
    let drawn = draw::configured(&Configured::new(&config, &known, config.model_names()), false);
    let (drawn, rest) = drawn.split_once("the shipped").expect("the catalogue's day");
    assert_eq!(drawn, expected, "\n{drawn}");
    assert!(rest.contains(&model_catalogue().looked_up), "{rest}");
}

fn list(names: &[(&str, Option<&str>)]) -> Result<Option<Vec<ListedModel>>, String> {
    let listed = |(name, retires): &(&str, Option<&str>)| ListedModel {
        name: (*name).to_owned(),
        retires: retires.map(str::to_owned),
    };
    Ok(Some(names.iter().map(listed).collect()))
}

/// The check of `CONFIG`, without its name that leads nowhere, against these lists.
fn check(
    local: Result<Option<Vec<ListedModel>>, String>,
    openai: Result<Option<Vec<ListedModel>>, String>,
) -> (Value, String) {
    let (config, known) = made(&CONFIG.replace(", gone: nobody/x", ""));
    let lists: Lists = [("local".to_owned(), local), ("openai".to_owned(), openai)].into();
    let checked = Configured::new(&config, &known, config.model_names()).check(&known, &lists);
    (serde_json::to_value(&checked).expect("JSON"), draw::checked(&checked, false))
}

fn preferred(at: usize) -> &'static str {
    &model_catalogue().provider("openai").expect("it ships").preferred[at]
}

#[test]
fn what_providers_list_is_there_by_its_name_as_a_snapshot_and_as_the_latest() {
    let openai = list(&[("gpt-5-2025-08-07", Some("2026-12-24")), (preferred(1), None)]);
    let (report, drawn) = check(list(&[("llama:latest", None)]), openai);
    assert_eq!(report["ok"], true, "{report:#}");
    let gpt = entry(&report, "models", "name", "openai/gpt-5");
    assert_eq!((&gpt["presence"], &gpt["listed_as"]), (&json!("listed"), &json!("gpt-5-2025-08-07")));
    assert_eq!(gpt["retires"], "2026-12-24", "the provider's own word goes first");
    assert_eq!(entry(&report, "models", "name", "local/llama")["listed_as"], "llama:latest");
    assert_eq!(entry(&report, "providers", "name", "openai")["chooses"], preferred(1));
    for part in ["lists 2 models", "is there as llama:latest", "retires on 2026-12-24"] {
        assert!(drawn.contains(part), "{part}\n{drawn}");
    }
}

#[test]
fn a_model_that_is_missing_a_provider_that_is_silent_and_a_choice_of_none_are_failures() {
    let good = || (list(&[("llama", None)]), list(&[("gpt-5", None), (preferred(0), None)]));
    let ok = |(local, openai)| check(local, openai).0["ok"] == true;
    assert!(ok(good()));
    assert!(ok((Ok(None), good().1)), "a provider without a list says nothing against its models");
    assert!(!ok((list(&[("llama2", None)]), good().1)));
    assert!(!ok((Err("`local`: no connection".to_owned()), good().1)));
    assert!(!ok((good().0, list(&[("gpt-5", None)]))));
    let (report, drawn) = check(list(&[]), Err("`openai`: it\u{1b}[2J says no".to_owned()));
    assert_eq!(entry(&report, "models", "name", "local/llama")["presence"], "missing");
    assert_eq!(entry(&report, "models", "name", "openai/gpt-5")["presence"], "unknown");
    assert_eq!(entry(&report, "providers", "name", "openai")["answers"], false);
    assert!(drawn.contains("is not in the provider's list") && drawn.contains("does not answer"), "{drawn}");
    assert!(!drawn.contains('\u{1b}'), "{drawn:?}");
}

#[test]
fn a_name_that_leads_nowhere_fails_the_check() {
    let (config, known) = made(CONFIG);
    let checked = Configured::new(&config, &known, config.model_names()).check(&known, &Lists::new());
    assert!(!checked.ok);
    let drawn = draw::checked(&checked, false);
    assert!(drawn.contains("names that lead nowhere") && drawn.contains("models.aliases.gone"), "{drawn}");
}

#[test]
fn a_script_is_found_from_where_it_was_named() {
    let check = |model, expected| assert_eq!(absolute(model, Path::new("/here")), expected);
    check("scripted:flow.yaml", "scripted:/here/flow.yaml");
    check("scripted:/there/flow.yaml", "scripted:/there/flow.yaml");
    check("openai/gpt-5", "openai/gpt-5");
}

#[test]
fn only_the_offline_model_is_offline() {
    assert!(is_offline("offline/offline") && is_offline("offline"));
    assert!(!is_offline("openai/offline") && !is_offline("offliner/x"));
}
