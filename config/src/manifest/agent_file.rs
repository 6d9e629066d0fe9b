//! An agent in a single file: `extensions/<id>.md`, a prompt with YAML frontmatter.
//!
//! It becomes the same [`Manifest`] as a folder does. It names no other file: what lies beside it belongs to other
//! agents, so whoever needs files makes a folder.

use std::{path::Path, sync::Arc};

use drupe_extension_api::ExtensionId;

use super::{
    AGENT, MANIFEST, Manifest,
    dialect::{self, Strange},
    read::{Form, Reader, too_new},
};
use crate::{
    Diagnostics, Loaded,
    frontmatter::Parts,
    parse,
    read::Reading,
    source::{self, At, Links, Source, SourceOrigin},
    tree::{self, Entry, Node, Yaml},
};

/// Reads an agent that is a single file: frontmatter between two lines `---`, then the prompt.
///
/// The frontmatter has the keys of a manifest, with those of `agent` beside them. Keys and tools of other systems are taken as
/// `docs/reference/import.md` has it. `id` and `name` come from the file's name where they are absent, the model from
/// `agents.defaults`. The manifest's `folder` is the file itself, so that nothing lies beneath it. `entrypoint` and
/// `isolation` are refused, as are `instructions` and `context` that name files.
///
/// # Errors
/// All faults at once, each with its line and column in the file.
pub fn load_agent_file(path: &Path, home: &Path) -> Result<Loaded<Manifest>, Diagnostics> {
    let mut faults = Diagnostics::default();
    let manifest = read_file(path, home, &mut faults);
    let faults = faults.sorted();
    match manifest {
        Some(value) if !faults.has_errors() => Ok(Loaded { value, warnings: faults }),
        _ => Err(faults),
    }
}

fn read_file(path: &Path, home: &Path, faults: &mut Diagnostics) -> Option<Manifest> {
    // Faults quote lines, and what is no agent may hold keys.
    if path.extension().is_none_or(|ending| ending != "md") {
        let message = format!("`{}` is no agent: the file of one ends in `.md`", path.display());
        faults
            .file_error("not_an_agent", path, 0, message)
            .help("name the folder that holds `manifest.yaml`, or the `.md` file of an agent");
        return None;
    }
    let text = source::read_text(path, Links::Refused, faults)?;
    let source = Source::new(SourceOrigin::File(path.to_owned()), text);
    let (mut top, agent) = parsed(&source, Strange::Refused, faults)?;
    let id = id_of(path, &source, faults)?;
    for key in ["id", "name"] {
        add(&mut top, key, id.as_str(), &At::start_of(&source));
    }
    let mut reading = Reading { faults, variables: None };
    let mut manifest: Manifest = reading.typed(&MANIFEST, &top, "")?;
    manifest.agent = reading.typed(&AGENT, &agent, "");
    let path = source::canonical(path, faults)?;
    Some(Reader::new(faults, path, home, &top, Form::File { agent: &agent }).manifest(manifest))
}

/// The keys of the manifest, and those of its `agent` with the prompt.
pub(super) fn parsed(
    source: &Arc<Source>,
    strange: Strange,
    faults: &mut Diagnostics,
) -> Option<(Node, Node)> {
    // Names of secrets, never their values, as in a manifest.
    source.reveal_except(Vec::new());
    let parts = Parts::of(source, faults)?;
    let mut root = parse::beginning(source, parts.frontmatter_end, faults)?;
    if root.is_null() {
        root.value = Yaml::Map(Vec::new());
    }
    if too_new(&root, faults) {
        return None;
    }
    if !matches!(root.value, Yaml::Map(_)) {
        let message = format!("the frontmatter is {}, expected a map of keys", root.describe());
        faults.error("wrong_type", &root.at, "", message).help("write `description: …`, a key a line");
        return None;
    }
    tree::refuse_duplicates(&mut root, "", faults);
    let (mut top, mut agent) = dialect::adopt(root, strange, faults);
    // Two spellings of one key.
    tree::refuse_duplicates(&mut top, "", faults);
    tree::refuse_duplicates(&mut agent, "", faults);
    add_prompt(&mut agent, &parts, faults);
    Some((top, agent))
}

/// The file's name is the id, as a folder's is.
fn id_of(path: &Path, source: &Arc<Source>, faults: &mut Diagnostics) -> Option<ExtensionId> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let id = ExtensionId::new(&*stem).ok();
    if id.is_none() {
        let message =
            format!("the file's name without its ending is `{}`, which is no id", tree::shorten(&stem));
        faults.error("invalid_id", &At::start_of(source), "id", message).help(
            "rename the file: a lower-case letter or digit, then up to 47 of a-z, 0-9, `_` and `-`, then `.md`",
        );
    }
    id
}

pub(super) fn add(map: &mut Node, key: &str, text: &str, at: &At) {
    let Yaml::Map(entries) = &mut map.value else { return };
    if !entries.iter().any(|entry| entry.key == key) {
        let value = Node { value: Yaml::Text(text.to_owned()), at: at.clone() };
        entries.push(Entry { key: key.to_owned(), key_at: at.clone(), value });
    }
}

/// The text after the frontmatter is the prompt, unless there is none and a key holds it.
fn add_prompt(agent: &mut Node, parts: &Parts, faults: &mut Diagnostics) {
    let written = agent.entries().iter().find(|entry| entry.key == "instructions");
    match (written, parts.text.is_empty()) {
        (None, false) => add(agent, "instructions", &parts.text, &parts.text_at),
        (None, true) => faults
            .error("empty_prompt", &parts.text_at, "instructions", "no prompt follows the frontmatter")
            .help("write below the second `---` what the agent is and does"),
        (Some(_), true) => {}
        (Some(entry), false) => {
            let message = "the prompt stands here and below the frontmatter";
            faults.error("two_prompts", &entry.key_at, "instructions", message).help("keep one of them");
        }
    }
}
