//! Sentences among the tools and agents that ship: what somebody says in the first five minutes.

use serde::Deserialize;

use super::*;

const BUILDER: &str = include_str!("../../../../../extensions/builder_agent/manifest.yaml");
const REVIEWER: &str = include_str!("../../../../../extensions/code_reviewer/manifest.yaml");
const HAIKU: &str = "Writes haikus. Use this agent for every request of that kind; not for anything else.";

/// An agent with the description that it ships with.
fn shipped(name: &str, manifest: &str) -> Arc<ToolSpec> {
    #[derive(Deserialize)]
    struct Manifest {
        description: String,
    }
    let manifest: Manifest = serde_yaml::from_str(manifest).unwrap();
    agent_tool(name, &manifest.description)
}

/// What the orchestrator has after the first start, and what the builder made since.
fn house(made: &[(&str, &str)]) -> Vec<Arc<ToolSpec>> {
    let text = || json!({"type": "string"});
    let path = || object(json!({"path": text()}), &["path"]);
    let key = || object(json!({"key": text(), "scope": text()}), &["key"]);
    let mut tools = vec![
        shipped("agent_builder_agent", BUILDER),
        shipped("agent_code_reviewer", REVIEWER),
        spec("files_edit", "Changes a part of a text file.", path()),
        spec("files_list", "Lists the files and folders in a folder.", object(json!({"path": text()}), &[])),
        spec("files_read", "Reads a text file, or some lines of it.", path()),
        spec(
            "files_search",
            "Finds lines of text files that match a regular expression.",
            object(json!({"pattern": text(), "path": text()}), &["pattern"]),
        ),
        spec(
            "files_write",
            "Writes a text file, in place of what was there.",
            object(json!({"path": text(), "content": text()}), &["path", "content"]),
        ),
        spec("kv_delete", "Removes a key and its value.", key()),
        spec("kv_get", "Gives the value stored under a key.", key()),
        spec("kv_list", "Lists the keys that are stored.", object(json!({"pattern": text()}), &[])),
        spec(
            "kv_set",
            "Stores a value under a key, in place of what was there.",
            object(json!({"key": text(), "value": {}}), &["key", "value"]),
        ),
    ];
    tools.extend(made.iter().map(|(name, description)| agent_tool(name, description)));
    tools
}

fn said(text: &str, made: &[(&str, &str)]) -> String {
    play(&request(vec![user(text)], house(made), true))
}

#[test]
fn a_wish_for_an_agent_goes_to_the_builder_whatever_agents_there_are() {
    let haiku = ("agent_haiku", HAIKU);
    let limerick = (
        "agent_limerick",
        "Writes limericks. Use this agent for every request of that kind; not for anything else.",
    );
    for text in [
        "create an agent called haiku that writes haikus",
        "Create an agent called haiku that writes haikus.",
        "Please create an agent named haiku2 which writes better haikus",
        "create an agent that writes haikus",
        "build me an agent called limerick that writes limericks",
        "make a new agent called reviewer that reviews code and finds bugs",
        "I want you to create an agent called reader that reads text files",
    ] {
        for made in [&[][..], &[haiku], &[haiku, limerick]] {
            let expected = format!("agent_builder_agent {}", json!({"task": text}));
            assert_eq!(said(text, made), expected, "{made:?}");
        }
    }
}

#[test]
fn a_task_goes_to_the_agent_that_was_made_for_it() {
    for (text, agent) in [
        ("please write haikus about rust", "agent_haiku"),
        ("a haiku about autumn", "agent_haiku"),
        ("I want a poem which is a haiku", "agent_haiku"),
        ("a haiku that mentions an agent", "agent_haiku"),
        ("write a haiku that is called Autumn", "agent_haiku"),
        ("review the code in src/main.rs", "agent_code_reviewer"),
        ("I think that this code needs a review", "agent_code_reviewer"),
    ] {
        assert_eq!(
            said(text, &[("agent_haiku", HAIKU)]),
            format!("{agent} {}", json!({"task": text})),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_wish_for_an_agent_does_not_go_to_the_builder() {
    for text in ["remember that my name is Ada", "my name is Ada", "thank you", "what time is it?"] {
        for made in [&[][..], &[("agent_haiku", HAIKU)]] {
            assert!(said(text, made).contains("found nothing"), "{text}: {}", said(text, made));
        }
    }
    assert_eq!(said("list the keys that are stored", &[]), "kv_list {}");
    assert!(said("read the file notes.txt", &[]).contains("files_read path=<string>"));
}

#[test]
fn a_question_for_abilities_is_answered_with_all_of_them() {
    let list = said("what can you do?", &[("agent_haiku", HAIKU)]);
    for tool in house(&[("agent_haiku", HAIKU)]) {
        assert!(list.contains(&format!("- {}: ", tool.name)), "{list}");
    }
}
