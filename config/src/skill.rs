//! `SKILL.md`: the head of a skill in the open Agent Skills format, and the text below it. And what a file beside it says of how
//! the skill is shown to people.
//!
//! The format: <https://github.com/agentskills/agentskills/blob/main/docs/specification.mdx>. It knows no file for display. Codex
//! does: `SKILL.toml` at first (<https://github.com/openai/codex/pull/9125>), today `agents/openai.yaml` with the same keys
//! (`references/openai_yaml.md` of its skill `skill-creator`, `codex-rs/core-skills/src/loader.rs`). All read on 2026-11-27.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use toml_edit::{DocumentMut, Item};

use crate::{
    Diagnostics, Loaded,
    declare::keys,
    forms,
    frontmatter::Parts,
    parse,
    read::Reading,
    shape::{Shape, each_its_own},
    source::{self, Source, SourceOrigin},
    tree::{self, Node, Yaml},
};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

/// The files beneath a skill that may say how it is shown. The first that is there counts.
pub const DISPLAY_FILES: [&str; 2] = ["agents/openai.yaml", "SKILL.toml"];

/// Characters of a name to show.
const SHOWN_NAME: usize = 64;

/// Characters of a description to show.
const SHOWN_DESCRIPTION: usize = 1_024;

/// How a skill is shown to people. No model is given it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillDisplay {
    pub name: Option<String>,
    pub description: Option<String>,
}

keys! {
    /// The keys of a skill.
    #[derive(PartialEq)]
    pub struct SkillHead in SKILL("the skill") {
        /// Its name, which is that of its folder.
        name: String => Shape::Text(&forms::SKILL), required;
        /// What it is for, and when to use it.
        description: String => Shape::Text(&forms::SKILL_DESCRIPTION), required;
        /// Under which terms it may be used.
        license: Option<String> => Shape::Text(&forms::ANY);
        /// What it needs of the system.
        compatibility: Option<String> => Shape::Text(&forms::SKILL_COMPATIBILITY);
        /// Whatever else its author says of it.
        metadata: BTreeMap<String, Value> = each_its_own() => Shape::Open;
        /// The tools that it uses, by our names or by those of other systems.
        allowed_tools as "allowed-tools" (default): Vec<String> => Shape::OneOrMany(&Shape::Text(&forms::ANY));
    }
}

/// What the file of a skill holds.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillFile {
    pub head: SkillHead,
    /// What a model is to do.
    pub instructions: String,
}

/// Reads the `SKILL.md` of a folder. Keys that the format does not know are left out, with a warning: other systems add
/// some.
///
/// # Errors
/// All faults at once, each with its line and column in the file.
pub fn load_skill(folder: &Path) -> Result<Loaded<SkillFile>, Diagnostics> {
    parse_skill(folder, source::read_text_file(&folder.join(SKILL_FILE))?)
}

/// The same of a text that was read already.
///
/// # Errors
/// All faults at once.
pub fn parse_skill(folder: &Path, text: String) -> Result<Loaded<SkillFile>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let skill = parsed(folder, text, &mut faults);
    let faults = faults.sorted();
    match skill {
        Some(value) if !faults.has_errors() => Ok(Loaded { value, warnings: faults }),
        _ => Err(faults),
    }
}

fn parsed(folder: &Path, text: String, faults: &mut Diagnostics) -> Option<SkillFile> {
    let source = Source::new(SourceOrigin::File(folder.join(SKILL_FILE)), text);
    source.reveal_except(Vec::new());
    let parts = Parts::of(&source, faults)?;
    let mut root = parse::beginning(&source, parts.frontmatter_end, faults)?;
    tree::refuse_duplicates(&mut root, "", faults);
    if let Yaml::Map(entries) = &mut root.value {
        entries.retain(|entry| {
            let known = SKILL.keys.iter().any(|key| key.name == entry.key);
            if !known {
                let message = format!("`{}` is no key of a skill, and left out", tree::shorten(&entry.key));
                faults
                    .warning("left_out", &entry.key_at, "", message)
                    .help("put what only other systems know under `metadata`");
            }
            known
        });
    }
    let head: SkillHead = Reading { faults, variables: None }.typed(&SKILL, &root, "")?;
    let named = folder.file_name().is_some_and(|name| name.to_string_lossy() == head.name);
    if !named && let Some(name) = root.get("name") {
        let message = format!("the skill is called `{}`, and its folder is not", tree::shorten(&head.name));
        faults.error("other_name", &name.at, "name", message).help("give both the same name");
    }
    if parts.text.is_empty() {
        faults
            .error("empty_prompt", &parts.text_at, "", "no instructions follow the frontmatter")
            .help("write below the second `---` what is to be done, step by step");
    }
    Some(SkillFile { head, instructions: parts.text })
}

