//! What a manifest becomes, alone and together with a configuration.

use std::collections::BTreeMap;

use drupe_config::{
    AgentSection, Config, ContextSource, Instructions, Isolation, Loaded, Manifest, Right, Scope,
    ToolSelector, load_config,
};
use drupe_extension_api::{Format, OfflineAction, OfflineTrigger, Reasoning};
use serde_json::json;

use crate::home::{Home, places};

const COMPLETE: &str = include_str!("../cases/manifest_complete_agent.yaml");

#[test]
fn twelve_faults_in_one_manifest_are_twelve_diagnostics_with_line_and_column() {
    let faults = Home::new().manifest(include_str!("../cases/manifest_twelve_faults.yaml")).unwrap_err();
    let errors: Vec<_> =
        faults.iter().filter(|fault| fault.severity == drupe_config::Severity::Error).collect();
    assert_eq!(errors.len(), 12, "{:#?}", places(&faults));
    assert!(errors.iter().all(|fault| fault.line > 0 && fault.column > 0));
}

#[test]
fn every_key_of_a_manifest_arrives_in_its_type() {
    let home = Home::new();
    let Loaded { value: manifest, warnings } = home.manifest(COMPLETE).unwrap();
    assert!(warnings.is_empty());
    assert_eq!(manifest.id.as_str(), "demo");
    assert_eq!(manifest.version.to_string(), "2.1.0-beta.1");
    assert_eq!(manifest.scope, Scope::Agents);
    assert_eq!(
        manifest.rights,
        [Right::Submit, Right::Control, Right::Operate, Right::Restart, Right::Processes, Right::Network]
            .into()
    );
    assert_eq!(manifest.config["nested"], json!({"list": [1, 2.5, true, null, "text"]}));
    assert_eq!(manifest.secrets, ["DEMO_KEY"]);
    let followed: Vec<_> = manifest.subscribe.iter().map(|s| (s.topic.as_str(), s.task.as_str())).collect();
    assert_eq!(followed, [("kv.changed", "Say what changed."), ("agent_error", "Find out why.")]);
    let agent = manifest.agent.unwrap();
    assert_eq!((agent.limits.max_tool_calls, agent.limits.max_invocations), (Some(10), Some(1)));
    let root = home.path().canonicalize().unwrap();
    assert_eq!(
        agent.instructions,
        Some(Instructions::File { path: root.join("extensions/demo/prompt.jinja2"), template: true })
    );
    assert_eq!(
        agent.context,
        [
            ContextSource::File(root.join("extensions/demo/facts.csv")),
            ContextSource::File(root.join("common.md"))
        ]
    );
    assert_eq!(agent.models, ["default", "gpt-4o-mini"]);
    assert_eq!(agent.parameters.reasoning, Some(Reasoning::Low));
    assert_eq!(agent.parameters.stop, ["END"]);
    assert_eq!(
        agent.uses_tools.iter().map(ToolSelector::to_string).collect::<Vec<_>>(),
        ["kv", "files/files_read"]
    );
    assert_eq!(agent.input.as_ref().map(|input| input.format), Some(Format::Json));
    assert!(!agent.infer);
    assert_eq!(agent.offline.len(), 3);
    assert!(matches!(&agent.offline[0].trigger, OfflineTrigger::When(regex) if regex.contains("store")));
    assert!(matches!(&agent.offline[1].action, OfflineAction::Say(text) if text.starts_with("Stored")));
}

fn agent_of(home: &Home, limits: &str) -> AgentSection {
    let text = format!(
        "id: demo\nname: D\ndescription: d\nagent: {{model: m, instructions: '', usage: u, output: {{}}, {limits}}}"
    );
    home.manifest(text).unwrap().value.agent.unwrap()
}

#[test]
fn limits_and_parameters_of_a_manifest_win_over_the_defaults_and_those_over_the_built_in_ones() {
    let home = Home::new();
    let defaults = "agents: {defaults: {model: [a, b], limits: {max_turns: 4, max_retries: 1, max_tool_calls: 9, max_invocations: 3}, parameters: {seed: 1, top_p: 0.5, extra: {x: 1}}}}";
    let defaults = home.config(defaults).unwrap().value.agents.defaults;
    let agent =
        agent_of(&home, "limits: {max_turns: 7, max_tool_calls: 5}, parameters: {seed: 2, extra: {y: 2}}");
    let limits = agent.limits_over(&defaults);
    assert_eq!((limits.max_turns, limits.max_retries, limits.max_depth), (7, 1, 3));
    assert_eq!((limits.max_tool_calls, limits.max_invocations), (5, 3));
    let parameters = agent.parameters_over(&defaults);
    assert_eq!((parameters.seed, parameters.top_p), (Some(2), Some(0.5)));
    assert_eq!(json!(parameters.extra), json!({"x": 1, "y": 2}));
    assert_eq!(agent.models_over(&defaults), ["m"]);
}

const WITH_CONFIG: &str = "
id: demo
name: Demo
entrypoint: libdemo
secrets: [TOKEN]
setup_instructions: Ask the operator.
config: { url: 'https://x/${TOKEN}', options: { a: 1, b: 2 } }
config_schema:
  type: object
  required: [url]
  additionalProperties: false
  properties: { url: { type: string, maxLength: 30 }, options: { type: object, additionalProperties: { type: integer } } }
";

fn with_config(file: &str, environment: &[(&str, &str)]) -> (Home, Manifest, Config) {
    let home = Home::new();
    let manifest = home.manifest(WITH_CONFIG).unwrap().value;
    let mut sources = home.sources(file);
    sources.environment = environment
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect::<BTreeMap<_, _>>();
    let config = load_config(&sources).unwrap().value;
    (home, manifest, config)
}

