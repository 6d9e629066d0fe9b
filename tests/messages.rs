//! `docs/reference/messages.md`, an index of what is said when something is wrong, is made from the sources.

use std::{collections::BTreeMap, fmt::Write as _, fs};

use super::{
    errors::{code, shown, texts, words},
    root,
};

/// What stands before a text that says what is wrong: how errors are made, and the names that such texts are given.
const MARKERS: &[&str] = &[
    "#[error(",
    "Err(",
    "Fault::",
    "Failure::",
    "Finding::fault(",
    "Finding::warning(",
    "Finding::remark(",
    "ToolError::",
    "Out::",
    ".error(",
    ".file_error(",
    ".warning(",
    "error!(",
    "warn!(",
    "map_err(",
    "ok_or(",
    "ok_or_else(",
    "let fault =",
    "let message =",
    "let reason =",
    "let why =",
];

/// The parts of the index, by the beginning of a path; those of extensions have their names.
const PARTS: &[(&str, &str)] = &[
    ("config/", "Configuration, manifests and skills"),
    ("extension-api/", "Any extension"),
    ("kernel/", "The kernel"),
    ("supervisor/backup/", "Backups"),
    ("supervisor/", "The supervisor and the verbs"),
];

const HEAD: &str = "\
# Index of messages

What the programs and the extensions that ship say when something is wrong, and what they say to do about it, in the words of the sources. `…` stands
for a name, a number or a reason of the moment. What codes, states and the commonest messages mean is in [errors.md](errors.md).

This page is made from the sources: `just bless` makes it anew.
";

/// How far behind a message its help may stand, in bytes.
const HELP_WITHIN: usize = 500;

/// Two words name a thing, such as what was expected, and say nothing of it.
fn is_message(_before: &str, text: &str) -> bool {
    words(text) > 2
}

fn part(path: &str) -> String {
    if let Some((_, part)) = PARTS.iter().find(|(begin, _)| path.starts_with(begin)) {
        return (*part).to_owned();
    }
    let name = path.strip_prefix("extensions/").and_then(|path| path.split('/').next()).unwrap_or(path);
    format!("The extension `{name}`")
}

/// The help that is given with the message that ends at `end`, before another one begins or a block ends.
fn help(code: &str, end: usize, next: Option<usize>) -> Option<String> {
    let last = code.floor_char_boundary((end + HELP_WITHIN).min(code.len()));
    let behind = &code[end..next.map_or(last, |next| next.min(last))];
    let behind = behind.split("\n}").next().unwrap_or(behind);
    texts(behind, &[".help(", ".fix("], is_message).into_values().next().map(shown)
}

fn index() -> String {
    let mut parts: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (path, code) in code().iter().filter(|(path, _)| !path.ends_with("build.rs")) {
        let messages = texts(code, MARKERS, is_message);
        for (end, text) in &messages {
            let next = messages.range(end + 1..).next().map(|(next, text)| next - text.len());
            let row = parts.entry(part(path)).or_default().entry(shown(text).trim().to_owned()).or_default();
            if row.is_empty() {
                *row = help(code, *end, next).unwrap_or_default();
            }
        }
    }
    let mut page = HEAD.to_owned();
    for (part, messages) in parts {
        let _ = write!(page, "\n## {part}\n\n| message | what to do |\n|---|---|\n");
        for (message, help) in messages {
            let cell = |text: &str| text.replace("\\n", " ").replace('|', "\\|").trim().to_owned();
            let _ = writeln!(page, "| {} | {} |", cell(&message), cell(&help));
        }
    }
    page
}

#[test]
fn the_index_of_messages_is_that_of_the_sources() {
    let (path, made) = (root().join("docs/reference/messages.md"), index());
    if std::env::var_os("DRUPE_BLESS").is_some() {
        fs::write(&path, &made).expect("the index is written");
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let (old, new): (Vec<_>, Vec<_>) = (written.lines().collect(), made.lines().collect());
    let missing: Vec<_> = new.iter().filter(|line| !old.contains(line)).collect();
    assert!(missing.is_empty(), "docs/reference/messages.md lacks, and `just bless` adds: {missing:#?}");
    assert_eq!(
        written, made,
        "docs/reference/messages.md has what no source says; `just bless` makes it anew"
    );
}
