//! Layers, origins and the overlay.

use std::time::Duration;

use drupe_config::{Durability, ValueOrigin, default_file, load_config};
use serde_json::json;

use crate::home::{Home, places};

#[test]
fn later_layers_win_and_each_value_knows_who_set_it() {
    let home = Home::new();
    let mut sources = home.sources("log: warn\ndrain_timeout_ms: 5\norchestrator: {model: a, name: file}\n");
    sources.environment.insert("DRUPE_ORCHESTRATOR__MODEL".into(), "[b, c]".into());
    sources.environment.insert("DRUPE_ORCHESTRATOR__NAME".into(), "1234".into());
    sources.environment.insert("DRUPE_HOME".into(), "/elsewhere".into());
    sources.environment.insert("DRUPE_JOURNAL__DURABILITY".into(), "memory".into());
    sources.overrides.push(("orchestrator.name".into(), "yes".into()));
    sources.overrides.push(("drain_timeout_ms".into(), "7".into()));
    let loaded = load_config(&sources).unwrap();
    assert!(loaded.warnings.is_empty());
    let config = loaded.value;
    assert_eq!(config.orchestrator.models, ["b", "c"]);
    assert_eq!(config.orchestrator.name, "yes");
    assert_eq!(config.drain_timeout, Duration::from_millis(7));
    assert_eq!(config.journal.durability, Durability::Memory);
    let origin = |key: &str| config.effective().into_iter().find(|value| value.key == key).unwrap().origin;
    assert_eq!(origin("log"), ValueOrigin::File { path: home.path().join("drupe.yaml"), line: 1 });
    assert_eq!(origin("orchestrator.model"), ValueOrigin::Environment("DRUPE_ORCHESTRATOR__MODEL".into()));
    assert_eq!(origin("orchestrator.name"), ValueOrigin::CommandLine);
    assert_eq!(origin("orchestrator.limits.max_turns"), ValueOrigin::Default);
}

#[test]
fn faults_of_variables_and_of_the_command_line_are_named_by_their_layer() {
    let home = Home::new();
    let mut sources = home.sources("");
    sources.environment.insert("DRUPE_ORCHESTRATOR__MODLE".into(), "x".into());
    sources.environment.insert("DRUPE_LGO".into(), "x".into());
    sources.environment.insert("DRUPE_MODELS__PROVIDERS__X__API_KEY".into(), "sk-hidden".into());
    sources.overrides.push(("drain_timeout_ms".into(), "soon".into()));
    sources.overrides.push(("nonsense".into(), "[".into()));
    let faults = load_config(&sources).unwrap_err();
    let found: Vec<_> = faults.iter().map(|f| format!("{} {}", f.file.display(), f.code)).collect();
    assert_eq!(
        found,
        [
            "command line:drain_timeout_ms wrong_type",
            "command line:nonsense syntax",
            "environment:DRUPE_LGO unknown_variable",
            "environment:DRUPE_MODELS__PROVIDERS__X__API_KEY missing_key",
            "environment:DRUPE_ORCHESTRATOR__MODLE unknown_key",
        ]
    );
    assert!(faults.iter().any(|fault| fault.help.as_deref() == Some("did you mean `log`?")));
    assert!(!faults.render(false).contains("sk-hidden"));
}

#[test]
fn variables_come_from_the_file_then_the_sidecar_then_the_environment() {
    let home = Home::new();
    home.write_env("A=sidecar\nB=sidecar\n");
    let mut sources = home.sources("env: { A: file, D: 'x ${C}' }");
    for name in ["A", "B", "C"] {
        sources.environment.insert(name.into(), "environment".into());
    }
    let overlay = load_config(&sources).unwrap().value.overlay;
    let get = |name: &str| overlay.get(name).map(|secret| secret.expose());
    assert_eq!(get("A"), Some("file"));
    assert_eq!(get("B"), Some("sidecar"));
    assert_eq!(get("C"), Some("environment"));
    assert_eq!(get("D"), Some("x environment"));
    assert_eq!(get("E"), None);
}