#[test]
fn the_configuration_overrides_a_manifest_key_by_key_and_placeholders_are_resolved() {
    let (_home, manifest, config) =
        with_config("extensions: {demo: {enabled: false, options: {b: 3, c: 4}}}", &[("TOKEN", "t0p")]);
    let value = manifest.effective_config(&config).unwrap();
    assert_eq!(json!(value), json!({"url": "https://x/t0p", "options": {"a": 1, "b": 3, "c": 4}}));
    assert!(!manifest.is_enabled(&config));
    assert_eq!(manifest.resolve_secrets(&config.overlay).unwrap()["TOKEN"].expose(), "t0p");
}

#[test]
fn what_a_schema_refuses_is_named_at_its_place_without_showing_values() {
    let file = "extensions:\n  demo:\n    options: {b: x}\n    colour: red\n";
    let (_home, manifest, config) = with_config(file, &[("TOKEN", &"s3cret".repeat(20))]);
    let faults = manifest.effective_config(&config).unwrap_err();
    assert_eq!(
        places(&faults),
        ["3:18 config_schema config.options.b", "6:1 config_schema config", "6:16 config_schema config.url"]
            .map(|place| place.replace("6:1 ", "7:9 ").replace("6:16", "7:16"))
    );
    assert!(!faults.render(false).contains("s3cret"));
    assert!(
        faults.iter().all(|fault| fault.help.as_ref().is_some_and(|help| help.contains("Ask the operator")))
    );
}

#[test]
fn a_secret_that_nobody_defined_is_named_with_who_needs_it_and_where_to_define_it() {
    let (_home, manifest, config) = with_config("", &[]);
    for faults in [
        manifest.effective_config(&config).unwrap_err(),
        manifest.resolve_secrets(&config.overlay).unwrap_err(),
    ] {
        let fault = faults.iter().next().unwrap();
        assert_eq!(fault.code, "missing_variable");
        assert!(fault.message.contains("TOKEN") && fault.message.contains("`demo`"), "{fault}");
        assert!(fault.help.as_ref().unwrap().contains("drupe secret set TOKEN"), "{fault}");
    }
}

#[test]
fn the_operator_hands_an_extension_whatever_variable_they_name_for_it() {
    let (_home, manifest, config) =
        with_config("extensions: {demo: {url: '${OTHER}'}}", &[("TOKEN", "t"), ("OTHER", "o")]);
    assert_eq!(manifest.effective_config(&config).unwrap()["url"], "o");
    let (_home, manifest, config) = with_config("extensions: {demo: {url: '${NOWHERE}'}}", &[("TOKEN", "t")]);
    let faults = manifest.effective_config(&config).unwrap_err();
    assert_eq!(places(&faults), ["1:26 missing_variable config.url"]);
}

#[test]
fn isolation_is_what_the_manifest_says_and_nothing_where_it_says_nothing() {
    let check = |line: &str, expected: Option<Isolation>| {
        let manifest = Home::new().manifest(format!("id: demo\nname: D\nentrypoint: x\n{line}")).unwrap();
        assert_eq!(manifest.value.isolation, expected, "{line}");
    };
    check("isolation: process", Some(Isolation::Process));
    check("isolation: inproc", Some(Isolation::Inproc));
    check("", None);
}

#[test]
fn a_value_that_seems_a_path_does_not_become_the_prompt() {
    let fault_of = |key: &str, value: &str| {
        let instructions = if key == "instructions" { "" } else { "\n  instructions: Help." };
        let text = format!(
            "id: demo\nname: Demo\ndescription: d\nagent:\n  model: default{instructions}\n  {key}: \"{value}\"\n"
        );
        let home = Home::new();
        match home.manifest(&text) {
            Ok(_) => String::new(),
            // What else an agent lacks is another matter.
            Err(faults) => {
                let codes = faults.iter().map(|fault| fault.code);
                codes.filter(|code| *code == "not_a_prompt").collect::<Vec<_>>().join(" ")
            }
        }
    };
    for value in [
        "/etc/passwd",
        "../../x",
        "~/.ssh/id_rsa",
        "~root",
        "file:///etc/passwd",
        "..%2f..%2fetc",
        "%2Fetc%2Fpasswd",
        "prompts/",
        "prompts/main",
        "/proc/self/environ",
        "C:\\\\prompt",
        "..",
        "https://example.org/prompt",
        "prompt.markdown",
        "prompt.yaml",
    ] {
        assert_eq!(fault_of("instructions", value), "not_a_prompt", "{value}");
        assert_eq!(fault_of("context", value), "not_a_prompt", "{value}");
    }
    for value in
        ["Help.", "Summarise", "Read /etc/hosts and say what it holds", "Answer yes/no to all", "a, b; c"]
    {
        assert_eq!(fault_of("instructions", value), "", "{value}");
        assert_eq!(fault_of("context", value), "", "{value}");
    }
    // A block of text is the text, whatever its lines hold.
    let block = "id: demo\nname: Demo\ndescription: d\nagent:\n  model: default\n  instructions: |\n    /etc/passwd\n    is secret\n";
    let told = Home::new().manifest(block).err();
    assert!(told.iter().flat_map(|faults| faults.iter()).all(|fault| fault.code != "not_a_prompt"));
}

#[test]
fn an_entrypoint_names_a_library_and_nothing_within_it() {
    for value in ["main:Thing", "demo:register", "C:demo"] {
        let text = format!("id: demo\nname: Demo\ndescription: d\nentrypoint: {value}\n");
        let faults = Home::new().manifest(&text).unwrap_err();
        let codes: Vec<_> = faults.iter().map(|fault| (fault.code, fault.line)).collect();
        assert!(codes.contains(&("invalid_value", 4)), "{value}: {codes:?}");
    }
}
