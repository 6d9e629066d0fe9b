//! Agents that are single files.

use drupe_config::{Instructions, load_agent_file};

use crate::home::{Home, places};

#[test]
fn an_agent_in_a_file_is_an_agent_of_that_name_with_the_text_as_its_prompt() {
    let home = Home::new();
    let text =
        "\u{feff}---\r\ndescription: d\r\nusage: u\r\noutput: {}\r\n---\r\n\r\nYou are.\r\nTwo lines.\r\n";
    let loaded = home.agent_file(text).unwrap();
    assert!(loaded.warnings.is_empty());
    let manifest = loaded.value;
    assert_eq!((manifest.id.as_str(), manifest.name.as_str()), ("demo", "demo"));
    let agent = manifest.agent.as_ref().unwrap();
    assert_eq!(agent.instructions, Some(Instructions::Inline("You are.\nTwo lines.".into())));
    let config = home.config("agents: {defaults: {model: [a, b]}}").unwrap().value;
    assert_eq!(agent.models_over(&config.agents.defaults), ["a", "b"]);
}

#[test]
fn nothing_lies_beneath_the_folder_of_a_single_file() {
    let home = Home::new();
    let manifest = home.agent_file("---\ndescription: d\n---\nx\n").unwrap().value;
    assert_eq!(manifest.folder, home.path().canonicalize().unwrap().join("extensions/demo.md"));
    assert!(std::fs::metadata(manifest.folder.join("demo/prompt.md")).is_err());
}

#[test]
fn a_single_file_names_no_other() {
    let check = |key: &str, field: &str| {
        let end = if key.contains("instructions") { "" } else { "x\n" };
        let faults = Home::new().agent_file(format!("---\ndescription: d\n{key}\n---\n{end}")).unwrap_err();
        assert!(
            places(&faults).iter().any(|place| place.ends_with(&format!("not_in_a_file {field}"))),
            "{key}: {faults}"
        );
    };
    check("context: prompt.md", "context");
    check("context: [demo/prompt.md]", "context");
    check("instructions: demo/prompt.jinja2", "instructions");
    check("entrypoint: libdemo", "entrypoint");
    check("isolation: inproc", "isolation");
}

#[test]
fn the_name_of_the_file_must_be_an_id() {
    let home = Home::new();
    for name in ["My Agent.md", "é.md", "-x.md"] {
        home.write(&format!("extensions/{name}"), "---\ndescription: d\n---\nx\n");
        let faults = load_agent_file(&home.path().join("extensions").join(name), home.path()).unwrap_err();
        assert_eq!(places(&faults), ["1:1 invalid_id id"], "{name}");
    }
}