/// Why a skill is not shown as a file says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitDisplay {
    #[error("line {line}: {message}")]
    Yaml { line: u32, message: String },
    #[error("{0}")]
    Toml(String),
    #[error("`interface` holds no keys")]
    NoKeys,
    #[error("`interface.{0}` is no text")]
    NoText(&'static str),
    #[error("`interface.{0}` is empty")]
    Empty(&'static str),
    #[error("`interface.{0}` has more than {1} characters")]
    TooLong(&'static str, usize),
}

/// Reads one of [`DISPLAY_FILES`], each text as one line. What else such a file holds is another system's.
///
/// # Errors
/// What is wrong with it.
pub fn parse_skill_display(file: &str, text: &str) -> Result<SkillDisplay, UnfitDisplay> {
    let interface = match if file.ends_with(".toml") { of_toml(text) } else { of_yaml(file, text) }? {
        Value::Object(interface) => interface,
        Value::Null => return Ok(SkillDisplay::default()),
        _ => return Err(UnfitDisplay::NoKeys),
    };
    let shown = |key: &'static str, most: usize| {
        let Some(value) = interface.get(key) else { return Ok(None) };
        let text = value.as_str().ok_or(UnfitDisplay::NoText(key))?;
        let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match words.chars().count() {
            0 => Err(UnfitDisplay::Empty(key)),
            length if length > most => Err(UnfitDisplay::TooLong(key, most)),
            _ => Ok(Some(words)),
        }
    };
    let description = shown("short_description", SHOWN_DESCRIPTION)?;
    Ok(SkillDisplay { name: shown("display_name", SHOWN_NAME)?, description })
}

/// What is at `interface`; null where nothing is.
fn of_yaml(file: &str, text: &str) -> Result<Value, UnfitDisplay> {
    let mut faults = Diagnostics::default();
    let source = Source::new(SourceOrigin::File(file.into()), text.to_owned());
    let Some(root) = parse::document(&source, &mut faults) else {
        let first = faults.iter().next().map(|fault| (fault.line, fault.message.clone()));
        let (line, message) = first.unwrap_or_default();
        return Err(UnfitDisplay::Yaml { line, message });
    };
    Ok(root.get("interface").map_or(Value::Null, Node::to_json))
}

fn of_toml(text: &str) -> Result<Value, UnfitDisplay> {
    let root = text.parse::<DocumentMut>().map_err(|error| UnfitDisplay::Toml(error.message().to_owned()))?;
    let Some(interface) = root.get("interface") else { return Ok(Value::Null) };
    let table = interface.as_table_like().ok_or(UnfitDisplay::NoKeys)?;
    let text = |value: &Item| value.as_str().map_or(Value::Null, Value::from);
    Ok(table.iter().map(|(key, value)| (key.to_owned(), text(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_is_shown_is_read_of_either_file() {
        let shown = |name: &str, description: &str| SkillDisplay {
            name: Some(name.into()),
            description: Some(description.into()),
        };
        let yaml = "interface:\n  display_name: \"PDF\\n forms\"\n  short_description: Fills in forms\n  brand_color: '#3B82F6'\n\
                    policy: {allow_implicit_invocation: true}\n";
        let toml = "[interface]\ndisplay_name = \"PDF forms\"\nshort_description = \"Fills in forms\"\nicon_small = \"./a.png\"\n";
        let [first, second] = DISPLAY_FILES;
        assert_eq!(parse_skill_display(first, yaml), Ok(shown("PDF forms", "Fills in forms")));
        assert_eq!(parse_skill_display(second, toml), Ok(shown("PDF forms", "Fills in forms")));
        for (file, nothing) in [(first, ""), (first, "policy: {}"), (second, ""), (second, "[other]\n")] {
            assert_eq!(parse_skill_display(file, nothing), Ok(SkillDisplay::default()), "{nothing}");
        }
    }

    #[test]
    fn what_cannot_be_shown_is_said() {
        let long = format!("interface: {{display_name: {}}}", "x".repeat(65));
        let [first, second] = DISPLAY_FILES;
        for (file, text, part) in [
            (first, "interface: [a]", "`interface` holds no keys"),
            (first, "interface: {display_name: 3}", "`interface.display_name` is no text"),
            (first, "interface: {display_name: ' '}", "`interface.display_name` is empty"),
            (first, &long, "more than 64 characters"),
            (first, "interface: {", "line 1"),
            (second, "interface = 3", "`interface` holds no keys"),
            (second, "[interface]\ndisplay_name = 3", "`interface.display_name` is no text"),
            (second, "[interface", "unclosed"),
        ] {
            let refused = parse_skill_display(file, text).expect_err(text).to_string();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