#[test]
fn no_secret_shows_in_the_effective_configuration_or_in_debug_output() {
    let home = Home::new();
    let mut sources = home.sources(include_str!("../cases/config_complete.yaml"));
    home.write("flow.yaml", "[]");
    home.write_env("FROM_ENV_FILE=side-secret\n");
    sources.environment.insert("ANTHROPIC_API_KEY".into(), "sk-ant-hidden".into());
    let config = load_config(&sources).unwrap().value;
    let shown = format!("{} {config:?}", json!(config.effective()));
    for secret in ["very-secret", "side-secret", "sk-ant-hidden"] {
        // The written text names the variable; its value is nowhere.
        let values = shown.replace("KEY: very-secret", "");
        assert!(!json!(config.effective()).to_string().contains(secret), "{secret}");
        assert!(values.contains("***"));
    }
    let value = |key: &str| config.effective().into_iter().find(|value| value.key == key).unwrap().value;
    assert_eq!(value("models.providers.local.base_url"), json!("http://${HOST}/v1/"));
    assert_eq!(value("models.providers.anthropic.api_key"), json!("***"));
    assert_eq!(value("extensions.kv.root"), json!("${KEY}"));

    // Nor what a key of an extension calls a secret itself.
    let mut sources = home.sources(
        "extensions: {http: {embeds: {shop: {secret: hidden, title: shown, token: '${A}', password: 'hidden${A}'}, secret: {x: hidden}}}}",
    );
    sources.environment.insert("A".into(), "value".into());
    let shown = json!(load_config(&sources).unwrap().value.effective()).to_string();
    assert!(shown.contains("shown") && shown.contains("${A}") && !shown.contains("hidden"), "{shown}");
}

#[test]
fn a_configuration_in_a_folder_whose_name_is_no_text_can_be_shown() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let home = Home::new();
    let folder = home.path().join(OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir_all(folder.join("more")).unwrap();
    for name in ["a.md", "script.yaml"] {
        std::fs::write(folder.join(name), "[]").unwrap();
    }
    let text = "extensions: {paths: [more]}\norchestrator: {instructions: a.md, context: [a.md]}\n\
                models: {providers: {x: {kind: scripted, file: script.yaml}}}\n";
    std::fs::write(folder.join("drupe.yaml"), text).unwrap();
    let file = Some(folder.join("drupe.yaml"));
    let sources = drupe_config::Sources { file, home: folder, ..Default::default() };
    let config = load_config(&sources).unwrap_or_else(|faults| panic!("{}", faults.render(false))).value;
    let shown = config.effective();
    for key in
        ["extensions.paths", "orchestrator.instructions", "orchestrator.context", "models.providers.x.file"]
    {
        let value = shown.iter().find(|value| value.key == key).unwrap().value.to_string();
        assert!(value.contains("odd\u{fffd}/"), "{key}: {value}");
    }
}

#[test]
fn without_a_file_everything_has_its_default() {
    let home = Home::new();
    assert_eq!(default_file(home.path()), None);
    let sources = drupe_config::Sources { home: home.path().into(), ..Default::default() };
    let config = load_config(&sources).unwrap().value;
    assert_eq!(config.drain_timeout, Duration::from_secs(30));
    assert_eq!(
        config.orchestrator.builder_may_use.iter().map(|id| id.as_str()).collect::<Vec<_>>(),
        ["kv", "files"]
    );
    let strangers: Vec<_> =
        config.effective().into_iter().filter(|value| value.origin != ValueOrigin::Default).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn the_shipped_file_changes_nothing_and_its_comments_are_valid_keys() {
    let home = Home::new();
    let shipped = home.config(drupe_config::DEFAULT_CONFIG).unwrap();
    assert!(shipped.warnings.is_empty());
    let plain = |config: &drupe_config::Config| {
        config.effective().into_iter().map(|value| (value.key, value.value)).collect::<Vec<_>>()
    };
    assert_eq!(plain(&shipped.value), plain(&home.config("").unwrap().value));

    for name in ["my-prompt.md", "about-me.md"] {
        home.write(name, "x");
    }
    std::fs::create_dir(home.path().join("my-extensions")).unwrap();
    let text = uncommented(drupe_config::DEFAULT_CONFIG).replace("../my-extensions", "my-extensions");
    let mut sources = home.sources(&text);
    for key in ["OLLAMA_KEY", "CLAUDE_KEY"] {
        sources.environment.insert(key.into(), "k".into());
    }
    let loaded = load_config(&sources).unwrap_or_else(|faults| panic!("{}\n{text}", faults.render(false)));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings.render(false));
    for section in drupe_config::config_schema()["properties"].as_object().unwrap().keys() {
        assert!(
            text.lines().any(|line| line.starts_with(&format!("{section}:"))),
            "`{section}` is not shown"
        );
    }
}

