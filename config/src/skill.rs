//! `SKILL.md`: the head of a skill in the open Agent Skills format, and the text below it.
//!
//! The format: <https://github.com/agentskills/agentskills/blob/main/docs/specification.mdx>, read on 2026-11-27.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use crate::{
    Diagnostics, Loaded,
    declare::keys,
    forms,
    frontmatter::Parts,
    parse,
    read::Reading,
    shape::{Shape, each_its_own},
    source::{self, Source, SourceOrigin},
    tree::{self, Yaml},
};

/// The file that makes a folder a skill.
pub const SKILL_FILE: &str = "SKILL.md";

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
