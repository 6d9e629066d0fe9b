//! Files that a configuration names: instructions and context, looked up beneath known folders only.
//!
//! A path is judged after all its links are resolved. The content is left to whoever uses it, so that an edited
//! prompt is seen; only its kind and size are looked at here.

use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::{
    Diagnostics,
    fields::Field,
    source::{self, Links},
};

/// An agent's system prompt. For people it is its text, or the path of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instructions {
    Inline(String),
    /// The text of a template, which somebody has read from its file.
    Template(String),
    /// A file, which existed and could be read when the manifest was loaded.
    File {
        /// Absolute, with links resolved, beneath the extension's folder or the home.
        path: PathBuf,
        /// Whether it is a minijinja template (`.jinja2`, `.j2`).
        template: bool,
    },
}

impl Serialize for Instructions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(text) | Self::Template(text) => serializer.serialize_str(text),
            Self::File { path, .. } => serializer.collect_str(&path.display()),
        }
    }
}

/// A path for people: what is no text in it is replaced.
pub(crate) fn shown_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

/// The same for several.
pub(crate) fn shown_paths<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path.to_string_lossy()))
}

/// The folders in which a path is looked up, in order.
pub(crate) struct Roots<'a> {
    pub folders: [&'a Path; 2],
}

/// Instructions: a path by its ending, else the text itself.
pub(crate) fn instructions(
    field: &Field<'_>,
    roots: &Roots<'_>,
    faults: &mut Diagnostics,
) -> Option<Instructions> {
    let text = field.node.text()?;
    if !names_a_file(text, roots) {
        refuse_what_seems_a_path(field, text, faults);
        return Some(Instructions::Inline(text.to_owned()));
    }
    let path = resolve(field, text, roots, faults)?;
    let template = text.ends_with(".jinja2") || text.ends_with(".j2");
    Some(Instructions::File { path, template })
}

/// Whether a text is a path: it has the ending of a prompt file, and no white space unless such a file exists.
/// "Summarise README.md" is an instruction, `my prompt.md` may be a file.
pub(crate) fn names_a_file(text: &str, roots: &Roots<'_>) -> bool {
    ends_like_a_file(text)
        && (!text.contains(char::is_whitespace) || roots.folders.iter().any(|root| root.join(text).is_file()))
}

/// A mistyped path would become the prompt, word for word, and nobody would notice.
pub(crate) fn refuse_what_seems_a_path(field: &Field<'_>, text: &str, faults: &mut Diagnostics) {
    if !seems_a_path(text) {
        return;
    }
    let message = format!(
        "`{text}` seems to be a path, and no file that could be a prompt: it would be the prompt itself"
    );
    faults.error("not_a_prompt", &field.node.at, &field.path, message).help(
        "write the prompt as a block of text, or correct the path: a file ending in .jinja2, .j2, .md or .txt in the \
         extension's folder or the home",
    );
}

/// One line without white space, with what paths have and single words have not.
fn seems_a_path(text: &str) -> bool {
    const ENDINGS: [&str; 12] = [
        ".markdown",
        ".mdx",
        ".rst",
        ".html",
        ".jinja",
        ".tmpl",
        ".prompt",
        ".yaml",
        ".yml",
        ".json",
        ".toml",
        ".env",
    ];
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    !text.contains(char::is_whitespace)
        && (text.contains(['/', '\\'])
            || text.starts_with('~')
            || ["..", "."].contains(&text)
            || ["%2f", "%5c"].iter().any(|slash| lower.contains(slash))
            || ["file:", "http:", "https:"].iter().any(|scheme| lower.starts_with(scheme))
            || ENDINGS.iter().any(|ending| lower.ends_with(ending)))
}

/// Whether a text has the ending of a prompt file, and could be a path.
pub(crate) fn ends_like_a_file(text: &str) -> bool {
    const ENDINGS: [&str; 4] = [".jinja2", ".j2", ".md", ".txt"];
    !text.contains('\n') && text.len() <= 255 && ENDINGS.iter().any(|ending| text.ends_with(ending))
}

/// The file of that path in the first folder that has it.
pub(crate) fn resolve(
    field: &Field<'_>,
    text: &str,
    roots: &Roots<'_>,
    faults: &mut Diagnostics,
) -> Option<PathBuf> {
    let at = &field.node.at;
    let folders: Vec<PathBuf> = roots.folders.iter().filter_map(|root| root.canonicalize().ok()).collect();
    let beneath = |path: &Path| folders.iter().any(|root| path.starts_with(root));
    let candidates: Vec<PathBuf> = folders.iter().map(|root| lexical(&root.join(text))).collect();
    let inside: Vec<&PathBuf> = candidates.iter().filter(|path| beneath(path)).collect();
    if inside.is_empty() {
        let message = format!("`{text}` leads out of the extension's folder and of the home");
        faults
            .error("path_escapes", at, &field.path, message)
            .help("put the file into the extension's folder");
        return None;
    }
    let Some(found) = inside.iter().find_map(|path| path.canonicalize().ok()) else {
        let mut places: Vec<_> = inside.iter().map(|path| format!("`{}`", path.display())).collect();
        places.dedup();
        let message = format!("no file `{text}`: looked for {}", places.join(" and "));
        faults.error("file_not_found", at, &field.path, message).help("create it, or correct the path");
        return None;
    };
    if !beneath(&found) {
        let message = format!("`{text}` is a link that leads out of the extension's folder and of the home");
        faults
            .error("path_escapes", at, &field.path, message)
            .help("copy the file into the extension's folder");
        return None;
    }
    if let Some(private) = private(&found, &folders) {
        let message = format!("`{text}` is `{private}` of the home, which no agent may be shown");
        faults
            .error("path_private", at, &field.path, message)
            .help("copy what the agent needs into its folder");
        return None;
    }
    let mut reasons = Diagnostics::default();
    source::read_text(&found, Links::Refused, &mut reasons);
    if let Some(reason) = reasons.iter().next() {
        faults.error(reason.code, at, &field.path, reason.message.clone()).help_if(reason.help.clone());
        return None;
    }
    Some(found)
}

/// The part of the home that a path leads into and that is nobody's to read into a prompt: keys, tokens, the journal,
/// other extensions' data. What lies in the extension's own folder, the first of `folders`, is its own.
fn private(path: &Path, folders: &[PathBuf]) -> Option<String> {
    const PRIVATE: [&str; 5] = [".env", "run", "state", "data", "drupe.yaml"];
    let (own, home) = (folders.first()?, folders.last()?);
    if path.starts_with(own) && own != home {
        return None;
    }
    let first = path.strip_prefix(home).ok()?.components().next()?.as_os_str().to_str()?.to_owned();
    (PRIVATE.contains(&first.as_str()) || first.starts_with("journal.db")).then_some(first)
}

/// A path without `.` and `..`, by its text alone.
pub(crate) fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}