/// The file with its examples switched on: each comment that is a key.
fn uncommented(text: &str) -> String {
    let is_key = |line: &str| {
        let name = line.trim_start().split_once(':').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_./".contains(c))
    };
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(rest) if is_key(rest) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn declared_defaults_are_those_that_hold() {
    let home = Home::new();
    let config =
        home.config("models: {providers: {x: {kind: openai_chat, base_url: 'http://x'}}}").unwrap().value;
    let effective = config.effective();
    let mut compared = 0;
    let schema = drupe_config::config_schema();
    let mut check = |path: &str, declared: &serde_json::Value| {
        let holds = effective.iter().find(|value| value.key == path);
        assert_eq!(holds.map(|value| &value.value), Some(declared), "{path}");
        compared += 1;
    };
    walk(&schema, "", &mut check);
    assert!(compared > 30, "{compared}");
}

/// Visits each declared default with its dotted key.
fn walk(schema: &serde_json::Value, path: &str, visit: &mut dyn FnMut(&str, &serde_json::Value)) {
    for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Some(default) = schema.get("default")
            && path != "api"
        {
            visit(&path, default);
        }
        walk(schema, &path, visit);
        if path == "models.providers" {
            walk(&schema["additionalProperties"], "models.providers.x", visit);
        }
    }
}

#[test]
fn a_sidecar_file_that_others_can_read_stops_the_start() {
    let home = Home::new();
    home.write(".env", "A=b\n");
    std::fs::set_permissions(home.path().join(".env"), std::os::unix::fs::PermissionsExt::from_mode(0o640))
        .unwrap();
    let faults = home.config("").unwrap_err();
    assert_eq!(places(&faults), ["0:0 readable_secrets "]);
}

#[test]
fn the_shipped_prompt_renders_with_and_without_capabilities() {
    use minijinja::{Environment, UndefinedBehavior, context};
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_template("prompt", drupe_config::ORCHESTRATOR_PROMPT).unwrap();
    let render = |agents: serde_json::Value, tools: serde_json::Value, capabilities: &str| {
        let template = environment.get_template("prompt").unwrap();
        let [agents, tools] =
            [agents, tools].map(|value| minijinja::Value::from(minijinja::value::Serde(value)));
        let (name, now, user) = ("plum", "Monday", "");
        template.render(context! { name, now, user, agents, tools, capabilities }).unwrap()
    };
    let full = render(
        json!([{"id": "haiku", "description": "d"}]),
        json!([{"id": "kv", "description": "d"}]),
        "Available agents:",
    );
    assert!(
        full.contains("You are plum") && full.contains("Available agents:") && full.contains("`haiku`"),
        "{full}"
    );
    let empty = render(json!([]), json!([]), "");
    assert!(empty.contains("no agent") && empty.contains("no tool"), "{empty}");
}

#[test]
fn a_cost_limit_counts_as_set_only_where_somebody_set_it() {
    let check = |text: &str, expected: Option<&str>| {
        let config = load_config(&Home::new().sources(text)).unwrap().value;
        assert_eq!(config.cost_limit().as_deref(), expected, "{text}");
    };
    check("", None);
    check("limits: {day: {max_tokens: 5}, warn_at: 0.5}\n", None);
    check("agents: {defaults: {limits: {max_cost_usd: 1}}}\n", None);
    check("limits: {day: {max_cost_usd: 50}}\n", Some("limits.day.max_cost_usd"));
    check(
        "limits: {agent: {max_cost_usd: 1}, session: {max_cost_usd: 0}}\n",
        Some("limits.session.max_cost_usd"),
    );
    check("limits: {agent: {max_cost_usd: 1}}\n", Some("limits.agent.max_cost_usd"));
    let home = Home::new();
    let mut sources = home.sources("");
    sources.environment.insert("DRUPE_LIMITS__AGENT__MAX_COST_USD".into(), "3".into());
    let config = load_config(&sources).unwrap().value;
    assert_eq!(config.cost_limit().as_deref(), Some("limits.agent.max_cost_usd"));
}
